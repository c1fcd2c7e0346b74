package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
	"github.com/embedonce/embedonce/benchmarks/internal/floor"
)

// BenchmarkHits is a part of the scenario hits, for profiles and for the allocations:
// calls of 512 texts by one goroutine over 10,000 entries.
//
//	go test -run '^$' -bench Hits -count 10 ./benchmarks | tee hits.txt
//	benchstat -col /by hits.txt
func BenchmarkHits(b *testing.B) {
	const texts = 512
	ctx := context.Background()
	r, err := bench.Start(ctx, bench.Settings{Scenario: "hits", Seed: 1, Sink: bench.Lines{W: io.Discard}})
	require.NoError(b, err)
	defer func() { require.NoError(b, r.End()) }()
	h := &hitRun{Run: r, dims: 1536, texts: r.Texts(0, 10_000), each: time.Second, rows: make([]float32, texts*1536)}
	h.windows = bench.WindowsInOrder(h.texts)
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt")
	require.NoError(b, err)
	for _, kind := range backends {
		b.Run("backend="+kind.Name, func(b *testing.B) {
			provider := bench.LocalProvider(h.dims)
			store, err := r.Prepare(ctx, kind, func(c backend.Cache) error { return bench.Fill(ctx, c, provider, h.texts) })
			require.NoError(b, err)
			defer func() { require.NoError(b, store.Close(ctx)) }()
			copied, err := store.Fresh(ctx)
			require.NoError(b, err)
			defer func() { require.NoError(b, copied.Remove(ctx)) }()
			byHand, err := store.Floor(ctx)
			require.NoError(b, err)
			defer func() { require.NoError(b, byHand.Remove(ctx)) }()
			// One reader, as the floor has one goroutine; left to itself, the Client
			// reads a call of this size from sqlite with two.
			client, err := embed.New(provider, &embed.Options{Cache: copied, CacheReaders: 1})
			require.NoError(b, err)
			defer client.Close()
			reader, err := byHand.Reader()
			require.NoError(b, err)
			defer reader.Close()

			run := func(name string, call func(texts []string) error) {
				b.Run("by="+name, func(b *testing.B) {
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						if err := call(h.windows.At(0, i, texts)); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(bench.Micros(b.Elapsed())/float64(b.N)/texts, "µs/text")
				})
			}
			run("Embed", func(texts []string) error {
				_, err := client.Do(ctx, &embed.Call{Texts: texts, CacheOnly: true, Into: h.rows})
				return err
			})
			hits := floor.NewHits(reader, texts, h.dims)
			run("floor", func(texts []string) error { return hits.Read(texts, h.rows) })
		})
	}
}
