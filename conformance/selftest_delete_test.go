package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var deleteMutants = []mutant{
	{name: "deletes nothing", must: []string{"delete/all", "delete/some", "delete/match", "delete/write-again"}, may: []string{"delete/*", "scan/*", "stats/*", "compact/*", "soak/oracle"},
		soak: []string{"soak/oracle"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, _ matchT) (int, error) {
				_, err := c.Delete(ctx, nil, nil)
				return len(c.found(keys)), err
			}
		})},
	{name: "counts keys in place of entries", must: []string{"delete/some", "delete/nothing"}, may: []string{"delete/*", "stats/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				removed, err := c.Delete(ctx, keys, match)
				if err != nil || match != nil {
					return removed, err
				}
				return len(keys), nil
			}
		})},
	{name: "counts equal keys each time", must: []string{"delete/some"}, may: []string{"delete/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				n := len(c.found(keys))
				removed, err := c.Delete(ctx, keys, match)
				if err == nil && match == nil {
					removed = n
				}
				return removed, err
			}
		})},
	{name: "fails at a key that isn't stored", must: []string{"delete/some", "delete/nothing"}, may: []string{"delete/*", "stats/*", "compact/*", "scan/*", "soak/oracle"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				if len(c.found(keys)) < len(keys) && c.size() > 0 {
					return 0, errors.New("no such key")
				}
				return c.Delete(ctx, keys, match)
			}
		})},
	{name: "deletes what has the key's last 16 bytes", must: []string{"delete/near-keys"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				removed, err := c.Delete(ctx, keys, match)
				if err == nil && match == nil {
					for k := range c.all() {
						if slices.ContainsFunc(keys, func(gone backend.Key) bool { return [16]byte(gone[16:]) == [16]byte(k[16:]) }) {
							_, _ = c.Delete(ctx, keysT{k}, nil)
						}
					}
				}
				return removed, err
			}
		})},
	{name: "sorts the keys that are to be deleted", must: []string{"delete/some"}, may: []string{"delete/*", "scan/*", "stats/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				slices.SortFunc(keys, func(a, b backend.Key) int { return slices.Compare(a[:], b[:]) })
				return c.Delete(ctx, keys, match)
			}
		})},
	{name: "goes on deleting when the caller has left", must: []string{"delete/left"}, may: []string{"delete/*", "soak/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				removed, err := c.Delete(ctx, keys, match)
				if errors.Is(err, context.Canceled) {
					late := slices.Clone(keys)
					time.AfterFunc(5*time.Millisecond, func() { _, _ = c.Delete(context.Background(), late, nil) })
				}
				return removed, err
			}
		})},
	{name: "deletes without asking", must: []string{"delete/match"}, may: []string{"delete/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				if match != nil { // it asks and doesn't listen
					own := match
					match = func(i int, value []byte) bool { return own(i, value) || true }
				}
				return c.Delete(ctx, keys, match)
			}
		})},
	{name: "asks for keys that aren't stored", must: []string{"delete/nothing", "delete/match"}, may: []string{"delete/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				if err := c.SetMany(ctx, nil); err != nil {
					return 0, err
				}
				stored := c.found(keys)
				for i := range keys {
					if _, ok := stored[i]; !ok && match != nil {
						match(i, nil)
					}
				}
				return c.Delete(ctx, keys, match)
			}
		})},
	{name: "asks with another index", must: []string{"delete/match"}, may: []string{"delete/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				n := -1
				return c.Delete(ctx, keys, func(i int, value []byte) bool { n++; return match == nil || match(n, value) })
			}
		})},
	{name: "asks on another goroutine", must: []string{"delete/callers-goroutine"}, may: []string{"delete/close-waits"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (removed int, err error) {
				var done sync.WaitGroup
				done.Go(func() { removed, err = c.Delete(ctx, keys, match) })
				done.Wait()
				return removed, err
			}
		})},
	{name: "deletes what was written after match looked", must: []string{"delete/written-meanwhile", "delete/beside-writers"}, may: []string{"delete/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				if match == nil {
					return c.Delete(ctx, keys, nil)
				}
				if _, err := c.Delete(ctx, nil, nil); err != nil {
					return 0, err
				}
				var wanted keysT
				found := c.found(keys)
				for i, k := range keys {
					if value, ok := found[i]; ok && match(i, value) {
						wanted = append(wanted, k)
					}
				}
				asleep(5 * time.Millisecond) // the writers come
				return c.Delete(ctx, wanted, nil)
			}
		})},
	{name: "deletes at the next call", must: []string{"delete/all", "delete/several"}, may: []string{"delete/*", "scan/*", "stats/*", "compact/*", "soak/oracle"},
		suite: overMap(func(c *mapCache, b *broken) {
			var mu sync.Mutex
			var late keysT
			b.del = func(ctx ctxT, keys keysT, match matchT) (int, error) {
				if match != nil {
					return c.Delete(ctx, keys, match)
				}
				mu.Lock()
				defer mu.Unlock()
				_, err := c.Delete(ctx, late, nil)
				if err == nil {
					late = slices.Clone(keys)
				}
				found := make(map[backend.Key]bool)
				for i := range c.found(keys) {
					found[keys[i]] = true
				}
				return len(found), err
			}
		})},
	{name: "lets two deletions count one entry", must: []string{"delete/several"}, may: []string{"delete/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				found := make(map[backend.Key]bool)
				for i := range c.found(keys) {
					found[keys[i]] = true
				}
				pause()
				removed, err := c.Delete(ctx, keys, match)
				if match == nil && err == nil {
					removed = len(found)
				}
				return removed, err
			}
		})},
	{name: "never takes a deleted key again", must: []string{"delete/write-again"}, may: []string{"delete/*", "stats/*", "compact/*", "soak/oracle"},
		soak: []string{"soak/oracle"},
		suite: overMap(func(c *mapCache, b *broken) {
			var mu sync.Mutex
			gone := make(map[backend.Key]bool)
			b.del = func(ctx ctxT, keys keysT, match matchT) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				before := c.all()
				removed, err := c.Delete(ctx, keys, match)
				for _, k := range keys {
					if _, was := before[k]; was && match == nil {
						gone[k] = true
					}
				}
				return removed, err
			}
			b.set = func(ctx ctxT, items itemsT) error {
				mu.Lock()
				fresh := slices.DeleteFunc(slices.Clone(items), func(item backend.Item) bool { return gone[item.Key] })
				mu.Unlock()
				if err := c.info.Check(items); err != nil {
					return err
				}
				return c.SetMany(ctx, fresh)
			}
		})},
	{name: "can't delete what it can't read", must: []string{"delete/foreign"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				return c.Delete(ctx, keys, func(i int, value []byte) bool { return value != nil && (match == nil || match(i, value)) })
			}
		})},
	{name: "deletes what it can't read without asking", must: []string{"delete/foreign"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				return c.Delete(ctx, keys, func(i int, value []byte) bool { return len(value) == 0 || match == nil || match(i, value) })
			}
		})},
	{name: "writes all back that it had read before it deletes", must: []string{"delete/beside-writers"}, may: []string{"delete/*", "scan/*", "soak/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				all := c.all()
				removed, err := c.Delete(ctx, keys, match)
				if len(keys) == 0 || err != nil {
					return removed, err
				}
				pause()
				c.mu.Lock()
				defer c.mu.Unlock()
				for k := range c.entries {
					if _, known := all[k]; !known {
						delete(c.entries, k)
					}
				}
				return removed, nil
			}
		})},
	{name: "deletes whatever its context says", must: []string{"delete/ended-context"}, may: []string{"delete/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				return c.Delete(context.WithoutCancel(ctx), keys, match)
			}
		})},
	{name: "says nil when its context ends in a deletion", must: []string{"delete/ends-at-each-look"}, may: []string{"delete/*", "soak/oracle"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				if err := c.SetMany(ctx, nil); err != nil {
					return 0, err
				}
				removed, err := c.Delete(ctx, keys, match)
				if errors.Is(err, context.Canceled) {
					err = nil
				}
				return removed, err
			}
		})},
	{name: "deletes more when its context ends", must: []string{"delete/ends-at-each-look"}, may: []string{"delete/*", "soak/oracle"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				if err := c.SetMany(ctx, nil); err != nil {
					return 0, err
				}
				removed, err := c.Delete(ctx, keys, match)
				if err != nil {
					c.mu.Lock()
					defer c.mu.Unlock()
					clear(c.entries)
				}
				return removed, err
			}
		})},
	{name: "deletes after Close", must: []string{"delete/closed"},
		suite: overMap(func(c *mapCache, b *broken) {
			var closed atomic.Bool
			b.close = func() error { closed.Store(true); return c.Close() }
			b.del = func(ctx ctxT, keys keysT, match matchT) (int, error) {
				if closed.Load() && len(keys) > 0 {
					return len(keys), nil
				}
				return c.Delete(ctx, keys, match)
			}
		})},
	{name: "closes under a deletion", must: []string{"delete/close-waits"}, may: []string{"delete/*"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (removed int, err error) {
				if _, err := c.Delete(ctx, nil, nil); err != nil {
					return 0, err
				}
				for i, k := range keys {
					value, ok := c.found(keysT{k})[0]
					if !ok || match != nil && !match(i, value) {
						continue
					}
					n, err := c.Delete(ctx, keysT{k}, func(_ int, now []byte) bool { return string(now) == string(value) })
					if removed += n; err != nil {
						return removed, err
					}
				}
				return removed, nil
			}
		})},
	{name: "says nil when a deletion meets a lock", must: []string{"delete/under-faults"},
		suite: onDelete(func(c *mapCache) deleteT {
			return func(ctx ctxT, keys keysT, match matchT) (int, error) {
				removed, err := c.Delete(ctx, keys, match)
				if errors.Is(err, errLocked) {
					err = nil
				}
				return removed, err
			}
		})},
}
