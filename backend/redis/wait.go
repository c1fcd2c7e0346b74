package redis

import (
	"context"
	"errors"
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

// detach runs f on a goroutine of its own and returns what f returned, or an error
// of ctx as soon as that ends: the driver doesn't give up a read when a context is
// cancelled. f then runs on until the driver's own time-out; Close waits for it. f
// must hold nothing of the caller's. timeout bounds f; the context that f gets has it
// as a deadline.
func (c *Cache) detach(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
	_, err := c.detachUntil(ctx, ctx, timeout, f)
	return err
}

// detachChange is detach for what changes the store. A change whose caller has left may
// still be on its way; it must not reach the server after one that began later, and
// undo that. So each waits for those that were left.
func (c *Cache) detachChange(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
	if err := c.left.wait(ctx); err != nil {
		return err
	}
	// The end of ctx must not cut the connection either: what was sent may still be
	// on its way then, and nobody would wait for it.
	over, err := c.detachUntil(ctx, context.WithoutCancel(ctx), timeout, f)
	c.left.add(over)
	return err
}

// left has the changes that their callers have left; a channel is closed when one
// has come to an end, which Options.Timeout bounds.
type left struct {
	mu   sync.Mutex
	over []<-chan struct{}
}

func (l *left) add(over <-chan struct{}) {
	select {
	case <-over:
	default:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = append(l.over, over)
	}
}

// wait returns ctx.Err() if ctx ends before all that were left have come to an end.
func (l *left) wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		for len(l.over) > 0 && isClosed(l.over[0]) {
			l.over = l.over[1:]
		}
		if len(l.over) == 0 {
			l.over = nil
			l.mu.Unlock()
			return nil
		}
		first := l.over[0]
		l.mu.Unlock()
		select {
		case <-first:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// detachUntil is detach, but f gets a context made of own once it has its turn. It
// also returns a channel that is closed when f has ended.
func (c *Cache) detachUntil(ctx, own context.Context, timeout time.Duration, f func(ctx context.Context) error) (over <-chan struct{}, _ error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	own, cancelOwn := context.WithTimeout(own, timeout)
	done, ended := make(chan error, 1), make(chan struct{})
	c.jobs.Go(func() {
		defer cancelOwn()
		defer cancel()
		err := c.inTurn(bounded, func(context.Context) error {
			if bounded.Err() != nil {
				return bounded.Err()
			}
			return f(own)
		})
		close(ended) // first: who has the answer sees that it is over
		done <- err
	})
	var err error
	select {
	case err = <-done:
	case <-bounded.Done():
		select {
		case err = <-done: // it may have been in time
		default:
			err = bounded.Err()
		}
	}
	return ended, judge(ctx, err)
}

// inTurn runs f when there is a free turn.
func (c *Cache) inTurn(ctx context.Context, f func(ctx context.Context) error) error {
	if err := c.turns.pass(ctx); err != nil {
		return err
	}
	defer c.turns.leave()
	return f(ctx)
}

// judge tells the end of the caller's context from that of the time-out of a part.
func judge(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case isTimeout(err) && deadlineIsNear(ctx):
		// A connection has the same deadline, and may say so before the context does.
		timer := time.NewTimer(2 * nearly)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return context.DeadlineExceeded
		}
	case ctx.Err() != nil:
		return ctx.Err()
	case isTimeout(err):
		return errNoAnswer
	}
	return err
}

// nearly is how much earlier a connection's deadline may be noticed.
const nearly = 20 * time.Millisecond

func deadlineIsNear(ctx context.Context) bool {
	deadline, has := ctx.Deadline()
	return has && time.Until(deadline) < nearly
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, &timeout) && timeout.Timeout()
}

// Tries of what may help when it is done again, and the pauses between them: long
// enough for a cluster to say where its keys went, short enough for a server that is
// down to be known as such within half a second.
const (
	tries      = 4
	firstPause = 10 * time.Millisecond
)

// again calls try until it succeeds or retry says no to its error, at most tries
// times.
func again(ctx context.Context, try func(n int) error, retry func(error) bool) error {
	pause := firstPause
	for n := 1; ; n++ {
		err := try(n)
		if err == nil || n == tries || ctx.Err() != nil || !retry(err) {
			return err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause)) // those who failed together must not come together
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		pause *= 4
	}
}
