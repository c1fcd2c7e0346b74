package embed_test

import (
	"math"
	"testing"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// TestRefresh pays again, and the new record replaces the old one.
func TestRefresh(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	cache := newTestCache()
	client := newClient(t, provider, &embed.Options{Cache: cache})
	texts := append(numbered(3), "text number 0")
	_, err := client.Embed(t.Context(), texts)
	require.NoError(t, err)
	// A record that is whole and has another vector: only Refresh mends that.
	for key, value := range cache.entries {
		cache.entries[key] = edit(func(b []byte) { b[len(b)-1] ^= 1 }, true)(value, nil)
	}
	response, err := client.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.False(t, embedtest.IsVectorOf(texts[0], response.Vector(0)))

	reads := cache.gets
	response, err = client.Do(t.Context(), &embed.Call{Texts: texts, Refresh: true})
	requireVectors(t, texts, response, err)
	require.Zero(t, response.Usage.Hits)
	require.Equal(t, 3, response.Usage.Misses)
	require.Equal(t, reads+1, cache.gets, "one look before the write, for records of a later version")
	response, err = client.Embed(t.Context(), texts)
	requireVectors(t, texts, response, err)
	require.Equal(t, 4, response.Usage.Hits)
	require.Equal(t, 2, provider.Requests())
}

// TestNoStore reads, and writes nothing.
func TestNoStore(t *testing.T) {
	cache := newTestCache()
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
	_, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	for range 2 {
		response, err := client.Do(t.Context(), &embed.Call{Texts: []string{"a", "b"}, NoStore: true})
		requireVectors(t, []string{"a", "b"}, response, err)
		require.Equal(t, 1, response.Usage.Hits)
		require.Equal(t, 1, cache.len())
	}
	require.Len(t, cache.writes(), 1)
}

// TestCacheOnly sends nothing: what is missing fails, what is there is served.
func TestCacheOnly(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
	_, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	texts := []string{"b", "a", "b", "", ofTokens("long", 100)}
	response, err := client.Do(t.Context(), &embed.Call{Texts: texts, CacheOnly: true})
	require.ErrorIs(t, err, embed.ErrNotCached)
	require.ErrorIs(t, err, embed.ErrBlankText)
	require.Len(t, failures(t, err), 4)
	requireVectors(t, texts, response, err)
	requireSum(t, response.Usage)
	require.Zero(t, response.Usage.Requests)
	require.Equal(t, 1, provider.Requests())
}

// TestInto: lent memory is used if it is large enough, and what a failure leaves
// there is zero.
func TestInto(t *testing.T) {
	garbage := func(n int) []float32 {
		memory := make([]float32, n)
		for i := range memory {
			memory[i] = float32(math.NaN())
		}
		return memory
	}
	same := func(a, b []float32) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }
	texts := []string{"a", "", "b", "a"}
	const size = 4 * 64
	for name, lent := range map[string][]float32{
		"exact": garbage(size), "larger": garbage(size + 100), "capacity alone": garbage(size)[:0],
		"too small": garbage(size - 1), "none": nil, "empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			for _, known := range []int{64, 0} {
				provider := embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) { s.ModelDimensions = known }})
				client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
				// Paid for, found, and failing.
				for round := range 3 {
					if round == 2 {
						provider.AddFaults(embedtest.Fault{Status: 400})
					}
					response, err := client.Do(t.Context(), &embed.Call{Texts: texts, Into: lent, Refresh: round == 2})
					requireVectors(t, texts, response, err)
					require.Len(t, response.Matrix(), size)
					require.Equal(t, cap(lent) >= size, same(lent[:cap(lent)], response.Matrix()))
					require.Equal(t, make([]float32, 64), response.Matrix()[64:128])
					if round == 2 {
						require.Len(t, failures(t, err), 4)
						require.Equal(t, make([]float32, size), response.Matrix())
					}
					if name == "larger" {
						for _, beyond := range lent[size:] {
							require.True(t, math.IsNaN(float64(beyond)), "written beyond the matrix")
						}
					}
					for i := range lent {
						lent[i] = float32(math.NaN())
					}
				}
			}
		})
	}
}

// TestIntoAfterForeignEntry: what a foreign entry left in lent memory doesn't
// stay there when its text then fails.
func TestIntoAfterForeignEntry(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	cache := newTestCache()
	client := newClient(t, provider, &embed.Options{Cache: cache})
	_, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	for key, value := range cache.entries {
		cache.entries[key] = edit(func(b []byte) { b[24]++ }, true)(value, nil)
	}
	response, err := client.Do(t.Context(), &embed.Call{Texts: []string{"a"}, Into: make([]float32, 64), CacheOnly: true})
	require.ErrorIs(t, err, embed.ErrNotCached)
	require.Nil(t, response.Vector(0))
	require.Equal(t, make([]float32, 64), response.Matrix())
	require.Equal(t, map[string]int{"digest": 1}, response.Usage.Foreign)
}
