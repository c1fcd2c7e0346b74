package embed_test

import (
	"context"
	"math"
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
// with longer vectors, and the cache has the old ones. What the provider sends is
// paid for, so it is kept; three answers that agree make the old vectors count no
// longer; and no response has both.
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
