package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSummarize(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for name, c := range map[string]struct {
		values []float64
		want   Summary
	}{
		"one":      {[]float64{3}, Summary{3, 3, 3, 3, 3, 1}},
		"two":      {[]float64{4, 1}, Summary{2.5, 4, 4, 1, 4, 2}},
		"three":    {[]float64{9, 1, 2}, Summary{2, 9, 9, 1, 9, 3}},
		"a half":   {[]float64{1, 2, 3, 4}, Summary{2.5, 4, 4, 1, 4, 4}},
		"hundred":  {hundred, Summary{50.5, 95, 99, 1, 100, 100}},
		"negative": {[]float64{-1, -3, 0}, Summary{-1, 0, 0, -3, 0, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(c.values)
			require.Equal(t, c.want, Summarize(c.values))
			require.Equal(t, before, c.values)
		})
	}
}

// percentile is the least value that so many percent of all don't exceed.
func TestPercentileAgreesWithItsDefinition(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		values := make([]float64, 1+random.IntN(300))
		for i := range values {
			values[i] = float64(random.IntN(50)) // with repetitions
		}
		slices.Sort(values)
		percent := 1 + random.IntN(100)
		got := percentile(values, percent)
		notAbove := func(x float64) int {
			n := 0
			for _, value := range values {
				if value <= x {
					n++
				}
			}
			return n
		}
		require.Contains(t, values, got)
		require.GreaterOrEqual(t, 100*notAbove(got), percent*len(values))
		if below := slices.Index(values, got) - 1; below >= 0 {
			require.Less(t, 100*notAbove(values[below]), percent*len(values))
		}
	}
}

func TestRound(t *testing.T) {
	for x, want := range map[float64]float64{
		0: 0, 1.23456789: 1.2346, -1.23456789: -1.2346, 123456.7: 123457, 0.000123456: 0.00012346, 99999.6: 100000,
	} {
		require.InDelta(t, want, round(x), math.Abs(want)*1e-12, "%v", x)
	}
	require.True(t, math.IsInf(round(math.Inf(1)), 1))
}

func TestFormat(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0.00", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234567: "1,234,567", 0.0123456: "0.0123", -12.34: "-12.3",
	} {
		require.Equal(t, want, Format(x))
	}
	require.Equal(t, "-1,234.5678", Grouped("-1234.5678"))
	require.Equal(t, "123", Grouped("123"))
}
