package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/embedonce/embedonce/backend"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// rawBatch is how many keys or items a call has.
const rawBatch = 512

// rawRun is the scenario raw for one size of entries and one number of them.
type rawRun struct {
	*bench.Run
	dims, entries int
	each          time.Duration
	batches       int // that are written in one measurement
	table         *bench.Table
	value         []byte // of every entry; backends read nothing into it
	order         []int  // of the entries that are read
}

// raw measures the backends themselves. Keys are read in random order; what is
// visited is copied, as every user has to.
func raw(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt", "redis")
	if err != nil {
		return err
	}
	type size struct{ dims, entries int }
	sizes := bench.Pick(r.Quick,
		[]size{{256, 1000}, {1536, 1000}, {1536, 4000}},
		[]size{{256, 10_000}, {768, 10_000}, {1536, 10_000}, {3072, 10_000}, {1536, 1000}, {1536, 100_000}})
	for _, b := range backends {
		for _, s := range sizes {
			run := &rawRun{
				Run: r, dims: s.dims, entries: s.entries,
				each:    bench.Pick(r.Quick, 20*time.Millisecond, 500*time.Millisecond),
				batches: bench.Pick(r.Quick, 1, 4),
				table:   r.NewTable(),
			}
			if err := run.measure(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *rawRun) measure(ctx context.Context, b *bench.Backend) error {
	random := rand.New(rand.NewPCG(w.Seed, uint64(w.dims)))
	w.value = make([]byte, 64+4*w.dims) // as long as a record
	for i := range w.value {
		w.value[i] = byte(random.Uint32())
	}
	w.order = random.Perm(w.entries)
	fill := func(c backend.Cache) error {
		for from := 0; from < w.entries; from += rawBatch {
			if err := c.SetMany(ctx, w.items(from, min(rawBatch, w.entries-from))); err != nil {
				return err
			}
		}
		return nil
	}
	what := fmt.Sprintf("%s, %d entries of %d dimensions", b.Name, w.entries, w.dims)
	err := w.Repeat(ctx, b, what, fill, func(repetition int, store *bench.Store) error {
		return store.BesideFloor(ctx, func(copied *bench.Copy, byHand *bench.Floor) error {
			return w.repeat(ctx, repetition, b.Name, copied, byHand)
		})
	})
	if err != nil {
		return err
	}
	return w.table.Emit()
}

func (w *rawRun) repeat(ctx context.Context, repetition int, name string, copied *bench.Copy, byHand *bench.Floor) error {
	reader, err := byHand.Reader()
	if err != nil {
		return err
	}
	defer reader.Close()

	to := make([]byte, len(w.value))
	get := func(keys []backend.Key) (found int, err error) {
		return found, copied.GetMany(ctx, keys, func(_ int, value []byte) error {
			found++
			copy(to, value)
			return nil
		})
	}
	getByHand := func(keys []backend.Key) (found int, err error) {
		return found, reader.Get(keys, func(_ int, value []byte) {
			found++
			copy(to, value)
		})
	}
	cell := bench.Result{Backend: name, Goroutines: 1, Texts: rawBatch, Dims: w.dims, Entries: w.entries, Unit: "µs/entry"}
	for _, stored := range []bool{true, false} {
		cell.Metric = map[bool]string{true: "hit", false: "miss"}[stored]
		err := w.table.Beside(ctx, repetition, cell,
			bench.Side{Case: bench.CaseOurs, Measure: w.reads(stored, get)},
			bench.Side{Case: bench.CaseFloor, Measure: w.reads(stored, getByHand)})
		if err != nil {
			return err
		}
	}
	// Last, since it makes the copies grow; nothing is read from them afterwards.
	cell.Metric = "write"
	return w.table.Beside(ctx, repetition, cell,
		bench.Side{Case: bench.CaseOurs, Measure: w.writes(func(items []backend.Item) error { return copied.SetMany(ctx, items) })},
		bench.Side{Case: bench.CaseFloor, Measure: w.writes(byHand.Write)})
}

// reads measures calls of get with keys of which all are stored, or none.
func (w *rawRun) reads(stored bool, get func([]backend.Key) (int, error)) func(context.Context) (float64, error) {
	const calls = 32 // whose keys are made before
	keys := make([][]backend.Key, calls)
	for i := range keys {
		keys[i] = make([]backend.Key, rawBatch)
		for k := range keys[i] {
			entry := w.order[(i*rawBatch+k)%w.entries]
			if !stored {
				entry += 1 << 30
			}
			keys[i][k] = rawKey(entry)
		}
	}
	want := 0
	if stored {
		want = rawBatch
	}
	return func(ctx context.Context) (float64, error) {
		pass, err := bench.Loop(ctx, 1, w.each, func(_, i int) error {
			found, err := get(keys[i%calls])
			if err == nil && found != want {
				err = fmt.Errorf("found %d of %d keys, not %d", found, rawBatch, want)
			}
			return err
		})
		return pass.PerText(rawBatch), err
	}
}

// writes measures batches of new entries, after one that warms up.
func (w *rawRun) writes(set func([]backend.Item) error) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		batches := make([][]backend.Item, 1+w.batches)
		for i := range batches {
			batches[i] = w.items(w.entries+i*rawBatch, rawBatch)
		}
		if err := set(batches[0]); err != nil {
			return 0, err
		}
		begun := time.Now()
		for _, batch := range batches[1:] {
			if err := set(batch); err != nil {
				return 0, err
			}
		}
		return bench.Micros(time.Since(begun)) / float64(w.batches*rawBatch), ctx.Err()
	}
}

func (w *rawRun) items(from, n int) []backend.Item {
	items := make([]backend.Item, n)
	for i := range items {
		items[i] = backend.Item{Key: rawKey(from + i), Value: w.value}
	}
	return items
}

func rawKey(entry int) backend.Key {
	return sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(entry)))
}
