package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var upkeepMutants = []mutant{
	{name: "counts writes", must: []string{"stats/counts"}, may: []string{"stats/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			var mu sync.Mutex
			n := 0
			b.set = func(ctx ctxT, items itemsT) error {
				err := c.SetMany(ctx, items)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					n += len(items)
				}
				return err
			}
			b.stats = func(ctx ctxT) (backend.Stats, error) {
				stats, err := c.Stats(ctx)
				mu.Lock()
				defer mu.Unlock()
				stats.Entries = int64(n)
				return stats, err
			}
		})},
	{name: "counts what it can read", must: []string{"stats/foreign"},
		suite: onStats(func(c *mapCache) statsT {
			return func(ctx ctxT) (backend.Stats, error) {
				stats, err := c.Stats(ctx)
				for _, value := range c.all() {
					if len(value) == 0 {
						stats.Entries--
					}
				}
				return stats, err
			}
		})},
	{name: "counts now and then", must: []string{"stats/while-written"}, may: []string{"stats/*"},
		suite: onStats(func(c *mapCache) statsT {
			var mu sync.Mutex
			var last backend.Stats
			calls := 0
			return func(ctx ctxT) (backend.Stats, error) {
				mu.Lock()
				defer mu.Unlock()
				now, err := c.Stats(ctx)
				if calls++; calls%64 == 1 {
					last = now
				}
				return last, err
			}
		})},
	{name: "has more free room than room", must: []string{"stats/counts"}, may: []string{"stats/*"},
		suite: onStats(func(c *mapCache) statsT {
			return func(ctx ctxT) (backend.Stats, error) {
				stats, err := c.Stats(ctx)
				stats.FreeBytes = stats.Bytes + 1
				return stats, err
			}
		})},
	{name: "counts whatever its context says", must: []string{"stats/ended-context"},
		suite: onStats(func(c *mapCache) statsT {
			return func(ctx ctxT) (backend.Stats, error) { return c.Stats(context.WithoutCancel(ctx)) }
		})},
	{name: "counts nothing when its context ends", must: []string{"stats/ends-at-each-look"}, may: []string{"stats/ended-context"},
		suite: onStats(func(c *mapCache) statsT {
			return func(ctx ctxT) (backend.Stats, error) {
				stats, err := c.Stats(context.WithoutCancel(ctx))
				if ctx.Err() != nil {
					return backend.Stats{}, nil
				}
				return stats, err
			}
		})},
	{name: "counts after Close", must: []string{"stats/closed"},
		suite: onStats(func(c *mapCache) statsT {
			return func(ctx ctxT) (backend.Stats, error) { return backend.Stats{Entries: int64(c.size())}, ctx.Err() }
		})},

	{name: "compacts an entry away", must: []string{"compact/changes-nothing"}, may: []string{"compact/*"},
		suite: onCompact(func(c *mapCache) compactT {
			return func(ctx ctxT) error {
				err := c.Compact(ctx)
				for k := range c.all() {
					if err == nil {
						_, err = c.Delete(ctx, keysT{k}, nil)
						break
					}
				}
				return err
			}
		})},
	{name: "compacts what was deleted back", must: []string{"compact/changes-nothing"}, may: []string{"compact/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			var mu sync.Mutex
			var gone itemsT
			b.del = func(ctx ctxT, keys keysT, match matchT) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				for i, value := range c.found(keys) {
					gone = append(gone, backend.Item{Key: keys[i], Value: value})
				}
				return c.Delete(ctx, keys, match)
			}
			b.compact = func(ctx ctxT) error {
				mu.Lock()
				defer mu.Unlock()
				return errors.Join(c.Compact(ctx), c.SetMany(ctx, gone))
			}
		})},
	{name: "is empty while it compacts", must: []string{"compact/while-used"}, may: []string{"compact/*"},
		suite: onCompact(func(c *mapCache) compactT {
			return func(ctx ctxT) error {
				if err := c.Compact(ctx); err != nil {
					return err
				}
				c.mu.Lock()
				all := c.entries
				c.entries = make(map[backend.Key][]byte)
				c.mu.Unlock()
				asleep(5 * time.Millisecond)
				c.mu.Lock()
				defer c.mu.Unlock()
				for k, value := range all {
					if _, fresh := c.entries[k]; !fresh {
						c.entries[k] = value
					}
				}
				return nil
			}
		})},
	{name: "drops what is written while it compacts", must: []string{"compact/while-used"}, may: []string{"compact/*"},
		suite: onCompact(func(c *mapCache) compactT {
			return func(ctx ctxT) error {
				all := c.all()
				if err := c.Compact(ctx); err != nil {
					return err
				}
				asleep(5 * time.Millisecond)
				c.mu.Lock()
				defer c.mu.Unlock()
				c.entries = all
				return nil
			}
		})},
	{name: "compacts half away when its context ends", must: []string{"compact/ends-at-each-look"}, may: []string{"compact/*"},
		suite: onCompact(func(c *mapCache) compactT {
			return func(ctx ctxT) error {
				if err := c.SetMany(ctx, nil); err != nil {
					return err
				}
				err := c.Compact(ctx)
				if err != nil {
					c.mu.Lock()
					defer c.mu.Unlock()
					for k := range c.entries {
						if k[0] < 128 {
							delete(c.entries, k)
						}
					}
				}
				return err
			}
		})},
	{name: "compacts whatever its context says", must: []string{"compact/ended-context"}, may: []string{"compact/under-faults"},
		suite: onCompact(func(c *mapCache) compactT {
			return func(ctx ctxT) error { return c.Compact(context.WithoutCancel(ctx)) }
		})},
	{name: "compacts after Close", must: []string{"compact/closed"},
		suite: onCompact(func(c *mapCache) compactT {
			return func(ctx ctxT) error {
				if err := c.Compact(ctx); err != nil && !errors.Is(err, backend.ErrClosed) {
					return err
				}
				return nil
			}
		})},
	{name: "compacts everything away when it can't go on", must: []string{"compact/under-faults"},
		suite: onCompact(func(c *mapCache) compactT {
			return func(ctx ctxT) error {
				err := c.Compact(ctx)
				if errors.Is(err, backend.ErrUnavailable) {
					c.mu.Lock()
					defer c.mu.Unlock()
					clear(c.entries)
				}
				return err
			}
		})},
}
