package bolt

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// A branch page that leads twice to one page, and nowhere to another: a write by
// the wrong way would free what the right one still leads to.
func TestPageReachedByTheWrongWay(t *testing.T) {
	const n = 200
	items, data := damagedFile(t, n)
	path := testPath(t)
	refused := 0
	for page := 2; page < len(data)/4096; page++ {
		if order.Uint16(data[page*4096+8:]) != branchPage {
			continue
		}
		damaged := bytes.Clone(data)
		element := func(i int) []byte { return damaged[page*4096+pageBytes+i*elementBytes+8:][:8] }
		count := int(order.Uint16(damaged[page*4096+10:]))
		copy(element(count/4), element(count-1))
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		c, err := Open(path, &Options{NoSync: true})
		require.NoError(t, err)
		there := readSome(t, c, testKeys(n))
		for i := range items {
			if _, known := there[i]; !known {
				require.ErrorIs(t, c.SetMany(ctxb, items[i:i+1]), backend.ErrCorrupt)
				refused++
			}
		}
		for i := range 50 {
			_ = c.SetMany(ctxb, testItems(n+i, 1, 'c')) // some are refused
		}
		// Not the others: the wrong way may lead into a page that is used for something
		// else by now, also for one that leads back here.
		for i, value := range there {
			require.Equal(t, value, readAll(t, c, testKeys(n)[i:i+1])[0])
		}
		require.NoError(t, c.Close())
	}
	require.Positive(t, refused)
}

// readSome returns what can be read of a damaged file.
func readSome(t *testing.T, c *Cache, keys []backend.Key) map[int][]byte {
	got := make(map[int][]byte)
	err := c.GetMany(ctxb, keys, func(i int, value []byte) error {
		got[i] = bytes.Clone(value)
		return nil
	})
	if err != nil {
		require.ErrorIs(t, err, backend.ErrCorrupt)
	}
	return got
}
