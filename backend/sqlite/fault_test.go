package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	driver "zombiezen.com/go/sqlite"

	"github.com/embedonce/embedonce/backend"
)

func wideItems(from, n int) []backend.Item {
	items := testItems(from, n, 'w')
	for i := range items {
		items[i].Value = append(items[i].Value, make([]byte, 6000)...)
	}
	return items
}

func TestFullStore(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, wideItems(0, 64)))
	before := readAll(t, c, testKeys(512))
	require.NoError(t, c.writer.exec("PRAGMA max_page_count = 1")) // SQLite raises it to what there is

	for range 3 {
		err := c.SetMany(ctxb, wideItems(0, 512))
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.ErrorContains(t, err, "full")
		require.ErrorContains(t, err, c.path)
		require.Equal(t, before, readAll(t, c, testKeys(512)))
	}
	require.NoError(t, c.writer.exec("PRAGMA max_page_count = 4294967294"))
	require.NoError(t, c.SetMany(ctxb, wideItems(0, 512)))
	require.Len(t, readAll(t, c, testKeys(512)), 512)
}

func TestFailureInsideABatch(t *testing.T) {
	for _, how := range []string{"ABORT", "FAIL", "ROLLBACK"} {
		for _, item := range []int{0, 1, 256, 511} {
			path := testPath(t)
			c := openTest(t, path, nil)
			require.NoError(t, c.SetMany(ctxb, testItems(1000, 10, 'a')))
			rawRun(t, path, fmt.Sprintf("CREATE TRIGGER boom BEFORE INSERT ON entries WHEN (SELECT count(*) FROM entries) = %d BEGIN SELECT RAISE(%s, 'boom'); END", 10+item, how))
			err := c.SetMany(ctxb, testItems(0, 512, 'b'))
			require.ErrorContains(t, err, "boom")
			require.Empty(t, readAll(t, c, testKeys(512)), "%s at %d", how, item)
			rawRun(t, path, "DROP TRIGGER boom")
			require.NoError(t, c.SetMany(ctxb, testItems(0, 512, 'c')))
			require.Len(t, readAll(t, c, testKeys(512)), 512)
			require.NoError(t, c.Close())
		}
	}
}

func TestWriterThatBreaksIsReplaced(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	require.NoError(t, c.writer.close())
	c.writer = nil
	require.NoError(t, c.SetMany(ctxb, testItems(1, 1, 'a')))
	require.Equal(t, "2", settingOf(t, c, "synchronous"), "the new one is as durable")
	require.Len(t, readAll(t, c, testKeys(2)), 2)
}

func TestDamagedPages(t *testing.T) {
	for _, o := range []*Options{nil, {DisableMmap: true}} {
		path := testPath(t)
		c := openTest(t, path, nil)
		require.NoError(t, c.SetMany(ctxb, wideItems(0, 64)))
		require.NoError(t, c.Close())
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		page := defaultPageSize
		require.Greater(t, len(data), 3*page)
		copy(data[page:], bytes.Repeat([]byte{0xa5}, len(data)-page))
		require.NoError(t, os.WriteFile(path, data, 0o600))

		c = openTest(t, path, o)
		err = c.GetMany(ctxb, testKeys(64), func(int, []byte) error { return nil })
		require.ErrorIs(t, err, backend.ErrCorrupt)
		require.ErrorContains(t, err, path)
		require.ErrorIs(t, c.SetMany(ctxb, testItems(0, 1, 'b')), backend.ErrCorrupt)
		require.NoError(t, c.Close())
	}
}

// TestOneDamagedPage damages each page in turn: the entries of all the others
// must still be read.
func TestOneDamagedPage(t *testing.T) {
	const n, page = 60, 4096
	path := testPath(t)
	c := openTest(t, path, &Options{PageSize: page})
	items := testItems(0, n, 'w')
	for i := range items {
		items[i].Value = append(items[i].Value, make([]byte, 1000)...)
	}
	require.NoError(t, c.SetMany(ctxb, items))
	require.NoError(t, c.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	leaves := 0
	for at := page; at < len(data); at += page {
		damaged := bytes.Clone(data)
		copy(damaged[at:], bytes.Repeat([]byte{0xa5}, page))
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		for _, o := range []*Options{{ReadOnly: true, Readers: 1}, {ReadOnly: true, DisableMmap: true, Readers: 1}} {
			c := openTest(t, path, o)
			visits := 0
			for range 2 { // the connection stays usable
				visits = 0
				err := c.GetMany(ctxb, testKeys(n), func(i int, value []byte) error {
					visits++
					require.True(t, bytes.Equal(items[i].Value, value))
					return nil
				})
				if visits < n {
					require.ErrorIs(t, err, backend.ErrCorrupt)
					require.ErrorContains(t, err, fmt.Sprintf("read %d of %d keys", n-visits, n))
				} else {
					require.NoError(t, err)
				}
			}
			if visits < n && visits >= n-4 {
				leaves++
				testDamageAnd(t, c, n, visits)
			}
			require.NoError(t, c.Close())
		}
	}
	require.GreaterOrEqual(t, leaves/2, n/4, "pages that cost their own entries alone")
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

func TestLockThatIsHeld(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, &Options{BusyTimeout: 30 * time.Millisecond})
	require.NoError(t, c.SetMany(ctxb, testItems(0, 2, 'a')))
	raw := rawConn(t, path)
	defer func() { require.NoError(t, raw.Close()) }()
	rawExec(t, raw, "BEGIN IMMEDIATE")

	// Without a deadline: BusyTimeout.
	err := c.SetMany(ctxb, testItems(0, 2, 'b'))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, path)
	require.NotErrorIs(t, err, context.DeadlineExceeded)

	// With one: what comes first.
	ctx, cancel := context.WithTimeout(ctxb, time.Hour)
	defer cancel()
	err = c.SetMany(ctx, testItems(0, 2, 'b'))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	patient := openTest(t, path, &Options{BusyTimeout: time.Hour})
	ctx, cancel = context.WithTimeout(ctxb, 30*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, patient.SetMany(ctx, testItems(0, 2, 'b')), context.DeadlineExceeded)
	require.ErrorIs(t, c.Txn(ctxb, func(tx backend.Txn) error { return tx.SetMany(ctxb, testItems(0, 2, 'b')) }), backend.ErrUnavailable)

	// Cancelled while one call waits for SQLite's lock and others for that call.
	ctx, cancel = context.WithCancel(ctxb)
	done := make(chan error)
	for range 3 {
		go func() { done <- c.SetMany(ctx, testItems(0, 2, 'b')) }()
	}
	cancel()
	for range 3 {
		require.ErrorIs(t, <-done, context.Canceled)
	}

	// Readers don't wait, nothing was stored, and the lock does no lasting harm.
	require.Equal(t, map[int][]byte{0: testValue(0, 'a'), 1: testValue(1, 'a')}, readAll(t, c, testKeys(2)))
	rawExec(t, raw, "ROLLBACK")
	require.NoError(t, c.SetMany(ctxb, testItems(0, 2, 'c')))
	require.Equal(t, testValue(1, 'c'), readAll(t, c, testKeys(2))[1])
}

// TestWaitersForALockWaitTogether: what a call has waited for others of its handle
// counts if they waited for the same lock, and does not if they wrote.
func TestWaitersForALockWaitTogether(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, &Options{BusyTimeout: time.Hour})
	raw := rawConn(t, path)
	defer func() { require.NoError(t, raw.Close()) }()
	rawExec(t, raw, "BEGIN IMMEDIATE")
	longAgo := time.Now().Add(-2 * time.Hour)
	write := func(start time.Time) error {
		ctx, cancel := context.WithTimeout(ctxb, 30*time.Millisecond)
		defer cancel()
		err := c.transact(ctx, start, func(*conn) error { return nil })
		require.Equal(t, busyFailure, failureOf(err))
		return ctx.Err()
	}
	c.lockedSince = longAgo
	require.NoError(t, write(longAgo), "it gives up at once")
	require.Error(t, write(time.Now()), "a call that has just come waits")
	c.lockedSince = time.Time{}
	require.Error(t, write(longAgo), "and so does one that waited for something else")
	require.False(t, c.lockedSince.IsZero())

	rawExec(t, raw, "ROLLBACK")
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	require.Zero(t, c.lockedSince)
}

func TestLockThatComesFree(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, &Options{BusyTimeout: time.Minute})
	raw := rawConn(t, path)
	defer func() { require.NoError(t, raw.Close()) }()
	rawExec(t, raw, "BEGIN IMMEDIATE")
	done := make(chan error)
	go func() { done <- c.SetMany(ctxb, testItems(0, 1, 'a')) }()
	rawExec(t, raw, "ROLLBACK")
	require.NoError(t, <-done)
}

func TestUntilFree(t *testing.T) {
	busy := fmt.Errorf("wrapped: %w", driver.ResultBusy.ToError())
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tries := 0
		err := untilFree(ctxb, start, 10*time.Second, func() error { tries++; return busy })
		require.ErrorIs(t, err, busy)
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Greater(t, tries, int(10*time.Second/longestPause))

		// The time before counts, and one try is always made.
		tries = 0
		require.ErrorIs(t, untilFree(ctxb, start, time.Second, func() error { tries++; return busy }), busy)
		require.Equal(t, 1, tries)

		// The end of the context or the timeout, whichever comes first, to the point.
		start = time.Now()
		ctx, cancel := context.WithTimeout(ctxb, time.Hour)
		defer cancel()
		require.ErrorIs(t, untilFree(ctx, start, time.Second, func() error { return busy }), busy)
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, ctx.Err())
		start = time.Now()
		ctx, cancel = context.WithTimeout(ctxb, time.Minute)
		defer cancel()
		require.ErrorIs(t, untilFree(ctx, start, time.Hour, func() error { return busy }), busy)
		require.Equal(t, time.Minute, time.Since(start))

		// Another error ends it, so does success.
		mine := errors.New("mine")
		require.ErrorIs(t, untilFree(ctxb, time.Now(), time.Second, func() error { return mine }), mine)
		left := 5
		require.NoError(t, untilFree(ctxb, time.Now(), time.Second, func() error {
			if left--; left > 0 {
				return busy
			}
			return nil
		}))
		require.Zero(t, left)
	})
}

// lateEnd is a context that has ended from the look after so many on.
type lateEnd struct {
	context.Context
	looks int
}

func (l *lateEnd) Err() error {
	if l.looks--; l.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestContextThatEndsWhileTheFileIsAway: the end of the context comes out whatever else is
// wrong by then.
func TestContextThatEndsWhileTheFileIsAway(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 3, 'a'))) // and no reader is open
	require.NoError(t, os.Rename(path, path+".away"))
	defer func() { require.NoError(t, os.Rename(path+".away", path)) }()
	ended := 0
	for looks := range 10 {
		ctx := &lateEnd{ctxb, looks}
		err := c.GetMany(ctx, testKeys(3), func(int, []byte) error { return nil })
		require.Error(t, err)
		if ctx.looks < 0 { // the call has seen the end
			require.ErrorIs(t, err, context.Canceled, "it ends after %d looks", looks)
			ended++
		}
	}
	require.Greater(t, ended, 2)
}
