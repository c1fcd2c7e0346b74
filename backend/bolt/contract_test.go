package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/embedonce/embedonce/backend"
)

func TestGetManyVisitsEachIndexOfAStoredKey(t *testing.T) { // G1, G2, G4, G9
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 3, 'a')))

	keys := []backend.Key{testKey(2), testKey(0), testKey(99), testKey(2), testKey(1)}
	before := slices.Clone(keys)
	visits := make(map[int]int)
	err := c.GetMany(ctxb, keys, func(i int, value []byte) error {
		visits[i]++
		n := map[int]int{0: 2, 1: 0, 3: 2, 4: 1}[i]
		require.Equal(t, testValue(n, 'a'), value)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, map[int]int{0: 1, 1: 1, 3: 1, 4: 1}, visits)
	require.Equal(t, before, keys)

	require.NoError(t, c.GetMany(ctxb, nil, func(int, []byte) error {
		t.Error("visited without keys")
		return nil
	}))
}

func TestValuesOfEverySizeComeBackWhole(t *testing.T) { // G4, and around the page sizes
	for _, o := range []*Options{nil, {MapBytes: 1}, {PageSize: 65536, NoSync: true}} {
		c := openTest(t, testPath(t), o)
		var items []backend.Item
		for i, size := range []int{1, 2, 31, 63, 64, 65, 255, 256, 511, 512, 4095, 4096, 6208, 8191, 16349, 16350, 16384, 65537, 1 << 20} {
			value := make([]byte, size)
			for j := range value {
				value[j] = byte(j*7 + i)
			}
			items = append(items, backend.Item{Key: testKey(i), Value: value})
		}
		require.NoError(t, c.SetMany(ctxb, items))
		got := readAll(t, c, testKeys(len(items)))
		require.Len(t, got, len(items))
		for i, item := range items {
			require.True(t, bytes.Equal(item.Value, got[i]), "%d bytes", len(item.Value))
		}
	}
}

func TestLargestValue(t *testing.T) { // S8, Info.MaxValueBytes in both directions
	c := openTest(t, testPath(t), nil)
	value := make([]byte, c.Info().MaxValueBytes+1)
	value[0], value[len(value)-2] = 1, 2

	err := c.SetMany(ctxb, []backend.Item{{Key: testKey(0), Value: []byte("x")}, {Key: testKey(1), Value: value}})
	require.ErrorIs(t, err, backend.ErrTooLarge)
	require.Empty(t, readAll(t, c, testKeys(2)))

	value = value[:len(value)-1]
	require.NoError(t, c.SetMany(ctxb, []backend.Item{{Key: testKey(0), Value: value}}))
	require.True(t, bytes.Equal(value, readAll(t, c, testKeys(1))[0]))
}

func TestForeignEntries(t *testing.T) { // G5
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 10, 'a')))
	rawUpdate(t, path, func(tx *bbolt.Tx) error {
		entries := tx.Bucket(entriesBucket)
		for i := range 5 { // buckets: empty, with values, with buckets, large
			k := testKey(i)
			require.NoError(t, entries.Delete(k[:]))
			nested, err := entries.CreateBucket(k[:])
			require.NoError(t, err)
			if i >= 1 {
				require.NoError(t, nested.Put([]byte("x"), make([]byte, 10_000*(i-1))))
			}
			if i >= 2 {
				_, err := nested.CreateBucket([]byte("deeper"))
				require.NoError(t, err)
			}
		}
		k := testKey(5)
		require.NoError(t, entries.Put(k[:], nil))
		require.NoError(t, entries.Put([]byte("no key of ours"), []byte("x")))
		k = testKey(20)
		_, err := entries.CreateBucket(k[:])
		return err
	})

	got := make(map[int][]byte)
	err := c.GetMany(ctxb, append(testKeys(10), testKey(20)), func(i int, value []byte) error {
		got[i] = slices.Clone(value)
		if i < 6 || i == 10 {
			return fmt.Errorf("not mine: %w", backend.ErrForeign) // G6
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, got, 11)
	for _, i := range []int{0, 1, 2, 3, 4, 10} {
		require.Nil(t, got[i], "entry %d", i)
	}
	require.NotNil(t, got[5])
	require.Empty(t, got[5])
	for i := 6; i < 10; i++ {
		require.Equal(t, testValue(i, 'a'), got[i])
	}

	// The next write heals them.
	require.NoError(t, c.SetMany(ctxb, testItems(0, 6, 'b')))
	healed := readAll(t, c, testKeys(6))
	for i := range 6 {
		require.Equal(t, testValue(i, 'b'), healed[i])
	}
	checkWhole(t, path)
}

func TestErrorOfVisitStops(t *testing.T) { // G7, G8
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 5, 'a')))
	mine := errors.New("mine")
	var visited []int
	err := c.GetMany(ctxb, testKeys(5), func(i int, _ []byte) error {
		visited = append(visited, i)
		if i == 2 {
			return mine
		}
		return nil
	})
	require.ErrorIs(t, err, mine)
	require.Equal(t, []int{0, 1, 2}, visited)
	require.Len(t, readAll(t, c, testKeys(5)), 5, "the connection is usable again")
}

func TestPanicOfVisit(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 2, 'a')))
	require.PanicsWithValue(t, "boom", func() {
		_ = c.GetMany(ctxb, testKeys(2), func(int, []byte) error { panic("boom") })
	})
	require.Len(t, readAll(t, c, testKeys(2)), 2)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 2, 'b')))
	require.Zero(t, c.openedStore().db.Stats().OpenTxN, "no transaction is left open")
}

func TestSetManyOverwritesAndTheLastOfEqualKeysWins(t *testing.T) { // S2, S5, S6
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, nil))
	require.NoError(t, c.SetMany(ctxb, testItems(0, 2, 'a')))
	items := []backend.Item{
		{Key: testKey(0), Value: []byte("first")},
		{Key: testKey(1), Value: []byte("other")},
		{Key: testKey(0), Value: []byte("last")},
	}
	require.NoError(t, c.SetMany(ctxb, items))
	require.Equal(t, "first", string(items[0].Value))
	clear(items[2].Value) // the caller's memory is the caller's again
	require.Equal(t, map[int][]byte{0: []byte("last"), 1: []byte("other")}, readAll(t, c, testKeys(2)))
	stats, err := c.Stats(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, 2, stats.Entries)
}

func TestEmptyValueIsRefused(t *testing.T) { // S7
	c := openTest(t, testPath(t), nil)
	err := c.SetMany(ctxb, append(testItems(0, 3, 'a'), backend.Item{Key: testKey(3)}))
	require.ErrorIs(t, err, backend.ErrEmptyValue)
	require.Empty(t, readAll(t, c, testKeys(4)))
}

func TestReadersNeverSeeHalfABatch(t *testing.T) { // S10, S3
	c := openTest(t, testPath(t), &Options{MapBytes: 1})
	const n, batches = 64, 50
	require.NoError(t, c.SetMany(ctxb, testItems(0, n, 0)))
	var acknowledged atomic.Int64
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for _, reader := range []*Cache{c, c} {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				atLeast := byte(acknowledged.Load())
				var marks []byte
				err := reader.GetMany(ctxb, testKeys(n), func(_ int, value []byte) error {
					marks = append(marks, value[0])
					return nil
				})
				if err != nil || len(marks) != n {
					t.Errorf("%d of %d visited: %v", len(marks), n, err)
					return
				}
				if len(slices.Compact(marks)) != 1 || marks[0] < atLeast {
					t.Errorf("marks %v, at least %d was acknowledged", slices.Compact(marks), atLeast)
					return
				}
			}
		})
	}
	for b := range batches {
		require.NoError(t, c.SetMany(ctxb, testItems(0, n, byte(b+1))))
		acknowledged.Store(int64(b + 1))
	}
	close(stop)
	readers.Wait()
}

func TestTxn(t *testing.T) { // T1 to T6
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 2, 'a')))
	var kept backend.Txn
	runs := 0
	require.NoError(t, c.Txn(ctxb, func(tx backend.Txn) error {
		runs++
		kept = tx
		if err := tx.SetMany(ctxb, testItems(1, 2, 'b')); err != nil {
			return err
		}
		seen := make(map[int]byte)
		err := tx.GetMany(ctxb, testKeys(4), func(i int, value []byte) error {
			seen[i] = value[0]
			return nil
		})
		require.Equal(t, map[int]byte{0: 'a', 1: 'b', 2: 'b'}, seen)
		require.Len(t, readAll(t, c, testKeys(4)), 2, "nobody else sees it yet")
		return err
	}))
	require.Equal(t, 1, runs)
	require.Len(t, readAll(t, c, testKeys(4)), 3)
	require.ErrorIs(t, kept.SetMany(ctxb, nil), backend.ErrClosed)

	mine := errors.New("mine")
	require.ErrorIs(t, c.Txn(ctxb, func(tx backend.Txn) error {
		require.NoError(t, tx.SetMany(ctxb, testItems(3, 1, 'c')))
		return mine
	}), mine)
	require.PanicsWithValue(t, "boom", func() {
		_ = c.Txn(ctxb, func(tx backend.Txn) error {
			require.NoError(t, tx.SetMany(ctxb, testItems(3, 1, 'c')))
			panic("boom")
		})
	})
	require.Len(t, readAll(t, c, testKeys(4)), 3)
}

func TestEndedContextDoesNothing(t *testing.T) { // X1
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	ctx, cancel := context.WithCancel(ctxb)
	cancel()
	require.ErrorIs(t, c.GetMany(ctx, testKeys(1), func(int, []byte) error {
		t.Error("visited")
		return nil
	}), context.Canceled)
	require.ErrorIs(t, c.SetMany(ctx, testItems(1, 1, 'a')), context.Canceled)
	require.ErrorIs(t, c.Txn(ctx, func(backend.Txn) error {
		t.Error("fn ran")
		return nil
	}), context.Canceled)
	require.Len(t, readAll(t, c, testKeys(2)), 1)
}

// endsAfter is a context that ends when it has been asked n times.
type endsAfter struct {
	context.Context
	asked, n int
}

func (e *endsAfter) Err() error {
	if e.asked++; e.asked > e.n {
		return context.Canceled
	}
	return nil
}

func TestContextThatEndsDuringACall(t *testing.T) { // X2, S1, S4
	c := openTest(t, testPath(t), nil)
	const n = 20
	stored := false
	for asked := 0; !stored; asked++ {
		require.Less(t, asked, 10*n, "SetMany must come to an end")
		err := c.SetMany(&endsAfter{Context: ctxb, n: asked}, testItems(0, n, 'a'))
		got := len(readAll(t, c, testKeys(n)))
		if stored = err == nil; stored {
			require.Equal(t, n, got)
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Contains(t, []int{0, n}, got)
	}
	done := false
	for asked := 0; !done; asked++ {
		require.Less(t, asked, 10*n, "GetMany must come to an end")
		visited := 0
		err := c.GetMany(&endsAfter{Context: ctxb, n: asked}, testKeys(n), func(int, []byte) error {
			visited++
			return nil
		})
		if done = err == nil; done {
			require.Equal(t, n, visited)
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Less(t, visited, n)
	}
}

func TestClose(t *testing.T) { // C1 to C4, I1
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	path := testPath(t)
	c, err := Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	info := c.Info()

	// Close waits for a read, and for a transaction, that are running.
	inside, leave := make(chan struct{}, 2), make(chan struct{})
	var left atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		err := c.GetMany(ctxb, testKeys(1), func(int, []byte) error {
			inside <- struct{}{}
			<-leave
			left.Add(1)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	all.Go(func() {
		err := c.Txn(ctxb, func(tx backend.Txn) error {
			inside <- struct{}{}
			<-leave
			left.Add(1)
			return tx.SetMany(ctxb, testItems(1, 1, 'b'))
		})
		if err != nil {
			t.Error("a transaction that was running when Close came:", err)
		}
	})
	<-inside
	<-inside
	var closed sync.WaitGroup
	for range 4 {
		closed.Go(func() {
			if err := c.Close(); err != nil || left.Load() != 2 {
				t.Errorf("Close returned %v after %d of 2 calls", err, left.Load())
			}
		})
	}
	for c.calls.enter() == nil { // until one of them has begun to close
		c.calls.leave()
	}
	close(leave)
	closed.Wait()
	all.Wait()

	require.NoError(t, c.Close())
	none := func(int, []byte) error { return nil }
	require.ErrorIs(t, c.GetMany(ctxb, nil, none), backend.ErrClosed)
	require.ErrorIs(t, c.GetMany(ctxb, testKeys(1), none), backend.ErrClosed)
	require.ErrorIs(t, c.SetMany(ctxb, nil), backend.ErrClosed)
	require.ErrorIs(t, c.SetMany(ctxb, testItems(0, 1, 'a')), backend.ErrClosed)
	require.ErrorIs(t, c.Txn(ctxb, func(backend.Txn) error { t.Error("fn ran"); return nil }), backend.ErrClosed)
	require.Equal(t, info, c.Info())

	require.Len(t, readAll(t, openTest(t, path, nil), testKeys(2)), 2)
}

func TestInfo(t *testing.T) {
	c := openTest(t, testPath(t), &Options{Readers: 3})
	require.Equal(t, backend.Info{
		Atomic: true, Durability: backend.SurvivesPowerLoss, Reach: backend.ReachHandle, SnapshotReads: true,
		MaxValueBytes: 64 << 20, Readers: 3, Writers: writers, SplitKeys: splitKeys,
	}, c.Info())
	require.False(t, c.openedStore().db.NoSync)
	c = openTest(t, testPath(t), &Options{NoSync: true})
	require.Equal(t, backend.SurvivesCrash, c.Info().Durability)
	require.True(t, c.openedStore().db.NoSync)
}
