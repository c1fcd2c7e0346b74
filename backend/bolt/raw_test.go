package bolt

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

var ctxb = context.Background()

func testPath(t testing.TB) string { return filepath.Join(t.TempDir(), "vectors.db") }

func openTest(t testing.TB, path string, o *Options) *Cache {
	t.Helper()
	c, err := Open(path, o)
	require.NoError(t, err)
	opened.add(t, path, c)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// testKey is a key as embed makes them: evenly spread.
func testKey(n int) backend.Key {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	return sha256.Sum256(b[:])
}

func testKeys(n int) []backend.Key {
	keys := make([]backend.Key, n)
	for i := range keys {
		keys[i] = testKey(i)
	}
	return keys
}

// testItems returns n items with the keys from..from+n-1, each value made of
// mark and the number of its key.
func testItems(from, n int, mark byte) []backend.Item {
	items := make([]backend.Item, n)
	for i := range items {
		items[i] = backend.Item{Key: testKey(from + i), Value: testValue(from+i, mark)}
	}
	return items
}

func testValue(n int, mark byte) []byte {
	return binary.LittleEndian.AppendUint64([]byte{mark}, uint64(n))
}

// wideItems have values of more than a page.
func wideItems(from, n int) []backend.Item {
	items := testItems(from, n, 'w')
	for i := range items {
		items[i].Value = append(items[i].Value, make([]byte, 6000)...)
	}
	return items
}

// readAll returns a copy of every stored value of keys by index.
func readAll(t testing.TB, c backend.Cache, keys []backend.Key) map[int][]byte {
	t.Helper()
	got := make(map[int][]byte)
	err := c.GetMany(context.Background(), keys, func(i int, value []byte) error {
		got[i] = append([]byte{}, value...)
		return nil
	})
	require.NoError(t, err)
	return got
}

// handles has the caches that this process has open: nobody else can write to
// their files.
type handles struct {
	mu     sync.Mutex
	byPath map[string][]*Cache
}

var opened = handles{byPath: make(map[string][]*Cache)}

func (h *handles) add(t testing.TB, path string, c *Cache) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byPath[path] = append(h.byPath[path], c)
	t.Cleanup(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.byPath, path)
	})
}

// get returns the handle that is open, or nil.
func (h *handles) get(path string) *Cache {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.byPath[path] {
		if c.calls.enter() == nil {
			c.calls.leave()
			return c
		}
	}
	return nil
}

// rawDB gives the database in the file to f: that of the open handle, or one of
// its own.
func rawDB(t testing.TB, path string, f func(db *bbolt.DB)) {
	t.Helper()
	if c := opened.get(path); c != nil {
		f(c.openedStore().db)
		return
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	f(db)
}

// rawUpdate changes the file as another program would.
func rawUpdate(t testing.TB, path string, f func(tx *bbolt.Tx) error) {
	t.Helper()
	rawDB(t, path, func(db *bbolt.DB) { require.NoError(t, db.Update(f)) })
}

// checkWhole lets bbolt check the whole file.
func checkWhole(t testing.TB, path string) {
	t.Helper()
	rawDB(t, path, func(db *bbolt.DB) {
		require.NoError(t, db.View(func(tx *bbolt.Tx) error {
			for err := range tx.Check() {
				t.Error(err)
			}
			return nil
		}))
	})
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

// setChecksum makes the checksum of a meta page right.
func setChecksum(page []byte) {
	sum := fnv.New64a()
	_, _ = sum.Write(page[pageBytes : pageBytes+metaBytes-8])
	order.PutUint64(page[pageBytes+metaBytes-8:], sum.Sum64())
}
