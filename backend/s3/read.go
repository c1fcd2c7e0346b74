package s3

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// GetMany implements backend.Cache. What it visits is what one view of the store
// had at one moment. Where the store could not be listed in time, it visits what it
// knows and then returns an error, since more may be stored.
//
// Memory: what a call takes grows with the number of its keys and with
// Options.ParallelGets, not with the values.
func (c *Cache) GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if err := c.enter(ctx, "read"); err != nil {
		return err
	}
	defer c.calls.leave()
	return c.getMany(ctx, keys, visit)
}

func (c *Cache) getMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if ctx.Err() != nil {
		return c.remote.ended(ctx, "read")
	}
	if len(keys) == 0 {
		return nil
	}
	stale := c.freshen(ctx, time.Now().Add(-c.options.Freshness), false)
	if ctx.Err() != nil {
		return c.remote.ended(ctx, "read")
	}
	r := newReading(c, keys, func(i int, value []byte, _ version) error { return visit(i, value) })
	if err := r.run(ctx); err != nil {
		return err
	}
	return stale
}

// reading is one GetMany.
type reading struct {
	cache *Cache
	visit func(i int, value []byte, v version) error

	keys  []backend.Key // each once
	first []int32       // by key: the first index of the call's keys that has it
	next  []int32       // by index: the next one with the same key, or -1
	done  []bool        // by index: visit has accepted a value

	offers  [][]candidate // by key: what wasn't tried yet, the newest first
	damaged []bool        // by key: a frame that should have been its own wasn't
	visited []bool        // by key: some value was visited
	lost    int           // keys of objects that are gone without a trace
}

func newReading(c *Cache, keys []backend.Key, visit func(i int, value []byte, v version) error) *reading {
	r := &reading{cache: c, visit: visit, next: make([]int32, len(keys)), done: make([]bool, len(keys))}
	known := make(map[backend.Key]int32, len(keys))
	for i, key := range keys {
		k, again := known[key]
		if !again {
			k = int32(len(r.keys))
			known[key] = k
			r.keys, r.first = append(r.keys, key), append(r.first, -1)
		}
		r.next[i], r.first[k] = r.first[k], int32(i)
	}
	r.offers = c.view.candidates(r.keys)
	r.damaged, r.visited = make([]bool, len(r.keys)), make([]bool, len(r.keys))
	return r
}

// relooks is how often a call looks again where what it wanted has gone, because
// somebody has compacted the store meanwhile.
const relooks = 3

func (r *reading) run(ctx context.Context) error {
	pending := make([]int, len(r.keys))
	for k := range pending {
		pending[k] = k
	}
	looked := 0
	for len(pending) > 0 {
		var wants []want
		for _, k := range pending {
			if len(r.offers[k]) > 0 {
				wants = append(wants, want{r.offers[k][0], k, math.MaxUint32})
				r.offers[k] = r.offers[k][1:]
			}
		}
		pending = pending[:0]
		if len(wants) == 0 {
			break
		}
		gone, err := r.cache.fetch(ctx, r.keys, plan(wants, r.cache.options.GapBytes), func(ch chunk) error {
			for i := range ch.found {
				again, err := r.offer(ctx, &ch.found[i])
				if err != nil {
					return err
				}
				if again {
					pending = append(pending, ch.found[i].want.key)
				}
			}
			return nil
		})
		if err != nil {
			if ctx.Err() != nil && !errors.As(err, new(*visitError)) {
				return r.cache.remote.ended(ctx, "read")
			}
			return err
		}
		if len(gone) > 0 {
			if looked++; looked > relooks {
				return fmt.Errorf("s3: %s: read: %w: objects are deleted faster than they can be read", r.cache.remote.where(), backend.ErrUnavailable)
			}
			if err := r.lookAgain(ctx, gone); err != nil {
				return err
			}
			for _, w := range gone {
				pending = append(pending, w.key)
			}
		}
	}
	return r.end(ctx)
}

// visitError marks what visit has said.
type visitError struct{ err error }

func (v *visitError) Error() string { return "s3: visit: " + v.err.Error() }
func (v *visitError) Unwrap() error { return v.err }

// offer gives what was found to visit, for each index that has not accepted a value
// yet. again says that an older candidate is to be tried.
func (r *reading) offer(ctx context.Context, f *found) (again bool, err error) {
	k := f.want.key
	if f.size < 0 {
		r.cache.remote.counted.mismatched.Add(1)
		r.damaged[k] = true
		return true, nil
	}
	r.visited[k] = true
	for i := r.first[k]; i >= 0; i = r.next[i] {
		if r.done[i] {
			continue
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		switch err := r.visit(int(i), f.value, f.want.version); {
		case err == nil:
			r.done[i] = true
		case errors.Is(err, backend.ErrForeign):
			again = true
		default:
			return false, &visitError{err}
		}
	}
	return again, nil
}

// lookAgain finds out where the records of gone are now. A segment that the bucket no
// longer has, and that nothing replaces, is lost: somebody else has deleted it.
func (r *reading) lookAgain(ctx context.Context, gone []want) error {
	c := r.cache
	if err := c.freshen(ctx, time.Now(), true); err != nil {
		return err
	}
	listed, _ := c.fresh.listing()
	keys := make([]backend.Key, len(gone))
	for i, w := range gone {
		keys[i] = r.keys[w.key]
		if _, there := listed[w.segment.name]; !there && c.view.isShown(w.segment) {
			c.remote.counted.lost.Add(1)
			c.view.gone(w.segment.name)
		}
	}
	for i, candidates := range c.view.candidates(keys) {
		w := gone[i]
		// Those that were tried already are at least as new as this one was.
		for len(candidates) > 0 && w.version.less(candidates[0].version) && r.visited[w.key] {
			candidates = candidates[1:]
		}
		if len(candidates) == 0 && !r.visited[w.key] {
			if !c.view.deleted(&keys[i], w.version) {
				r.lost++
			}
		}
		r.offers[w.key] = candidates
	}
	return nil
}

// end visits what can't be read, and says what is lost.
func (r *reading) end(ctx context.Context) error {
	for k, damaged := range r.damaged {
		if !damaged || r.visited[k] {
			continue
		}
		for i := r.first[k]; i >= 0; i = r.next[i] {
			if ctx.Err() != nil {
				return r.cache.remote.ended(ctx, "read")
			}
			if err := r.visit(int(i), nil, version{}); err != nil && !errors.Is(err, backend.ErrForeign) {
				return &visitError{err}
			}
		}
	}
	if r.lost > 0 {
		return fmt.Errorf("s3: %s: read: %w: objects that held %d of the keys were deleted, and not by this package", r.cache.remote.where(), backend.ErrCorrupt, r.lost)
	}
	return nil
}
