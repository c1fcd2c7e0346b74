package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// Prices in dollars, of 2026-11: Amazon S3 Standard in us-east-1, requests; and the
// embedding model text-embedding-3-small.
const (
	pricePut      = 0.005 / 1000 // a PUT or a LIST
	priceGet      = 0.0004 / 1000
	priceTokens   = 0.02 / 1e6
	tokensPerText = 185
)

const (
	vectorBytes = 64 + 4*1536 // a record of embed
	million     = 1_000_000
)

func (m *model) open(b testing.TB, change func(o *Options)) *Cache {
	o := &Options{Endpoint: m.URL, Region: "us-east-1", Credentials: testCredentials, Timeout: 5 * time.Minute, Freshness: time.Hour}
	if change != nil {
		change(o)
	}
	c, err := Open("s3://"+testBucket+"/figures", o)
	require.NoError(b, err)
	return c
}

// fill puts n segments of each vectors into m, without requests.
func (m *model) fill(n, each, bytes int) {
	value := make([]byte, bytes)
	for s := range n {
		w := &segmentWriter{runs: []run{{version{uint64(1000 + s), 1}, uint32(each)}}}
		for i := range each {
			key := testKey(s*each + i)
			w.data = appendFrame(w.data, &key, value)
			w.entries = append(w.entries, entry{key, uint32(bytes)})
		}
		body, tail := w.finish()
		m.store("figures/"+objectName{version: w.runs[0].version, seq: 1, tail: uint32(tail), count: uint32(each)}.String(), body)
	}
}

// BenchmarkRequests counts what writing and reading a part of 1,000,000 vectors takes,
// and reports it for all of them: requests are in proportion. Run it with
// -benchtime 1x.
func BenchmarkRequests(b *testing.B) {
	report := func(b *testing.B, m *model, part float64) {
		puts, gets, lists := float64(m.count("PUT"))/part, float64(m.count("GET"))/part, float64(m.count("LIST"))
		b.ReportMetric(puts, "PUTs")
		b.ReportMetric(gets, "GETs")
		b.ReportMetric(lists, "LISTs")
		b.ReportMetric(puts*pricePut+gets*priceGet+lists*pricePut, "$")
		b.ReportMetric(million*pricePut, "$one-object-each")
		b.ReportMetric(million*tokensPerText*priceTokens, "$embedding")
		b.ReportMetric(0, "ns/op")
	}
	for _, batch := range []int{2048, 1621, 32} {
		b.Run(fmt.Sprintf("write/batch=%d", batch), func(b *testing.B) {
			calls := min(40, 65536/batch)
			for b.Loop() {
				m := newModel(b)
				c := m.open(b, nil)
				for n := range calls {
					require.NoError(b, c.SetMany(ctxb, testItems(n*batch, batch, vectorBytes, 0)))
				}
				require.NoError(b, c.Close())
				report(b, m, float64(calls*batch)/million)
			}
		})
	}
	b.Run("write/one-by-one-from-64", func(b *testing.B) {
		for b.Loop() {
			m := newModel(b)
			m.latency = 15 * time.Millisecond
			c := m.open(b, nil)
			const each = 100
			var group sync.WaitGroup
			for w := range 64 {
				group.Go(func() {
					for i := range each {
						if err := c.SetMany(ctxb, testItems(w*each+i, 1, vectorBytes, 0)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			group.Wait()
			require.NoError(b, c.Close())
			b.ReportMetric(64*each/float64(m.count("PUT")), "calls/PUT")
			report(b, m, 64*each/float64(million))
		}
	})
	read := func(b *testing.B, cold bool, random int) {
		for b.Loop() {
			m := newModel(b)
			const segments = 32
			m.fill(segments, 2048, vectorBytes)
			c := m.open(b, nil)
			if !cold {
				m.mu.Lock()
				clear(m.counts)
				m.mu.Unlock()
			}
			keys := testKeys(segments * 2048)
			part := float64(len(keys)) / million
			if random > 0 {
				rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
				keys, part = keys[:random], 1
				for i := range keys {
					readSome(b, c, keys[i:i+1])
				}
			} else {
				for at := 0; at < len(keys); at += 2048 {
					readSome(b, c, keys[at:at+2048])
				}
			}
			require.NoError(b, c.Close())
			report(b, m, part)
		}
	}
	b.Run("read/warm", func(b *testing.B) { read(b, false, 0) })
	b.Run("read/cold", func(b *testing.B) { read(b, true, 0) })
	b.Run("read/10000-random-lookups", func(b *testing.B) { read(b, false, 10_000) })
}

func readSome(b testing.TB, c *Cache, keys []backend.Key) {
	found := 0
	err := c.GetMany(ctxb, keys, func(int, []byte) error { found++; return nil })
	if err != nil || found != len(keys) {
		b.Fatalf("%d of %d keys, %v", found, len(keys), err)
	}
}

// BenchmarkCoalesced reads 4,096 keys of 2 segments, or of 50, with one call, and for
// comparison with one GET a key, 64 at once, through the same SDK.
func BenchmarkCoalesced(b *testing.B) {
	for _, speed := range []int64{100e6, 0} {
		for _, where := range []string{"together", "random"} {
			m := newModel(b)
			segments := map[string]int{"together": 2, "random": 50}[where]
			m.fill(segments, 2048, vectorBytes)
			c := m.open(b, nil)
			m.latency, m.speed = 15*time.Millisecond, speed
			keys := testKeys(segments * 2048)
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			keys = keys[:4096]
			name := fmt.Sprintf("%s/MBps=%d", where, speed/1e6)
			b.Run(name+"/one-call", func(b *testing.B) {
				before := m.count("GET")
				n := 0
				for b.Loop() {
					readSome(b, c, keys)
					n++
				}
				b.ReportMetric(float64(m.count("GET")-before)/float64(n), "GETs")
			})
			b.Run(name+"/one-GET-each", func(b *testing.B) {
				client := c.remote.client
				candidates := c.view.candidates(keys)
				for b.Loop() {
					err := inParallel(ctxb, 64, len(keys), func(ctx context.Context, i int) error {
						at := candidates[i][0]
						out, err := client.GetObject(ctx, &awss3.GetObjectInput{
							Bucket: aws.String(testBucket), Key: aws.String("figures/" + at.segment.name),
							Range: aws.String(fmt.Sprintf("bytes=%d-%d", at.offset, at.offset+at.atMost-1)),
						}, perCall)
						if err != nil {
							return err
						}
						_, err = io.Copy(io.Discard, out.Body)
						return errors.Join(err, out.Body.Close())
					})
					require.NoError(b, err)
				}
			})
			require.NoError(b, c.Close())
		}
	}
}

// BenchmarkOpen opens a store of 1,000,000 keys in 489 segments at 15 ms.
func BenchmarkOpen(b *testing.B) {
	m := newModel(b)
	m.fill(489, 2048, 64) // an index doesn't depend on the values
	m.latency = 15 * time.Millisecond
	for _, parallel := range []int{1, 8, 16, 32, 64} {
		b.Run(fmt.Sprintf("gets=%d", parallel), func(b *testing.B) {
			for b.Loop() {
				c := m.open(b, func(o *Options) { o.ParallelGets = parallel })
				counters := c.Counters()
				b.ReportMetric(float64(counters.IndexBytes)/float64(counters.Entries), "bytes/key")
				b.ReportMetric(float64(counters.Gets), "GETs")
				require.NoError(b, c.Close())
			}
		})
	}
	b.Run("heap", func(b *testing.B) {
		for b.Loop() {
			before := heap()
			c := m.open(b, nil)
			b.ReportMetric(float64(heap()-before)/(489*2048), "heap-bytes/key")
			require.NoError(b, c.Close())
		}
	})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// BenchmarkSweep varies one setting at a time, for docs/backends.md.
func BenchmarkSweep(b *testing.B) {
	m := newModel(b)
	m.fill(50, 2048, vectorBytes)
	random := testKeys(50 * 2048)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(random), func(i, j int) { random[i], random[j] = random[j], random[i] })
	random = random[:4096]
	together := testKeys(50 * 2048)[:8192]
	for _, latency := range []time.Duration{1, 15, 60} {
		for _, speed := range []int64{100e6, 0} {
			m.latency, m.speed = latency*time.Millisecond, speed
			at := fmt.Sprintf("ms=%d/MBps=%d", latency, speed/1e6)
			read := func(name string, keys []backend.Key, change func(o *Options)) {
				b.Run(name+"/"+at, func(b *testing.B) {
					c := m.open(b, change)
					for b.Loop() {
						readSome(b, c, keys)
					}
					require.NoError(b, c.Close())
				})
			}
			for _, gets := range []int{4, 8, 16, 32, 64} {
				read(fmt.Sprintf("random/gets=%d", gets), random, func(o *Options) { o.ParallelGets = gets })
				read(fmt.Sprintf("together/gets=%d", gets), together, func(o *Options) { o.ParallelGets = gets })
			}
			for _, gap := range []int{-1, 32 << 10, 128 << 10, 512 << 10, 2 << 20} {
				read(fmt.Sprintf("random/gapKB=%d", gap>>10), random, func(o *Options) { o.GapBytes = gap })
			}
			for _, lanes := range []int{1, 2, 4, 8} {
				b.Run(fmt.Sprintf("write/lanes=%d/%s", lanes, at), func(b *testing.B) {
					c := m.open(b, func(o *Options) { o.WriteLanes = lanes })
					n := 8
					b.SetBytes(int64(n * 1621 * vectorBytes))
					batches := make([][]backend.Item, n)
					for w := range batches {
						batches[w] = testItems(w*2000, 1621, vectorBytes, 0)
					}
					for b.Loop() {
						err := inParallel(ctxb, n, n, func(ctx context.Context, w int) error { return c.SetMany(ctx, batches[w]) })
						require.NoError(b, err)
					}
					require.NoError(b, c.Close())
				})
			}
		}
	}
}
