package bolt

import (
	"context"
	"crypto/sha256"
	"errors"
	"runtime/debug"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/embedonce/embedonce/backend"
)

// deletePiece is how many keys are removed in one transaction: each one makes a
// page of a few entries be written again, and all of them are in memory until
// then.
const deletePiece = 1000

// dropBytes is what it costs to write such a page, roughly.
const dropBytes = 16 << 10

// drop is an entry to be removed.
type drop struct {
	key    backend.Key
	index  int
	judged bool // remove it only if sumOf(its value) is sum
	sum    [sha256.Size]byte
}

// sumOf tells a value from any other. That of a bucket is no value's.
func sumOf(value []byte) (sum [sha256.Size]byte) {
	if value == nil {
		return sum
	}
	return sha256.Sum256(value)
}

// Delete implements backend.Deleter, in transactions of up to 1,000 keys. match is
// called with no lock held that a writer needs.
func (c *Cache) Delete(ctx context.Context, keys []backend.Key, match func(i int, value []byte) bool) (removed int, err error) {
	if ctx.Err() != nil {
		return 0, c.ended(ctx, "delete")
	}
	if err := c.calls.enter(); err != nil {
		return 0, err
	}
	defer c.calls.leave()
	rest := make([]int, 0, len(keys)) // indices, the first one of each key
	seen := make(map[backend.Key]struct{}, len(keys))
	for i := range keys {
		if _, again := seen[keys[i]]; !again {
			seen[keys[i]] = struct{}{}
			rest = append(rest, i)
		}
	}
	for size := deletePiece; len(rest) > 0; {
		piece := rest[:min(size, len(rest))]
		n, changed, err := c.deletePiece(ctx, keys, piece, match)
		removed += n
		switch {
		case err == nil:
			rest = append(changed, rest[len(piece):]...) // to be judged again
		case len(piece) > 1 && errors.Is(err, berrors.ErrMaxSizeReached):
			size = len(piece) / 2 // the few pages that are left will do for the first ones
		default:
			return removed, err
		}
	}
	return removed, nil
}

func (c *Cache) deletePiece(ctx context.Context, keys []backend.Key, piece []int, match func(i int, value []byte) bool) (removed int, changed []int, err error) {
	r := new(request)
	if match == nil {
		for _, i := range piece {
			r.drops = append(r.drops, drop{key: keys[i], index: i})
		}
	} else if r.drops, err = c.judge(ctx, keys, piece, match); err != nil {
		return 0, nil, err
	}
	if len(r.drops) == 0 {
		return 0, nil, nil
	}
	r.bytes = len(r.drops) * dropBytes
	if err := c.write(ctx, r); err != nil {
		return 0, nil, err
	}
	for _, at := range r.changed {
		changed = append(changed, r.drops[at].index)
	}
	return r.removed, changed, nil
}

// judge asks match which entries are to be removed.
func (c *Cache) judge(ctx context.Context, keys []backend.Key, piece []int, match func(i int, value []byte) bool) ([]drop, error) {
	// A write that its caller has left may be under way: what it stores has to be
	// looked at too, and must not come back after the deletion.
	if c.queue.busy() {
		if err := c.write(ctx, new(request)); err != nil {
			return nil, err
		}
	}
	defer debug.SetPanicOnFault(faultsPanic())
	tx, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer c.end(tx)
	r, err := newReader(tx)
	if err != nil {
		return nil, c.fail("delete", err)
	}
	var drops []drop
	for _, i := range piece {
		if ctx.Err() != nil {
			return nil, c.ended(ctx, "delete")
		}
		value, found, err := r.lookup(&keys[i])
		if err != nil {
			return nil, c.fail("delete", err)
		}
		if found && match(i, value) {
			drops = append(drops, drop{key: keys[i], index: i, judged: true, sum: sumOf(value)})
		}
	}
	return drops, nil
}
