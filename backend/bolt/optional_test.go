package bolt

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

// scanAll walks through the whole store and returns copies of what it saw; an
// error ends it, after failed has looked at it.
func scanAll(t testing.TB, c *Cache, head int, failed func(error)) map[backend.Key]backend.Entry {
	t.Helper()
	got := make(map[backend.Key]backend.Entry)
	for at := backend.Position(""); ; {
		next, err := c.Scan(ctxb, at, head, func(e backend.Entry) error {
			if _, again := got[e.Key]; again {
				t.Error("an entry is visited twice")
			}
			e.Value = slices.Clone(e.Value)
			got[e.Key] = e
			return nil
		})
		if err != nil {
			require.Equal(t, at, next) // N4
			failed(err)
			return got
		}
		if at = next; at == "" {
			return got
		}
	}
}

func TestScan(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	none := func(backend.Entry) error { t.Error("visited"); return nil }
	next, err := c.Scan(ctxb, "", 0, none)
	require.NoError(t, err)
	require.Empty(t, next)

	const n = scanEntries + 517
	require.NoError(t, c.SetMany(ctxb, testItems(0, n, 'a')))
	rawUpdate(t, path, func(tx *bbolt.Tx) error {
		entries := tx.Bucket(entriesBucket)
		k := testKey(5)
		require.NoError(t, entries.Delete(k[:]))
		_, err := entries.CreateBucket(k[:])
		require.NoError(t, err)
		k = testKey(6)
		require.NoError(t, entries.Put(k[:], nil))
		require.NoError(t, entries.Put([]byte{0}, []byte("no key of ours")))
		return entries.Put(append(k[:], 0), []byte("no key of ours"))
	})
	for _, head := range []int{-1, 0, 3, backend.WholeValue} {
		got := scanAll(t, c, head, func(err error) { require.NoError(t, err) })
		require.Len(t, got, n)
		for i := range n {
			e := got[testKey(i)]
			switch i {
			case 5:
				require.Equal(t, -1, e.Size)
				require.Empty(t, e.Value)
			case 6:
				require.Zero(t, e.Size)
			default:
				require.Equal(t, 9, e.Size)
				require.Equal(t, testValue(i, 'a')[:max(0, min(head, 9))], append([]byte{}, e.Value...))
			}
		}
	}
	s, err := c.Stats(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, n, s.Entries)

	// A position is good after Close, and when its entry is gone.
	var first, second []backend.Key
	next, err = c.Scan(ctxb, "", 0, func(e backend.Entry) error { first = append(first, e.Key); return nil })
	require.NoError(t, err)
	_, err = c.Delete(ctxb, first[len(first)-1:], nil)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	c = openTest(t, path, nil)
	_, err = c.Scan(ctxb, next, 0, func(e backend.Entry) error { second = append(second, e.Key); return nil })
	require.NoError(t, err)
	require.Len(t, second, n-scanEntries)
	require.NotContains(t, second, first[len(first)-1])

	mine := errors.New("mine")
	at, err := c.Scan(ctxb, next, 0, func(backend.Entry) error { return mine })
	require.ErrorIs(t, err, mine)
	require.Equal(t, next, at)
	for _, bad := range []backend.Position{"x", "00", next + "00"} {
		_, err = c.Scan(ctxb, bad, 0, none)
		require.ErrorContains(t, err, "position")
	}
	ctx, cancel := context.WithCancel(ctxb)
	visits := 0
	at, err = c.Scan(ctx, next, 0, func(backend.Entry) error { visits++; cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, next, at)
	require.Equal(t, 1, visits)
	_, err = c.Stats(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.Scan(ctx, "", 0, none)
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.Delete(ctx, nil, nil)
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, c.Close())
	_, err = c.Scan(ctxb, "", 0, none)
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = c.Stats(ctxb)
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = c.Delete(ctxb, nil, nil)
	require.ErrorIs(t, err, backend.ErrClosed)
}

func TestScanOfLargeValuesEndsEarly(t *testing.T) {
	c := openTest(t, testPath(t), &Options{NoSync: true})
	var items []backend.Item
	for i := range 5 {
		items = append(items, backend.Item{Key: testKey(i), Value: make([]byte, scanBytes/2)})
	}
	require.NoError(t, c.SetMany(ctxb, items))
	visits := 0
	next, err := c.Scan(ctxb, "", backend.WholeValue, func(backend.Entry) error { visits++; return nil })
	require.NoError(t, err)
	require.NotEmpty(t, next)
	require.Equal(t, 2, visits)
	require.Len(t, scanAll(t, c, backend.WholeValue, func(err error) { require.NoError(t, err) }), 5)
}

func TestDelete(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	const n = 2*deletePiece + 100
	require.NoError(t, c.SetMany(ctxb, testItems(0, n, 'a')))
	rawUpdate(t, path, func(tx *bbolt.Tx) error {
		k := testKey(3)
		entries := tx.Bucket(entriesBucket)
		require.NoError(t, entries.Delete(k[:]))
		nested, err := entries.CreateBucket(k[:])
		require.NoError(t, err)
		return nested.Put([]byte("x"), make([]byte, 10_000))
	})
	removed, err := c.Delete(ctxb, []backend.Key{testKey(0), testKey(n + 5), testKey(0), testKey(3)}, nil)
	require.NoError(t, err)
	require.Equal(t, 2, removed)
	removed, err = c.Delete(ctxb, []backend.Key{testKey(0)}, nil)
	require.NoError(t, err)
	require.Zero(t, removed)

	judged := make(map[int]int)
	removed, err = c.Delete(ctxb, testKeys(n+10), func(i int, value []byte) bool {
		judged[i]++
		require.Equal(t, testValue(i, 'a'), value)
		return i%2 == 0
	})
	require.NoError(t, err)
	require.Equal(t, n/2-1, removed)
	require.Len(t, judged, n-2)
	left := readAll(t, c, testKeys(n))
	require.Len(t, left, n/2-1)
	for i := range left {
		require.Equal(t, 1, i%2)
	}
	removed, err = c.Delete(ctxb, testKeys(n), nil)
	require.NoError(t, err)
	require.Equal(t, n/2-1, removed)
	require.Empty(t, readAll(t, c, testKeys(n)))
	removed, err = c.Delete(ctxb, nil, nil)
	require.NoError(t, err)
	require.Zero(t, removed)
	require.NoError(t, c.Close())
	checkWhole(t, path)
}

// TestDeleteOfWhatChanges: an entry that is written after match looked stays, or
// is judged again.
func TestDeleteOfWhatChanges(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 4, 'a')))
	var seen []string
	removed, err := c.Delete(ctxb, testKeys(4), func(i int, value []byte) bool {
		seen = append(seen, string(value[:1]))
		if len(seen) == 4 { // all were judged; now one changes, one goes, one is the same again
			done := inBackground(func() error {
				if err := c.SetMany(ctxb, append(testItems(1, 1, 'b'), testItems(3, 1, 'a')...)); err != nil {
					return err
				}
				_, err := c.Delete(ctxb, []backend.Key{testKey(2)}, nil)
				return err
			})
			require.NoError(t, <-done)
		}
		return value[0] == 'a'
	})
	require.NoError(t, err)
	require.Equal(t, 2, removed, "one was removed by somebody else, one is not to be removed any more")
	require.Equal(t, []string{"a", "a", "a", "a", "b"}, seen)
	require.Equal(t, map[int][]byte{1: testValue(1, 'b')}, readAll(t, c, testKeys(4)))
}

func TestStatsOfSpace(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, wideItems(0, 200)))
	before, err := c.Stats(ctxb)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, info.Size(), before.Bytes)
	_, err = c.Delete(ctxb, testKeys(200), nil)
	require.NoError(t, err)
	after, err := c.Stats(ctxb)
	require.NoError(t, err)
	require.Zero(t, after.Entries)
	require.Greater(t, after.FreeBytes, before.FreeBytes+200*5000)
	require.LessOrEqual(t, after.FreeBytes, after.Bytes)
	require.NoError(t, c.SetMany(ctxb, wideItems(0, 200)))
	again, err := c.Stats(ctxb)
	require.NoError(t, err)
	require.Equal(t, before.Bytes, again.Bytes, "pages are used again")
}

func TestRewrite(t *testing.T) {
	path, to := testPath(t), testPath(t)
	c := openTest(t, path, nil)
	const n = 3000
	require.NoError(t, c.SetMany(ctxb, wideItems(0, n)))
	_, err := c.Delete(ctxb, testKeys(n)[:n-1000], nil)
	require.NoError(t, err)
	rawUpdate(t, path, func(tx *bbolt.Tx) error {
		k := testKey(1)
		nested, err := tx.Bucket(entriesBucket).CreateBucket(k[:])
		require.NoError(t, err)
		deeper, err := nested.CreateBucket([]byte("y"))
		require.NoError(t, err)
		require.NoError(t, deeper.Put([]byte("z"), nil))
		return nested.Put([]byte("x"), []byte("small"))
	})
	o := &Options{LockTimeout: 1}
	err = Rewrite(ctxb, path, to, o)
	require.ErrorIs(t, err, backend.ErrUnavailable, "it is open for writing")
	require.ErrorContains(t, err, path)
	require.NoFileExists(t, to)
	want := scanAll(t, c, backend.WholeValue, func(err error) { require.NoError(t, err) })
	require.Len(t, want, 1001)
	require.NoError(t, c.Close())

	r := openTest(t, path, &Options{ReadOnly: true})
	require.NoError(t, Rewrite(ctxb, path, to, o), "beside readers")
	require.NoError(t, r.Close())
	c = openTest(t, to, nil)
	require.Equal(t, want, scanAll(t, c, backend.WholeValue, func(err error) { require.NoError(t, err) }))
	s, err := c.Stats(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, 1001, s.Entries)
	old, err := os.Stat(path)
	require.NoError(t, err)
	h := headerOf(t, to)
	require.Less(t, h.bytes(), old.Size()*2/3)
	require.NoError(t, c.SetMany(ctxb, wideItems(0, 10)))
	require.NoError(t, c.Close())
	checkWhole(t, to)

	err = Rewrite(ctxb, path, to, nil)
	require.ErrorContains(t, err, "exists")
	ctx, cancel := context.WithCancel(ctxb)
	cancel()
	require.ErrorIs(t, Rewrite(ctx, path, to+"2", nil), context.Canceled)
	require.ErrorIs(t, Rewrite(&endsAfter{Context: ctxb, n: 300}, path, to+"2", nil), context.Canceled)
	require.NoFileExists(t, to+"2")
	require.ErrorContains(t, Rewrite(ctxb, "", to, nil), "path is empty")
	require.ErrorContains(t, Rewrite(ctxb, path, ":memory:", nil), "path is")
	require.ErrorIs(t, Rewrite(ctxb, path+"none", to+"2", nil), backend.ErrUnavailable)
}

// TestDeleteAfterAWriteThatWasLeft: its caller has left, and the commit goes on. A
// Delete that begins then comes after it, also if match has to look first.
func TestDeleteAfterAWriteThatWasLeft(t *testing.T) {
	for name, match := range map[string]func(int, []byte) bool{"all": nil, "match": func(int, []byte) bool { return true }} {
		t.Run(name, func(t *testing.T) {
			c := openTest(t, testPath(t), nil)
			ctx, cancel := context.WithCancel(ctxb)
			begun, release := make(chan struct{}), make(chan struct{})
			c.hooks.Store(&hooks{commit: func() error { close(begun); <-release; return nil }})
			left := inBackground(func() error { return c.SetMany(ctx, testItems(0, 3, 'a')) })
			<-begun
			c.hooks.Store(nil)
			cancel()
			require.ErrorIs(t, <-left, context.Canceled)
			deleted := inBackground(func() error {
				_, err := c.Delete(ctxb, testKeys(3), match)
				return err
			})
			select {
			case err := <-deleted:
				t.Errorf("Delete came before the write: %v", err)
			case <-time.After(30 * time.Millisecond): // for one that doesn't wait
			}
			close(release)
			if !t.Failed() {
				require.NoError(t, <-deleted)
			}
			// Whatever is queued behind both comes after both.
			require.NoError(t, c.SetMany(ctxb, testItems(9, 1, 'z')))
			require.Empty(t, readAll(t, c, testKeys(3)))
		})
	}
}
