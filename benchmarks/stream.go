package main

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

const (
	caseOneCall     = "one call"
	caseOneCallLent = "one call, lent destination"
)

// streamRun is the scenario stream.
type streamRun struct {
	*bench.Run
	dims  int
	known []string // that the store has
	fresh []string // that it hasn't: as many
	warm  []string // nor these
	rows  []float32
	each  time.Duration
	long  []int // texts of the streams whose heap is looked at

	provider embed.Provider
	table    *bench.Table
}

// stream measures a stream beside one call with the same texts, and how much memory a
// long stream needs.
func stream(ctx context.Context, r *bench.Run) error {
	// The heap is this process's: a store on a server would hide its part.
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt")
	if err != nil {
		return err
	}
	n := bench.Pick(r.Quick, 256, 8192)
	s := &streamRun{
		Run:   r,
		dims:  1536,
		known: r.Texts(0, n),
		fresh: r.Texts(n, n),
		warm:  r.Texts(2*n, bench.Pick(r.Quick, 16, 64)),
		each:  bench.Pick(r.Quick, 10*time.Millisecond, 500*time.Millisecond),
		long:  bench.Pick(r.Quick, []int{256, 768}, []int{8192, 65_536}),
		table: r.NewTable(),
	}
	s.rows = make([]float32, n*s.dims)
	s.provider = r.NewServer(s.dims, bench.Pick(r.Quick, 5*time.Millisecond, 50*time.Millisecond)).Provider()
	filling := r.NewServer(s.dims, 0).Provider()
	for _, b := range backends {
		fill := func(c backend.Cache) error { return bench.Fill(ctx, c, filling, s.known) }
		err := r.Repeat(ctx, b, b.Name, fill, func(repetition int, store *bench.Store) error {
			return s.repeat(ctx, repetition, b.Name, store)
		})
		if err != nil {
			return err
		}
	}
	return s.table.Emit()
}

func (s *streamRun) repeat(ctx context.Context, repetition int, name string, store *bench.Store) error {
	onCopy := func(f func(client *embed.Client) error) error {
		return store.WithClient(ctx, s.provider, nil, func(client *embed.Client) error {
			response, err := client.Embed(ctx, s.warm)
			if err := bench.Check(response, err, 0); err != nil {
				return err
			}
			return f(client)
		})
	}
	cell := bench.Result{Backend: name, Goroutines: 1, Texts: len(s.known), Dims: s.dims, Entries: len(s.known), Unit: "µs/text"}

	cell.Metric = "hits"
	err := onCopy(func(client *embed.Client) error {
		return s.times(ctx, repetition, cell, []string{bench.CaseOurs, caseOneCall, caseOneCallLent}, func(side string) (float64, error) {
			pass, err := bench.Loop(ctx, 1, s.each, func(int, int) error { return s.once(ctx, client, side, s.known, len(s.known)) })
			return pass.PerText(len(s.known)), err
		})
	})
	if err != nil {
		return err
	}
	cell.Metric = "misses"
	err = s.times(ctx, repetition, cell, []string{bench.CaseOurs, caseOneCall}, func(side string) (perText float64, err error) {
		err = onCopy(func(client *embed.Client) error {
			runtime.GC() // none is left from what came before
			begun := time.Now()
			err := s.once(ctx, client, side, s.fresh, 0)
			perText = bench.Micros(time.Since(begun)) / float64(len(s.fresh))
			return err
		})
		return perText, err
	})
	if err != nil {
		return err
	}

	for _, n := range s.long {
		cell.Texts, cell.Metric = n, "hits"
		err := onCopy(func(client *embed.Client) error {
			return s.heap(cell, bench.CaseOurs, func() error {
				return s.through(ctx, client, around(s.known, n), n, n)
			})
		})
		if err != nil {
			return err
		}
		if name == "memory" {
			continue // what it stores is on the heap too
		}
		cell.Metric = "misses"
		err = onCopy(func(client *embed.Client) error {
			return s.heap(cell, bench.CaseOurs, func() error {
				return s.through(ctx, client, s.made(n), n, 0)
			})
		})
		if err != nil {
			return err
		}
		if err := s.heap(cell, bench.CaseFloor, func() error { return s.byHand(ctx, n) }); err != nil {
			return err
		}
	}
	return nil
}

// times measures the sides in turn, and adds the quotients of the first with each
// other one.
func (s *streamRun) times(ctx context.Context, repetition int, cell bench.Result, names []string, measure func(side string) (float64, error)) error {
	figures := make(map[string]float64)
	var sides []bench.Side
	for _, name := range names {
		sides = append(sides, bench.Side{Case: name, Measure: func(context.Context) (_ float64, err error) {
			figures[name], err = measure(name)
			return figures[name], err
		}})
	}
	if err := s.table.Beside(ctx, repetition, cell, sides...); err != nil {
		return err
	}
	of := cell.Metric
	cell.Unit = "ratio"
	for _, name := range names[1:] {
		cell.Metric = of + " / " + name
		s.table.Add(cell, names[0], figures[names[0]]/figures[name])
	}
	return nil
}

// once embeds texts, the same way as its side says.
func (s *streamRun) once(ctx context.Context, client *embed.Client, side string, texts []string, hits int) error {
	if side == bench.CaseOurs {
		return s.through(ctx, client, around(texts, len(texts)), len(texts), hits)
	}
	call := &embed.Call{Texts: texts}
	if side == caseOneCallLent {
		call.Into = s.rows
	}
	response, err := client.Do(ctx, call)
	return bench.Check(response, err, hits)
}

// through takes n vectors from a stream.
func (s *streamRun) through(ctx context.Context, client *embed.Client, texts iter.Seq2[string, string], n, hits int) error {
	all := client.Stream(ctx, texts, nil)
	got := 0
	for item, err := range all.All() {
		if err != nil {
			return err
		}
		if len(item.Vector) != s.dims {
			return fmt.Errorf("a vector has %d dimensions, not %d", len(item.Vector), s.dims)
		}
		got++
	}
	if usage := all.Usage(); got != n || usage.Hits != hits {
		return fmt.Errorf("%d vectors and %d hits, not %d and %d", got, usage.Hits, n, hits)
	}
	return nil
}

// byHand sends the requests for the texts of made, as many at once as a stream does.
func (s *streamRun) byHand(ctx context.Context, n int) error {
	next, stop := iter.Pull2(s.made(n))
	defer stop()
	for {
		var texts []string
		for range embed.DefaultConcurrentRequests * bench.TextsOfRequest {
			_, text, ok := next()
			if !ok {
				break
			}
			texts = append(texts, text)
		}
		if len(texts) == 0 {
			return nil
		}
		if err := bench.Ask(ctx, s.provider, texts, bench.TextsOfRequest, embed.DefaultConcurrentRequests); err != nil {
			return err
		}
	}
}

// around gives n texts, the same ones again and again.
func around(texts []string, n int) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := range n {
			if !yield("", texts[i%len(texts)]) {
				return
			}
		}
	}
}

// made makes n texts that are not stored, as they are asked for.
func (s *streamRun) made(n int) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		const together = 128
		first := len(s.known) + len(s.fresh) + len(s.warm)
		for from := 0; from < n; from += together {
			for _, text := range s.Texts(first+from, min(together, n-from)) {
				if !yield("", text) {
					return
				}
			}
		}
	}
}

// heap adds how far the heap grows while f runs: with what waits for the garbage
// collector, and what was alive when it last ran.
func (s *streamRun) heap(cell bench.Result, side string, f func() error) error {
	of := cell.Metric
	cell.Unit = "MB"
	grown, err := heapDuring(f)
	cell.Metric = of + ", heap"
	s.table.Add(cell, side, float64(grown.objects)/1e6)
	cell.Metric = of + ", live heap"
	s.table.Add(cell, side, float64(grown.live)/1e6)
	return err
}

// heapBytes is how much memory objects take.
type heapBytes struct {
	objects uint64 // also those that are garbage
	live    uint64 // those that the last collection kept
}

func readHeap() heapBytes {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return heapBytes{samples[0].Value.Uint64(), samples[1].Value.Uint64()}
}

// heapDuring returns the most that the heap grew while f ran.
func heapDuring(f func() error) (heapBytes, error) {
	runtime.GC()
	runtime.GC() // also what pools and finalizers kept
	before := readHeap()
	most := before
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		often := time.NewTicker(time.Millisecond)
		defer often.Stop()
		for {
			now := readHeap()
			most.objects, most.live = max(most.objects, now.objects), max(most.live, now.live)
			select {
			case <-often.C:
			case <-done:
				return
			}
		}
	}()
	err := f()
	close(done)
	<-ended
	return heapBytes{most.objects - before.objects, most.live - before.live}, err
}
