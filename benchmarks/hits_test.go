package benchmarks

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/backend/sqlite"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
	driver "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

const (
	entries    = 10_000
	dimensions = 1536
	perCall    = 512
	headerSize = 64
)

// BenchmarkHits is a call of 512 texts of about 740 bytes that are all cached, with
// a lent destination, over 10,000 entries of 1,536 dimensions. Calls go round the
// entries, so that neither texts nor vectors are in the processor's caches.
func BenchmarkHits(b *testing.B) {
	texts := passages(entries)
	b.Run("backend=memory", func(b *testing.B) {
		cache, err := memory.New(&memory.Options{MaxBytes: 1 << 30})
		require.NoError(b, err)
		defer cache.Close()
		compare(b, texts, cache, mapFloor(b, texts, cache))
	})
	b.Run("backend=sqlite", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "vectors.db")
		cache, err := sqlite.Open(path, nil)
		require.NoError(b, err)
		defer cache.Close()
		compare(b, texts, cache, sqliteFloor(b, path))
	})
}

// readers is one, as the floor has one goroutine; left to itself, the Client reads
// a call of this size from sqlite with two.
const readers = 1

// compare fills the cache through a Client, then measures Client and floor.
func compare(b *testing.B, texts []string, cache backend.Cache, floor func(keys []backend.Key, visit func(i int, value []byte))) {
	client, err := embed.New(embedtest.NewProvider(&embedtest.Options{Dimensions: dimensions, NoLog: true}), &embed.Options{Cache: cache, CacheReaders: readers})
	require.NoError(b, err)
	defer client.Close()
	ctx := context.Background()
	_, err = client.Embed(ctx, texts)
	require.NoError(b, err)
	into := make([]float32, perCall*dimensions)
	windows := rand.New(rand.NewPCG(1, 2)).Perm(entries/perCall - 1)

	run := func(name string, call func(texts []string)) {
		b.Run("by="+name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				from := perCall * windows[i%len(windows)]
				call(texts[from : from+perCall])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perCall/1e3, "µs/text")
		})
	}
	run("Embed", func(texts []string) {
		response, err := client.Do(ctx, &embed.Call{Texts: texts, CacheOnly: true, Into: into})
		if err != nil || response.Usage.Hits != perCall {
			b.Fatal(response.Usage, err)
		}
	})

	keys := make([]backend.Key, perCall)
	digests := make([][32]byte, perCall)
	run("floor", func(texts []string) {
		for i, text := range texts {
			digests[i] = sha256.Sum256(unsafe.Slice(unsafe.StringData(text), len(text)))
			keys[i] = floorKey(digests[i])
		}
		found := 0
		floor(keys, func(i int, value []byte) {
			if check(into[i*dimensions:(i+1)*dimensions], value, &digests[i]) {
				found++
			}
		})
		if found != perCall {
			b.Fatalf("the floor found %d of %d", found, perCall)
		}
	})
}

// The floor's steps. They do what the Client does for each text, with constants
// where it has settings.

// floorKeyDomain and floorScope make the key of a text; the digest of what a
// provider is was computed when the Client was made.
var floorScope = fields("embedonce scope", "1", "embedtest", embedtest.DefaultModel, "", "", "", "{}", "0")

func fields(all ...string) (digest [32]byte) {
	h := sha256.New()
	for _, field := range all {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(field))))
		h.Write([]byte(field))
	}
	return [32]byte(h.Sum(nil))
}

func floorKey(digest [32]byte) backend.Key {
	var b [16 + 64]byte
	copy(b[:], "embedonce key 1\x00")
	copy(b[16:], floorScope[:])
	copy(b[48:], digest[:])
	return sha256.Sum256(b[:])
}

// check copies the vector and verifies the copy as the record's layout asks.
func check(row []float32, value []byte, digest *[32]byte) bool {
	if len(value) != headerSize+4*dimensions || string(value[:6]) != "1emb\x01\x01" ||
		binary.LittleEndian.Uint32(value[8:]) != dimensions {
		return false
	}
	body := unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), 4*dimensions)
	copy(body, value[headerSize:])
	header := [headerSize]byte(value[:headerSize])
	sum := binary.LittleEndian.Uint64(header[16:])
	binary.LittleEndian.PutUint64(header[16:], xxh3.Hash(body))
	if xxh3.Hash(header[:]) != sum || [32]byte(value[24:56]) != *digest || [8]byte(value[56:64]) != [8]byte(floorScope[:8]) {
		return false
	}
	const exponents, one, carries = 0x7f800000_7f800000, 0x00800000_00800000, 0x80000000_80000000
	var seen uint64
	for ; len(body) >= 32; body = body[32:] {
		seen |= binary.LittleEndian.Uint64(body)&exponents + one
		seen |= binary.LittleEndian.Uint64(body[8:])&exponents + one
		seen |= binary.LittleEndian.Uint64(body[16:])&exponents + one
		seen |= binary.LittleEndian.Uint64(body[24:])&exponents + one
	}
	return seen&carries == 0
}

// mapFloor reads from a Go map that is filled with what the cache has.
func mapFloor(b *testing.B, texts []string, cache backend.Cache) func([]backend.Key, func(int, []byte)) {
	entries := make(map[backend.Key][]byte, len(texts))
	fill := func() {
		keys := make([]backend.Key, len(texts))
		for i, text := range texts {
			keys[i] = floorKey(sha256.Sum256([]byte(text)))
		}
		require.NoError(b, cache.GetMany(context.Background(), keys, func(i int, value []byte) error {
			entries[keys[i]] = append([]byte(nil), value...)
			return nil
		}))
	}
	return func(keys []backend.Key, visit func(int, []byte)) {
		if len(entries) == 0 {
			fill()
		}
		for i, key := range keys {
			if value, ok := entries[key]; ok {
				visit(i, value)
			}
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// sqliteFloor reads the file with the bare driver: one transaction, one statement.
func sqliteFloor(b *testing.B, path string) func([]backend.Key, func(int, []byte)) {
	var conn *driver.Conn
	var get *driver.Stmt
	b.Cleanup(func() {
		if conn != nil {
			conn.Close()
		}
	})
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	return func(keys []backend.Key, visit func(int, []byte)) {
		if conn == nil {
			var err error
			conn, err = driver.OpenConn(path, driver.OpenReadOnly)
			must(err)
			must(sqlitex.ExecuteTransient(conn, fmt.Sprintf("PRAGMA mmap_size = %d", int64(1)<<32), nil))
			get, err = conn.Prepare("SELECT value FROM entries WHERE key = ?1")
			must(err)
		}
		must(sqlitex.Execute(conn, "BEGIN", nil))
		for i := range keys {
			get.BindBytes(1, keys[i][:])
			found, err := get.Step()
			must(err)
			if found {
				_, err = get.ColumnReader(0).WriteTo(writerFunc(func(value []byte) (int, error) {
					visit(i, value)
					return len(value), nil
				}))
				must(err)
			}
			must(get.Reset())
		}
		must(sqlitex.Execute(conn, "COMMIT", nil))
	}
}

// passages returns n distinct texts of about 740 bytes.
func passages(n int) []string {
	words := []string{"cache", "vector", "keeps", "what", "was", "paid", "for", "and", "never", "serves", "a", "wrong", "one"}
	r := rand.New(rand.NewPCG(3, 4))
	texts := make([]string, n)
	for i := range texts {
		text := fmt.Appendf(nil, "passage %d:", i)
		for len(text) < 740 {
			text = append(append(text, ' '), words[r.IntN(len(words))]...)
		}
		texts[i] = string(text)
	}
	return texts
}
