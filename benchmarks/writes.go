package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/embedonce/embedonce/backend"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

const (
	readKeys = 16 // of each read during the writes
	onePer   = "one per entry"
)

// writeRun is the scenario writes for one size of store.
type writeRun struct {
	*bench.Run
	entries   int
	items     int           // of a response
	responses int           // that are written in one measurement
	quiet     time.Duration // at least, in which only reads go on
	value     []byte
	order     []int // of the entries that are read
	cell      bench.Result
	table     *bench.Table
}

// writes measures how the entries of a provider's response are stored: in one
// transaction, as the Client does it, against one for each entry; and what a reader
// notices of it. Each way has a fresh copy of the store.
func writes(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt", "redis")
	if err != nil {
		return err
	}
	const dims = 1536
	size := 64 + 4*dims // as long as a record
	for _, b := range backends {
		// 400 MB and 1.5 GB. Three of the largest don't fit into most machines' memory.
		entries := bench.Pick(r.Quick, []int{0, 1000}, []int{0, 400_000_000 / size, 1_500_000_000 / size})
		if !r.Quick && (b.Name == "memory" || b.Name == "redis") {
			entries = entries[:2]
		}
		for _, n := range entries {
			w := &writeRun{
				Run: r, entries: n,
				items:     bench.Pick(r.Quick, 32, 512),
				responses: bench.Pick(r.Quick, 1, 8),
				quiet:     bench.Pick(r.Quick, 10*time.Millisecond, 500*time.Millisecond),
				value:     make([]byte, size),
				table:     r.NewTable(),
			}
			w.cell = bench.Result{Backend: b.Name, Goroutines: 1, Texts: w.items, Dims: dims, Entries: n}
			if err := w.measure(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *writeRun) measure(ctx context.Context, b *bench.Backend) error {
	random := rand.New(rand.NewPCG(w.Seed, uint64(w.entries)))
	for i := range w.value {
		w.value[i] = byte(random.Uint32())
	}
	// Of an empty store, what the warm-up has written is read.
	w.order = random.Perm(max(w.entries, w.items))
	fill := func(c backend.Cache) error {
		const batch = 1024
		for from := 0; from < w.entries; from += batch {
			if err := c.SetMany(ctx, w.batch(from, min(batch, w.entries-from))); err != nil {
				return err
			}
		}
		return nil
	}
	what := fmt.Sprintf("%s, %d entries", b.Name, w.entries)
	err := w.Repeat(ctx, b, what, fill, func(repetition int, store *bench.Store) error {
		return w.repeat(ctx, repetition, store)
	})
	if err != nil {
		return err
	}
	return w.table.Emit()
}

func (w *writeRun) repeat(ctx context.Context, repetition int, store *bench.Store) error {
	var one, each float64
	cell := w.cell
	cell.Metric, cell.Unit = "write", "µs/entry"
	err := w.table.Beside(ctx, repetition, cell,
		bench.Side{Case: bench.CaseOurs, Measure: w.through(store, bench.CaseOurs, w.items, &one)},
		bench.Side{Case: onePer, Measure: w.through(store, onePer, 1, &each)},
		bench.Side{Case: bench.CaseFloor, Measure: w.byHand(store)})
	if err != nil {
		return err
	}
	cell.Metric, cell.Unit = onePer+" / one", "ratio"
	w.table.Add(cell, bench.CaseOurs, each/one)
	return nil
}

// through measures batches of so many items, and how long a reader's calls take
// while nothing is written and while such batches are.
func (w *writeRun) through(store *bench.Store, of string, size int, figure *float64) func(context.Context) (float64, error) {
	return func(ctx context.Context) (_ float64, err error) {
		copied, err := store.Fresh(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, copied.Remove(ctx)) }()
		next := w.entries
		batches := func(responses int) (items []backend.Item) {
			items = w.batch(next, responses*w.items)
			next += len(items)
			return items
		}
		write := func(items []backend.Item) error {
			for from := 0; from < len(items); from += size {
				if err := copied.SetMany(ctx, items[from:from+size]); err != nil {
					return err
				}
			}
			return nil
		}
		if err := write(batches(1)); err != nil { // to warm up
			return 0, err
		}
		items := batches(w.responses)
		runtime.GC() // none is left from what came before
		begun := time.Now()
		if err := write(items); err != nil {
			return 0, err
		}
		elapsed := time.Since(begun)
		*figure = bench.Micros(elapsed) / float64(w.responses*w.items)

		items = batches(w.responses)
		during := func(work func() error) (p99 float64) {
			if err == nil {
				p99, err = w.readsDuring(ctx, copied, work)
			}
			return p99
		}
		while := max(elapsed, w.quiet)
		quiet := during(func() error { return bench.Sleep(ctx, while) })
		busy := during(func() error { return write(items) })
		// A neighbour that needs the processor alone, for as long.
		control := during(func() error { return bench.Spin(ctx, while) })
		if err != nil {
			return 0, err
		}
		cell := w.cell
		cell.Texts = readKeys
		cell.Metric, cell.Unit = "read p99, quiet", "ms"
		w.table.Add(cell, of, quiet)
		cell.Metric = "read p99, during writes"
		w.table.Add(cell, of, busy)
		cell.Metric, cell.Unit = "read p99, during writes / quiet", "ratio"
		w.table.Add(cell, of, busy/quiet)
		cell.Metric = "read p99, beside a control / quiet"
		w.table.Add(cell, of, control/quiet)
		return *figure, nil
	}
}

// byHand measures batches of a response each.
func (w *writeRun) byHand(store *bench.Store) func(context.Context) (float64, error) {
	return func(ctx context.Context) (_ float64, err error) {
		byHand, err := store.Floor(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, byHand.Remove(ctx)) }()
		batches := make([][]backend.Item, 1+w.responses)
		for i := range batches {
			batches[i] = w.batch(w.entries+i*w.items, w.items)
		}
		if err := byHand.Write(batches[0]); err != nil { // to warm up
			return 0, err
		}
		runtime.GC()
		begun := time.Now()
		for _, batch := range batches[1:] {
			if err := byHand.Write(batch); err != nil {
				return 0, err
			}
		}
		return bench.Micros(time.Since(begun)) / float64(w.responses*w.items), ctx.Err()
	}
}

// readsDuring reads again and again until work is done, and returns the time in
// milliseconds that 99 % of the reads didn't exceed.
func (w *writeRun) readsDuring(ctx context.Context, c backend.Cache, work func() error) (float64, error) {
	done := make(chan error, 1)
	keys := make([]backend.Key, readKeys)
	to := make([]byte, len(w.value))
	at := 0
	read := func() error {
		for k := range keys {
			keys[k] = rawKey(w.order[at%len(w.order)])
			at++
		}
		found := 0
		err := c.GetMany(ctx, keys, func(_ int, value []byte) error {
			found++
			copy(to, value)
			return nil
		})
		if err == nil && found != readKeys {
			err = fmt.Errorf("found %d of %d keys", found, readKeys)
		}
		return err
	}
	if err := read(); err != nil { // to warm up
		return 0, err
	}
	runtime.GC() // none is left from what came before
	go func() { done <- work() }()
	var pass bench.Pass
	for {
		begun := time.Now()
		if err := read(); err != nil {
			return 0, errors.Join(err, <-done)
		}
		pass.Each = append(pass.Each, time.Since(begun))
		select {
		case err := <-done:
			return bench.Summarize(pass.EachMillis()).P99, err
		default:
		}
	}
}

func (w *writeRun) batch(from, n int) []backend.Item {
	items := make([]backend.Item, n)
	for i := range items {
		items[i] = backend.Item{Key: rawKey(from + i), Value: w.value}
	}
	return items
}
