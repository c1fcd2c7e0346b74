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

// hitRun is the scenario hits: what one repetition on one backend needs.
type hitRun struct {
	*bench.Run
	dims    int
	texts   []string
	windows *bench.Windows
	rows    []float32 // lent to the calls, a part to each goroutine
	each    time.Duration
	rounds  int // of each repetition
	table   *bench.Table
}

// hits measures calls that find everything. Each call reads a window of neighbours,
// as when a document is embedded again, and the next call another one: the entries
// together are 100 MB, far larger than the caches of a core.
func hits(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt", "redis")
	if err != nil {
		return err
	}
	calls := bench.Pick(r.Quick, []int{1, 512, 4096}, []int{1, 16, 128, 512, 4096})
	goroutines := bench.Pick(r.Quick, []int{1, 8}, []int{1, 2, 8, 32})
	h := &hitRun{
		Run:   r,
		dims:  1536,
		texts: r.Texts(0, bench.Pick(r.Quick, 4096, 4*4096)),
		// The machine's speed changes within a second: short rounds in turn let both
		// sides meet the same.
		each:   bench.Pick(r.Quick, 10*time.Millisecond, 50*time.Millisecond),
		rounds: bench.Pick(r.Quick, 1, 7),
		table:  r.NewTable(),
	}
	h.windows = bench.NewWindows(r.Seed, h.texts)
	// For as many texts as are asked for at the same time: 1 x 4,096 or 8 x 512 in a
	// quick run.
	h.rows = make([]float32, bench.Pick(r.Quick, 4096, 32*4096)*h.dims)
	for _, b := range backends {
		provider := bench.LocalProvider(h.dims)
		fill := func(c backend.Cache) error { return bench.Fill(ctx, c, provider, h.texts) }
		err := r.Repeat(ctx, b, b.Name, fill, func(repetition int, store *bench.Store) error {
			return store.BesideFloor(ctx, func(copied *bench.Copy, byHand *bench.Floor) error {
				return h.repeat(ctx, repetition, b.Name, copied, byHand, provider, calls, goroutines)
			})
		})
		if err != nil {
			return err
		}
	}
	return h.table.Emit()
}

// repeat measures every size and number of goroutines on fresh copies.
func (h *hitRun) repeat(ctx context.Context, repetition int, name string, copied *bench.Copy, byHand *bench.Floor, provider embed.Provider, calls, goroutines []int) (err error) {
	client, err := embed.New(provider, &embed.Options{Cache: copied})
	if err != nil {
		return err
	}
	defer client.Close()
	oneReader, err := embed.New(provider, &embed.Options{Cache: copied, CacheReaders: 1})
	if err != nil {
		return err
	}
	defer oneReader.Close()

	readers, err := openReaders(byHand, slices.Max(goroutines))
	defer func() { err = errors.Join(err, closeReaders(readers)) }()
	if err != nil {
		return err
	}

	for _, n := range goroutines {
		for _, texts := range calls {
			if h.Quick && n > 1 && texts > 512 {
				continue // moves too much memory for a trial
			}
			cell := bench.Result{Backend: name, Goroutines: n, Texts: texts, Dims: h.dims, Entries: len(h.texts), Metric: "hit", Unit: "µs/text"}
			sides := []bench.Side{
				{Case: bench.CaseOurs, Measure: h.through(client, n, texts)},
				{Case: bench.CaseFloor, Measure: h.byHand(readers[:n], texts)},
			}
			if split := copied.Info().SplitKeys; n == 1 && split > 0 && texts >= split {
				// Like the floor, it has one goroutine to read with.
				sides = append(sides, bench.Side{Case: bench.CaseOurs + ", one reader", Measure: h.through(oneReader, n, texts)})
			}
			if err := h.inTurn(ctx, repetition, cell, sides...); err != nil {
				return err
			}
		}
		for range h.rounds {
			if _, err := h.table.Control(ctx, bench.Result{Goroutines: n}, h.each); err != nil {
				return err
			}
		}
	}
	return nil
}

// inTurn measures the sides beside each other in each round of a repetition.
func (h *hitRun) inTurn(ctx context.Context, repetition int, cell bench.Result, sides ...bench.Side) error {
	for round := range h.rounds {
		if err := h.table.Beside(ctx, repetition*h.rounds+round, cell, sides...); err != nil {
			return err
		}
	}
	return nil
}

// lent returns the rows of goroutine g.
func (h *hitRun) lent(g, texts int) []float32 {
	size := texts * h.dims
	return h.rows[g*size : (g+1)*size : (g+1)*size]
}

// loop measures calls in rounds, each of which goes on among the windows where the
// one before it ended.
func (h *hitRun) loop(goroutines, texts int, call func(ctx context.Context, g, i int) error) func(context.Context) (float64, error) {
	next := 0
	return func(ctx context.Context) (float64, error) {
		pass, err := bench.Loop(ctx, goroutines, h.each, func(g, i int) error { return call(ctx, g, next+i) })
		next += pass.Calls/goroutines + 1
		return pass.PerText(texts), err
	}
}

func (h *hitRun) through(client *embed.Client, goroutines, texts int) func(context.Context) (float64, error) {
	return h.loop(goroutines, texts, func(ctx context.Context, g, i int) error {
		response, err := client.Do(ctx, &embed.Call{Texts: h.windows.At(g, i, texts), CacheOnly: true, Into: h.lent(g, texts)})
		return bench.Check(response, err, texts)
	})
}

func (h *hitRun) byHand(readers []floor.Reader, texts int) func(context.Context) (float64, error) {
	hits := make([]*floor.Hits, len(readers))
	for g := range hits {
		hits[g] = floor.NewHits(readers[g], texts, h.dims)
	}
	return h.loop(len(readers), texts, func(_ context.Context, g, i int) error {
		return hits[g].Read(h.windows.At(g, i, texts), h.lent(g, texts))
	})
}

// openReaders opens so many readers, which stay open like the library's connections.
// Those that it returns beside an error must be closed too.
func openReaders(store floor.Store, n int) (readers []floor.Reader, err error) {
	for range n {
		reader, err := store.Reader()
		if err != nil {
			return readers, err
		}
		readers = append(readers, reader)
	}
	return readers, nil
}

func closeReaders(readers []floor.Reader) error {
	var errs []error
	for _, reader := range readers {
		errs = append(errs, reader.Close())
	}
	return errors.Join(errs...)
}
