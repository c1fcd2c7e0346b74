package s3

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
)

const (
	// onePage is up to how many names all of the prefix is listed by one request
	// each time.
	onePage = 2000
	// window is how long after its naming a segment may become visible and still be
	// found by a short listing. A full one finds the others: too small a window only
	// costs delay.
	window    = 35 * time.Minute
	fullEvery = 10 * time.Minute
	// relists is how often the store is listed again because what was listed was
	// gone when it was to be read.
	relists = 5
)

// freshness is what a handle knows of how new its view is.
type freshness struct {
	mu     sync.Mutex
	flight *flight // the refresh that is under way; nil if none is
	good   time.Time
	full   time.Time // when the last refresh, and the last full one, that went well began

	// What follows is the refresh's own.
	names  int               // objects listed the last time, of whatever kind
	bad    map[string]object // no segments of ours, or unreadable: not read again until they change
	future map[string]bool   // those of bad that are of a later version
	listed map[string]object // what the last full listing had
	now    time.Time         // the server's time at the last full listing; zero if it tells none

	flights sync.WaitGroup
}

// flight is a refresh that several calls wait for.
type flight struct {
	began time.Time
	full  bool
	done  chan struct{}
	err   error // set before done is closed
}

// freshen makes the view as new as a listing that began at notBefore or later, a
// full one if full is set. Calls that want it at the same time share a listing, which
// goes on when one of them leaves.
func (c *Cache) freshen(ctx context.Context, notBefore time.Time, full bool) error {
	f := &c.fresh
	for {
		f.mu.Lock()
		good := f.good
		if full {
			good = f.full
		}
		if !good.Before(notBefore) {
			f.mu.Unlock()
			return nil
		}
		own := f.flight
		if own == nil {
			own = &flight{began: time.Now(), full: full || time.Since(f.full) > fullEvery, done: make(chan struct{})}
			f.flight = own
			f.flights.Go(func() { c.fly(own) })
		}
		f.mu.Unlock()
		select {
		case <-own.done:
		case <-ctx.Done():
			return c.remote.ended(ctx, opList.name)
		}
		if own.err != nil && !own.began.Before(notBefore) && (own.full || !full) {
			return own.err
		}
	}
}

func (c *Cache) fly(own *flight) {
	own.err = c.refresh(c.ended, own.full)
	c.fresh.mu.Lock()
	defer c.fresh.mu.Unlock()
	if own.err == nil {
		c.fresh.good = own.began
		if own.full {
			c.fresh.full = own.began
		}
	}
	c.fresh.flight = nil
	close(own.done)
}

// refresh lists the store and reads the indexes of what is new: by difference to
// what is known, never from the newest name on. A segment gets its name before it
// is visible, so that one with an earlier name may come later. Only one refresh
// runs at a time.
func (c *Cache) refresh(ctx context.Context, full bool) error {
	f := &c.fresh
	for again := 0; ; again++ {
		listed := make(map[string]object)
		var outputs, written []object
		others := 0
		see := func(o object) {
			if _, again := listed[o.name]; again {
				return
			}
			listed[o.name] = o
			parsed, ok := parseName(o.name)
			switch {
			case !ok:
				others++
			case f.bad[o.name] == o: // unchanged
			case parsed.compacted:
				outputs = append(outputs, o)
			default:
				written = append(written, o)
			}
		}
		full = full || f.names <= onePage
		now, err := c.listInto(ctx, full, see)
		if err != nil {
			return err
		}
		if full {
			for name := range f.bad {
				if _, there := listed[name]; !there {
					delete(f.bad, name)
					delete(f.future, name)
				}
			}
		}
		f.names = max(len(listed), len(c.view.all()))
		// Outputs first: they say what need not be read.
		missing, err := c.load(ctx, outputs)
		if err == nil {
			var more bool
			more, err = c.load(ctx, written)
			missing = missing || more
		}
		if err != nil {
			return err
		}
		if full {
			// Not before: who looks for what was deleted must find what replaces it.
			f.mu.Lock()
			f.listed, f.now = listed, now
			f.mu.Unlock()
			c.forget(listed)
			c.remote.counted.foreign.Store(int64(others + len(f.bad) - len(f.future)))
			c.remote.counted.future.Store(int64(len(f.future)))
			if c.index != nil {
				c.index.prune(listed)
			}
		}
		if !missing {
			return nil
		}
		if again == relists {
			// What replaces it was not listed: its records may be missing here.
			return c.remote.fail(opList, errMissing)
		}
	}
}

func (c *Cache) listInto(ctx context.Context, full bool, see func(object)) (now time.Time, err error) {
	if c.fresh.names <= onePage {
		return c.remote.list(ctx, "", "", see)
	}
	start := ""
	if !full {
		start = c.clock.oldest(window)
	}
	if _, err := c.remote.list(ctx, compactedFolder, "", see); err != nil {
		return now, err
	}
	return c.remote.list(ctx, writtenFolder, start, see)
}

// listing returns what the last full listing had, and the server's time then.
func (f *freshness) listing() (listed map[string]object, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed, f.now
}

// forget drops segments that something replaces and that are no longer listed. One
// that nothing replaces stays: a listing may lag behind.
func (c *Cache) forget(listed map[string]object) {
	for _, s := range c.view.all() {
		if _, there := listed[s.name]; !there && c.view.hidden(s.name) {
			c.view.gone(s.name)
		}
	}
}

// load reads the indexes of objects that are new and adds them to the view. missing
// says that one of them was gone.
func (c *Cache) load(ctx context.Context, objects []object) (missing bool, err error) {
	var fresh []object
	for _, o := range objects {
		if !c.view.knows(o.name) {
			fresh = append(fresh, o)
		}
	}
	f := &c.fresh
	var mu sync.Mutex
	err = inParallel(ctx, c.options.ParallelGets, len(fresh), func(ctx context.Context, i int) error {
		o := fresh[i]
		parsed, _ := parseName(o.name)
		t, err := c.loadTail(ctx, parsed, o.bytes)
		switch {
		case err == nil:
			s := newSegment(parsed, t, o.modified)
			c.clock.saw(s.newest())
			if !c.view.add(s, t) {
				return fmt.Errorf("s3: %s: %w: there are more than %d segments; run Compact", c.remote.where(), backend.ErrUnavailable, maxSegments)
			}
			return nil
		case errors.Is(err, errMissing):
			mu.Lock()
			missing = true
			mu.Unlock()
			return nil
		case errors.Is(err, errForeignObject), errors.Is(err, errFuture):
			mu.Lock()
			defer mu.Unlock()
			if f.bad == nil {
				f.bad, f.future = make(map[string]object), make(map[string]bool)
			}
			f.bad[o.name] = o
			if errors.Is(err, errFuture) {
				f.future[o.name] = true
			}
			return nil
		}
		return err
	})
	return missing, err
}

const (
	// likelyTail is what is read of an object whose name says nothing useful.
	likelyTail = 64 << 10
	// longestHint bounds what is read because a name says so.
	longestHint = 64 << 20
)

// loadTail returns the tail of a segment of so many bytes.
func (c *Cache) loadTail(ctx context.Context, name objectName, size int64) (*tail, error) {
	if size < footerSize {
		return nil, errForeignObject
	}
	if c.index != nil {
		if t, err := parseTail(name, c.index.read(name), size); err == nil {
			return t, nil
		}
	}
	hint := int64(name.tail)
	if hint < footerSize || hint > longestHint {
		hint = likelyTail
	}
	hint = min(hint, size)
	b, err := c.remote.readRange(ctx, name.String(), uint64(size-hint), uint64(size))
	if err != nil {
		return nil, err
	}
	foot, err := parseFooter(b, size)
	if err != nil {
		return nil, err
	}
	if need := foot.tailBytes(); need > uint64(len(b)) {
		more, err := c.remote.readRange(ctx, name.String(), uint64(size)-need, uint64(size)-uint64(len(b)))
		if err != nil {
			return nil, err
		}
		b = append(more, b...)
	}
	t, err := parseTail(name, b, size)
	if err == nil && c.index != nil {
		c.index.write(name, b[uint64(len(b))-foot.tailBytes():])
	}
	return t, err
}

// inParallel calls f for 0 to n-1, at most limit at a time, and returns the first
// error, after which the others are cancelled. It returns when all have ended.
func inParallel(ctx context.Context, limit, n int, f func(ctx context.Context, i int) error) error {
	if n == 0 {
		return nil
	}
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	var mu sync.Mutex
	next := 0
	for range min(limit, n) {
		group.Go(func() {
			for own.Err() == nil {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return
				}
				if err := f(own, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(own)
}
