package main

import (
	"math"
	"slices"
)

// result is one line of the output with -json.
type result struct {
	Scenario string `json:"scenario"` // always "compare"
	// Case has the callers, the share of hits or the clients, for which Backend was
	// measured in alternation with others.
	Case       string  `json:"case"`
	Backend    string  `json:"backend"`
	Goroutines int     `json:"goroutines"` // callers; of the predecessor, threads or tasks of all its processes
	Texts      int     `json:"texts"`      // in a call
	Dims       int     `json:"dims"`
	Entries    int     `json:"entries"` // in the store before a run
	Metric     string  `json:"metric"`
	Unit       string  `json:"unit"`
	Median     float64 `json:"median"`
	P95        float64 `json:"p95"`
	P99        float64 `json:"p99"`
	Min        float64 `json:"min"`
	Max        float64 `json:"max"`
	Runs       int     `json:"runs"` // values behind the figures
	// Floor is what Median could be at best: where requests are paid for, the rate
	// that the provider's latency leaves; else null.
	Floor *float64 `json:"floor"`

	contestant, group string // for the table
}

// summarise fills the figures of r in. values, at least one, are sorted.
func (r result) summarise(values []float64) result {
	slices.Sort(values)
	n := len(values)
	r.Median = (values[(n-1)/2] + values[n/2]) / 2
	r.P95, r.P99 = percentile(values, 95), percentile(values, 99)
	r.Min, r.Max, r.Runs = values[0], values[n-1], n
	return r
}

// percentile is the least of the sorted values that p percent of them don't exceed.
func percentile(sorted []float64, p float64) float64 {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}
