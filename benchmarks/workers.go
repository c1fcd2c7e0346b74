package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// workerRun is the scenario workers: what one repetition on one backend needs.
type workerRun struct {
	hitRun
	readers   []int // 0 is what the cache advises
	latencies []time.Duration
	figures   map[string]map[int][]float64 // µs/text by metric and readers
}

// workers measures one large call, all of hits, by how many GetMany it has under way
// at once (Options.CacheReaders) and by how long each GetMany takes beyond the
// backend's own time. What the cache advises is beside them.
func workers(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt", "redis")
	if err != nil {
		return err
	}
	texts := bench.Pick(r.Quick, 1024, 4096)
	for _, b := range backends {
		w := &workerRun{
			hitRun: hitRun{
				Run:   r,
				dims:  1536,
				texts: r.Texts(0, bench.Pick(r.Quick, 1, 4)*texts),
				each:  bench.Pick(r.Quick, 10*time.Millisecond, 500*time.Millisecond),
				table: r.NewTable(),
			},
			readers:   bench.Pick(r.Quick, []int{0, 1, 2}, []int{0, 1, 2, 4, 8, 16}),
			latencies: bench.Pick(r.Quick, []time.Duration{0, 2 * time.Millisecond}, []time.Duration{0, 500 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond}),
			figures:   make(map[string]map[int][]float64),
		}
		w.windows = bench.NewWindows(r.Seed, w.texts)
		w.rows = make([]float32, texts*w.dims)
		if err := w.measure(ctx, b, texts); err != nil {
			return err
		}
	}
	return nil
}

func (w *workerRun) measure(ctx context.Context, b *bench.Backend, texts int) error {
	provider := bench.LocalProvider(w.dims)
	fill := func(c backend.Cache) error { return bench.Fill(ctx, c, provider, w.texts) }
	err := w.Repeat(ctx, b, b.Name, fill, func(repetition int, store *bench.Store) error {
		return w.repeat(ctx, repetition, b.Name, store, provider, texts)
	})
	if err == nil {
		err = w.table.Emit()
	}
	if err != nil {
		return err
	}
	// How far the advice is from the best of all numbers.
	for _, latency := range w.latencies {
		metric := latencyMetric(latency)
		best := math.Inf(1)
		for _, n := range w.readers {
			best = min(best, bench.Summarize(w.figures[metric][n]).Median)
		}
		var times []float64
		for _, figure := range w.figures[metric][0] {
			times = append(times, figure/best)
		}
		result := w.cell(b.Name, texts)
		result.Case, result.Metric, result.Unit, result.Summary = bench.CaseOurs, metric+" / best", "ratio", bench.Summarize(times)
		if err := w.Emit(result); err != nil {
			return err
		}
	}
	return nil
}

func (w *workerRun) cell(name string, texts int) bench.Result {
	return bench.Result{Backend: name, Goroutines: 1, Texts: texts, Dims: w.dims, Entries: len(w.texts), Unit: "µs/text"}
}

func latencyMetric(latency time.Duration) string {
	return "hit, " + strconv.FormatFloat(latency.Seconds()*1000, 'g', -1, 64) + " ms"
}

func (w *workerRun) repeat(ctx context.Context, repetition int, name string, store *bench.Store, provider embed.Provider, texts int) (err error) {
	copied, err := store.Fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Remove(ctx)) }()
	for _, latency := range w.latencies {
		cell := w.cell(name, texts)
		cell.Metric = latencyMetric(latency)
		slow := &slowCache{copied, latency}
		if w.figures[cell.Metric] == nil {
			w.figures[cell.Metric] = make(map[int][]float64)
		}
		figures := w.figures[cell.Metric]
		var sides []bench.Side
		for _, n := range w.readers {
			client, err := embed.New(provider, &embed.Options{Cache: slow, CacheReaders: n})
			if err != nil {
				return err
			}
			defer client.Close()
			measure := w.through(client, 1, texts)
			sides = append(sides, bench.Side{Case: readersCase(n), Measure: func(ctx context.Context) (float64, error) {
				figure, err := measure(ctx)
				figures[n] = append(figures[n], figure)
				return figure, err
			}})
		}
		if err := w.table.Beside(ctx, repetition, cell, sides...); err != nil {
			return err
		}
		if latency > 0 {
			// The system's timers add to it.
			pass, err := bench.Loop(ctx, 1, w.each, func(int, int) error { return slow.wait(ctx) })
			if err != nil {
				return err
			}
			w.table.Add(bench.Result{Backend: name, Goroutines: 1, Metric: "wait of " + latencyMetric(latency)[len("hit, "):], Unit: "µs"}, bench.CaseControl, pass.PerText(1))
		}
	}
	for _, n := range []int{1, runtime.GOMAXPROCS(0)} {
		if _, err := w.table.Control(ctx, bench.Result{Backend: name, Goroutines: n}, w.each); err != nil {
			return err
		}
		if runtime.GOMAXPROCS(0) == 1 {
			break
		}
	}
	return nil
}

func readersCase(n int) string {
	switch n {
	case 0:
		return bench.CaseOurs
	case 1:
		return "1 reader"
	}
	return fmt.Sprintf("%d readers", n)
}

// slowCache takes so much longer for each GetMany, as a server does that is further
// away. It gives the advice of the cache that it is in front of.
type slowCache struct {
	backend.Cache
	latency time.Duration
}

func (c *slowCache) GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if err := c.wait(ctx); err != nil {
		return err
	}
	return c.Cache.GetMany(ctx, keys, visit)
}

func (c *slowCache) wait(ctx context.Context) error {
	if c.latency == 0 {
		return nil
	}
	return bench.Sleep(ctx, c.latency)
}
