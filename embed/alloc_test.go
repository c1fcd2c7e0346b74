package embed_test

import (
	"context"
	"testing"

	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// allocations returns those of one call that finds all of n texts, with lent
// memory.
func allocations(t *testing.T, n int, opts embed.Options) float64 {
	cache, err := memory.New(&memory.Options{MaxBytes: 1 << 30})
	require.NoError(t, err)
	defer cache.Close()
	opts.Cache = cache
	client := newClient(t, embedtest.NewProvider(&embedtest.Options{Dimensions: 256, NoLog: true}), &opts)
	call := &embed.Call{Texts: passages(n), Into: make([]float32, n*256)}
	_, err = client.Do(context.Background(), call)
	require.NoError(t, err)
	return testing.AllocsPerRun(50, func() {
		if response, err := client.Do(context.Background(), call); err != nil || response.Usage.Hits != n {
			t.Fatal("not a hit")
		}
	})
}

// TestHitAllocations: a call that finds 512 texts in memory allocates at most 20
// times, and as often for any other number of them. The race detector spoils the
// pools, so that with it only the order of magnitude can be seen.
func TestHitAllocations(t *testing.T) {
	most := 20.0
	if raceEnabled {
		most = 60
	}
	for _, n := range []int{1, 128, 512, 900} {
		of := allocations(t, n, embed.Options{})
		t.Logf("%d texts: %v allocations", n, of)
		require.LessOrEqual(t, of, most, "%d texts", n)
		if !raceEnabled {
			require.Equal(t, allocations(t, 512, embed.Options{}), of, "%d texts", n)
		}
	}
}
