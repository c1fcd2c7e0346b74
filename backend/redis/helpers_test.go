package redis

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// testKey is a key as embed makes them: evenly spread.
func testKey(n int) backend.Key {
	return sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

func testKeys(n int) []backend.Key {
	keys := make([]backend.Key, n)
	for i := range keys {
		keys[i] = testKey(i)
	}
	return keys
}

// testItems returns n items with the keys from..from+n-1, each value made of mark and
// the number of its key.
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

// readAll returns a copy of every stored value by index.
func readAll(t testing.TB, c backend.Cache, keys []backend.Key) map[int][]byte {
	t.Helper()
	values := make(map[int][]byte)
	err := c.GetMany(context.Background(), keys, func(i int, value []byte) error {
		if _, twice := values[i]; twice {
			t.Errorf("index %d is visited twice", i)
		}
		values[i] = append([]byte{}, value...)
		return nil
	})
	require.NoError(t, err)
	return values
}

// openOn opens a cache on a server, with a prefix of the test's own.
func openOn(t testing.TB, addr string, o Options) *Cache {
	t.Helper()
	setDefault(&o.Prefix, t.Name()+":")
	c, err := Open("redis://"+addr+"/0", &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}
