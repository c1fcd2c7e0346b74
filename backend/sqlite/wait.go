package sqlite

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// calls counts the calls that are running, so that Close can wait for them.
type calls struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// enter returns errClosed after end; otherwise leave must follow.
func (c *calls) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.running.Add(1)
	return nil
}

func (c *calls) leave() { c.running.Done() }

// end lets nobody enter any more and returns when all have left.
func (c *calls) end() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
}

// gate lets so many in at a time as it has room for.
type gate chan struct{}

// pass returns ctx.Err() if ctx ends before there is room; otherwise leave must
// follow.
func (g gate) pass(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	default:
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) leave() { <-g }

const (
	shortestPause = time.Millisecond
	longestPause  = 25 * time.Millisecond
)

// untilFree calls try until it does something else than report a lock that is
// taken, and returns what it reported last. It gives up when ctx ends or when
// timeout is over, counted from start, whichever comes first; it always tries
// once. SQLite has no queue for its locks: asking again is the only way to wait.
func untilFree(ctx context.Context, start time.Time, timeout time.Duration, try func() error) error {
	var timer *time.Timer
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		err := try()
		if err == nil || failureOf(err) != busyFailure {
			return err
		}
		left := timeout - time.Since(start)
		if left <= 0 {
			return err
		}
		// Waiters that began together must not ask together.
		jittered := min(pause/2+rand.N(pause/2+1), left)
		if timer == nil {
			timer = time.NewTimer(jittered)
			defer timer.Stop()
		} else {
			timer.Reset(jittered)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return err
		}
	}
}
