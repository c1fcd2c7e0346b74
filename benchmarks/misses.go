package main

import (
	"context"
	"slices"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// missTexts is how many texts a call has.
const missTexts = 16

// missRun is the scenario misses.
type missRun struct {
	*bench.Run
	dims       int
	goroutines []int
	each       time.Duration
	calls      int // the most that a goroutine makes in one measurement
	texts      []string
	provider   embed.Provider
	table      *bench.Table
}

// misses measures calls that find nothing and ask the provider for one request each:
// with a cache, where they store the answer; without one; and the requests by hand.
func misses(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt", "redis")
	if err != nil {
		return err
	}
	latency := bench.Pick(r.Quick, 20*time.Millisecond, 50*time.Millisecond)
	m := &missRun{
		Run:        r,
		dims:       1536,
		goroutines: bench.Pick(r.Quick, []int{1, 8}, []int{1, 2, 4, 8, 16, 32}),
		each:       bench.Pick(r.Quick, 40*time.Millisecond, time.Second),
		table:      r.NewTable(),
	}
	m.provider = r.NewServer(m.dims, latency).Provider()
	// No call is shorter than its request. One more warms up, and one may begin just
	// before the time is over.
	m.calls = int(m.each/latency) + 2
	m.texts = r.Texts(0, slices.Max(m.goroutines)*m.calls*missTexts)
	for _, b := range backends {
		fill := func(backend.Cache) error { return nil }
		err := r.Repeat(ctx, b, b.Name, fill, func(repetition int, store *bench.Store) error {
			return m.repeat(ctx, repetition, b.Name, store)
		})
		if err != nil {
			return err
		}
	}
	return m.table.Emit()
}

func (m *missRun) repeat(ctx context.Context, repetition int, name string, store *bench.Store) error {
	var one float64 // what a text takes with one goroutine
	for _, n := range m.goroutines {
		cell := bench.Result{Backend: name, Goroutines: n, Texts: missTexts, Dims: m.dims, Metric: "miss", Unit: "µs/text"}
		var cached, uncached float64
		err := m.table.Beside(ctx, repetition, cell,
			bench.Side{Case: bench.CaseOurs, Measure: func(ctx context.Context) (float64, error) {
				err := store.WithClient(ctx, m.provider, nil, func(client *embed.Client) (err error) {
					cached, err = m.through(ctx, n, client)
					return err
				})
				return cached, err
			}},
			bench.Side{Case: bench.CaseNoCache, Measure: func(ctx context.Context) (float64, error) {
				err := bench.WithClient(m.provider, nil, func(client *embed.Client) (err error) {
					uncached, err = m.through(ctx, n, client)
					return err
				})
				return uncached, err
			}},
			bench.Side{Case: bench.CaseFloor, Measure: func(ctx context.Context) (float64, error) {
				return m.loop(ctx, n, func(texts []string) error {
					return bench.Ask(ctx, m.provider, texts, len(texts), 1)
				})
			}})
		if err != nil {
			return err
		}
		cell.Metric, cell.Unit = "throughput that the cache costs", "%"
		m.table.Add(cell, bench.CaseOurs, 100*(1-uncached/cached))
		if n == m.goroutines[0] {
			one = cached
		}
		cell.Metric, cell.Unit = "throughput / that of one goroutine", "ratio"
		m.table.Add(cell, bench.CaseOurs, one/cached)
	}
	return nil
}

// through measures a Client.
func (m *missRun) through(ctx context.Context, goroutines int, client *embed.Client) (float64, error) {
	return m.loop(ctx, goroutines, func(texts []string) error {
		response, err := client.Embed(ctx, texts)
		return bench.Check(response, err, 0)
	})
}

// loop calls with texts that no other call of the measurement has.
func (m *missRun) loop(ctx context.Context, goroutines int, call func(texts []string) error) (float64, error) {
	pass, err := bench.Loop(ctx, goroutines, m.each, func(g, i int) error {
		at := (g*m.calls + i) * missTexts
		return call(m.texts[at : at+missTexts])
	})
	return pass.PerText(missTexts), err
}
