package tiered

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// GetMany implements [backend.Cache]: see the package's documentation.
func (c *Cache) GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.calls.leave()
	return c.getMany(ctx, keys, visit)
}

func (c *Cache) getMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("tiered: %w", err)
	}
	if len(keys) == 0 {
		return nil
	}
	r := c.reads.Get().(*read)
	defer r.free()
	r.begin(keys, visit)

	if err := r.visitUnwritten(ctx, c.trust.maxAge); err != nil {
		return err
	}
	if err := r.askFast(ctx); err != nil {
		return err
	}
	return r.askSlow(ctx)
}

// read is the state of one GetMany. It is pooled, so that a call that finds all
// in the fast layer allocates nothing of its own.
type read struct {
	c     *Cache
	keys  []backend.Key // the caller's
	visit func(i int, value []byte) error
	stop  error  // of visit
	done  []bool // accepted
	left  int    // that aren't

	// What a layer is asked for, where that isn't all: keys, and where they are.
	asked []backend.Key
	where []int32

	// Of what the slow layer is asked for: how often each key was changed, and the
	// values that are to be copied, one after the other in buffer.
	seen   []uint32
	kept   []kept
	buffer []byte
	items  []backend.Item
	fills  bool

	// The functions below, made once.
	fromAll, fromSome, fromSlow func(i int, value []byte) error
}

// kept is a value to be copied: asked[at] has buffer[from:to].
type kept struct{ at, from, to int }

// keptInPool is how large a buffer may be that waits for the next read.
const keptInPool = 8 << 20

func newRead(c *Cache) *read {
	r := &read{c: c}
	r.fromAll, r.fromSome, r.fromSlow = r.visitAll, r.visitSome, r.visitSlow
	return r
}

func (r *read) begin(keys []backend.Key, visit func(i int, value []byte) error) {
	r.keys, r.visit, r.stop = keys, visit, nil
	r.done = resize(r.done, len(keys))
	clear(r.done)
	r.left = len(keys)
}

func (r *read) free() {
	r.keys, r.visit, r.stop = nil, nil, nil
	r.kept = r.kept[:0]
	clear(r.items)
	r.items = r.items[:0]
	if cap(r.buffer) > keptInPool {
		r.buffer = nil
	}
	r.c.reads.Put(r)
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func (r *read) visitAll(i int, value []byte) error {
	err := r.visit(i, value)
	switch {
	case err == nil:
		r.done[i] = true
		r.left--
	case !errors.Is(err, backend.ErrForeign):
		r.stop = err
	}
	return err
}

func (r *read) visitSome(i int, value []byte) error { return r.visitAll(int(r.where[i]), value) }

func (r *read) visitSlow(i int, value []byte) error {
	err := r.visitSome(i, value)
	if err == nil && r.fills {
		r.keep(i, value)
	}
	return err
}

// keep copies a value that was accepted, as long as there is room.
func (r *read) keep(i int, value []byte) {
	size, from := len(value), len(r.buffer)
	limit := r.c.fastInfo.MaxValueBytes
	if size == 0 || limit > 0 && size > limit || from+size > r.c.fillBytes {
		return
	}
	if cap(r.buffer)-from < size {
		// The values of one call are usually of one size.
		grown := make([]byte, from, max(from+size, min((len(r.kept)+len(r.asked)-i)*size, 2*from+keptInPool, r.c.fillBytes)))
		copy(grown, r.buffer)
		r.buffer = grown
	}
	r.buffer = append(r.buffer, value...)
	r.kept = append(r.kept, kept{i, from, from + size})
}

// visitUnwritten visits what is kept beside the fast layer and isn't older than
// maxAge. An error ends the call.
func (r *read) visitUnwritten(ctx context.Context, maxAge time.Duration) error {
	c := r.c
	if c.unwritten.some.Load() == 0 {
		return nil
	}
	before := r.left
	defer func() { c.counts.fast.Add(int64(before - r.left)) }()
	for i, value := range c.unwritten.find(r.keys, maxAge) {
		if value == nil || r.done[i] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("tiered: %w", err)
		}
		if r.visitAll(i, value); r.stop != nil {
			return fmt.Errorf("tiered: visit: %w", r.stop)
		}
	}
	return nil
}

// askFast visits what the fast layer has and may answer for. An error ends the
// call.
func (r *read) askFast(ctx context.Context) error {
	c := r.c
	if !c.fastUsable() {
		return nil
	}
	asked, visit := r.keys, r.fromAll
	if !c.trust.whole() || r.left < len(r.keys) {
		r.asked, r.where = c.trust.choose(r.keys, r.done, r.asked[:0], r.where[:0])
		asked, visit = r.asked, r.fromSome
	}
	return r.ask(ctx, asked, visit)
}

// ask visits what the fast layer has of asked; it may fail.
func (r *read) ask(ctx context.Context, asked []backend.Key, visit func(i int, value []byte) error) error {
	if len(asked) == 0 {
		return nil
	}
	c, before := r.c, r.left
	err := c.fast.GetMany(ctx, asked, visit)
	c.counts.fast.Add(int64(before - r.left))
	switch {
	case r.stop != nil:
		return fmt.Errorf("tiered: visit: %w", r.stop)
	case err == nil:
		c.fastWorked()
	case ctx.Err() != nil:
		return fmt.Errorf("tiered: fast layer: read: %w", ctx.Err())
	default:
		c.fastFailed(ctx, "read", err)
	}
	return nil
}

// askSlow visits what the slow layer has of the rest, and copies it into the fast
// one.
func (r *read) askSlow(ctx context.Context) error {
	if r.left == 0 {
		return nil
	}
	c := r.c
	r.asked, r.where = r.asked[:0], r.where[:0]
	for i, key := range r.keys {
		if !r.done[i] {
			r.asked, r.where = append(r.asked, key), append(r.where, int32(i))
		}
	}
	r.kept, r.buffer = r.kept[:0], r.buffer[:0]
	r.fills = c.fillBytes > 0 && c.fastUsable()
	if r.fills {
		r.seen = resize(r.seen, len(r.asked))
		c.turns.watch(r.asked, r.seen)
		defer c.turns.unwatch(r.asked)
	}
	generation, before := c.trust.now(), r.left
	err := c.slow.GetMany(ctx, r.asked, r.fromSlow)
	c.counts.slow.Add(int64(before - r.left))
	if r.stop != nil {
		return fmt.Errorf("tiered: visit: %w", r.stop)
	}
	if r.fills && len(r.kept) > 0 && ctx.Err() == nil {
		r.fill(ctx, generation)
	}
	if err != nil {
		return errors.Join(slowError(ctx, "read", err), r.askOld(ctx))
	}
	c.counts.missing.Add(int64(r.left))
	return nil
}

// askOld, after the slow layer failed, visits what is only too old in the fast
// one, or beside it.
func (r *read) askOld(ctx context.Context) error {
	c := r.c
	if c.trust.maxAge == 0 || ctx.Err() != nil {
		return nil
	}
	if err := r.visitUnwritten(ctx, 0); err != nil {
		return err
	}
	if !c.fastUsable() {
		return nil
	}
	old, where := c.trust.chooseOld(r.keys, r.done, nil, r.where[:0])
	r.where = where
	return r.ask(ctx, old, r.fromSome)
}

// fill copies the kept values into the fast layer.
func (r *read) fill(ctx context.Context, generation uint64) {
	c := r.c
	for _, k := range r.kept {
		r.items = append(r.items, backend.Item{Key: r.asked[k.at], Value: r.buffer[k.from:k.to:k.to]})
	}
	items := c.turns.takeUnchanged(r.items, func(i int) uint32 { return r.seen[r.kept[i].at] })
	if len(items) == 0 {
		return
	}
	defer c.turns.release(keysOf(items))
	bounded, cancel := context.WithTimeout(ctx, fastPatience)
	defer cancel()
	err := inPieces(items, c.fastInfo, func(piece []backend.Item) error { return c.fast.SetMany(bounded, piece) })
	switch {
	case err == nil:
		c.counts.filled.Add(int64(len(items)))
		c.trust.confirm(keysOf(items), generation)
		c.fastWorked()
	case ctx.Err() == nil:
		c.fastFailed(ctx, "copy from the slow layer", err)
	}
}
