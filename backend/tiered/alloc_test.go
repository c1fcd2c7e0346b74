//go:build !race

package tiered_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/tiered"
)

// hitAllocations are those of a GetMany that finds n keys in memory, and in memory
// over something else.
func hitAllocations(t *testing.T, n int) (alone, over float64) {
	fast := memoryOf(t, 64<<20)
	c, err := tiered.New(fast, newFake(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	all := keys(n)
	require.NoError(t, c.SetMany(t.Context(), items("a value", all...)))
	ctx := context.Background()
	count := func(layer backend.Cache) float64 {
		found := 0
		visit := func(int, []byte) error { found++; return nil }
		runs := testing.AllocsPerRun(100, func() {
			found = 0
			if err := layer.GetMany(ctx, all, visit); err != nil || found != n {
				t.Fatal("not all found")
			}
		})
		return runs
	}
	return count(fast), count(c)
}

// A call that finds everything in the fast layer adds no allocation, for any
// number of keys.
func TestHitAllocations(t *testing.T) {
	for _, n := range []int{1, 128, 512, 4096} {
		alone, over := hitAllocations(t, n)
		t.Logf("%d keys: %v allocations alone, %v over another layer", n, alone, over)
		require.Equal(t, alone, over, "%d keys", n)
	}
}
