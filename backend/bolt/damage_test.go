package bolt

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

// A cache that is so small that its entries lie in the page of the root: a value
// that a damaged page places outside of it is anything of this process.
func TestDamagedBytesOfASmallFile(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 8, 'a')))
	require.NotZero(t, inlineEntries(t, c))
	require.NoError(t, c.Close())
	data := readFile(t, path)
	at := int(headerOf(t, path).root) * 4096
	at += bytes.Index(data[at:], entriesBucket) + len(entriesBucket) + bucketBytes
	for element := range 8 {
		for field := 4; field < 16; field += 4 { // where it is, and how long key and value are
			damaged := bytes.Clone(data)
			place := at + pageBytes + element*elementBytes + field
			order.PutUint32(damaged[place:], order.Uint32(damaged[place:])+1<<(10+random.IntN(21)))
			require.NoError(t, os.WriteFile(path, damaged, 0o600))
			c, err := Open(path, &Options{NoSync: true})
			require.NoError(t, err)
			err = c.GetMany(ctxb, testKeys(8), func(i int, value []byte) error {
				require.Len(t, value, len(testValue(i, 'a')), "seed %d", seed)
				return nil
			})
			require.ErrorIs(t, err, backend.ErrCorrupt, "seed %d", seed)
			_, err = c.Scan(ctxb, "", backend.WholeValue, func(backend.Entry) error { return nil })
			require.ErrorIs(t, err, backend.ErrCorrupt, "seed %d", seed)
			require.ErrorIs(t, c.SetMany(ctxb, testItems(8, 1, 'b')), backend.ErrCorrupt)
			require.NoError(t, c.Close())
		}
	}
}

// inlineEntries says how many entries there are, 0 if they have pages of their own.
func inlineEntries(t *testing.T, c *Cache) (n int) {
	rawDB(t, c.path, func(db *bbolt.DB) {
		require.NoError(t, db.View(func(tx *bbolt.Tx) error {
			if b := tx.Bucket(entriesBucket); b.Root() == 0 {
				n = b.Inspect().KeyN
			}
			return nil
		}))
	})
	return n
}

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
