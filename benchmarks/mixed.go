package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// mixedRun is the scenario mixed.
type mixedRun struct {
	*bench.Run
	dims  int
	items int      // texts of a request, at most
	known []string // that the store has
	fresh []string // that it hasn't: as many
	warm  []string // nor these
	order []int    // of the places of a call, for those that are misses
	rows  []float32

	provider embed.Provider
	table    *bench.Table
}

// mixed measures large calls that find a part of their texts. Each is made once, on a
// fresh copy: it stores what it missed. Meanwhile a ticker shows how long other
// goroutines have to wait.
func mixed(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt", "redis")
	if err != nil {
		return err
	}
	n := bench.Pick(r.Quick, 512, 4096)
	rates := bench.Pick(r.Quick, []int{0, 50, 100}, []int{0, 25, 50, 75, 90, 99, 100})
	m := &mixedRun{Run: r, dims: 1536, items: bench.Pick(r.Quick, 20, 100), table: r.NewTable()}
	m.known, m.fresh = r.Texts(0, n), r.Texts(n, n)
	m.warm = r.Texts(2*n, m.items*embed.DefaultConcurrentRequests)
	m.order = rand.New(rand.NewPCG(r.Seed, 2)).Perm(n)
	m.rows = make([]float32, n*m.dims)
	m.provider = r.NewServer(m.dims, bench.Pick(r.Quick, 5*time.Millisecond, 20*time.Millisecond)).ProviderOf(m.items)
	filling := r.NewServer(m.dims, 0).Provider()
	for _, b := range backends {
		fill := func(c backend.Cache) error { return bench.Fill(ctx, c, filling, m.known) }
		err := r.Repeat(ctx, b, b.Name, fill, func(repetition int, store *bench.Store) error {
			for _, rate := range rates {
				if err := m.measure(ctx, repetition, b.Name, store, rate); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for range r.Runs {
		lags, err := bench.IdleLags(ctx, bench.Pick(r.Quick, 50*time.Millisecond, time.Second))
		if err != nil {
			return err
		}
		m.table.Add(bench.Result{Metric: "worst lag", Unit: "ms"}, bench.CaseControl, lags.Summary().Max)
	}
	return m.table.Emit()
}

// measure makes one call with so many percent of hits. Beside it are the requests for
// what is missing, by hand.
func (m *mixedRun) measure(ctx context.Context, repetition int, name string, store *bench.Store, rate int) error {
	texts, missing := m.mix(rate)
	cell := bench.Result{
		Backend: name, Goroutines: 1, Texts: len(texts), Dims: m.dims, Entries: len(m.known),
		Metric: fmt.Sprintf("%d %% hits", rate), Unit: "µs/text",
	}
	lags := make(map[string]bench.Lags)
	side := func(name string, call func(ctx context.Context) (time.Duration, bench.Lags, error)) bench.Side {
		return bench.Side{Case: name, Measure: func(ctx context.Context) (float64, error) {
			elapsed, lag, err := call(ctx)
			lags[name] = lag
			return bench.Micros(elapsed) / float64(len(texts)), err
		}}
	}
	sides := []bench.Side{side(bench.CaseOurs, func(ctx context.Context) (time.Duration, bench.Lags, error) {
		return m.call(ctx, store, texts, len(texts)-len(missing))
	})}
	if len(missing) > 0 {
		sides = append(sides, side(bench.CaseFloor, func(ctx context.Context) (time.Duration, bench.Lags, error) {
			return bench.Watched(func() error {
				return bench.Ask(ctx, m.provider, missing, m.items, embed.DefaultConcurrentRequests)
			})
		}))
	}
	if err := m.table.Beside(ctx, repetition, cell, sides...); err != nil {
		return err
	}
	cell.Metric, cell.Unit = cell.Metric+", worst lag", "ms"
	for _, side := range sides {
		m.table.Add(cell, side.Case, lags[side.Case].Summary().Max)
	}
	return nil
}

// mix returns the texts of a call, and those of them that are not stored.
func (m *mixedRun) mix(rate int) (texts, missing []string) {
	texts = append(texts, m.known...)
	for _, place := range m.order[:len(texts)*(100-rate)/100] {
		texts[place] = m.fresh[place]
		missing = append(missing, m.fresh[place])
	}
	return texts, missing
}

// call makes a call on a fresh copy.
func (m *mixedRun) call(ctx context.Context, store *bench.Store, texts []string, hits int) (elapsed time.Duration, lags bench.Lags, err error) {
	err = store.WithClient(ctx, m.provider, nil, func(client *embed.Client) error {
		response, err := client.Embed(ctx, m.warm)
		if err := bench.Check(response, err, 0); err != nil {
			return err
		}
		elapsed, lags, err = bench.Watched(func() error {
			response, err := client.Do(ctx, &embed.Call{Texts: texts, Into: m.rows})
			return bench.Check(response, err, hits)
		})
		return err
	})
	return elapsed, lags, err
}
