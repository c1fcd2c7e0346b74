package bolt

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// TestAgainstAMap runs random operations and compares with a map.
func TestAgainstAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := testPath(t)
	options := []*Options{nil, {MapBytes: 1}, {NoSync: true}, {MapBytes: 1 << 20}}
	c, err := Open(path, options[0])
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()

	const keys = 40
	want := make(map[int][]byte)
	batch := func() []backend.Item {
		items := make([]backend.Item, random.IntN(30))
		for i := range items {
			value := make([]byte, 1+random.IntN(30_000))
			for j := range value {
				value[j] = byte(random.Uint32())
			}
			n := random.IntN(keys)
			items[i] = backend.Item{Key: testKey(n), Value: value}
		}
		return items
	}
	number := make(map[backend.Key]int)
	for i, k := range testKeys(keys) {
		number[k] = i
	}
	apply := func(items []backend.Item) {
		for _, item := range items {
			want[number[item.Key]] = item.Value
		}
	}
	giveUp := errors.New("give up")
	for step := range 150 {
		switch random.IntN(8) {
		case 0, 1:
			items := batch()
			require.NoError(t, c.SetMany(ctxb, items))
			apply(items)
		case 2:
			first, second := batch(), batch()
			commit := random.IntN(2) == 0
			err := c.Txn(ctxb, func(tx backend.Txn) error {
				require.NoError(t, tx.SetMany(ctxb, first))
				require.NoError(t, tx.SetMany(ctxb, second))
				if !commit {
					return giveUp
				}
				return nil
			})
			if commit {
				require.NoError(t, err)
				apply(first)
				apply(second)
			} else {
				require.ErrorIs(t, err, giveUp)
			}
		case 3:
			n := random.IntN(keys)
			_, stored := want[n]
			removed, err := c.Delete(ctxb, []backend.Key{testKey(n), testKey(n)}, nil)
			require.NoError(t, err)
			require.Equal(t, stored, removed == 1, "step %d of seed %d", step, seed)
			delete(want, n)
		case 4:
			require.NoError(t, c.Close())
			c, err = Open(path, options[random.IntN(len(options))])
			require.NoError(t, err)
		default:
			require.Equal(t, want, readAll(t, c, testKeys(keys)), "step %d of seed %d", step, seed)
		}
	}
	require.Equal(t, want, readAll(t, c, testKeys(keys)), "seed %d", seed)
	require.NoError(t, c.Close())
	checkWhole(t, path)
}

// TestManyWriters: the contents are those of some order of the batches, and
// every acknowledged one that nobody overwrote is there.
func TestManyWriters(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, &Options{MapBytes: 1})
	const writers, batches, n = 8, 10, 32
	var all sync.WaitGroup
	for w := range writers {
		for part := range 2 {
			all.Go(func() {
				for b := range batches {
					mark := byte(w*2*batches + part*batches + b)
					own := testItems(1000+int(mark)*n, n, mark)
					shared := testItems(0, n, mark)
					if err := c.SetMany(context.Background(), append(own, shared...)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	shared := readAll(t, c, testKeys(n))
	require.Len(t, shared, n)
	for i, value := range shared {
		require.Equal(t, testValue(i, shared[0][0]), value, "the shared keys are of one batch")
	}
	for mark := range writers * 2 * batches {
		keys := make([]backend.Key, n)
		for i := range keys {
			keys[i] = testKey(1000 + mark*n + i)
		}
		got := readAll(t, c, keys)
		require.Len(t, got, n)
		for i, value := range got {
			require.Equal(t, testValue(1000+mark*n+i, byte(mark)), value)
		}
	}
}
