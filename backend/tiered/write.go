package tiered

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// SetMany implements [backend.Cache]: see the package's documentation.
func (c *Cache) SetMany(ctx context.Context, items []backend.Item) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.calls.leave()
	return c.setMany(ctx, items)
}

func (c *Cache) setMany(ctx context.Context, items []backend.Item) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("tiered: %w", err)
	}
	if err := c.info.Check(items); err != nil {
		return fmt.Errorf("tiered: %w", err)
	}
	if len(items) == 0 {
		return nil
	}
	if err := c.turns.take(ctx, keysOf(items)); err != nil {
		return err
	}
	defer c.turns.release(keysOf(items))
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("tiered: %w", err)
	}
	c.forget(ctx, items)
	generation, began := c.trust.now(), time.Now()
	err := c.slow.SetMany(ctx, items)
	if err == nil {
		c.copyWritten(ctx, items, generation)
		return nil
	}
	if !refused(err) {
		c.keepUnwritten(ctx, items, generation, began)
	}
	return slowError(ctx, "write", err)
}

// forget removes what a fast layer that outlives this process has under the keys of
// items. If the process ends between the two writes, a later one must not find old
// values there beside new ones in the slow layer. Usually nothing is there, and
// looking costs less than a transaction.
func (c *Cache) forget(ctx context.Context, items []backend.Item) {
	if c.fastInfo.Durability == backend.NotDurable || !c.fastUsable() {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, fastPatience)
	defer cancel()
	keys := slices.Collect(keysOf(items))
	var old []backend.Key
	err := c.fast.GetMany(bounded, keys, func(i int, value []byte) error {
		if !bytes.Equal(value, items[i].Value) {
			old = append(old, keys[i])
		}
		return nil
	})
	if err == nil && len(old) > 0 {
		_, err = backend.Delete(bounded, c.fast, old, nil)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, backend.ErrUnsupported) {
		c.fastFailed(ctx, "forget what is to be overwritten", err)
	}
}

// refused says that the slow layer has certainly stored nothing, and never will.
func refused(err error) bool {
	var batch *backend.BatchError
	return !errors.As(err, &batch) &&
		(errors.Is(err, backend.ErrTooLarge) || errors.Is(err, backend.ErrEmptyValue) || errors.Is(err, backend.ErrClosed))
}

// copyWritten brings the fast layer up to what the slow one has acknowledged, or
// sees to it that it isn't asked for these keys.
func (c *Cache) copyWritten(ctx context.Context, items []backend.Item, generation uint64) {
	c.unwritten.remove(keysOf(items))
	tooLarge := func(item backend.Item) bool {
		limit := c.fastInfo.MaxValueBytes
		return limit > 0 && len(item.Value) > limit
	}
	fitting := items
	if slices.ContainsFunc(items, tooLarge) {
		fitting = slices.DeleteFunc(slices.Clone(items), tooLarge)
	}
	if !c.writeFast(ctx, fitting) {
		c.doubt(ctx, items)
		return
	}
	c.trust.confirm(keysOf(fitting), generation)
	if len(fitting) < len(items) {
		// Also where an equal key fitted: the last value counts.
		c.takeBack(ctx, slices.DeleteFunc(slices.Clone(items), func(item backend.Item) bool { return !tooLarge(item) }))
	}
}

// keepUnwritten keeps a batch that the slow layer may have stored or not: whole, or
// else the slow layer alone is asked from now on. Half of it, from the one layer or
// from both, must never be seen (rule S1).
func (c *Cache) keepUnwritten(ctx context.Context, items []backend.Item, generation uint64, began time.Time) {
	c.unwritten.remove(keysOf(items))
	switch {
	case c.fastInfo.MayEvict:
		c.takeBack(ctx, items)
		c.unwritten.keep(items, began)
	case c.fastInfo.Check(items) == nil && c.writeFast(ctx, items):
		c.trust.confirm(keysOf(items), generation)
	default:
		c.doubt(ctx, items)
	}
}

// takeBack sees to it that the fast layer has nothing under the keys of items, or
// else that it isn't asked for them.
func (c *Cache) takeBack(ctx context.Context, items []backend.Item) {
	if !c.fastUsable() {
		c.doubt(ctx, items)
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), fastPatience)
	defer cancel()
	if _, err := backend.Delete(bounded, c.fast, slices.Collect(keysOf(items)), nil); err != nil {
		if !errors.Is(err, backend.ErrUnsupported) {
			c.fastFailed(ctx, "take back", err)
		}
		c.doubt(ctx, items)
	}
}

// writeFast writes items, all of which fit one by one, into the fast layer. The end
// of ctx must not leave the layers apart.
func (c *Cache) writeFast(ctx context.Context, items []backend.Item) bool {
	if len(items) == 0 {
		return true
	}
	if !c.fastUsable() {
		return false
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), fastPatience)
	defer cancel()
	if err := inPieces(items, c.fastInfo, func(piece []backend.Item) error { return c.fast.SetMany(bounded, piece) }); err != nil {
		c.fastFailed(ctx, "write", err)
		return false
	}
	c.fastWorked()
	return true
}

// doubt sees to it that the fast layer isn't asked for the keys of items.
func (c *Cache) doubt(ctx context.Context, items []backend.Item) {
	if c.trust.doubt(keysOf(items)) {
		c.tell(ctx, errGivenUp)
	}
}

var errGivenUp = fmt.Errorf("tiered: fast layer: it missed more than %d writes and is not used any more by this handle: %w", maxDoubted, backend.ErrUnavailable)

// inPieces calls write for items in batches within the limits of info. No value
// is over its limit.
func inPieces(items []backend.Item, info backend.Info, write func([]backend.Item) error) error {
	for len(items) > 0 {
		n := info.Fit(items)
		if err := write(items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}
