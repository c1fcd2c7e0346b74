package s3

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func testWants(s *segment, size uint32, offsets ...uint32) (wants []want) {
	for i, offset := range offsets {
		wants = append(wants, want{candidate{segment: s, offset: offset, atMost: size}, i, math.MaxUint32})
	}
	return wants
}

func TestPlan(t *testing.T) {
	a, b := &segment{name: "a"}, &segment{name: "b"}
	ranges := func(wants []want, gap int) (got [][2]uint64) {
		for _, p := range plan(wants, gap) {
			got = append(got, [2]uint64{p.from, p.to})
		}
		return got
	}
	require.Empty(t, plan(nil, 100))
	require.Equal(t, [][2]uint64{{0, 30}}, ranges(testWants(a, 10, 20, 0, 10), 0))
	require.Equal(t, [][2]uint64{{0, 10}, {11, 21}}, ranges(testWants(a, 10, 11, 0), 0))
	require.Equal(t, [][2]uint64{{0, 21}}, ranges(testWants(a, 10, 11, 0), 1))
	require.Equal(t, [][2]uint64{{0, 10}, {0, 10}}, ranges(append(testWants(a, 10, 0), testWants(b, 10, 0)...), 1000))
	// A long stretch is read by two requests, however long a batch is.
	var offsets []uint32
	for i := range 2048 {
		offsets = append(offsets, uint32(i*6244))
	}
	require.Len(t, plan(testWants(a, 6244, offsets...), 0), 2)
	require.Len(t, plan(testWants(a, 6244, offsets[:600]...), 0), 1)
	heads := testWants(a, 6244, 0, 6244)
	heads[0].head, heads[1].head = 64, 64
	require.Equal(t, [][2]uint64{{0, 6344}}, ranges(heads, defaultGapBytes))
	require.Equal(t, [][2]uint64{{0, 100}, {6244, 6344}}, ranges(heads, 0))
}

// TestPlanProperties: each want is in one piece, in order, and inside of it.
func TestPlanProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	segments := []*segment{{name: "a"}, {name: "b"}, {name: "c"}}
	for round := range 500 {
		gap := random.IntN(5000)
		var wants []want
		for i := range random.IntN(200) {
			wants = append(wants, want{candidate{segment: segments[random.IntN(3)], offset: random.Uint32N(1 << (8 + random.Uint32N(20))), atMost: 36 + random.Uint32N(3000)}, i, random.Uint32N(4000)})
		}
		seen := make(map[int]bool)
		for _, p := range plan(wants, gap) {
			last := uint64(0)
			for _, w := range p.wants {
				require.False(t, seen[w.key])
				seen[w.key] = true
				require.Equal(t, p.segment, w.segment)
				require.True(t, uint64(w.offset) >= p.from && w.end() <= p.to && uint64(w.offset) >= last, "round %d", round)
				require.LessOrEqual(t, uint64(w.offset), max(last, p.from)+uint64(gap)+4036)
				last = uint64(w.offset)
			}
		}
		require.Len(t, seen, len(wants))
	}
}
