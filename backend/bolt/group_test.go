package bolt

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/embedonce/embedonce/backend"
)

// held lets commits of c wait until release is called.
type held struct {
	reached chan struct{} // a commit has come
	release func()
	commits atomic.Int64
}

func holdCommits(c *Cache) *held {
	h := &held{reached: make(chan struct{}, 100)}
	goOn := make(chan struct{})
	h.release = sync.OnceFunc(func() { close(goOn) })
	c.hooks.Store(&hooks{commit: func() error {
		h.commits.Add(1)
		h.reached <- struct{}{}
		<-goOn
		return nil
	}})
	return h
}

// untilWaiting waits until n requests are in the queue.
func untilWaiting(c *Cache, n int) {
	for {
		c.queue.mu.Lock()
		waiting := len(c.queue.waiting)
		c.queue.mu.Unlock()
		if waiting == n {
			return
		}
		runtime.Gosched()
	}
}

func inBackground(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("it ended its goroutine")
		defer func() { done <- err }()
		err = f()
	}()
	return done
}

func TestWaitingBatchesShareACommit(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	h := holdCommits(c)
	defer h.release()
	const callers = 20
	results := []<-chan error{inBackground(func() error { return c.SetMany(ctxb, testItems(0, 2, 'a')) })}
	<-h.reached
	for i := 1; i <= callers; i++ {
		results = append(results, inBackground(func() error {
			if i%2 == 0 {
				return c.Txn(ctxb, func(tx backend.Txn) error { return tx.SetMany(ctxb, testItems(2*i, 2, 'a')) })
			}
			return c.SetMany(ctxb, testItems(2*i, 2, 'a'))
		}))
	}
	untilWaiting(c, callers)
	require.Empty(t, readAll(t, c, testKeys(100)), "nothing is visible before its commit")
	h.release()
	for _, done := range results {
		require.NoError(t, <-done)
	}
	require.EqualValues(t, 2, h.commits.Load())
	require.Len(t, readAll(t, c, testKeys(100)), 2*(callers+1))
}

func TestGroupsAreNotTooLarge(t *testing.T) {
	c := openTest(t, testPath(t), &Options{NoSync: true})
	h := holdCommits(c)
	defer h.release()
	large := func(i int) []backend.Item {
		return []backend.Item{{Key: testKey(i), Value: make([]byte, groupBytes*2/3)}}
	}
	var results []<-chan error
	for i := range 4 {
		results = append(results, inBackground(func() error { return c.SetMany(ctxb, large(i)) }))
		if i == 0 {
			<-h.reached
		}
	}
	untilWaiting(c, 3)
	h.release()
	for _, done := range results {
		require.NoError(t, <-done)
	}
	require.EqualValues(t, 4, h.commits.Load())
}

func TestBatchThatFailsDoesNotFailOthers(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	h := holdCommits(c)
	defer h.release()
	first := inBackground(func() error { return c.SetMany(ctxb, testItems(0, 2, 'a')) })
	<-h.reached
	injected := errors.New("injected")
	c.hooks.Store(&hooks{put: func(item int) error {
		if item == 7 {
			return injected
		}
		return nil
	}})
	good, bad := make([]<-chan error, 4), make([]<-chan error, 3)
	for i := range good {
		good[i] = inBackground(func() error { return c.SetMany(ctxb, testItems(10+i*5, 5, 'a')) })
	}
	for i := range bad {
		bad[i] = inBackground(func() error { return c.SetMany(ctxb, testItems(100+i*10, 10, 'b')) })
	}
	untilWaiting(c, 7)
	h.release()
	require.NoError(t, <-first)
	for _, done := range good {
		require.NoError(t, <-done)
	}
	for _, done := range bad {
		err := <-done
		require.ErrorIs(t, err, injected)
		require.ErrorContains(t, err, c.path)
	}
	require.Len(t, readAll(t, c, testKeys(200)), 2+4*5)
}

func TestLeavingWhileWaiting(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	h := holdCommits(c)
	defer h.release()
	first := inBackground(func() error { return c.SetMany(ctxb, testItems(0, 2, 'a')) })
	<-h.reached
	ctx, cancel := context.WithCancel(ctxb)
	second := inBackground(func() error { return c.SetMany(ctx, testItems(2, 2, 'a')) })
	third := inBackground(func() error { return c.SetMany(ctxb, testItems(4, 2, 'a')) })
	untilWaiting(c, 2)
	cancel()
	require.ErrorIs(t, <-second, context.Canceled)
	h.release()
	require.NoError(t, <-first)
	require.NoError(t, <-third)
	got := readAll(t, c, testKeys(6))
	require.Len(t, got, 4)
	require.NotContains(t, got, 2, "it had not been begun")
}

func TestLeavingWhileItIsCommitted(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	h := holdCommits(c)
	defer h.release()
	ctx, cancel := context.WithCancel(ctxb)
	items := testItems(0, 50, 'a')
	left := inBackground(func() error { return c.SetMany(ctx, items) })
	<-h.reached
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
	for i := range items { // the memory is the caller's again
		clear(items[i].Value)
		items[i].Key = testKey(1000 + i)
	}
	closed := inBackground(c.Close)
	select {
	case <-closed:
		t.Error("Close must wait for the commit")
	case <-time.After(30 * time.Millisecond):
	}
	h.release()
	require.NoError(t, <-closed)
	c = openTest(t, path, nil)
	got := readAll(t, c, testKeys(50))
	require.Len(t, got, 50)
	for i := range 50 {
		require.Equal(t, testValue(i, 'a'), got[i])
	}
}

func TestCommitThatMakesNoEnd(t *testing.T) {
	c := openTest(t, testPath(t), &Options{StallTimeout: 30 * time.Millisecond})
	h := holdCommits(c)
	defer h.release()
	var results []<-chan error
	for i := range 3 {
		results = append(results, inBackground(func() error { return c.SetMany(ctxb, testItems(i, 1, 'a')) }))
	}
	for _, done := range results {
		err := <-done
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, c.path)
		require.ErrorContains(t, err, "StallTimeout")
	}
	require.Empty(t, readAll(t, c, testKeys(3)), "readers don't wait")
	untilWaiting(c, 0)
	h.release()
	require.NoError(t, c.SetMany(ctxb, testItems(5, 1, 'b')))
}

// TestVisitThatTakesLong: the map must grow, for which bbolt waits for every
// reader, and lets none begin.
func TestVisitThatTakesLong(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	path := testPath(t)
	c := openTest(t, path, &Options{MapBytes: 1, StallTimeout: 150 * time.Millisecond})
	require.NoError(t, c.SetMany(ctxb, testItems(0, 2, 'a')))
	write := func(ctx context.Context) error { return c.SetMany(ctx, wideItems(100, 100)) }
	deadline := func() context.Context {
		ctx, cancel := context.WithTimeout(ctxb, 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	none := func(int, []byte) error { return nil }
	var otherRead <-chan error
	inside, leave := make(chan struct{}), make(chan struct{})
	lingering := inBackground(func() error {
		return c.GetMany(ctxb, testKeys(2), func(i int, value []byte) error {
			if i == 0 {
				close(inside)
				<-leave
			}
			if string(value) != string(testValue(i, 'a')) {
				return errors.New("another value")
			}
			return nil
		})
	})
	<-inside
	// Another reader ends while the commit waits.
	in2, leave2 := make(chan struct{}), make(chan struct{})
	otherRead = inBackground(func() error {
		return c.GetMany(ctxb, testKeys(1), func(int, []byte) error {
			close(in2)
			<-leave2
			return nil
		})
	})
	<-in2
	require.ErrorIs(t, write(deadline()), context.DeadlineExceeded)
	require.ErrorIs(t, c.SetMany(deadline(), testItems(5, 1, 'a')), context.DeadlineExceeded)
	require.ErrorIs(t, c.GetMany(deadline(), testKeys(2), none), context.DeadlineExceeded)
	_, err := c.Stats(deadline())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(leave2)
	require.NoError(t, <-otherRead, "who has read all returns")
	// Without a deadline: StallTimeout.
	err = c.GetMany(ctxb, testKeys(2), none)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "StallTimeout")
	require.ErrorIs(t, c.SetMany(ctxb, testItems(5, 1, 'a')), backend.ErrUnavailable)
	require.NotZero(t, c.Info())
	patient := openReader(t, c)
	close(leave)
	require.NoError(t, <-lingering)
	require.NoError(t, <-patient)
	require.NoError(t, c.SetMany(ctxb, testItems(6, 1, 'a')))
	require.NoError(t, c.Close())
	checkWhole(t, path)
}

// openReader starts a GetMany that waits for the commit.
func openReader(t *testing.T, c *Cache) <-chan error {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctxb, time.Minute)
	t.Cleanup(cancel)
	return inBackground(func() error {
		for { // StallTimeout is short in this test
			err := c.GetMany(ctx, testKeys(2), func(int, []byte) error { return nil })
			if !errors.Is(err, backend.ErrUnavailable) {
				return err
			}
		}
	})
}

// By default the map is so large that nobody waits.
func TestVisitThatTakesLongHoldsNobodyUp(t *testing.T) {
	if n, _ := new(Options).mapBytes(); n == 0 {
		t.Skip("this system gets no large map by default")
	}
	path := testPath(t)
	c := openTest(t, path, &Options{NoSync: true})
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	require.NoError(t, c.GetMany(ctxb, testKeys(1), func(_ int, value []byte) error {
		for i := range 10 {
			require.NoError(t, c.SetMany(ctxb, wideItems(1000*i, 400)))
			require.Len(t, readAll(t, c, testKeys(1000*i + 400)[1000*i:]), 400)
		}
		require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'b')))
		require.Equal(t, testValue(0, 'a'), value, "its pages are not used again")
		return nil
	}))
	require.NoError(t, c.Close())
	checkWhole(t, path)
}

// No goroutine runs while there is nothing to write.
func TestIdleHandleHasNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	goleak.VerifyNone(t, before)
}
