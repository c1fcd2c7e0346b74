package embed_test

import (
	"slices"
	"testing"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// TestRank orders by cosine similarity, for few documents and many.
func TestRank(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
	query := "what is asked"
	for _, n := range []int{1, 2, 3, 7, 100} {
		docs := numbered(n)
		docs[n/2] = query
		given := slices.Clone(docs)
		for _, topK := range []int{1, n, n + 5} {
			matches, err := client.Rank(t.Context(), query, docs, topK)
			require.NoError(t, err)
			require.Len(t, matches, min(n, topK))
			require.Equal(t, n/2, matches[0].Index)
			require.InDelta(t, 1, matches[0].Score, 1e-9)
			var want []embed.Match
			for i, doc := range docs {
				want = append(want, embed.Match{Index: i, Score: embed.Cosine(embedtest.Vector(query, 64), embedtest.Vector(doc, 64))})
			}
			slices.SortFunc(want, func(a, b embed.Match) int {
				if a.Score > b.Score {
					return -1
				}
				return 1
			})
			require.Equal(t, want[:len(matches)], matches)
		}
		require.Equal(t, given, docs)
	}
}

// TestRankKeepsTheCallersArray: docs with room behind them are not written to.
func TestRankKeepsTheCallersArray(t *testing.T) {
	client := newClient(t, embedtest.NewProvider(nil), nil)
	docs := append(numbered(3), "mine")
	_, err := client.Rank(t.Context(), "query", docs[:3], 1)
	require.NoError(t, err)
	require.Equal(t, "mine", docs[3])
}

// TestRankOfSomeDocs: docs without a vector are left out, beside their reasons.
func TestRankOfSomeDocs(t *testing.T) {
	client := newClient(t, embedtest.NewProvider(nil), nil)
	matches, err := client.Rank(t.Context(), "b", []string{"a", " ", "b", ""}, 10)
	require.ErrorIs(t, err, embed.ErrBlankText)
	require.Len(t, failures(t, err), 2)
	require.Equal(t, 2, matches[0].Index)
	require.Equal(t, 0, matches[1].Index)

	matches, err = client.Rank(t.Context(), " ", []string{"a"}, 1)
	require.ErrorIs(t, err, embed.ErrBlankText)
	require.Nil(t, matches)
	require.Contains(t, failures(t, err), 1)
}

func TestRankArguments(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, nil)
	_, err := client.Rank(t.Context(), "query", nil, 0)
	require.ErrorContains(t, err, "docs is empty")
	require.ErrorContains(t, err, "topK is 0")
	_, err = client.Rank(t.Context(), "query", []string{"a"}, -1)
	require.ErrorContains(t, err, "topK is -1")
	require.Zero(t, provider.Requests())
}

// TestNearest ranks the texts of a response against any vector, a zero one too.
func TestNearest(t *testing.T) {
	client := newClient(t, embedtest.NewProvider(nil), nil)
	texts := numbered(5)
	response, err := client.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, 3, response.Nearest(embedtest.Vector(texts[3], 64), 1)[0].Index)
	require.Empty(t, response.Nearest(make([]float32, 64), 0))
	for i, match := range response.Nearest(make([]float32, 64), 9) {
		require.Equal(t, embed.Match{Index: i}, match, "a zero vector scores 0, in the order of the texts")
	}
	require.PanicsWithValue(t, "embed: Cosine: vectors of 3 and of 64 dimensions", func() { response.Nearest(make([]float32, 3), 1) })
}
