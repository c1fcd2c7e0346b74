package conformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/embedonce/embedonce/backend"
)

// benchmark is the point from which one thing at a time is varied.
type benchmark struct {
	n, dim, hit, goroutines, entries int
}

var benchBase = benchmark{n: 512, dim: 1536, hit: 100, goroutines: 1, entries: 10_000}

// Bench measures a fresh store, with the same names for every backend:
// GetMany/n=512/dim=1536/hit=100 and so on. One thing at a time is varied from
// n=512 keys a call, values of a 1,536-dimensional record, all keys stored, one
// goroutine and 10,000 entries. It reports vectors/s beside time and allocations
// of a call. The values are random bytes; nothing decodes them.
//
// Sweep takes about a minute and prints the tables behind the advice in Info, as
// Markdown: splitting a GetMany, several writers, and what a batch of 2,048 does to
// the calls of others.
func (s Suite) Bench(b *testing.B) {
	s.validate(b)
	get := func(name string, point benchmark) {
		b.Run("GetMany/"+name, func(b *testing.B) { s.benchGet(b, point) })
	}
	for _, n := range []int{1, 16, 128, 512, 4096} {
		point := benchBase
		point.n = n
		get(fmt.Sprintf("n=%d/dim=1536/hit=100", n), point)
	}
	for _, hit := range []int{50, 0} {
		point := benchBase
		point.hit = hit
		get(fmt.Sprintf("n=512/dim=1536/hit=%d", hit), point)
	}
	for _, dim := range []int{256, 768, 3072} {
		point := benchBase
		point.dim = dim
		get(fmt.Sprintf("n=512/dim=%d/hit=100", dim), point)
	}
	for _, goroutines := range []int{2, 8, 32} {
		point := benchBase
		point.goroutines = goroutines
		get(fmt.Sprintf("n=512/dim=1536/hit=100/goroutines=%d", goroutines), point)
	}
	for _, entries := range []int{1000, 100_000} {
		point := benchBase
		point.entries = entries
		get(fmt.Sprintf("n=512/dim=1536/hit=100/entries=%d", entries), point)
	}
	for _, n := range []int{1, 512, 2048} {
		b.Run(fmt.Sprintf("SetMany/n=%d/dim=1536", n), func(b *testing.B) {
			s.benchSet(b, n, func(c backend.Cache, items []backend.Item) error { return c.SetMany(context.Background(), items) })
		})
	}
	b.Run("Txn/n=512/dim=1536", func(b *testing.B) {
		s.benchSet(b, 512, func(c backend.Cache, items []backend.Item) error { return setInTxn(c, context.Background(), items) })
	})
	b.Run("Sweep", s.benchSweep)
}

func recordBytes(dim int) int { return 64 + 4*dim }

// benchStore opens a fresh store, or skips a point that it has no room for.
func (s *Suite) benchStore(b *testing.B, entries, dim int) (*env, backend.Cache) {
	size := recordBytes(dim)
	if limit := s.Want.MaxValueBytes; limit > 0 && size > limit {
		b.Skipf("Info.MaxValueBytes is %d", limit)
	}
	if need := int64(entries) * int64(size+32); s.Want.MayEvict && s.Want.Capacity > 0 && s.Want.Capacity < need {
		b.Skipf("needs room for %d bytes, Info.Capacity is %d", need, s.Want.Capacity)
	}
	e := &env{recorder: newRecorder(b, b.Name()), s: s, seed: fixedSeed}
	c := s.Open(b, s.New(b))
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	return e, c
}

func (e *env) benchBatch(name string, from, n, dim int) []backend.Item {
	items := make([]backend.Item, n)
	for i := range items {
		k := e.key(name, from+i)
		items[i] = backend.Item{Key: k, Value: payload(k, 1, recordBytes(dim))}
	}
	return items
}

// benchPiece is how many items of size bytes one batch of the store may have.
func (s *Suite) benchPiece(n, size int) int {
	if limit := s.Want.MaxBatchItems; limit > 0 {
		n = min(n, limit)
	}
	if limit := s.Want.MaxBatchBytes; limit > 0 {
		n = max(1, min(n, limit/size))
	}
	return n
}

func (s *Suite) benchGet(b *testing.B, point benchmark) {
	e, c := s.benchStore(b, point.entries, point.dim)
	ctx := context.Background()
	// Calls walk through all entries in an order that is not the one of writing.
	stored, missing := e.benchFill(b, c, point.entries, point.dim), e.keys("missing", point.n)
	var calls atomic.Int64
	worker := func(times int) error {
		keys := make([]backend.Key, point.n)
		for range times {
			start := int(calls.Add(1)) * point.n
			for i := range keys {
				if i*100 < point.hit*point.n {
					keys[i] = stored[(start+i)%len(stored)]
				} else {
					keys[i] = missing[i]
				}
			}
			found := 0
			err := c.GetMany(ctx, keys, func(_ int, value []byte) error {
				found += len(value)
				return nil
			})
			if err != nil {
				return err
			}
			if want := (point.n*point.hit + 99) / 100 * recordBytes(point.dim); found != want {
				return fmt.Errorf("%d bytes found, not %d", found, want)
			}
		}
		return nil
	}
	if err := worker(1); err != nil { // opens readers, warms buffers
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wait sync.WaitGroup
	var failed atomic.Pointer[error]
	for g := range point.goroutines {
		wait.Go(func() {
			if err := worker(b.N/point.goroutines + min(1, max(0, b.N%point.goroutines-g))); err != nil {
				failed.Store(&err)
			}
		})
	}
	wait.Wait()
	b.StopTimer()
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
	b.ReportMetric(float64(b.N)*float64(point.n)/b.Elapsed().Seconds(), "vectors/s")
}

func (s *Suite) benchSet(b *testing.B, n int, set func(c backend.Cache, items []backend.Item) error) {
	e, c := s.benchStore(b, n, benchBase.dim)
	if s.benchPiece(n, recordBytes(benchBase.dim)) < n {
		b.Skip("more than Info allows in one batch")
	}
	items := e.benchBatch("entry", 0, n, benchBase.dim)
	written := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range items { // new keys, so that the store grows as in use
			items[i].Key = e.key("entry", written)
			written++
		}
		b.StartTimer()
		if err := set(c, items); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "vectors/s")
}
