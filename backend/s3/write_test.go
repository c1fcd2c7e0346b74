package s3

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCallsShareSegments: 64 goroutines that write one by one.
func TestCallsShareSegments(t *testing.T) {
	s := newStore(t, fakeServer(t))
	c := s.open(t, nil)
	s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPut {
			<-time.After(15 * time.Millisecond)
		}
		pass.ServeHTTP(w, r)
	})
	const writers, each = 64, 20
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				items := testItems(w*each+i, 1, 6208, 'w')
				if err := c.SetMany(ctxb, items); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	puts := c.Counters().Puts
	t.Logf("%d calls, %d PUTs", writers*each, puts)
	require.LessOrEqual(t, puts, int64(writers*each/20))
	s.set(nil)
	requireStored(t, s.open(t, nil), testItems(0, writers*each, 6208, 'w'))
}

// TestLanes: a second segment is written beside the first only if much is waiting.
func TestLanes(t *testing.T) {
	s := newStore(t, fakeServer(t))
	c := s.open(t, nil)
	release := make(chan struct{})
	entered := make(chan struct{}, 100)
	s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPut {
			entered <- struct{}{}
			<-release
		}
		pass.ServeHTTP(w, r)
	})
	var group sync.WaitGroup
	write := func(from, n int) {
		group.Go(func() {
			if err := c.SetMany(ctxb, testItems(from, n, 6208, 'w')); err != nil {
				t.Error(err)
			}
		})
	}
	queued := func(n int) {
		require.Eventually(t, func() bool {
			c.writes.mu.Lock()
			defer c.writes.mu.Unlock()
			return len(c.writes.queue) == n
		}, 10*time.Second, time.Millisecond)
	}
	write(0, 1)
	<-entered
	write(1, 1)
	write(2, 1)
	queued(2)
	c.writes.mu.Lock()
	require.Equal(t, 1, c.writes.working)
	c.writes.mu.Unlock()
	write(3, 200) // 1.2 MB: a second lane, which takes all that waits
	<-entered
	queued(0)
	close(release)
	group.Wait()
	require.EqualValues(t, 2, c.Counters().Puts)
	requireStored(t, c, testItems(0, 203, 6208, 'w'))
}

// TestACallThatLeaves: before its segment is written nothing of it is stored;
// afterwards all of it is, and the others that share it don't notice.
func TestACallThatLeaves(t *testing.T) {
	s := newStore(t, fakeServer(t))
	c := s.open(t, nil)
	release := make(chan struct{})
	entered := make(chan struct{}, 100)
	s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPut {
			entered <- struct{}{}
			<-release
		}
		pass.ServeHTTP(w, r)
	})
	first, cancelFirst := context.WithCancel(ctxb)
	second, cancelSecond := context.WithCancel(ctxb)
	errs := make(chan error, 2)
	go func() { errs <- c.SetMany(first, testItems(0, 3, 10, 'a')) }()
	<-entered
	go func() { errs <- c.SetMany(second, testItems(3, 3, 10, 'b')) }()
	require.Eventually(t, func() bool {
		c.writes.mu.Lock()
		defer c.writes.mu.Unlock()
		return len(c.writes.queue) == 1
	}, 10*time.Second, time.Millisecond)
	cancelSecond()
	require.ErrorIs(t, <-errs, context.Canceled)
	cancelFirst()
	require.ErrorIs(t, <-errs, context.Canceled)
	close(release)
	require.NoError(t, c.Close(), "it waits for the segment")
	require.Len(t, s.names(t), 1)
	c = s.open(t, nil)
	requireStored(t, c, testItems(0, 3, 10, 'a'))
	require.Empty(t, readAll(t, c, testKeys(6)[3:]))
}
