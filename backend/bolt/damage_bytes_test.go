//go:build !race

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

// With the race detector the compiler checks pointer arithmetic too, and ends the process
// where bbolt follows a damaged page: that can't be recovered from, and no program that is
// built without it does so. .ci/run runs these tests on their own.

// TestDamagedBytes changes bytes anywhere: nothing but clear errors, values and
// missing entries may come of it.
func TestDamagedBytes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const n = 60
	rounds := 200
	if soak := os.Getenv("EMBEDONCE_SOAK"); soak != "" {
		rounds = 5000
	}
	items, data := damagedFile(t, n)
	path := testPath(t)
	for round := range rounds {
		damaged := bytes.Clone(data)
		// Most of a page is values; its first bytes are where it hurts.
		page := random.IntN(len(data) / 4096)
		for range 1 + random.IntN(3) {
			damaged[page*4096+random.IntN(300)] ^= byte(1 + random.IntN(255))
		}
		if loops(damaged) {
			continue // the one thing that can't be caught, see doc.go
		}
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		c, err := Open(path, &Options{NoSync: true})
		if err != nil {
			require.ErrorIs(t, err, backend.ErrCorrupt, "round %d of seed %d", round, seed)
			continue
		}
		err = c.GetMany(ctxb, testKeys(n), func(int, []byte) error { return nil })
		corruptOrNil(t, err, seed)
		corruptOrNil(t, c.SetMany(ctxb, items), seed)
		_, err = c.Delete(ctxb, testKeys(n), func(i int, _ []byte) bool { return i%2 == 0 })
		corruptOrNil(t, err, seed)
		_, err = c.Stats(ctxb)
		corruptOrNil(t, err, seed)
		require.NoError(t, c.Close())
		corruptOrNil(t, Rewrite(ctxb, path, path+".new", nil), seed)
		_ = os.Remove(path + ".new") // only if there is one
		require.NoError(t, os.Remove(path))
	}
}

func corruptOrNil(t *testing.T, err error, seed uint64) {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, backend.ErrCorrupt, "seed %d", seed)
	}
}

// loops says whether a branch page leads to a branch page that is not below it.
func loops(data []byte) bool {
	parents := make(map[uint64]uint64)
	for at := 2 * 4096; at+4096 <= len(data); at += 4096 {
		if order.Uint16(data[at+8:]) != 1 { // a branch page
			continue
		}
		for i := range int(min(order.Uint16(data[at+10:]), 255)) {
			parents[order.Uint64(data[at+16+16*i+8:])] = uint64(at / 4096)
		}
	}
	for page := range parents {
		for up, steps := page, 0; ; steps++ {
			next, ok := parents[up]
			if !ok {
				break
			}
			if up = next; up == page || steps > len(parents) {
				return true
			}
		}
	}
	return false
}

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
