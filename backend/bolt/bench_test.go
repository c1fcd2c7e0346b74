package bolt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

const benchValueBytes = 64 + 1536*4 // a record of 1,536 dimensions

func benchItems(from, n int) []backend.Item {
	items := make([]backend.Item, n)
	for i := range items {
		value := make([]byte, benchValueBytes)
		for j := range value {
			value[j] = byte(rand.Uint32())
		}
		items[i] = backend.Item{Key: testKey(from + i), Value: value}
	}
	return items
}

// benchCache returns a cache of so many entries.
func benchCache(b *testing.B, entries int) *Cache {
	path := testPath(b)
	c := openTest(b, path, &Options{NoSync: true})
	items := benchItems(0, 500)
	for from := 0; from < entries; from += len(items) {
		for i := range items {
			items[i].Key = testKey(from + i)
		}
		require.NoError(b, c.SetMany(context.Background(), items))
	}
	return c
}

// benchCalls returns the keys of several calls: each call finds other entries than
// the one before.
func benchCalls(entries, n int) [][]backend.Key {
	calls := make([][]backend.Key, max(1, entries/n))
	order := rand.Perm(entries)
	for c := range calls {
		for _, k := range order[c*n : (c+1)*n] {
			calls[c] = append(calls[c], testKey(k))
		}
	}
	return calls
}

func perKey(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1000/float64(b.N)/float64(n), "µs/key")
}

// BenchmarkGetMany has a floor beside each case: one View and one cursor in a loop
// over bbolt, and nothing else. It also has what the cache doesn't do.
func BenchmarkGetMany(b *testing.B) {
	for _, entries := range []int{10_000, 100_000} {
		c := benchCache(b, entries)
		to := make([]byte, benchValueBytes)
		for _, n := range []int{1, 512, 4096} {
			calls := benchCalls(entries, n)
			run := func(name string, get func(keys []backend.Key)) {
				b.Run(fmt.Sprintf("entries=%d/keys=%d/%s", entries, n, name), func(b *testing.B) {
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						get(calls[i%len(calls)])
					}
					perKey(b, n)
				})
			}
			run("cache", func(keys []backend.Key) {
				require.NoError(b, c.GetMany(context.Background(), keys, func(_ int, value []byte) error {
					copy(to, value)
					return nil
				}))
			})
			db := c.openedStore().db
			run("floor", func(keys []backend.Key) {
				require.NoError(b, db.View(func(tx *bbolt.Tx) error { return rawFloor(tx, keys, to) }))
			})
			if n != 512 {
				continue
			}
			run("bucket.Get", func(keys []backend.Key) {
				require.NoError(b, db.View(func(tx *bbolt.Tx) error {
					bucket := tx.Bucket(entriesBucket)
					for i := range keys {
						copy(to, bucket.Get(keys[i][:]))
					}
					return nil
				}))
			})
		}
	}
}

// BenchmarkBesideFloor takes turns between the cache and the floor, call by call,
// and compares the tenth fastest of a hundred calls of each: so it says the same
// on a busy machine.
func BenchmarkBesideFloor(b *testing.B) {
	const n = 512
	for _, entries := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			c := benchCache(b, entries)
			calls := benchCalls(entries, n)
			db := c.openedStore().db
			to := make([]byte, benchValueBytes)
			var cache, floor []time.Duration
			for i := 0; b.Loop(); i++ {
				for turn := range 2 { // each is first in half of the turns
					start := time.Now()
					if (i+turn)%2 == 0 {
						require.NoError(b, c.GetMany(context.Background(), calls[i%len(calls)], func(_ int, value []byte) error {
							copy(to, value)
							return nil
						}))
						cache = append(cache, time.Since(start))
						continue
					}
					require.NoError(b, db.View(func(tx *bbolt.Tx) error { return rawFloor(tx, calls[(i+len(calls)/2)%len(calls)], to) }))
					floor = append(floor, time.Since(start))
				}
			}
			ours, theirs := tenth(cache), tenth(floor)
			b.ReportMetric(ours/n, "cache-µs/key")
			b.ReportMetric(theirs/n, "floor-µs/key")
			b.ReportMetric(ours/theirs, "ratio")
		})
	}
}

// tenth returns what a tenth of the times is below, in microseconds.
func tenth(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/10].Nanoseconds()) / 1000
}

func rawFloor(tx *bbolt.Tx, keys []backend.Key, to []byte) error {
	cursor := tx.Bucket(entriesBucket).Cursor()
	for i := range keys {
		k, v := cursor.Seek(keys[i][:])
		if !bytes.Equal(k, keys[i][:]) {
			return fmt.Errorf("key %d is missing", i)
		}
		copy(to, v)
	}
	return nil
}

// BenchmarkScaling reads with one goroutine and with two, beside work that needs
// nothing but the processor, in turns of a few milliseconds, and compares the
// tenth fastest of a hundred: how much more two do than one.
func BenchmarkScaling(b *testing.B) {
	const entries, n = 10_000, 512
	c := benchCache(b, entries)
	calls := benchCalls(entries, n)
	kinds := []string{"cache", "floor", "cpu"}
	work := map[string]func(keys []backend.Key, to []byte) error{
		"cache": func(keys []backend.Key, to []byte) error {
			return c.GetMany(context.Background(), keys, func(_ int, value []byte) error {
				copy(to, value)
				return nil
			})
		},
		"floor": func(keys []backend.Key, to []byte) error {
			return c.openedStore().db.View(func(tx *bbolt.Tx) error { return rawFloor(tx, keys, to) })
		},
		"cpu": func(keys []backend.Key, to []byte) error {
			for i := range keys {
				sum := sha256.Sum256(to[:2048])
				copy(to, sum[:])
				copy(to[32:], keys[i][:])
			}
			return nil
		},
	}
	times := make(map[string][]time.Duration)
	buffers := [][]byte{make([]byte, benchValueBytes), make([]byte, benchValueBytes)}
	for i := 0; b.Loop(); i++ {
		for _, kind := range kinds {
			for _, goroutines := range []int{1, 2} {
				start := time.Now()
				var all sync.WaitGroup
				for g := range goroutines {
					all.Go(func() {
						for j := range 3 {
							if err := work[kind](calls[(6*i+2*j+g)%len(calls)], buffers[g]); err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Wait()
				name := fmt.Sprint(kind, goroutines)
				times[name] = append(times[name], time.Since(start))
			}
		}
	}
	for _, kind := range kinds {
		b.ReportMetric(2*tenth(times[kind+"1"])/tenth(times[kind+"2"]), kind+"-scaling")
	}
}

// BenchmarkSplitGetMany looks closer at what Info.Readers and Info.SplitKeys say: so
// many keys in so many parts, each part a GetMany of its own.
func BenchmarkSplitGetMany(b *testing.B) {
	const entries = 20_000
	c := benchCache(b, entries)
	for _, n := range []int{64, 256, 1024, 4096} {
		calls := benchCalls(entries, n)
		for _, parts := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("keys=%d/parts=%d", n, parts), func(b *testing.B) {
				done := make(chan error, parts)
				to := make([][]byte, parts)
				for p := range parts {
					to[p] = make([]byte, benchValueBytes)
				}
				for i := 0; b.Loop(); i++ {
					keys := calls[i%len(calls)]
					for p := range parts {
						go func() {
							done <- c.GetMany(context.Background(), keys[p*n/parts:(p+1)*n/parts], func(_ int, value []byte) error {
								copy(to[p], value)
								return nil
							})
						}()
					}
					for range parts {
						require.NoError(b, <-done)
					}
				}
				perKey(b, n)
			})
		}
	}
}

func BenchmarkSetMany(b *testing.B) {
	for _, n := range []int{1, 512, 2048} {
		for _, noSync := range []bool{false, true} {
			b.Run(fmt.Sprintf("items=%d/NoSync=%v", n, noSync), func(b *testing.B) {
				c := openTest(b, testPath(b), &Options{NoSync: noSync})
				items := benchItems(0, n)
				next := 0
				b.ReportAllocs()
				for b.Loop() {
					for i := range items {
						items[i].Key = testKey(next)
						next++
					}
					require.NoError(b, c.SetMany(context.Background(), items))
				}
				perKey(b, n)
			})
		}
	}
}

// BenchmarkWriters is the sweep behind Info.Writers, and compares the ways to
// share a commit: ours, none, and bbolt's Batch.
func BenchmarkWriters(b *testing.B) {
	const n = 16
	for _, way := range []string{"cache", "Update", "Batch"} {
		for _, goroutines := range []int{1, 2, 4, 8, 16} {
			b.Run(fmt.Sprintf("%s/writers=%d", way, goroutines), func(b *testing.B) {
				c := openTest(b, testPath(b), nil)
				db := c.openedStore().db
				items := benchItems(0, n)
				var all sync.WaitGroup
				for g := range goroutines {
					all.Go(func() {
						own := bytes.Clone(items[0].Value)
						for i := range b.N {
							batch := make([]backend.Item, n)
							for j := range batch {
								batch[j] = backend.Item{Key: testKey((g*b.N+i)*n + j), Value: own}
							}
							store := func(tx *bbolt.Tx) error {
								for j := range batch {
									if err := put(tx.Bucket(entriesBucket), &batch[j]); err != nil {
										return err
									}
								}
								return nil
							}
							var err error
							switch way {
							case "cache":
								err = c.SetMany(context.Background(), batch)
							case "Update":
								err = db.Update(store)
							case "Batch":
								err = db.Batch(store)
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N*goroutines)/b.Elapsed().Seconds(), "batches/s")
			})
		}
	}
}

// BenchmarkSettings writes 512 entries a batch into a file of 20,000, with each
// setting of bbolt that could matter. µs/key is that of the tenth fastest of a
// hundred batches.
func BenchmarkSettings(b *testing.B) {
	type setting struct {
		name    string
		options bbolt.Options
		fill    float64
	}
	settings := []setting{{name: "page=4096"}}
	for _, size := range []int{8192, 16384, 32768} {
		settings = append(settings, setting{name: fmt.Sprintf("page=%d", size), options: bbolt.Options{PageSize: size}})
	}
	settings = append(settings,
		setting{name: "fill=0.9", fill: 0.9},
		setting{name: "freelist=array", options: bbolt.Options{FreelistType: bbolt.FreelistArrayType}},
		setting{name: "NoFreelistSync", options: bbolt.Options{NoFreelistSync: true}},
		setting{name: "NoSync", options: bbolt.Options{NoSync: true}})
	for _, s := range settings {
		b.Run(s.name, func(b *testing.B) {
			if s.options.PageSize == 0 {
				s.options.PageSize = 4096
			}
			if s.options.FreelistType == "" {
				s.options.FreelistType = bbolt.FreelistMapType
			}
			s.options.InitialMmapSize, _ = new(Options).mapBytes()
			s.options.Timeout = time.Second
			path := filepath.Join(b.TempDir(), "raw.db")
			db, err := bbolt.Open(path, 0o600, &s.options)
			require.NoError(b, err)
			defer func() { require.NoError(b, db.Close()) }()
			items := benchItems(0, 512)
			next := 0
			write := func() {
				for i := range items {
					items[i].Key = testKey(next)
					next++
				}
				require.NoError(b, db.Update(func(tx *bbolt.Tx) error {
					entries, err := tx.CreateBucketIfNotExists(entriesBucket)
					if err != nil {
						return err
					}
					if s.fill != 0 {
						entries.FillPercent = s.fill
					}
					for i := range items {
						if err := entries.Put(items[i].Key[:], items[i].Value); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			db.NoSync = true
			for next < 20_000 {
				write()
			}
			require.NoError(b, db.Sync())
			db.NoSync = s.options.NoSync
			var times []time.Duration
			for b.Loop() {
				start := time.Now()
				write()
				times = append(times, time.Since(start))
			}
			b.ReportMetric(tenth(times)/float64(len(items)), "µs/key")
			require.NoError(b, db.View(func(tx *bbolt.Tx) error {
				b.ReportMetric(float64(tx.Size())/float64(next)/benchValueBytes, "file/values")
				return nil
			}))
		})
	}
}
