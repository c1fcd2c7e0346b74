package embed

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAgesJoinNeighbours: sums are exact to the time that they tell apart, which
// is as fine as their number allows.
func TestAgesJoinNeighbours(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		most := 1 + r.IntN(20)
		span := uint32(1 + r.IntN(1<<r.IntN(31)))
		start := r.Uint32N(1<<32 - 1 - span)
		a := newAges(most)
		sizes := make(map[uint32]int64)
		total := int64(0)
		for range 1 + r.IntN(100) {
			second, size := start+r.Uint32N(span), 1+r.Int64N(50)
			a.add(second, size)
			sizes[second] += size
			total += size
		}
		require.LessOrEqual(t, len(a.sums), most)
		require.True(t, a.shift == 0 || span>>(a.shift-1) >= uint32(most)/2, "%d different of %d seconds, coarser than needed: shift %d", most, span, a.shift)

		edge, rest := a.oldest(-r.Int64N(5))
		require.Zero(t, edge)
		require.Zero(t, rest)
		goes := 1 + r.Int64N(total)
		edge, rest = a.oldest(goes)
		before, at := int64(0), int64(0)
		for second, size := range sizes {
			if when := a.when(second); when < edge {
				before += size
			} else if when == edge {
				at += size
			}
		}
		require.Equal(t, goes, before+rest)
		require.Positive(t, rest)
		require.LessOrEqual(t, rest, at)
	}
}
