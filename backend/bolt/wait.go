package bolt

import "sync"

// calls counts the calls that are running, and what they have left running
// behind them, so that Close can wait for both.
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

// behind runs f on a goroutine of its own, which the call that is running need not
// wait for, but Close does.
func (c *calls) behind(f func()) {
	c.running.Add(1)
	go func() {
		defer c.running.Done()
		f()
	}()
}

// end lets nobody enter any more and returns when all have left.
func (c *calls) end() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
}
