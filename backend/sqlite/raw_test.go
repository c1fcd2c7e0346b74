package sqlite

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	driver "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/embedonce/embedonce/backend"
)

// What the tests do to a file from outside, and what they share.

func testPath(t testing.TB) string { return filepath.Join(t.TempDir(), "vectors.db") }

func openTest(t testing.TB, path string, o *Options) *Cache {
	t.Helper()
	c, err := Open(path, o)
	require.NoError(t, err)
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

// rawConn opens the file as another program would; nothing is waited for.
func rawConn(t testing.TB, path string) *driver.Conn {
	t.Helper()
	c, err := driver.OpenConn(path, driver.OpenReadWrite|driver.OpenCreate)
	require.NoError(t, err)
	c.SetBusyTimeout(5 * time.Second)
	return c
}

func rawExec(t testing.TB, c *driver.Conn, query string, args ...any) {
	t.Helper()
	require.NoError(t, sqlitex.ExecuteTransient(c, query, &sqlitex.ExecOptions{Args: args}))
}

// rawRun runs queries over a connection of its own.
func rawRun(t testing.TB, path string, queries ...string) {
	t.Helper()
	c := rawConn(t, path)
	defer func() { require.NoError(t, c.Close()) }()
	for _, q := range queries {
		rawExec(t, c, q)
	}
}

func rawText(t testing.TB, path, query string) (s string) {
	t.Helper()
	c := rawConn(t, path)
	defer func() { require.NoError(t, c.Close()) }()
	require.NoError(t, sqlitex.ExecuteTransient(c, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *driver.Stmt) error {
		s = stmt.ColumnText(0)
		return nil
	}}))
	return s
}
