package tiered

import (
	"context"
	"iter"
	"slices"

	"github.com/embedonce/embedonce/backend"
)

// Scan implements [backend.Scanner] with the slow layer, where every entry is that
// was acknowledged.
func (c *Cache) Scan(ctx context.Context, from backend.Position, head int, visit func(e backend.Entry) error) (backend.Position, error) {
	if err := c.enter(ctx); err != nil {
		return from, err
	}
	defer c.calls.leave()
	return backend.Scan(ctx, c.slow, from, head, visit)
}

// Stats implements [backend.Statter] with the slow layer.
func (c *Cache) Stats(ctx context.Context) (backend.Stats, error) {
	if err := c.enter(ctx); err != nil {
		return backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}, err
	}
	defer c.calls.leave()
	return backend.ReadStats(ctx, c.slow)
}

// Compact implements [backend.Compacter] with the slow layer.
func (c *Cache) Compact(ctx context.Context) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.calls.leave()
	return backend.Compact(ctx, c.slow)
}

// Delete implements [backend.Deleter]: it removes from the fast layer, then from
// the slow one, so that whatever fails in between, the fast layer has nothing that
// the slow one has not. It removes nothing and wraps [backend.ErrUnsupported] if one
// of them has no Delete.
//
// match judges the value in the slow layer; that of the fast one only where the
// slow one has none. A copy in the fast layer goes also where match is false: the
// slow layer answers then. Other handles go on reading what they have copied: see
// Options.MaxAge.
func (c *Cache) Delete(ctx context.Context, keys []backend.Key, match func(i int, value []byte) bool) (int, error) {
	if err := c.enter(ctx); err != nil {
		return 0, err
	}
	defer c.calls.leave()
	// A decorator has a Delete and knows only by a call whether it can; one without
	// keys removes nothing.
	if _, err := backend.Delete(ctx, c.fast, nil, nil); err != nil {
		return 0, fastError(ctx, "delete", err)
	}
	if _, err := backend.Delete(ctx, c.slow, nil, nil); err != nil {
		return 0, slowError(ctx, "delete", err)
	}
	if len(keys) == 0 {
		return 0, nil
	}

	d := newDeletion(keys, match)
	if err := c.turns.take(ctx, slices.Values(d.keys)); err != nil {
		return 0, err
	}
	defer c.turns.release(slices.Values(d.keys))
	if match != nil {
		err := c.slow.GetMany(ctx, d.keys, func(i int, _ []byte) error { d.inSlow[i] = true; return nil })
		if err != nil {
			return 0, slowError(ctx, "delete", err)
		}
	}
	if _, err := backend.Delete(ctx, c.fast, d.keys, d.matchFast); err != nil {
		return 0, fastError(ctx, "delete", err)
	}
	c.unwritten.remove(d.unwritten(c.unwritten.find(d.keys, 0)))
	removed, err := backend.Delete(ctx, c.slow, d.keys, d.matchSlow)
	removed += d.inFastAlone()
	if err != nil {
		return removed, slowError(ctx, "delete", err)
	}
	return removed, nil
}

// deletion is one Delete.
type deletion struct {
	keys  []backend.Key // the distinct ones
	where []int         // the caller's index of each
	match func(i int, value []byte) bool

	inSlow, gone []bool // known to be in the slow layer; gone from the fast one
}

func newDeletion(keys []backend.Key, match func(i int, value []byte) bool) *deletion {
	d := &deletion{match: match}
	seen := make(map[backend.Key]struct{}, len(keys))
	for i, k := range keys {
		if _, twice := seen[k]; !twice {
			seen[k] = struct{}{}
			d.keys, d.where = append(d.keys, k), append(d.where, i)
		}
	}
	d.inSlow, d.gone = make([]bool, len(d.keys)), make([]bool, len(d.keys))
	return d
}

func (d *deletion) matchFast(i int, value []byte) bool {
	d.gone[i] = d.match == nil || d.inSlow[i] || d.match(d.where[i], value)
	return d.gone[i]
}

// unwritten goes through the keys of which what is kept beside the fast layer has
// to go.
func (d *deletion) unwritten(kept [][]byte) iter.Seq[backend.Key] {
	return func(yield func(backend.Key) bool) {
		for i, value := range kept {
			if value != nil && d.matchFast(i, value) && !yield(d.keys[i]) {
				return
			}
		}
	}
}

func (d *deletion) matchSlow(i int, value []byte) bool {
	d.inSlow[i] = true
	return d.match == nil || d.match(d.where[i], value)
}

// inFastAlone counts what was removed from the fast layer and wasn't in the slow
// one.
func (d *deletion) inFastAlone() int {
	n := 0
	for i, gone := range d.gone {
		if gone && !d.inSlow[i] {
			n++
		}
	}
	return n
}
