package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
)

func init() {
	all := []string{"soak/oracle", "soak/order", "soak/readers", "soak/faults", "soak/close"}
	chunked := mapInfo
	chunked.SnapshotKeys = 64
	loose := mapInfo
	loose.Atomic, loose.SnapshotReads = false, false
	tiny := backend.Info{Atomic: true, SnapshotReads: true, MaxBatchItems: 3, MaxBatchBytes: 300, MaxValueBytes: 300}
	oddCaches = append(oddCaches,
		mutant{name: "a map", soak: all, suite: overMap(func(*mapCache, *broken) {})},
		mutant{name: "bounded", suite: overMapWith(boundedInfo, func(*mapCache, *broken) {})},
		mutant{name: "in any order", soak: all, suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				order := rand.Perm(len(keys))
				shuffled := make(keysT, len(keys))
				for to, from := range order {
					shuffled[to] = keys[from]
				}
				return c.GetMany(ctx, shuffled, func(i int, value []byte) error { return visit(order[i], value) })
			}
		})},
		mutant{name: "lends one buffer and spoils it", soak: all, suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				var buf []byte
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					if value == nil {
						return visit(i, nil)
					}
					buf = append(buf[:0], value...)
					err := visit(i, buf)
					for at := range buf {
						buf[at] = 0xdb
					}
					return err
				})
			}
		})},
		mutant{name: "in chunks of 64 keys", soak: all, suite: overMapWith(chunked, func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				if err := c.begin(ctx); err != nil {
					return err
				}
				defer c.calls.Done()
				for at := 0; at < len(keys); at += 64 {
					for i, value := range c.found(keys[at:min(at+64, len(keys))]) {
						if err := ctx.Err(); err != nil {
							return err
						}
						if err := visit(at+i, value); err != nil && !errors.Is(err, backend.ErrForeign) {
							return err
						}
					}
				}
				return nil
			}
		})},
		mutant{name: "wraps every error", suite: overMap(func(c *mapCache, b *broken) {
			wrap := func(err error) error {
				if err != nil {
					return errors.Join(errors.New("odd"), fmt.Errorf("odd: %w", err))
				}
				return nil
			}
			b.get = func(ctx ctxT, keys keysT, visit visitT) error { return wrap(c.GetMany(ctx, keys, visit)) }
			b.set = func(ctx ctxT, items itemsT) error { return wrap(c.SetMany(ctx, items)) }
			b.txn = func(ctx ctxT, fn func(backend.Txn) error) error { return wrap(c.Txn(ctx, fn)) }
		})},
		mutant{name: "stores before an error of unknown outcome", soak: []string{"soak/oracle", "soak/faults"}, suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if f := c.fault.Load(); f != nil && f.Kind == FailAtItem && len(items) > f.Item && ctx.Err() == nil {
					c.mu.Lock()
					defer c.mu.Unlock()
					for _, item := range items {
						c.put(item)
					}
					return errors.New("no answer")
				}
				if err := c.SetMany(ctx, items); err != nil {
					return err
				}
				return ctx.Err() // too late to take it back
			}
		})},
		mutant{name: "waits with writes until reads are over", soak: all, suite: overMap(func(c *mapCache, b *broken) {
			var lock sync.RWMutex
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				lock.RLock()
				defer lock.RUnlock()
				return c.GetMany(ctx, keys, visit)
			}
			b.set = func(ctx ctxT, items itemsT) error {
				for !lock.TryLock() {
					if err := ctx.Err(); err != nil {
						return err
					}
					asleep(time.Millisecond)
				}
				defer lock.Unlock()
				return c.SetMany(ctx, items)
			}
		})},
		mutant{name: "one transaction after the other", soak: all, suite: overMap(func(c *mapCache, b *broken) {
			turn := make(chan struct{}, 1)
			b.txn = func(ctx ctxT, fn func(backend.Txn) error) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				select {
				case turn <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				defer func() { <-turn }()
				return c.Txn(ctx, fn)
			}
		})},
		mutant{name: "offers several values", suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error { // as two layers do
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					err := visit(i, value)
					if errors.Is(err, backend.ErrForeign) {
						return visit(i, value)
					}
					return err
				})
			}
		})},
		mutant{name: "offers what was overwritten", suite: overMap(func(c *mapCache, b *broken) {
			var mu sync.Mutex
			older := make(map[backend.Key][]byte)
			b.set = func(ctx ctxT, items itemsT) error {
				mu.Lock()
				defer mu.Unlock()
				keys := keysOf(items)
				before := c.found(keys)
				err := c.SetMany(ctx, items)
				for i, value := range before {
					if err == nil && len(value) > 0 {
						older[keys[i]] = value
					}
				}
				return err
			}
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					err := visit(i, value)
					if errors.Is(err, backend.ErrForeign) {
						mu.Lock()
						next := older[keys[i]]
						mu.Unlock()
						if next != nil {
							return visit(i, next)
						}
					}
					return err
				})
			}
			b.del = func(ctx ctxT, keys keysT, match matchT) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				removed, err := c.Delete(ctx, keys, match)
				for _, k := range keys {
					if len(c.found(keysT{k})) == 0 {
						delete(older, k)
					}
				}
				return removed, err
			}
		})},
		mutant{name: "not atomic, and says so", soak: []string{"soak/oracle", "soak/readers", "soak/faults"}, suite: overMapWith(loose, func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if err := c.info.Check(items); err != nil {
					return err
				}
				err := c.SetMany(ctx, nil)
				if err == nil && len(items) > 0 {
					err = c.suffer(ctx, true, 0, 0)
				}
				if err != nil {
					return err
				}
				var failed backend.BatchError
				for i := range items { // a node for each key
					err := c.SetMany(context.WithoutCancel(ctx), items[i:i+1])
					if f := c.fault.Load(); err == nil && f != nil && f.Kind == FailAtItem && i == f.Item {
						err = errors.New("a node failed")
					}
					if err == nil {
						err = ctx.Err()
					}
					if err != nil {
						failed.NotStored, failed.Err = append(failed.NotStored, i), err
					}
				}
				if failed.Err != nil {
					return &failed
				}
				return nil
			}
		})},
		mutant{name: "three items a batch", suite: overMapWith(tiny, func(*mapCache, *broken) {})},
		mutant{name: "layers", suite: func() Suite {
			return mapSuite(mapInfo, func(c *mapCache) backend.Cache { return layered{layered{c, c}, layered{c, c}} })
		}},
	)
}
