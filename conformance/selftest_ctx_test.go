package conformance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// asleep waits without regard to any context, as a driver may.
func asleep(d time.Duration) { <-time.After(d) }

var ctxMutants = []mutant{
	{name: "ignores a context that has ended, reading", must: []string{"ctx/ended-before-get", "ctx/ends-during-get"}, may: []string{"ctx/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(_ ctxT, keys keysT, visit visitT) error { return c.GetMany(context.Background(), keys, visit) }
			b.txn = c.Txn
		})},
	{name: "ignores a context that has ended, writing", must: []string{"ctx/ended-before-set"}, may: []string{"ctx/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(_ ctxT, items itemsT) error { return c.SetMany(context.Background(), items) }
			b.txn = c.Txn
		})},
	{name: "ignores a context that has ended, in Txn", must: []string{"ctx/ended-before-txn"}, may: []string{"ctx/*"},
		suite: withTxn(func(c *mapCache) txnT {
			return func(_ ctxT, fn func(backend.Txn) error) error { return c.Txn(context.Background(), fn) }
		})},
	{name: "looks at the context only at first", must: []string{"ctx/ends-during-get"}, may: []string{"ctx/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return c.GetMany(context.WithoutCancel(ctx), keys, visit)
			}
		})},
	{name: "says the driver's word for a cancelled read", must: []string{"ctx/ends-at-each-look-get", "ctx/ends-during-get"}, may: []string{"ctx/*", "soak/*", "read/visit-error-of-context"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				err := c.GetMany(ctx, keys, visit)
				if errors.Is(err, context.Canceled) {
					return errors.New("interrupted (9)")
				}
				return err
			}
			b.txn = c.Txn
		})},
	{name: "stores a part when a write is cancelled", must: []string{"ctx/ends-at-each-look-set"}, may: []string{"ctx/*", "soak/*", "drop/*", "batch/*"},
		soak: []string{"soak/oracle"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if err := c.info.Check(items); err != nil {
					return err
				}
				for i := range items {
					if err := ctx.Err(); err != nil {
						return err
					}
					if err := c.SetMany(context.WithoutCancel(ctx), items[i:i+1]); err != nil {
						return err
					}
				}
				return c.SetMany(ctx, nil)
			}
			b.txn = c.Txn
			b.info = func() backend.Info { return mapInfo }
		})},
	{name: "stores a part when a transaction is cancelled", must: []string{"ctx/ends-at-each-look-txn"}, may: []string{"ctx/*", "soak/*", "batch/*", "drop/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.txn = func(ctx ctxT, fn func(backend.Txn) error) error {
				return backend.BufferedTxn(ctx, &broken{Cache: c, set: func(inner ctxT, items itemsT) error {
					if err := c.info.Check(items); err != nil {
						return err
					}
					if err := c.SetMany(inner, items[:len(items)/2]); err != nil {
						return err
					}
					return c.SetMany(ctx, items[len(items)/2:])
				}}, fn)
			}
		})},
	{name: "ignores the contexts of a transaction's calls", must: []string{"ctx/ends-in-fn"},
		suite: onTxn(func(_ *mapCache, tx backend.Txn) *brokenTxn {
			return &brokenTxn{Txn: tx,
				get: func(_ ctxT, keys keysT, visit visitT) error { return tx.GetMany(context.Background(), keys, visit) },
				set: func(_ ctxT, items itemsT) error { return tx.SetMany(context.Background(), items) }}
		}), may: []string{"ctx/*"}},
	{name: "takes a write back when its context ends later", must: []string{"ctx/ends-after"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if err := c.SetMany(ctx, items); err != nil {
					return err
				}
				keys := keysOf(items)
				done := make(chan struct{})
				context.AfterFunc(ctx, func() {
					defer close(done)
					c.mu.Lock()
					defer c.mu.Unlock()
					for _, k := range keys {
						delete(c.entries, k)
					}
				})
				return nil
			}
		})},
	{name: "goes on writing when the caller has left", must: []string{"ctx/left", "delete/left"}, may: []string{"ctx/*", "delete/*", "soak/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				err := c.SetMany(ctx, items)
				if errors.Is(err, context.Canceled) {
					late := cloneItems(items)
					time.AfterFunc(5*time.Millisecond, func() { _ = c.SetMany(context.Background(), late) })
				}
				return err
			}
		})},
	{name: "fails the calls beside a cancelled one", must: []string{"ctx/of-another-call"}, may: []string{"ctx/*", "delete/left", "soak/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			var last atomic.Pointer[error] // of the group that commits together
			b.set = func(ctx ctxT, items itemsT) error {
				err := c.SetMany(ctx, items)
				if errors.Is(err, context.Canceled) {
					if _, early := ctx.(*countdown); early {
						last.Store(&err)
					}
				} else if shared := last.Swap(nil); shared != nil && err == nil {
					return *shared
				}
				return err
			}
		})},
	{name: "has no connection left after cancelled calls", hangs: []string{"ctx/usable-after"}, may: []string{"ctx/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			pool := make(chan struct{}, 20)
			b.set = func(ctx ctxT, items itemsT) error {
				select {
				case pool <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				err := c.SetMany(ctx, items)
				if !errors.Is(err, context.Canceled) {
					<-pool
				}
				return err
			}
		})},
	{name: "lets writers wait for visits", hangs: []string{"ctx/set-beside-visit"}, may: []string{"ctx/*", "batch/*", "delete/*", "scan/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			var lock sync.RWMutex
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				lock.RLock()
				defer lock.RUnlock()
				return c.GetMany(ctx, keys, visit)
			}
			b.set = func(ctx ctxT, items itemsT) error {
				lock.Lock()
				defer lock.Unlock()
				return c.SetMany(ctx, items)
			}
		})},
	{name: "finds nothing for a reader that waits no more", must: []string{"ctx/get-beside-visits"}, may: []string{"ctx/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			reading := make(chan struct{}, 1)
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				select {
				case reading <- struct{}{}:
				case <-ctx.Done():
					return nil
				}
				defer func() { <-reading }()
				return c.GetMany(ctx, keys, visit)
			}
		})},
	{name: "says nil to a writer that waits no more", must: []string{"ctx/behind-locked"}, may: []string{"ctx/*", "drop/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			writing := make(chan struct{}, 1)
			b.set = func(ctx ctxT, items itemsT) error {
				select {
				case writing <- struct{}{}:
				case <-ctx.Done():
					return nil
				}
				defer func() { <-writing }()
				err := c.SetMany(ctx, items)
				if errors.Is(err, errLocked) {
					asleep(200 * time.Millisecond) // the next one waits longer than its deadline
				}
				return err
			}
		})},
	{name: "lets calls wait for a Close that waits", hangs: []string{"ctx/beside-close"}, may: []string{"close/*", "*/close-waits"},
		suite: overMap(func(c *mapCache, b *broken) {
			var calls sync.RWMutex
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				calls.RLock()
				defer calls.RUnlock()
				return c.GetMany(ctx, keys, visit)
			}
			b.set = func(ctx ctxT, items itemsT) error {
				calls.RLock()
				defer calls.RUnlock()
				return c.SetMany(ctx, items)
			}
			b.close = func() error {
				calls.Lock()
				defer calls.Unlock()
				return c.Close()
			}
		})},
	{name: "waits for a slow store without regard to ctx", hangs: []string{"ctx/slow"}, may: []string{"drop/slow"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if f := c.fault.Load(); f != nil && f.Kind == Slow {
					asleep(2 * time.Second)
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "says locked when ctx has ended", must: []string{"ctx/locked"}, may: []string{"ctx/*", "write/no-items-under-faults"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if f := c.fault.Load(); f != nil && f.Kind == Locked {
					asleep(200 * time.Millisecond)
					return errLocked
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "waits for ever for a store that is cut off", hangs: []string{"ctx/cut", "drop/cut", "write/no-items-under-faults"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if f := c.fault.Load(); f != nil && f.Kind == Cut {
					<-ctx.Done()
					return ctx.Err()
				}
				return c.SetMany(ctx, items)
			}
		})},
}

var closeMutants = []mutant{
	{name: "fails when it is closed twice", must: []string{"close/twice", "close/at-the-same-time"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			var closed atomic.Bool
			b.close = func() error {
				if closed.Swap(true) {
					return errors.New("closed already")
				}
				return c.Close()
			}
		})},
	{name: "is not closed by Close", must: []string{"close/then-closed"}, may: []string{"close/*", "*/closed", "*/close-waits"},
		suite: overMap(func(_ *mapCache, b *broken) { b.close = func() error { return nil } })},
	{name: "closes without waiting for a read", must: []string{"close/waits-for-get"}, may: []string{"close/*", "*/close-waits"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.close = func() error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.closed = true
				return nil
			}
		})},
	{name: "says something else when Close meets a transaction", must: []string{"close/waits-for-txn"}, may: []string{"close/*"},
		suite: withTxn(func(c *mapCache) txnT {
			return func(ctx ctxT, fn func(backend.Txn) error) error {
				ran := false
				err := c.Txn(ctx, func(tx backend.Txn) error { ran = true; return fn(tx) })
				if ran && errors.Is(err, backend.ErrClosed) {
					c.mu.RLock()
					defer c.mu.RUnlock()
					if c.closed {
						return errors.New("broken pipe")
					}
				}
				return err
			}
		})},
	{name: "says something else when Close meets a write", must: []string{"close/under-writers"}, may: []string{"close/*", "ctx/beside-close"},
		soak: []string{"soak/close"},
		suite: overMap(func(c *mapCache, b *broken) {
			var wrote atomic.Bool
			b.set = func(ctx ctxT, items itemsT) error {
				err := c.SetMany(ctx, items)
				if err == nil {
					wrote.Store(true)
				} else if errors.Is(err, backend.ErrClosed) && wrote.Load() && len(items) > 1 {
					return errors.New("use of closed connection")
				}
				return err
			}
		})},
	{name: "runs fn of a transaction after Close", must: []string{"close/then-closed"}, may: []string{"close/*"},
		suite: withTxn(func(c *mapCache) txnT {
			return func(ctx ctxT, fn func(backend.Txn) error) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				c.mu.RLock()
				closed := c.closed
				c.mu.RUnlock()
				if !closed {
					return c.Txn(ctx, fn)
				}
				if err := fn(&brokenTxn{set: func(ctxT, itemsT) error { return nil }, get: func(ctxT, keysT, visitT) error { return nil }}); err != nil {
					return err
				}
				return backend.ErrClosed
			}
		})},
	{name: "has no Info after Close", must: []string{"close/info-after"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.info = func() backend.Info {
				c.mu.RLock()
				defer c.mu.RUnlock()
				if c.closed {
					return backend.Info{}
				}
				return c.info
			}
		})},
	{name: "leaves a goroutine when visit stops a read", must: []string{"close/leaves-nothing", "read/visit-error"}, may: []string{"read/*", "txn/visit-rules", "ctx/cut", "drop/cut", "close/then-closed", "foreign/*", "txn/panic", "ctx/beside-close"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				done := make(chan struct{})
				go func() { // a reader ahead
					select {
					case <-done:
					case <-time.After(20 * time.Second): // not for ever: this is a test
					}
				}()
				err := c.GetMany(ctx, keys, visit)
				if err == nil || ctx.Err() != nil {
					close(done)
				}
				return err
			}
		})},
	{name: "claims what it is not", must: []string{"info/as-wanted"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.info = func() backend.Info { info := c.info; info.MayEvict = true; return info }
		})},
	{name: "gives negative advice", must: []string{"info/sane"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.info = func() backend.Info { info := c.info; info.Readers = -1; return info }
		})},
	{name: "changes its Info", must: []string{"info/constant"}, may: []string{"close/info-after"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.info = func() backend.Info { info := c.info; info.SplitKeys = len(c.found(nil)) + c.size(); return info }
		})},
	{name: "locks for Info what a transaction holds", hangs: []string{"info/at-once"}, may: []string{"close/*", "txn/*", "ctx/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			var one sync.Mutex
			b.txn = func(ctx ctxT, fn func(backend.Txn) error) error {
				one.Lock()
				defer one.Unlock()
				return c.Txn(ctx, fn)
			}
			b.info = func() backend.Info {
				one.Lock()
				defer one.Unlock()
				return c.info
			}
		})},
	{name: "names another cache as authoritative", must: []string{"info/authoritative"}, may: []string{"foreign/*"}, // the client reads its first batch back from there
		suite: func() Suite {
			return mapSuite(mapInfo, func(c *mapCache) backend.Cache { return layered{c, new(collector)} })
		}},
}

// size is how many entries there are.
func (c *mapCache) size() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.entries)
}

type layered struct {
	backend.Cache
	below backend.Cache
}

func (l layered) Authoritative() backend.Cache { return l.below }
