package embed_test

import (
	"slices"
	"testing"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// TestRepeats: a repeat costs one slot, counts for itself, and has a vector of its
// own, whether it was paid for or found.
func TestRepeats(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
	texts := []string{"a b", "c d", "a b", "a b", "c d", "e f"}
	for round := range 2 {
		response, err := client.Embed(t.Context(), texts)
		requireVectors(t, texts, response, err)
		requireSum(t, response.Usage)
		if round == 0 {
			require.Equal(t, 3, response.Usage.Misses)
			require.Equal(t, 3, response.Usage.Deduplicated)
			require.Equal(t, int64(6), response.Usage.BilledTokens)
		} else {
			require.Equal(t, 6, response.Usage.Hits)
			require.Zero(t, response.Usage.BilledTokens)
		}
		require.Equal(t, int64(12), response.Usage.LogicalTokens)
		require.Equal(t, []string{"a b", "c d", "e f"}, provider.History()[0].Texts)

		// Writing into one vector, and beyond its end, changes no other.
		for i := range texts {
			before := slices.Clone(response.Matrix())
			vector := response.Vector(i)
			_ = append(vector, 1)
			for at := range vector {
				vector[at] = -7
			}
			for at, number := range response.Matrix() {
				if at/64 == i {
					require.Equal(t, float32(-7), number)
				} else {
					require.Equal(t, before[at], number)
				}
			}
		}
	}
	response, err := client.Embed(t.Context(), texts)
	requireVectors(t, texts, response, err)
	require.Equal(t, 1, provider.Requests())
}

// TestVectorsAreNotTheCaches: writing into a vector changes
// neither what is cached nor what comes next.
func TestVectorsAreNotTheCaches(t *testing.T) {
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: newTestCache()})
	for range 3 {
		response, err := client.Embed(t.Context(), []string{"a", "b"})
		requireVectors(t, []string{"a", "b"}, response, err)
		clear(response.Matrix())
	}
}

// TestBlankTexts fail their own index only, each for itself, and are not sent.
func TestBlankTexts(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
	texts := []string{"", "a", " \t\r\n", "", "\u00a0\u2003\u3000", "b", "\u200b"}
	response, err := client.Embed(t.Context(), texts)
	require.ErrorIs(t, err, embed.ErrBlankText)
	failed := failures(t, err)
	require.Len(t, failed, 4)
	for _, i := range []int{0, 2, 3, 4} {
		require.ErrorIs(t, failed[i], embed.ErrBlankText)
	}
	requireVectors(t, texts, response, err)
	require.Equal(t, 4, response.Usage.Refused)
	require.Equal(t, []string{"a", "b", "\u200b"}, provider.History()[0].Texts)
	requireSum(t, response.Usage)

	response, err = client.Embed(t.Context(), []string{" ", ""})
	require.Len(t, failures(t, err), 2)
	require.Equal(t, 2, response.Len())
	require.Equal(t, 1, provider.Requests())
	require.Equal(t, make([]float32, len(response.Matrix())), response.Matrix())
}

// TestArguments: wrong ones are errors that name them.
func TestArguments(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, nil)
	for _, texts := range [][]string{nil, {}} {
		_, err := client.Embed(t.Context(), texts)
		require.ErrorContains(t, err, "Texts is empty")
		_, err = client.Plan(t.Context(), texts)
		require.ErrorContains(t, err, "texts is empty")
	}
	_, err := client.Do(t.Context(), nil)
	require.ErrorContains(t, err, "nil")
	_, err = client.Do(t.Context(), &embed.Call{Texts: []string{"a"}, CacheOnly: true, Refresh: true})
	require.ErrorContains(t, err, "Call.CacheOnly and Call.Refresh")
	require.Zero(t, provider.Requests())

	response, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.Panics(t, func() { response.Vector(-1) })
	require.Panics(t, func() { response.Vector(1) })
}

// TestUsageProperty: whatever a call meets, each text is counted once, the sums
// of calls and client agree with the provider's bill.
func TestUsageProperty(t *testing.T) {
	r := random(t)
	for range 100 {
		provider := embedtest.NewProvider(&embedtest.Options{
			Limits:   embed.Limits{Items: 1 + r.IntN(5)},
			EditSpec: func(s *embed.Spec) { s.Limits.TextTokens = 12 },
		})
		client := newClient(t, provider, &embed.Options{
			Cache: newTestCache(), MaxRetries: -1, LongTexts: embed.LongTexts(r.IntN(3)),
		})
		var sum embed.Usage
		for range 8 {
			var faults []embedtest.Fault
			for range r.IntN(4) {
				faults = append(faults, []embedtest.Fault{{}, {Status: 400}, {Status: 500, Billed: true}, {Count: 1}, {Vector: embedtest.VectorNaN}, embedtest.Unauthorized(), {Usage: embedtest.UsageNone}}[r.IntN(7)])
			}
			provider.AddFaults(faults...)
			texts := make([]string, 1+r.IntN(20))
			for i := range texts {
				texts[i] = []string{"", " ", ofTokens("long", 20+r.IntN(3)), ofTokens("short", 1+r.IntN(10))}[r.IntN(4)]
			}
			response, err := client.Do(t.Context(), &embed.Call{
				Texts: texts, Refresh: r.IntN(5) == 0, NoStore: r.IntN(5) == 0,
			})
			require.NotNil(t, response, "%v", err)
			requireSum(t, response.Usage)
			require.Equal(t, len(texts), response.Usage.Texts)
			require.LessOrEqual(t, response.Usage.Retries, response.Usage.Requests)
			addUsage(&sum, response.Usage)
		}
		require.Equal(t, sum, client.Usage())
		billed := int64(0)
		for _, request := range provider.History() {
			if request.Status == 200 {
				billed += int64(request.BilledTokens)
			}
		}
		require.Equal(t, billed, sum.BilledTokens)
		require.Equal(t, provider.Requests(), sum.Requests)
	}
}

// addUsage adds v to u. It knows nothing of the one in package embed.
func addUsage(u *embed.Usage, v embed.Usage) {
	u.Texts += v.Texts
	u.Hits += v.Hits
	u.Misses += v.Misses
	u.Deduplicated += v.Deduplicated
	u.Joined += v.Joined
	u.Refused += v.Refused
	u.Truncated += v.Truncated
	for reason, n := range v.Foreign {
		if u.Foreign == nil {
			u.Foreign = map[string]int{}
		}
		u.Foreign[reason] += n
	}
	u.CacheFailures += v.CacheFailures
	u.ModelChanges += v.ModelChanges
	u.Requests += v.Requests
	u.LeastRequests += v.LeastRequests
	u.Retries += v.Retries
	u.BilledTokens += v.BilledTokens
	u.EstimatedTokens += v.EstimatedTokens
	u.LogicalTokens += v.LogicalTokens
}

// TestLogicalTokens: hits and repeats count about what they would have cost, also
// with a client that was billed for nothing yet.
func TestLogicalTokens(t *testing.T) {
	cache := newTestCache()
	var texts []string
	for range 20 {
		texts = append(texts, numbered(100)...)
	}
	for _, rate := range []string{"billed", "unknown", "billed"} {
		client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
		if rate == "billed" {
			_, err := client.Embed(t.Context(), []string{"text number x"})
			require.NoError(t, err)
		}
		response, err := client.Embed(t.Context(), texts)
		require.NoError(t, err)
		require.InEpsilon(t, 6000, response.Usage.LogicalTokens, 0.3)
	}
}

// TestUsageIsACopy: what Usage returned doesn't change.
func TestUsageIsACopy(t *testing.T) {
	cache := newTestCache()
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
	spoil := func() {
		_, err := client.Embed(t.Context(), []string{"a"})
		require.NoError(t, err)
		for key := range cache.entries {
			cache.entries[key] = []byte("foreign")
		}
		_, err = client.Embed(t.Context(), []string{"a"})
		require.NoError(t, err)
	}
	spoil()
	before := client.Usage()
	spoil()
	require.Equal(t, map[string]int{"unreadable": 1}, before.Foreign)
	require.Equal(t, map[string]int{"unreadable": 2}, client.Usage().Foreign)
}
