package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// Faults that mutants of real backends had and no case found.
var gapMutants = []mutant{
	{name: "finds nothing behind a write that waits", must: []string{"ctx/get-behind-write"}, may: []string{"ctx/*", "scan/*"},
		suite: behindWrites(func(ctxT) error { return nil })},
	{name: "leaves a reader behind that waits", hangs: []string{"ctx/get-behind-write"}, may: []string{"ctx/*", "scan/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			var left atomic.Int32 // readers whose callers are gone
			behindWrite(c, b, func(ctx ctxT) error { left.Add(1); return ctx.Err() })
			b.close = func() error {
				for left.Load() > 0 && !leftForGood(c) {
					asleep(time.Millisecond)
				}
				return c.Close()
			}
		})},
	{name: "starts a walk anew behind a write that waits", must: []string{"ctx/get-behind-write"}, may: []string{"ctx/*", "scan/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			behindWrite(c, b, ctxT.Err)
			scan := b.scan
			b.scan = func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				next, err := scan(ctx, from, head, visit)
				if err != nil && ctx.Err() != nil {
					next = ""
				}
				return next, err
			}
		})},
	{name: "starts a walk anew after Close", must: []string{"scan/closed"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				next, err := c.Scan(ctx, from, head, visit)
				if errors.Is(err, backend.ErrClosed) {
					next = ""
				}
				return next, err
			}
		})},
	{name: "starts a walk anew when its context has ended", must: []string{"scan/ended-context"}, may: []string{"scan/*"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				if err := ctx.Err(); err != nil {
					return "", err
				}
				return c.Scan(ctx, from, head, visit)
			}
		})},
	{name: "answers writers at the same time with nil", must: []string{"batch/fails-beside-others"}, may: []string{"drop/*", "batch/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			var writing atomic.Int32
			b.set = func(ctx ctxT, items itemsT) error {
				beside := writing.Add(1) > 1
				defer writing.Add(-1)
				asleep(time.Millisecond)
				err := c.SetMany(ctx, items)
				if f := c.fault.Load(); beside && f != nil && f.Kind == FailAtItem && ctx.Err() == nil {
					return nil
				}
				return err
			}
		})},
	{name: "doesn't look whether a commit failed", must: []string{"batch/fails-at-commit"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				err := c.SetMany(ctx, items)
				if f := c.fault.Load(); f != nil && f.Kind == FailAtCommit && ctx.Err() == nil {
					return nil
				}
				return err
			}
		})},
	{name: "asks match once", must: []string{"delete/written-meanwhile"}, may: []string{"delete/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				if match == nil {
					return c.Delete(ctx, keys, nil)
				}
				if _, err := c.Delete(ctx, nil, nil); err != nil {
					return 0, err
				}
				var wanted keysT
				var looked [][]byte
				found := c.found(keys)
				for i, k := range keys {
					value, stored := found[i]
					if stored && !slices.Contains(keys[:i], k) && match(i, value) {
						wanted, looked = append(wanted, k), append(looked, value)
					}
				}
				return c.Delete(ctx, wanted, func(i int, now []byte) bool { return string(now) == string(looked[i]) })
			}
		})},
	{name: "tries for ever to delete where there is no room", hangs: []string{"delete/full", "delete/under-faults"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.del = func(ctx ctxT, keys keysT, match matchT) (int, error) {
				for len(keys) > 0 {
					if f := c.fault.Load(); f == nil || f.Kind != Full {
						break
					}
					asleep(time.Millisecond)
				}
				return c.Delete(ctx, keys, match)
			}
		})},
	{name: "goes on with a slow write whose caller has left", must: []string{"delete/left-slow"}, may: []string{"ctx/*", "delete/*", "drop/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				err := c.SetMany(ctx, items)
				if errors.Is(err, context.DeadlineExceeded) {
					late := cloneItems(items)
					time.AfterFunc(80*time.Millisecond, func() { _ = c.SetMany(context.Background(), late) })
				}
				return err
			}
		})},
	{name: "can't read a value that ends with a page", must: []string{"size/alone"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					if len(value) > 4000 && (64+len(value))%4096 == 0 {
						value = nil
					}
					return visit(i, value)
				})
			}
		})},
	{name: "fails to store nothing", must: []string{"write/no-items-under-faults"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if f := c.fault.Load(); len(items) == 0 && f != nil && f.Kind == Cut {
					return errors.Join(ctx.Err(), fmt.Errorf("map: %w: cut", backend.ErrUnavailable))
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "refuses a batch over 16 MiB", must: []string{"drop/at-the-limits"},
		suite: overMapWith(backend.Info{Atomic: true, SnapshotReads: true}, func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				size := 0
				for _, item := range items {
					size += len(item.Value)
				}
				if size > 16<<20 {
					return fmt.Errorf("map: %w", backend.ErrTooLarge)
				}
				return c.SetMany(ctx, items)
			}
		})},
}

// behindWrites is a cache in which a large write waits for the visits that run, and
// a reader that comes meanwhile for the write. leave says what a reader returns whose
// context ends before.
func behindWrites(leave func(ctx ctxT) error) func() Suite {
	return overMap(func(c *mapCache, b *broken) { behindWrite(c, b, leave) })
}

func behindWrite(c *mapCache, b *broken, leave func(ctx ctxT) error) {
	var reading, writing atomic.Int32
	enter := func(ctx ctxT) (ok bool) {
		for writing.Load() > 0 && !leftForGood(c) {
			if ctx.Err() != nil {
				return false
			}
			asleep(time.Millisecond)
		}
		return true
	}
	b.get = func(ctx ctxT, keys keysT, visit visitT) error {
		if !enter(ctx) {
			return leave(ctx)
		}
		reading.Add(1)
		defer reading.Add(-1)
		return c.GetMany(ctx, keys, visit)
	}
	b.scan = func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
		if !enter(ctx) {
			return from, ctx.Err()
		}
		return c.Scan(ctx, from, head, visit)
	}
	b.set = func(ctx ctxT, items itemsT) error {
		if len(items) > 0 && len(items[0].Value) >= 256<<10 {
			writing.Add(1)
			defer writing.Add(-1)
			for reading.Load() > 0 {
				asleep(time.Millisecond)
			}
		}
		return c.SetMany(ctx, items)
	}
}

// leftForGood says whether the store was closed: then nothing has to wait any more.
func leftForGood(c *mapCache) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.closed
}
