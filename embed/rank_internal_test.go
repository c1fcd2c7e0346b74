package embed

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompareMatches: NaN comes last wherever it was, equal scores keep the order
// of the texts.
func TestCompareMatches(t *testing.T) {
	nan := math.NaN()
	for _, scores := range [][]float64{
		{nan, 1, nan, -1, 0.5, 0.5, 0}, {nan}, {nan, nan}, {1, nan}, {nan, -1}, {0, nan, 0}, {math.Copysign(0, -1), 0},
	} {
		var matches []Match
		for i, score := range scores {
			matches = append(matches, Match{Index: i, Score: score})
		}
		slices.SortFunc(matches, compareMatches)
		for i, match := range matches[1:] {
			before := matches[i]
			switch {
			case math.IsNaN(match.Score):
				if math.IsNaN(before.Score) {
					require.Less(t, before.Index, match.Index)
				}
			case before.Score == match.Score:
				require.Less(t, before.Index, match.Index)
			default:
				require.Greater(t, before.Score, match.Score, "NaN before a number, or a worse one before a better")
			}
		}
	}
}

func TestCosine(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, test := range []struct {
		a, b []float32
		want float64
	}{
		{[]float32{1, 0}, []float32{1, 0}, 1},
		{[]float32{1, 0}, []float32{-3, 0}, -1},
		{[]float32{1, 0}, []float32{0, 5}, 0},
		{[]float32{0, 0}, []float32{1, 2}, 0},
		{[]float32{1, 2}, []float32{0, 0}, 0},
		{[]float32{0, 0}, []float32{0, 0}, 0},
		{[]float32{}, []float32{}, 0},
		{[]float32{nan, 1}, []float32{1, 1}, math.NaN()},
		{[]float32{1, 1}, []float32{1, nan}, math.NaN()},
		{[]float32{nan, 1}, []float32{0, 0}, math.NaN()},
		{[]float32{inf, 1}, []float32{1, 1}, math.NaN()},
		{[]float32{inf, 1}, []float32{0, 1}, math.NaN()},
		{[]float32{0, 0}, []float32{inf, 1}, math.NaN()},
		{[]float32{-inf, 1}, []float32{inf, 1}, math.NaN()},
		{[]float32{math.MaxFloat32, math.MaxFloat32}, []float32{math.MaxFloat32, math.MaxFloat32}, 1},
		{[]float32{math.SmallestNonzeroFloat32, 0}, []float32{math.SmallestNonzeroFloat32, 0}, 1},
		{[]float32{3, 4}, []float32{4, 3}, 24.0 / 25},
	} {
		got := Cosine(test.a, test.b)
		if math.IsNaN(test.want) {
			require.True(t, math.IsNaN(got), "%v, %v: %v", test.a, test.b, got)
			continue
		}
		require.InDelta(t, test.want, got, 1e-12, "%v, %v", test.a, test.b)
		require.LessOrEqual(t, math.Abs(got), 1.0)
	}
	require.Panics(t, func() { Cosine([]float32{1}, []float32{1, 2}) })
}

// TestFaultsOffAreFree: nothing is formatted or allocated for a fault that nobody
// is told of.
func TestFaultsOffAreFree(t *testing.T) {
	c := new(Client)
	l := &lookup{client: c}
	u := &Usage{Foreign: map[string]int{"checksum": 3, "digest": 1}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		l.reportForeign(t.Context(), u)
		c.fault(t.Context(), "message", ErrBudget)
		c.warnRetry(t.Context(), 1, 1, ErrBudget)
	}))
}
