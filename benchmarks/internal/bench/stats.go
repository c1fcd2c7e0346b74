package bench

import (
	"math"
	"slices"
)

// Summary is a set of figures in short. With few of them, the high percentiles are
// the maximum.
type Summary struct {
	Median float64 `json:"median"` // of an even number, the mean of the middle two
	P95    float64 `json:"p95"`    // the least that 95 % of the figures don't exceed
	P99    float64 `json:"p99"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"` // how many figures there were
}

// Summarize returns the summary of values, which must not be empty, to five
// significant digits. It doesn't change them.
func Summarize(values []float64) Summary {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Summary{
		Median: round((sorted[(n-1)/2] + sorted[n/2]) / 2),
		P95:    round(percentile(sorted, 95)),
		P99:    round(percentile(sorted, 99)),
		Min:    round(sorted[0]),
		Max:    round(sorted[n-1]),
		Runs:   n,
	}
}

// percentile is by nearest rank: always one of the figures.
func percentile(sorted []float64, percent int) float64 {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}

// round keeps five digits: more than any measurement here has.
func round(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	digits := 4 - int(math.Floor(math.Log10(math.Abs(x))))
	if digits < 0 {
		return math.Round(x)
	}
	scale := math.Pow(10, float64(digits))
	return math.Round(x*scale) / scale
}
