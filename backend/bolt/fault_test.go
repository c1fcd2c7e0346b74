package bolt

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

func TestFullStore(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, &Options{MaxBytes: 2 << 20})
	stored := 0
	var err error
	for stored < 100 {
		if err = c.SetMany(ctxb, wideItems(stored*32, 32)); err != nil {
			break
		}
		stored++
	}
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.NotErrorIs(t, err, backend.ErrTooLarge)
	require.ErrorContains(t, err, "MaxBytes")
	require.ErrorContains(t, err, path)
	require.Greater(t, stored, 4)
	info, statErr := os.Stat(path)
	require.NoError(t, statErr)
	require.LessOrEqual(t, info.Size(), int64(2<<20))

	require.Len(t, readAll(t, c, testKeys((stored+1)*32)), stored*32)
	_, err = c.Delete(ctxb, testKeys(32*4), nil)
	require.NoError(t, err, "there is always room to delete")
	require.NoError(t, c.SetMany(ctxb, wideItems(stored*32, 32)))
	require.NoError(t, c.Close())
	checkWhole(t, path)
}

func TestFailureInsideABatch(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(1000, 10, 'a')))
	boom := errors.New("boom")
	for _, item := range []int{0, 1, 256, 511} {
		c.hooks.Store(&hooks{put: func(i int) error {
			if i == item {
				return boom
			}
			return nil
		}})
		require.ErrorIs(t, c.SetMany(ctxb, testItems(0, 512, 'b')), boom)
		require.Empty(t, readAll(t, c, testKeys(512)))
		c.hooks.Store(nil)
	}
	require.NoError(t, c.SetMany(ctxb, testItems(0, 512, 'c')))
	require.Len(t, readAll(t, c, testKeys(512)), 512)
}

// damagedFile returns the contents of a file with n entries of about 1,000 bytes.
func damagedFile(t *testing.T, n int) (items []backend.Item, data []byte) {
	path := testPath(t)
	c := openTest(t, path, nil)
	items = testItems(0, n, 'w')
	for i := range items {
		items[i].Value = append(items[i].Value, make([]byte, 1000)...)
	}
	require.NoError(t, c.SetMany(ctxb, items))
	require.NoError(t, c.SetMany(ctxb, items[:n/2])) // so that pages are free
	require.NoError(t, c.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	h := headerOf(t, path)
	return items, data[:h.bytes()]
}

// TestOneDamagedPage damages each page in turn: the entries of all the others
// must still be read.
func TestOneDamagedPage(t *testing.T) {
	const n, page = 60, 4096
	items, data := damagedFile(t, n)
	path := testPath(t)
	leaves := 0
	for at := 2 * page; at < len(data); at += page {
		damaged := bytes.Clone(data)
		copy(damaged[at:], bytes.Repeat([]byte{0xa5}, page))
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		c, err := Open(path, nil)
		if err != nil { // the list of free pages, the root, or a page with buckets
			require.ErrorIs(t, err, backend.ErrCorrupt)
			continue
		}
		visits, changed := 0, 0
		err = c.GetMany(ctxb, testKeys(n), func(i int, value []byte) error {
			visits++
			if !bytes.Equal(items[i].Value, value) {
				changed++ // the page has a part of a value, and bbolt no checksum of it
			}
			return nil
		})
		require.LessOrEqual(t, changed, 4)
		if visits < n {
			require.ErrorIs(t, err, backend.ErrCorrupt)
			require.ErrorContains(t, err, path)
		} else {
			require.NoError(t, err)
		}
		if visits < n && visits >= n-4 {
			leaves++
			testDamageAnd(t, c, n, visits)
		}
		// Writing either works, or says why it doesn't.
		if err := c.SetMany(ctxb, items); err != nil {
			require.ErrorIs(t, err, backend.ErrCorrupt)
			require.Positive(t, n-visits)
		} else {
			require.Len(t, readAll(t, c, testKeys(n)), n)
		}
		scanAll(t, c, 10, func(err error) { require.ErrorIs(t, err, backend.ErrCorrupt) })
		if _, err := c.Stats(ctxb); err != nil {
			require.ErrorIs(t, err, backend.ErrCorrupt)
		}
		require.NoError(t, c.Close())
		require.NoError(t, os.Remove(path))
	}
	require.GreaterOrEqual(t, leaves, n/4, "pages that cost their own entries alone")
}

// testDamageAnd: what else ends a read ends one that has met damage.
func testDamageAnd(t *testing.T, c *Cache, n, visits int) {
	mine := errors.New("mine")
	seen := 0
	lastSays := func(err error) error {
		seen = 0
		return c.GetMany(ctxb, testKeys(n), func(int, []byte) error {
			if seen++; seen == visits {
				return err
			}
			return nil
		})
	}
	require.ErrorIs(t, lastSays(mine), mine)
	require.Equal(t, visits, seen)
	require.ErrorIs(t, lastSays(backend.ErrForeign), backend.ErrCorrupt)
	ctx, cancel := context.WithCancel(ctxb)
	defer cancel()
	require.ErrorIs(t, c.GetMany(ctx, testKeys(n), func(int, []byte) error { cancel(); return nil }), context.Canceled)
}

// TestMetaPagesDamagedWhileOpen: bbolt panics inside of its locks.
func TestMetaPagesDamagedWhileOpen(t *testing.T) {
	for _, first := range []string{"read", "write"} {
		path := testPath(t)
		c := openTest(t, path, nil)
		require.NoError(t, c.SetMany(ctxb, testItems(0, 5, 'a')))
		overwrite(t, path, 16, make([]byte, 64))
		overwrite(t, path, 4096+16, make([]byte, 64))
		none := func(int, []byte) error { return nil }
		for round := range 2 {
			if first == "read" || round > 0 {
				require.ErrorIs(t, c.GetMany(ctxb, testKeys(5), none), backend.ErrCorrupt)
			}
			require.ErrorIs(t, c.SetMany(ctxb, testItems(0, 1, 'b')), backend.ErrCorrupt)
		}
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.GetMany(ctxb, testKeys(5), none), backend.ErrClosed)
	}
}

// After a commit that failed for an unknown reason the file is opened again,
// beside readers that go on.
func TestOpeningAgain(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 5, 'a')))
	old := c.openedStore()
	var reopened, reading <-chan error
	require.NoError(t, c.GetMany(ctxb, testKeys(5), func(i int, value []byte) error {
		if i == 0 {
			began := make(chan struct{})
			reopened = inBackground(func() error {
				under := &commit{store: old, over: make(chan struct{})}
				c.phase.Lock()
				c.committing = under
				c.phase.Unlock()
				defer c.over(under)
				close(began)
				_, err := c.reopen(old)
				return err
			})
			<-began
			reading = inBackground(func() error {
				if n := len(readAll(t, c, testKeys(5))); n != 5 {
					return errors.New("entries are missing")
				}
				return nil
			})
		}
		require.Equal(t, testValue(i, 'a'), value)
		return nil
	}))
	require.NoError(t, <-reopened)
	require.NoError(t, <-reading) // before the file is closed under it, below
	require.NotSame(t, old, c.openedStore())
	require.NoError(t, c.SetMany(ctxb, testItems(5, 5, 'b')))
	require.Len(t, readAll(t, c, testKeys(10)), 10)

	// It can't be opened again, as somebody else has it: later it can.
	require.NoError(t, c.openedStore().db.Close())
	c.phase.Lock()
	c.store = nil
	c.phase.Unlock()
	c.options.LockTimeout = 1
	other, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.ErrorIs(t, c.GetMany(ctxb, testKeys(5), func(int, []byte) error { return nil }), backend.ErrUnavailable)
	require.ErrorIs(t, c.SetMany(ctxb, testItems(5, 5, 'c')), backend.ErrUnavailable)
	require.NoError(t, other.Close())
	require.Len(t, readAll(t, c, testKeys(20)), 10)
	require.NoError(t, c.SetMany(ctxb, testItems(10, 5, 'c')))
}
