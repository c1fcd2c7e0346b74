package bolt

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// A commit costs the same two syncs for one entry and for hundreds. So the calls
// that come while one is under way wait, and share the next one. Nobody waits
// for others to come.

const (
	// groupBytes is when a commit is large enough: more would only be later.
	groupBytes    = 16 << 20
	groupRequests = 1024
	// entryBytes is what an entry costs beside its value, roughly.
	entryBytes = 256
)

// request is what one call wants to be written.
type request struct {
	items []backend.Item // the values are the request's own
	bytes int
	drops []drop

	// The answer, to be read after done.
	removed int
	changed []int // drops that were not done, as the entry has changed
	done    chan error
}

// queue has the requests that wait for a commit.
type queue struct {
	mu      sync.Mutex
	waiting []*request
	running bool // commitAll runs
	// When it began with the commit that it is at, and how long that may take
	// beside Options.StallTimeout.
	since   time.Time
	allowed time.Duration
}

// A commit may take a second for so many bytes, beside Options.StallTimeout: a
// large batch on a slow disk has not stalled.
const slowestPerSecond = 4 << 20

// restart notes that something goes on: a commit of size bytes.
func (q *queue) restart(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.since, q.allowed = time.Now(), time.Duration(size)*time.Second/slowestPerSecond
}

// SetMany implements backend.Cache: a batch is one transaction, which it may share
// with batches of other calls.
func (c *Cache) SetMany(ctx context.Context, items []backend.Item) error {
	if ctx.Err() != nil {
		return c.ended(ctx, "write")
	}
	if err := c.calls.enter(); err != nil {
		return err
	}
	defer c.calls.leave()
	return c.setMany(ctx, items, false)
}

// setMany stores items; own says that nobody else has or changes the values.
func (c *Cache) setMany(ctx context.Context, items []backend.Item, own bool) error {
	if ctx.Err() != nil {
		return c.ended(ctx, "write")
	}
	if err := c.info.Check(items); err != nil {
		return fmt.Errorf("bolt: %w", err)
	}
	if len(items) == 0 {
		return nil
	}
	r := &request{items: items}
	for i := range items {
		r.bytes += len(items[i].Value)
	}
	if c.options.ReadOnly {
		return c.write(ctx, r) // refuses it
	}
	if !own {
		// The commit goes on when the caller has left, and reads the values until its
		// end.
		r.items = cloneItems(items, r.bytes)
	}
	// In order, new keys are appended to the pages that bbolt has in memory, and not
	// put between others: into an empty file that is O(n) instead of O(n*n). Of equal
	// keys the last one stays the last.
	slices.SortStableFunc(r.items, func(a, b backend.Item) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	r.bytes += len(items) * entryBytes
	return c.write(ctx, r)
}

func cloneItems(items []backend.Item, size int) []backend.Item {
	own := make([]backend.Item, len(items))
	slab := make([]byte, 0, size)
	for i, item := range items {
		from := len(slab)
		slab = append(slab, item.Value...)
		own[i] = backend.Item{Key: item.Key, Value: slab[from:len(slab):len(slab)]}
	}
	return own
}

// write waits until r is written, ctx ends, or a commit makes no end.
func (c *Cache) write(ctx context.Context, r *request) error {
	if c.options.ReadOnly {
		return fmt.Errorf("bolt: %s: write: %w: it was opened with Options.ReadOnly", c.path, backend.ErrReadOnly)
	}
	r.done = make(chan error, 1)
	q := &c.queue
	q.mu.Lock()
	q.waiting = append(q.waiting, r)
	if !q.running {
		q.running, q.since, q.allowed = true, time.Now(), 0
		c.calls.behind(c.commitAll)
	}
	q.mu.Unlock()
	timeout := time.NewTimer(c.options.StallTimeout)
	defer timeout.Stop()
	for {
		select {
		case err := <-r.done:
			switch {
			case err == nil:
				return nil
			case ctx.Err() != nil:
				return fmt.Errorf("%w: %w", c.ended(ctx, "write"), explain(err))
			}
			return c.fail("write", err)
		case <-ctx.Done():
			q.drop(r)
			return c.ended(ctx, "write")
		case <-timeout.C:
			left := q.left(c.options.StallTimeout)
			if left <= 0 {
				q.drop(r)
				return c.stalled("write")
			}
			timeout.Reset(left)
		}
	}
}

// busy says whether anything is being written.
func (q *queue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running
}

// left says how much of timeout the commit that is under way still has.
func (q *queue) left(timeout time.Duration) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return timeout + q.allowed - time.Since(q.since)
}

// drop takes r out if it still waits.
func (q *queue) drop(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.waiting {
		if q.waiting[i] == r {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			return
		}
	}
}

// take takes the requests of the next commit out.
func (q *queue) take() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for n < len(q.waiting) && n < groupRequests {
		if size += q.waiting[n].bytes; size > groupBytes && n > 0 {
			break
		}
		n++
	}
	group := q.waiting[:n:n]
	q.since, q.allowed = time.Now(), time.Duration(size)*time.Second/slowestPerSecond
	q.waiting = append([]*request(nil), q.waiting[n:]...)
	return group
}

// next says whether there is anything to commit; if not, running is over.
func (q *queue) next() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running, q.since, q.allowed = len(q.waiting) > 0, time.Now(), 0
	return q.running
}

// commitAll commits until nothing waits. Only one goroutine runs it at a time.
func (c *Cache) commitAll() {
	faultsPanic()
	for c.queue.next() {
		tx, err := c.beginWrite()
		group := c.queue.take() // after begin, which may have to wait
		if err == nil {
			err = c.commit(tx, group)
			if err != nil && len(group) > 1 {
				c.commitEach(group)
				continue
			}
		}
		for _, r := range group {
			r.done <- err
		}
		// Whoever writes on at once shall be in the next commit, not in the one after:
		// else commits of one batch and of all the others take turns.
		runtime.Gosched()
	}
}

// commitEach commits the requests of a group that failed each by itself: one of
// them may be the reason.
func (c *Cache) commitEach(group []*request) {
	for _, r := range group {
		c.queue.restart(r.bytes)
		tx, err := c.beginWrite()
		if err == nil {
			err = c.commit(tx, []*request{r})
		}
		r.done <- err
	}
}
