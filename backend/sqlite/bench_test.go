package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	driver "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/embedonce/embedonce/backend"
)

const (
	benchValueBytes = 64 + 1536*4 // a record of 1,536 dimensions
	benchEntries    = 10_000
)

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

// benchCache returns a cache of benchEntries entries, moved out of the log.
func benchCache(b *testing.B, o *Options) (*Cache, string) {
	path := testPath(b)
	c := openTest(b, path, o)
	for from := 0; from < benchEntries; from += 500 {
		require.NoError(b, c.SetMany(context.Background(), benchItems(from, 500)))
	}
	rawRun(b, path, "PRAGMA wal_checkpoint(TRUNCATE)")
	return c, path
}

func benchKeys(n int) []backend.Key {
	keys := make([]backend.Key, n)
	for i, k := range rand.Perm(benchEntries)[:n] {
		keys[i] = testKey(k)
	}
	return keys
}

func perKey(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1000/float64(b.N)/float64(n), "µs/key")
}

// copier is what a caller does with each value: it copies it.
type copier struct{ to []byte }

func (c *copier) Write(p []byte) (int, error) { return copy(c.to, p), nil }

// BenchmarkGetMany has a floor beside each case: the same statements in a loop
// over the driver and nothing else.
func BenchmarkGetMany(b *testing.B) {
	c, path := benchCache(b, nil)
	for _, n := range []int{1, 512, 4096} {
		keys := benchKeys(n)
		b.Run(fmt.Sprintf("keys=%d/cache", n), func(b *testing.B) {
			to := make([]byte, benchValueBytes)
			b.ReportAllocs()
			for b.Loop() {
				err := c.GetMany(context.Background(), keys, func(_ int, value []byte) error {
					copy(to, value)
					return nil
				})
				require.NoError(b, err)
			}
			perKey(b, n)
		})
		b.Run(fmt.Sprintf("keys=%d/floor", n), func(b *testing.B) {
			db := rawConn(b, path)
			defer db.Close()
			rawExec(b, db, fmt.Sprintf("PRAGMA mmap_size = %d", maxMmapBytes))
			rawExec(b, db, fmt.Sprintf("PRAGMA cache_size = -%d", pageCacheKiB))
			get := db.Prep(sqlGet)
			to := &copier{to: make([]byte, benchValueBytes)}
			b.ReportAllocs()
			for b.Loop() {
				rawFloor(b, db, get, keys, to)
			}
			perKey(b, n)
		})
	}
}

func rawFloor(b *testing.B, db *driver.Conn, get *driver.Stmt, keys []backend.Key, to *copier) {
	require.NoError(b, sqlitex.Execute(db, "BEGIN", nil))
	for i := range keys {
		get.BindBytes(1, keys[i][:])
		if found, err := get.Step(); err != nil || !found {
			b.Fatal(found, err)
		}
		if _, err := get.ColumnReader(0).WriteTo(to); err != nil {
			b.Fatal(err)
		}
		if err := get.Reset(); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, sqlitex.Execute(db, "COMMIT", nil))
}

func BenchmarkGetManyWithoutMmap(b *testing.B) {
	c, _ := benchCache(b, &Options{DisableMmap: true})
	keys := benchKeys(512)
	to := make([]byte, benchValueBytes)
	b.ReportAllocs()
	for b.Loop() {
		err := c.GetMany(context.Background(), keys, func(_ int, value []byte) error {
			copy(to, value)
			return nil
		})
		require.NoError(b, err)
	}
	perKey(b, len(keys))
}

func BenchmarkSetMany(b *testing.B) {
	for _, s := range []Synchronous{Full, Normal} {
		b.Run("synchronous="+s.String(), func(b *testing.B) {
			c := openTest(b, testPath(b), &Options{Synchronous: s})
			items := benchItems(0, 512)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				for i := range items {
					items[i].Key = testKey(n)
					n++
				}
				require.NoError(b, c.SetMany(context.Background(), items))
			}
			perKey(b, len(items))
		})
	}
}

// BenchmarkSplitGetMany looks closer at what Info.Readers and Info.SplitKeys say: so
// many keys in so many parts, each part a GetMany of its own.
func BenchmarkSplitGetMany(b *testing.B) {
	c, _ := benchCache(b, &Options{Readers: 8})
	for _, n := range []int{64, 256, 1024, 4096} {
		for _, parts := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("keys=%d/parts=%d", n, parts), func(b *testing.B) {
				keys := benchKeys(n)
				done := make(chan error, parts)
				to := make([][]byte, parts)
				for p := range parts {
					to[p] = make([]byte, benchValueBytes)
				}
				for b.Loop() {
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
