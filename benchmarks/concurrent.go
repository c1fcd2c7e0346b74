package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
	"github.com/embedonce/embedonce/benchmarks/internal/floor"
)

const (
	// concurrentTexts is how many texts a call has.
	concurrentTexts = 128
	// sharingClients is how many Clients share one store.
	sharingClients  = 4
	caseFourClients = bench.CaseOurs + ", four clients"
)

// concurrentRun is the scenario concurrent.
type concurrentRun struct {
	*bench.Run
	dims    int
	calls   []int // at once
	each    time.Duration
	texts   []string
	windows *bench.Windows
	rows    []float32 // lent to the calls, a part to each goroutine
	warmAll bool      // each goroutine reads everything once before it is measured
	table   *bench.Table
}

// concurrent measures many calls at once that find everything: how long each takes,
// and what all of them get done.
func concurrent(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt", "redis")
	if err != nil {
		return err
	}
	c := &concurrentRun{
		Run:   r,
		dims:  1536,
		calls: bench.Pick(r.Quick, []int{1, 16}, []int{1, 4, 16, 64, 256}),
		each:  bench.Pick(r.Quick, 20*time.Millisecond, 500*time.Millisecond),
		texts: r.Texts(0, bench.Pick(r.Quick, 1024, 4*4096)),
		table: r.NewTable(),
	}
	c.windows = bench.NewWindows(r.Seed, c.texts)
	c.rows = make([]float32, slices.Max(c.calls)*concurrentTexts*c.dims)
	provider := bench.LocalProvider(c.dims)
	for _, b := range backends {
		fill := func(cache backend.Cache) error { return bench.Fill(ctx, cache, provider, c.texts) }
		err := r.Repeat(ctx, b, b.Name, fill, func(repetition int, store *bench.Store) error {
			return store.BesideFloor(ctx, func(copied *bench.Copy, byHand *bench.Floor) error {
				return c.repeat(ctx, repetition, b.Name, copied, byHand, provider)
			})
		})
		if err != nil {
			return err
		}
	}
	return c.table.Emit()
}

func (c *concurrentRun) repeat(ctx context.Context, repetition int, name string, copied *bench.Copy, byHand *bench.Floor, provider embed.Provider) error {
	clients := make([]*embed.Client, sharingClients)
	for i := range clients {
		client, err := embed.New(provider, &embed.Options{Cache: copied})
		if err != nil {
			return err
		}
		defer client.Close()
		clients[i] = client
	}

	for _, n := range c.calls {
		cell := bench.Result{Backend: name, Goroutines: n, Texts: concurrentTexts, Dims: c.dims, Entries: len(c.texts), Metric: "hit", Unit: "µs/text"}
		sides := []bench.Side{
			c.side(cell, bench.CaseOurs, c.through(clients[:1])),
			c.side(cell, bench.CaseFloor, c.byHand(byHand)),
		}
		if n >= sharingClients {
			sides = append(sides, c.side(cell, caseFourClients, c.through(clients)))
		}
		if err := c.table.Beside(ctx, repetition, cell, sides...); err != nil {
			return err
		}
		if _, err := c.table.Control(ctx, bench.Result{Goroutines: n}, c.each); err != nil {
			return err
		}
	}
	return nil
}

// side measures the throughput, and adds how long each call took to the table.
func (c *concurrentRun) side(cell bench.Result, name string, measure func(ctx context.Context, goroutines int) (bench.Pass, error)) bench.Side {
	return bench.Side{Case: name, Measure: func(ctx context.Context) (float64, error) {
		pass, err := measure(ctx, cell.Goroutines)
		if err != nil {
			return 0, err
		}
		call := cell
		call.Metric, call.Unit = "call", "ms"
		for _, millis := range pass.EachMillis() {
			c.table.Add(call, name, millis)
		}
		return pass.PerText(concurrentTexts), nil
	}}
}

// through makes the calls through the clients in turn.
func (c *concurrentRun) through(clients []*embed.Client) func(context.Context, int) (bench.Pass, error) {
	return func(ctx context.Context, goroutines int) (bench.Pass, error) {
		return c.loop(ctx, goroutines, func(g int, texts []string) error {
			response, err := clients[g%len(clients)].Do(ctx, &embed.Call{Texts: texts, CacheOnly: true, Into: c.lent(g)})
			return bench.Check(response, err, concurrentTexts)
		})
	}
}

func (c *concurrentRun) byHand(store floor.Store) func(context.Context, int) (bench.Pass, error) {
	return func(ctx context.Context, goroutines int) (_ bench.Pass, err error) {
		readers, err := openReaders(store, goroutines)
		defer func() { err = errors.Join(err, closeReaders(readers)) }()
		if err != nil {
			return bench.Pass{}, err
		}
		hits := make([]*floor.Hits, goroutines)
		for g := range hits {
			hits[g] = floor.NewHits(readers[g], concurrentTexts, c.dims)
		}
		return c.loop(ctx, goroutines, func(g int, texts []string) error { return hits[g].Read(texts, c.lent(g)) })
	}
}

// loop makes calls for some time.
func (c *concurrentRun) loop(ctx context.Context, goroutines int, call func(g int, texts []string) error) (bench.Pass, error) {
	return bench.Loop(ctx, goroutines, c.each, func(g, i int) error {
		if i == 0 && c.warmAll {
			for from := 0; from+concurrentTexts <= len(c.texts); from += concurrentTexts {
				if err := call(g, c.texts[from:from+concurrentTexts]); err != nil {
					return err
				}
			}
		}
		return call(g, c.windows.At(g, i, concurrentTexts))
	})
}

// lent returns the rows of goroutine g.
func (c *concurrentRun) lent(g int) []float32 {
	size := concurrentTexts * c.dims
	return c.rows[g*size : (g+1)*size : (g+1)*size]
}
