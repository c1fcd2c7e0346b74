package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// The sweep is where a backend's advice in Info comes from. It measures a store
// in rounds, every setting once in each, so that a change of the machine's load
// meets all of them, and prints medians as Markdown.

const (
	sweepRounds  = 9
	sweepEntries = 10_000
	sweepBatch   = 2048 // the largest answer that providers give
)

var (
	sweepKeys  = []int{64, 256, 512, 1024, 4096}
	sweepParts = []int{1, 2, 4, 8}
)

// benchSweep prints three tables: what splitting a GetMany brings, what writing
// from several goroutines brings, and what a large batch does to others.
func (s *Suite) benchSweep(b *testing.B) {
	e, c := s.benchStore(b, sweepEntries, benchBase.dim)
	stored := e.benchFill(b, c, sweepEntries, benchBase.dim)
	for b.Loop() {
		// Not b.Log, which cuts after ten lines.
		fmt.Printf("\n%s\n%s\n%s", e.sweepSplit(b, c, stored), e.sweepWriters(b), e.sweepNeighbours(b, stored))
	}
}

// benchFill stores entries and returns their keys in another order.
func (e *env) benchFill(b *testing.B, c backend.Cache, entries, dim int) []backend.Key {
	piece := e.s.benchPiece(512, recordBytes(dim))
	for from := 0; from < entries; from += piece {
		if err := c.SetMany(context.Background(), e.benchBatch("entry", from, min(piece, entries-from), dim)); err != nil {
			b.Fatal(err)
		}
	}
	keys := e.keys("entry", entries)
	e.rand("order").Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// sweepSplit reads n keys in so many parts at once.
func (e *env) sweepSplit(b *testing.B, c backend.Cache, stored []backend.Key) string {
	took := make(map[[2]int][]float64) // µs a key
	start := 0
	for range sweepRounds {
		for _, n := range sweepKeys {
			for _, parts := range sweepParts {
				keys := make([]backend.Key, n)
				for i := range keys {
					keys[i] = stored[(start+i)%len(stored)]
				}
				start += n
				took[[2]int{n, parts}] = append(took[[2]int{n, parts}], perKey(n, func() { readInParts(b, c, keys, parts) }))
			}
		}
	}
	return table("Reading, µs a key of one call split into so many at once", "keys", sweepKeys, "parts", sweepParts, took)
}

func readInParts(b *testing.B, c backend.Cache, keys []backend.Key, parts int) {
	var wait sync.WaitGroup
	for piece := range slices.Chunk(keys, max(1, len(keys)/parts)) {
		wait.Go(func() {
			if err := readAll(c, piece); err != nil {
				b.Error(err)
			}
		})
	}
	wait.Wait()
}

func readAll(c backend.Cache, keys []backend.Key) error {
	found := 0
	err := c.GetMany(context.Background(), keys, func(int, []byte) error { found++; return nil })
	if err == nil && found != len(keys) {
		err = fmt.Errorf("%d of %d keys found", found, len(keys))
	}
	return err
}

// sweepWriters writes 1,024 entries in batches of n from so many goroutines, on a
// fresh store for each number of them.
func (e *env) sweepWriters(b *testing.B) string {
	const entries = 1024
	sizes := []int{1, 32, 512}
	took := make(map[[2]int][]float64)
	open := make(map[int]backend.Cache)
	for _, writers := range sweepParts {
		_, open[writers] = e.s.benchStore(b, entries*sweepRounds*len(sizes), benchBase.dim)
	}
	for round := range sweepRounds {
		for _, n := range sizes {
			for _, writers := range sweepParts {
				total := entries
				if n == 1 {
					total = 64 // each may cost a sync of the disk
				}
				items := e.benchBatch(fmt.Sprint("round", round, n), 0, total, benchBase.dim)
				took[[2]int{n, writers}] = append(took[[2]int{n, writers}], perKey(total, func() {
					writeFrom(b, open[writers], items, e.s.benchPiece(n, recordBytes(benchBase.dim)), writers)
				}))
			}
		}
	}
	return table("Writing, µs an entry in batches from so many goroutines", "batch", sizes, "writers", sweepParts, took)
}

func writeFrom(b *testing.B, c backend.Cache, items []backend.Item, n, writers int) {
	batches := make(chan []backend.Item, len(items)) // never full
	for batch := range slices.Chunk(items, n) {
		batches <- batch
	}
	close(batches)
	var wait sync.WaitGroup
	for range writers {
		wait.Go(func() {
			for batch := range batches {
				if err := c.SetMany(context.Background(), batch); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wait.Wait()
}

// sweepNeighbours measures small calls alone, and then while another goroutine
// writes one large batch after the other.
func (e *env) sweepNeighbours(b *testing.B, stored []backend.Key) string {
	_, c := e.s.benchStore(b, sweepEntries+sweepBatch, benchBase.dim)
	e.benchFill(b, c, sweepEntries, benchBase.dim)
	large := e.benchBatch("large", 0, e.s.benchPiece(sweepBatch, recordBytes(benchBase.dim)), benchBase.dim)
	small, written := e.benchBatch("small", 0, 1, benchBase.dim), 0
	calls := []struct {
		name string
		call func(i int) error
	}{
		{"GetMany of 16 keys", func(i int) error { i = 16 * i % (len(stored) - 16); return readAll(c, stored[i:i+16]) }},
		{"GetMany of 512 keys", func(i int) error { i = 512 * i % (len(stored) - 512); return readAll(c, stored[i:i+512]) }},
		{"SetMany of one entry", func(int) error {
			small[0].Key = e.key("small", written) // a store may see that nothing changes
			written++
			return c.SetMany(context.Background(), small)
		}},
	}
	var out strings.Builder
	fmt.Fprintf(&out, "Others while batches of %d are written, ms\n\n| call | p50 alone | p99 alone | p50 meanwhile | p99 meanwhile |\n|---|---:|---:|---:|---:|\n", len(large))
	for _, each := range calls {
		quiet := times(b, 2*time.Second, each.call)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := c.SetMany(context.Background(), large); err != nil {
					b.Error(err)
					return
				}
			}
		}()
		busy := times(b, 5*time.Second, each.call)
		close(stop)
		<-stopped
		fmt.Fprintf(&out, "| %s | %.2f | %.2f | %.2f | %.2f |\n", each.name, quantile(quiet, 50), quantile(quiet, 99), quantile(busy, 50), quantile(busy, 99))
	}
	return out.String()
}

// times calls for as long as that, and returns how many ms each call took.
func times(b *testing.B, duration time.Duration, call func(i int) error) (ms []float64) {
	for i, end := 0, time.Now().Add(duration); time.Now().Before(end); i++ {
		start := time.Now()
		if err := call(i); err != nil {
			b.Error(err)
			break
		}
		ms = append(ms, float64(time.Since(start).Nanoseconds())/1e6)
	}
	return ms
}

func perKey(n int, do func()) float64 {
	start := time.Now()
	do()
	return float64(time.Since(start).Nanoseconds()) / 1e3 / float64(n)
}

func quantile(values []float64, percent int) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)*percent/100]
}

func table(title, rowName string, rows []int, columnName string, columns []int, cells map[[2]int][]float64) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\n| %s |", title, rowName)
	for i, column := range columns {
		if i == 0 {
			fmt.Fprintf(&out, " %d %s |", column, columnName)
		} else {
			fmt.Fprintf(&out, " %d |", column)
		}
	}
	out.WriteString("\n|---:|" + strings.Repeat("---:|", len(columns)) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&out, "| %d |", row)
		for _, column := range columns {
			fmt.Fprintf(&out, " %s |", threeDigits(quantile(cells[[2]int{row, column}], 50)))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// threeDigits prints a positive number as a person reads it.
func threeDigits(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
