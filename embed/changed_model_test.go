package embed_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// unnamed is a provider whose dimensions nobody knows before it answers.
func unnamed(dimensions int, faults ...embedtest.Fault) *embedtest.Provider {
	return embedtest.NewProvider(&embedtest.Options{
		Dimensions: dimensions, Faults: faults,
		EditSpec: func(s *embed.Spec) { s.ModelDimensions = 0 },
	})
}

// TestModelReplacedBehindItsName: the model behind an address is another one now,
// with longer vectors, and the cache has the old ones. Three answers that agree make
// the old vectors count no longer, and are stored together then, since they are paid
// for; and no response has both.
func TestModelReplacedBehindItsName(t *testing.T) {
	cache := newTestCache()
	old := newClient(t, unnamed(4), &embed.Options{Cache: cache})
	_, err := old.Embed(t.Context(), []string{"a", "b"})
	require.NoError(t, err)

	provider := unnamed(8)
	client := newClient(t, provider, &embed.Options{Cache: cache})
	for _, text := range []string{"c", "d"} {
		response, err := client.Embed(t.Context(), []string{"a", "b", text})
		require.ErrorIs(t, failures(t, err)[2], embed.ErrModelChanged)
		require.Equal(t, 2, response.Usage.Hits)
		require.Equal(t, 4, response.Dimensions())
	}
	_, err = client.Embed(t.Context(), []string{"a", "e"})
	require.ErrorIs(t, failures(t, err)[1], embed.ErrModelChanged, "its hit is of the old model")

	all := []string{"a", "b", "c", "d", "e"}
	response, err := client.Embed(t.Context(), all)
	requireVectors(t, all, response, err)
	require.Equal(t, 8, response.Dimensions())
	require.Equal(t, 3, response.Usage.Hits, "what was paid for was kept")
	require.Equal(t, map[string]int{"dimensions": 2}, response.Usage.Foreign)
	require.Equal(t, 4, provider.Requests())

	response, err = client.Embed(t.Context(), all)
	requireVectors(t, all, response, err)
	require.Equal(t, 5, response.Usage.Hits)
	require.Equal(t, 4, provider.Requests())
}

// TestOneOddAnswer, of a gateway that fell back to another model, does not outweigh
// a cache that has served hits.
func TestOneOddAnswer(t *testing.T) {
	cache := newTestCache()
	old := newClient(t, unnamed(8), &embed.Options{Cache: cache})
	_, err := old.Embed(t.Context(), numbered(20))
	require.NoError(t, err)

	client := newClient(t, unnamed(8, embedtest.Fault{Dimensions: 16}), &embed.Options{Cache: cache})
	_, err = client.Embed(t.Context(), append(numbered(20), "odd"))
	require.ErrorIs(t, err, embed.ErrModelChanged)
	texts := append(numbered(20), "odd", "next")
	response, err := client.Embed(t.Context(), texts)
	requireVectors(t, texts, response, err)
	require.Equal(t, 20, response.Usage.Hits)
}

// TestDisputedAnswersAreNotStored: vectors of a fallback must not take the place of
// good ones, nor wait in the cache for a Client that knows no length yet.
func TestDisputedAnswersAreNotStored(t *testing.T) {
	texts := numbered(20)
	for name, test := range map[string]struct {
		learns bool // the length, from a hit, before the odd answers
		call   embed.Call
		odd    []int // the dimensions of the answers that are not 8
	}{
		"misses":                     {true, embed.Call{Texts: append(numbered(20), "odd")}, []int{16}},
		"two in a row":               {true, embed.Call{Texts: append(numbered(20), "odd")}, []int{16, 16}},
		"of other lengths each":      {true, embed.Call{Texts: append(numbered(20), "odd")}, []int{16, 4, 16, 4}},
		"refresh":                    {true, embed.Call{Texts: texts, Refresh: true}, []int{16, 16}},
		"refresh, nothing looked up": {false, embed.Call{Texts: texts, Refresh: true}, []int{16, 16}},
	} {
		t.Run(name, func(t *testing.T) {
			cache := newTestCache()
			_, err := newClient(t, unnamed(8), &embed.Options{Cache: cache}).Embed(t.Context(), texts)
			require.NoError(t, err)
			before := cache.snapshot()

			provider := unnamed(8)
			client := newClient(t, provider, &embed.Options{Cache: cache})
			if test.learns {
				_, err = client.Embed(t.Context(), texts)
				require.NoError(t, err)
			}
			for _, dimensions := range test.odd {
				provider.AddFaults(embedtest.Fault{Dimensions: dimensions})
				_, err = client.Do(t.Context(), &test.call)
				require.ErrorIs(t, err, embed.ErrModelChanged)
				require.Equal(t, before, cache.snapshot())
			}
			response, err := client.Embed(t.Context(), append(texts, "new"))
			requireVectors(t, append(texts, "new"), response, err)
			require.Equal(t, 20, response.Usage.Hits)
			require.Equal(t, 21, cache.len(), "what was held back is not stored after all")
		})
	}
}

// TestDisputedAnswersAreStoredLater, with the third that agrees, or the next one that
// is stored; but not those of a call that stores nothing, nor what was forgotten.
func TestDisputedAnswersAreStoredLater(t *testing.T) {
	for name, test := range map[string]struct {
		noStore []string
		forget  string
		want    []string
	}{
		"all":                        {nil, "", []string{"b", "c", "d", "e"}},
		"the first isn't stored":     {[]string{"b"}, "", []string{"c", "d", "e"}},
		"the third isn't stored":     {[]string{"d"}, "", []string{"b", "c", "e"}},
		"the first two aren't":       {[]string{"b", "c"}, "", []string{"d", "e"}},
		"the second was forgotten":   {nil, "c", []string{"b", "d", "e"}},
		"a text that nobody has was": {nil, "z", []string{"b", "c", "d", "e"}},
	} {
		t.Run(name, func(t *testing.T) {
			cache := newScanCache()
			_, err := newClient(t, unnamed(4), &embed.Options{Cache: cache}).Embed(t.Context(), []string{"a"})
			require.NoError(t, err)
			client := newClient(t, unnamed(8), &embed.Options{Cache: cache})
			call := func(texts ...string) (*embed.Response, error) {
				last := texts[len(texts)-1]
				return client.Do(t.Context(), &embed.Call{Texts: texts, NoStore: slices.Contains(test.noStore, last)})
			}
			for _, text := range []string{"b", "c"} {
				_, err = call("a", text)
				require.ErrorIs(t, err, embed.ErrModelChanged)
				require.Equal(t, 1, cache.len())
			}
			if test.forget != "" {
				_, err = client.Forget(t.Context(), []string{test.forget})
				require.NoError(t, err)
			}
			for _, text := range []string{"d", "e"} {
				response, err := call(text)
				requireVectors(t, []string{text}, response, err)
			}
			require.Equal(t, 1+len(test.want), cache.len())
			response, err := client.Do(t.Context(), &embed.Call{Texts: test.want, CacheOnly: true})
			requireVectors(t, test.want, response, err)
		})
	}
}

// TestDisputedTwice: of one text that was held back and then stored, the newer vector
// counts.
func TestDisputedTwice(t *testing.T) {
	cache := newTestCache()
	_, err := newClient(t, unnamed(4), &embed.Options{Cache: cache}).Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	client := newClient(t, unnamed(8), &embed.Options{Cache: cache})
	for range 2 {
		_, err = client.Do(t.Context(), &embed.Call{Texts: []string{"a"}, Refresh: true})
		require.ErrorIs(t, err, embed.ErrModelChanged)
	}
	response, err := client.Do(t.Context(), &embed.Call{Texts: []string{"a"}, Refresh: true})
	requireVectors(t, []string{"a"}, response, err)
	require.NoError(t, response.CacheErr)
	require.Equal(t, 1, cache.len())
	response, err = client.Do(t.Context(), &embed.Call{Texts: []string{"a"}, CacheOnly: true})
	requireVectors(t, []string{"a"}, response, err)
}

// Without a hit in the call there is nothing to mix.
func TestModelReplacedWithoutHits(t *testing.T) {
	cache := newTestCache()
	old := newClient(t, unnamed(4), &embed.Options{Cache: cache})
	_, err := old.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	client := newClient(t, unnamed(8), &embed.Options{Cache: cache})
	_, err = client.Embed(t.Context(), []string{"a"}) // learns 4
	require.NoError(t, err)
	for _, text := range []string{"b", "c"} {
		_, err = client.Embed(t.Context(), []string{text})
		require.ErrorIs(t, err, embed.ErrModelChanged)
	}
	texts := []string{"d", "e"}
	response, err := client.Do(t.Context(), &embed.Call{Texts: texts, Into: make([]float32, 100)})
	requireVectors(t, texts, response, err)
	require.Equal(t, 8, response.Dimensions())
}

// An answer is believed once: a second one of other dimensions is unusable.
func TestAnswersOfTwoDimensions(t *testing.T) {
	client := newClient(t, unnamed(8, embedtest.Fault{}, embedtest.Fault{Dimensions: 4}), &embed.Options{Cache: newTestCache()})
	_, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	_, err = client.Embed(t.Context(), []string{"b"})
	require.ErrorIs(t, err, embed.ErrBadAnswer)
}

// TestUnusableAnswersStopTheOthers: each is paid for, so the fourth is not asked
// for.
func TestUnusableAnswersStopTheOthers(t *testing.T) {
	newProvider := func() *embedtest.Provider {
		return embedtest.NewProvider(&embedtest.Options{
			Limits:    embed.Limits{Items: 1},
			FaultFunc: func(int, embedtest.Request) embedtest.Fault { return embedtest.Fault{Dimensions: 3} },
		})
	}
	provider := newProvider()
	client := newClient(t, provider, &embed.Options{ConcurrentRequests: 1})
	_, err := client.Embed(t.Context(), numbered(20))
	require.ErrorIs(t, err, embed.ErrSiblingFailed)
	require.ErrorIs(t, err, embed.ErrBadAnswer)
	require.Equal(t, 3, provider.Requests())

	provider = newProvider()
	client = newClient(t, provider, &embed.Options{ConcurrentRequests: 1})
	var last error
	for _, err := range client.Stream(t.Context(), pairs(numbered(2000)), nil).All() {
		last = err
	}
	require.ErrorIs(t, last, embed.ErrBadAnswer)
	require.Equal(t, 3, provider.Requests())
}

// TestUnusableForOtherReasons: what is paid for and of no use ends a call, whatever
// makes it so, also where every second answer is usable.
func TestUnusableForOtherReasons(t *testing.T) {
	every := func(f embedtest.Fault) func(int, embedtest.Request) embedtest.Fault {
		return func(int, embedtest.Request) embedtest.Fault { return f }
	}
	inTurn := func(faults ...embedtest.Fault) func(int, embedtest.Request) embedtest.Fault {
		return func(n int, _ embedtest.Request) embedtest.Fault { return faults[n%len(faults)] }
	}
	for name, test := range map[string]struct {
		faults   func(int, embedtest.Request) embedtest.Fault
		strict   bool
		known    bool // the length, from a record
		reason   error
		requests int
	}{
		"zero":              {every(embedtest.Fault{Vector: embedtest.VectorZero}), false, false, embed.ErrBadAnswer, 3},
		"not finite":        {every(embedtest.Fault{Vector: embedtest.VectorNaN}), false, false, embed.ErrBadAnswer, 3},
		"names that change": {inTurn(embedtest.Fault{Model: "one"}, embedtest.Fault{Model: "two"}), true, false, embed.ErrModelChanged, 10},
		"another name for good": {func(n int, _ embedtest.Request) embedtest.Fault {
			return embedtest.Fault{Model: []string{"one", "two"}[min(n-1, 1)]}
		}, true, false, embed.ErrModelChanged, 4},
		"lengths that change": {inTurn(embedtest.Fault{Dimensions: 5}, embedtest.Fault{Dimensions: 6}), false, true, embed.ErrModelChanged, 3},
	} {
		t.Run(name, func(t *testing.T) {
			newProvider := func() *embedtest.Provider {
				return embedtest.NewProvider(&embedtest.Options{
					Dimensions: 8,
					Limits:     embed.Limits{Items: 1},
					EditSpec:   func(s *embed.Spec) { s.ModelDimensions = 0 },
					FaultFunc:  test.faults,
				})
			}
			cache := newTestCache()
			texts := numbered(100)
			if test.known {
				_, err := newClient(t, unnamed(8), &embed.Options{Cache: cache}).Embed(t.Context(), texts[:1])
				require.NoError(t, err)
			}
			provider := newProvider()
			client := newClient(t, provider, &embed.Options{Cache: cache, Strict: test.strict, ConcurrentRequests: 1})
			_, err := client.Embed(t.Context(), texts)
			require.ErrorIs(t, err, embed.ErrSiblingFailed)
			require.ErrorIs(t, err, test.reason)
			require.Equal(t, test.requests, provider.Requests())
		})
	}
}

// One text that the model can't embed is no reason to stop.
func TestSomeUnusableAnswersStopNothing(t *testing.T) {
	provider := embedtest.NewProvider(&embedtest.Options{
		Limits: embed.Limits{Items: 1},
		FaultFunc: func(n int, _ embedtest.Request) embedtest.Fault {
			if n%5 == 0 {
				return embedtest.Fault{Vector: embedtest.VectorZero}
			}
			return embedtest.Fault{}
		},
	})
	client := newClient(t, provider, &embed.Options{ConcurrentRequests: 1})
	_, err := client.Embed(t.Context(), numbered(100))
	require.Len(t, failures(t, err), 20)
}

// editor is a provider that puts something before the texts in place.
type editor struct{ embed.Provider }

func (e editor) Embed(ctx context.Context, texts []string) (*embed.Answer, error) {
	for i := range texts {
		texts[i] = "query: " + texts[i]
	}
	return e.Provider.Embed(ctx, texts)
}

// TestProviderEditsItsTexts: what it does to them must not add up over retries.
func TestProviderEditsItsTexts(t *testing.T) {
	fake := embedtest.NewProvider(&embedtest.Options{Faults: []embedtest.Fault{embedtest.ServerError()}})
	client := newClient(t, editor{fake}, nil)
	response, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.True(t, embedtest.IsVectorOf("query: a", response.Vector(0)))
}

// liar bills more than there is.
type liar struct{ embed.Provider }

func (l liar) Embed(ctx context.Context, texts []string) (*embed.Answer, error) {
	answer, err := l.Provider.Embed(ctx, texts)
	answer.Tokens = math.MaxInt
	return answer, err
}

func TestAbsurdBillDoesNotLiftTheBudget(t *testing.T) {
	client := newClient(t, liar{embedtest.NewProvider(nil)}, &embed.Options{MaxBilledTokens: 1000})
	for range 3 {
		_, err := client.Embed(t.Context(), []string{"a"})
		if err != nil {
			require.ErrorIs(t, err, embed.ErrBudget)
		}
	}
	require.Positive(t, client.Usage().BilledTokens)
	_, err := client.Embed(t.Context(), []string{"b"})
	require.ErrorIs(t, err, embed.ErrBudget)
}
