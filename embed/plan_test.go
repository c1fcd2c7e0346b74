package embed_test

import (
	"runtime"
	"testing"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// TestPlanIsWhatHappens: for random texts, limits and policies, Embed does and
// costs what Plan said, and Plan itself costs and changes nothing.
func TestPlanIsWhatHappens(t *testing.T) {
	r := random(t)
	for range 200 {
		limits := embed.Limits{Items: r.IntN(8), Tokens: r.IntN(80), TextTokens: 10 * r.IntN(4)}
		prefix := []string{"", "doc: "}[r.IntN(2)]
		provider := embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) {
			s.Limits, s.Prefix, s.DollarsPerMillion = limits, prefix, 20
		}})
		cache := newTestCache()
		client := newClient(t, provider, &embed.Options{Cache: cache, LongTexts: embed.LongTexts(r.IntN(3))})
		for range 4 {
			texts := make([]string, 1+r.IntN(30))
			for i := range texts {
				texts[i] = []string{" ", "bad \xff", ofTokens("x", 1+r.IntN(40)), ofTokens("y", 1+r.IntN(12)), "\t" + ofTokens("z", 9)}[r.IntN(5)]
			}
			before, requests, usage := cache.snapshot(), provider.Requests(), client.Usage()
			plan, err := client.Plan(t.Context(), texts)
			require.NoError(t, err)
			require.Equal(t, before, cache.snapshot())
			require.Equal(t, requests, provider.Requests())
			require.Equal(t, usage, client.Usage())

			response, _ := client.Embed(t.Context(), texts)
			require.Equal(t, embed.Plan{
				Texts: len(texts), Hits: response.Usage.Hits, Misses: response.Usage.Misses,
				Deduplicated: response.Usage.Deduplicated, Refused: response.Usage.Refused, Truncated: response.Usage.Truncated,
				Requests: response.Usage.Requests, Tokens: response.Usage.BilledTokens, Exact: true,
				Dollars: float64(response.Usage.BilledTokens) * 20 / 1e6,
			}, *plan, "%+v", limits)
		}
	}
}

// TestPlanEnds: a closed client plans nothing, nor does a context that has ended.
func TestPlanEnds(t *testing.T) {
	client := newClient(t, embedtest.NewProvider(nil), nil)
	_, err := client.Plan(ended(t), numbered(1))
	require.ErrorIs(t, err, errGone)
	require.NoError(t, client.Close())
	_, err = client.Plan(t.Context(), numbered(1))
	require.ErrorIs(t, err, embed.ErrClosed)
}

// TestPlanNeedsNoMatrix: planning for many texts takes no memory for their
// vectors, and says so of an estimate.
func TestPlanNeedsNoMatrix(t *testing.T) {
	const dimensions = 3072
	provider := embedtest.NewProvider(&embedtest.Options{Dimensions: dimensions, EditSpec: func(s *embed.Spec) { s.Tokenizer = nil }})
	cache := newTestCache()
	cache.info.SplitKeys, cache.info.Readers = 100, 2
	client := newClient(t, provider, &embed.Options{Cache: cache})
	texts := numbered(4000)
	_, err := client.Embed(t.Context(), texts[:10])
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	plan, err := client.Plan(t.Context(), texts)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Equal(t, 10, plan.Hits)
	require.Equal(t, 3990, plan.Misses)
	require.False(t, plan.Exact)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4000*dimensions*4/4))
}
