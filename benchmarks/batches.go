package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// batchRun is the scenario batches.
type batchRun struct {
	*bench.Run
	dims  int
	items int      // texts of a request
	texts []string // of the call
	warm  []string // of one before

	provider embed.Provider
	table    *bench.Table
}

// batches measures one large call that finds nothing, by how many of its 41 requests
// are under way at once.
func batches(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt")
	if err != nil {
		return err
	}
	atOnce := bench.Pick(r.Quick, []int{1, 5, 50}, []int{1, 2, 5, 10, 20, 50})
	b := &batchRun{Run: r, dims: 1536, items: bench.Pick(r.Quick, 4, 100), table: r.NewTable()}
	b.texts = r.Texts(0, bench.Pick(r.Quick, 162, 4096))
	b.warm = r.Texts(len(b.texts), b.items)
	latency := bench.Pick(r.Quick, 2*time.Millisecond, 50*time.Millisecond)
	b.provider = r.NewServer(b.dims, latency).ProviderOf(b.items)
	for _, kind := range backends {
		fill := func(backend.Cache) error { return nil }
		err := r.Repeat(ctx, kind, kind.Name, fill, func(repetition int, store *bench.Store) error {
			for _, n := range atOnce {
				if err := b.measure(ctx, repetition, kind.Name, store, n); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return b.table.Emit()
}

func (b *batchRun) measure(ctx context.Context, repetition int, name string, store *bench.Store, atOnce int) error {
	cell := bench.Result{
		Backend: name, Goroutines: 1, Texts: len(b.texts), Dims: b.dims,
		Metric: fmt.Sprintf("%d at once", atOnce), Unit: "ms",
	}
	opts := &embed.Options{ConcurrentRequests: atOnce}
	return b.table.Beside(ctx, repetition, cell,
		bench.Side{Case: bench.CaseOurs, Measure: func(ctx context.Context) (millis float64, err error) {
			err = store.WithClient(ctx, b.provider, opts, func(client *embed.Client) error {
				millis, err = b.through(ctx, client)
				return err
			})
			return millis, err
		}},
		bench.Side{Case: bench.CaseNoCache, Measure: func(ctx context.Context) (millis float64, err error) {
			err = bench.WithClient(b.provider, opts, func(client *embed.Client) error {
				millis, err = b.through(ctx, client)
				return err
			})
			return millis, err
		}},
		bench.Side{Case: bench.CaseFloor, Measure: func(ctx context.Context) (float64, error) {
			return b.timed(func(texts []string) error {
				return bench.Ask(ctx, b.provider, texts, b.items, atOnce)
			})
		}})
}

func (b *batchRun) through(ctx context.Context, client *embed.Client) (float64, error) {
	return b.timed(func(texts []string) error {
		response, err := client.Embed(ctx, texts)
		return bench.Check(response, err, 0)
	})
}

// timed says how many ms a call took, after one that warms up.
func (b *batchRun) timed(call func(texts []string) error) (float64, error) {
	if err := call(b.warm); err != nil {
		return 0, err
	}
	runtime.GC() // none is left from what came before
	begun := time.Now()
	err := call(b.texts)
	return bench.Micros(time.Since(begun)) / 1000, err
}
