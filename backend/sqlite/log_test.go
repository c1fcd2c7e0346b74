package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func logLength(t testing.TB, c *Cache) int64 {
	t.Helper()
	info, err := os.Stat(c.path + "-wal")
	require.NoError(t, err)
	return info.Size()
}

// relay runs readers that overlap without a pause: each stays in its read until
// another one has begun after it.
type relay struct {
	mu    sync.Mutex
	next  *sync.Cond
	begun int
	ended bool
	all   sync.WaitGroup
}

func startRelay(t *testing.T, readers int, caches ...*Cache) *relay {
	r := &relay{}
	r.next = sync.NewCond(&r.mu)
	for i := range readers {
		r.all.Go(func() {
			for {
				stop := false
				err := caches[i%len(caches)].GetMany(ctxb, testKeys(1), func(int, []byte) error {
					r.mu.Lock()
					defer r.mu.Unlock()
					r.begun++
					r.next.Broadcast()
					for mine := r.begun; r.begun == mine && !r.ended; {
						r.next.Wait()
					}
					stop = r.ended
					return nil
				})
				if err != nil {
					t.Error(err)
					r.end()
				}
				if err != nil || stop {
					return
				}
			}
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.begun == 0 && !r.ended {
		r.next.Wait()
	}
	return r
}

func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.next.Broadcast()
}

func TestLogStaysShortUnderReaders(t *testing.T) {
	path := testPath(t)
	c, other := openTest(t, path, &Options{Readers: 4, Synchronous: Normal}), openTest(t, path, nil)
	c.log.bytes, c.log.wait = 1<<20, time.Minute
	require.NoError(t, c.SetMany(ctxb, wideItems(0, 1)))
	r := startRelay(t, 4, c, other)
	defer r.all.Wait()
	defer r.end()
	for batch := range 10 { // 4 MB
		require.NoError(t, c.SetMany(ctxb, wideItems(1+64*batch, 64)))
		require.LessOrEqual(t, logLength(t, c), c.log.bytes)
	}
	r.end()
	r.all.Wait()
	require.Greater(t, r.begun, 4)
	require.Len(t, readAll(t, other, testKeys(3000)), 1+64*10)
	require.Equal(t, "ok", rawText(t, path, "PRAGMA integrity_check"))
}

func TestLogThatCanNotBeShortened(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, &Options{Readers: 1})
	c.log.bytes, c.log.wait = 1, time.Nanosecond
	require.NoError(t, c.SetMany(ctxb, wideItems(0, 1)))
	require.Zero(t, logLength(t, c))

	// Somebody who stays: the batch is stored all the same, and the next try comes
	// when the log has grown.
	raw := rawConn(t, path)
	rawExec(t, raw, "BEGIN")
	rawExec(t, raw, "SELECT count(*) FROM entries")
	require.NoError(t, c.SetMany(ctxb, wideItems(1, 1)))
	length := logLength(t, c)
	require.Equal(t, length+c.log.bytes, c.log.again)
	c.log.again = length << 20
	require.NoError(t, c.SetMany(ctxb, wideItems(2, 1)))
	require.Equal(t, length<<20, c.log.again, "no try before")

	// The context ends the wait, not what was stored.
	c.log.again, c.log.wait = 0, time.Hour
	ctx, cancel := context.WithTimeout(ctxb, 50*time.Millisecond)
	defer cancel()
	require.NoError(t, c.SetMany(ctx, wideItems(3, 1)))
	require.NotZero(t, c.log.again)

	// A reader of the handle itself, a batch that waits for it, and Close, which
	// waits for both.
	rawExec(t, raw, "ROLLBACK")
	require.NoError(t, raw.Close())
	c.log.again = 0
	before := logLength(t, c)
	written, closed := make(chan error, 1), make(chan error, 1)
	require.NoError(t, c.GetMany(ctxb, testKeys(1), func(int, []byte) error {
		go func() { written <- c.SetMany(ctxb, wideItems(4, 1)) }()
		for logLength(t, c) == before { // until it is stored
			runtime.Gosched()
		}
		go func() { closed <- c.Close() }()
		for c.calls.enter() == nil { // until it waits
			c.calls.leave()
		}
		return nil
	}))
	require.NoError(t, <-written)
	require.NoError(t, <-closed)
	require.Len(t, readAll(t, openTest(t, path, nil), testKeys(5)), 5)
}

func TestLogBehindASymbolicLink(t *testing.T) {
	path := testPath(t)
	require.NoError(t, openTest(t, path, nil).Close())
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); runtime.GOOS == "windows" && err != nil {
		t.Skip("symbolic links need a privilege on Windows:", err)
	} else {
		require.NoError(t, err)
	}
	c := openTest(t, link, nil)
	require.NoError(t, c.SetMany(ctxb, wideItems(0, 1)))
	require.FileExists(t, path+"-wal")
	_, err := Open(link, &Options{Immutable: true})
	require.ErrorContains(t, err, "-wal is not empty")
	c.log.bytes = 1
	require.NoError(t, c.SetMany(ctxb, wideItems(1, 1)))
	info, err := os.Stat(path + "-wal")
	require.NoError(t, err)
	require.Zero(t, info.Size())
}
