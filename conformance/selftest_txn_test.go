package conformance

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// pause is long enough for other goroutines to come in between.
func pause() { time.Sleep(500 * time.Microsecond) }

// brokenTxn is a transaction with other methods.
type brokenTxn struct {
	backend.Txn
	get func(ctx ctxT, keys keysT, visit visitT) error
	set func(ctx ctxT, items itemsT) error
}

func (tx *brokenTxn) GetMany(ctx ctxT, keys keysT, visit visitT) error {
	if tx.get == nil {
		return tx.Txn.GetMany(ctx, keys, visit)
	}
	return tx.get(ctx, keys, visit)
}

func (tx *brokenTxn) SetMany(ctx ctxT, items itemsT) error {
	if tx.set == nil {
		return tx.Txn.SetMany(ctx, items)
	}
	return tx.set(ctx, items)
}

// onTxn is a cache whose transactions are wrapped.
func onTxn(wrap func(c *mapCache, tx backend.Txn) *brokenTxn) func() Suite {
	return overMap(func(c *mapCache, b *broken) {
		b.txn = func(ctx ctxT, fn func(backend.Txn) error) error {
			return c.Txn(ctx, func(tx backend.Txn) error { return fn(wrap(c, tx)) })
		}
	})
}

type txnT = func(ctx ctxT, fn func(backend.Txn) error) error

// withTxn is a cache with another Txn.
func withTxn(txn func(c *mapCache) txnT) func() Suite {
	return overMap(func(c *mapCache, b *broken) { b.txn = txn(c) })
}

var txnMutants = []mutant{
	{name: "runs fn twice", must: []string{"txn/commit", "txn/no-writes"}, may: anywhere,
		suite: withTxn(func(c *mapCache) txnT {
			return func(ctx ctxT, fn func(backend.Txn) error) error {
				return c.Txn(ctx, func(tx backend.Txn) error { return errors.Join(fn(tx), fn(tx)) })
			}
		})},
	{name: "runs fn on another goroutine", must: []string{"txn/callers-goroutine"}, may: []string{"txn/*", "ctx/*", "close/*", "info/*"},
		suite: withTxn(func(c *mapCache) txnT {
			return func(ctx ctxT, fn func(backend.Txn) error) error {
				return c.Txn(ctx, func(tx backend.Txn) (err error) {
					var done sync.WaitGroup
					var panicked any
					done.Go(func() {
						defer func() { panicked = recover() }()
						err = errors.New("ended")
						err = fn(tx)
					})
					done.Wait()
					if panicked != nil {
						panic(panicked)
					}
					return err
				})
			}
		})},
	{name: "refuses a transaction without writes", must: []string{"txn/no-writes"}, may: []string{"txn/*", "info/at-once"},
		suite: withTxn(func(c *mapCache) txnT {
			return func(ctx ctxT, fn func(backend.Txn) error) error {
				return c.Txn(ctx, func(tx backend.Txn) error {
					wrote := false
					err := fn(&brokenTxn{Txn: tx, set: func(ctx ctxT, items itemsT) error { wrote = wrote || len(items) > 0; return tx.SetMany(ctx, items) }})
					if err == nil && !wrote {
						return errors.New("nothing to commit")
					}
					return err
				})
			}
		})},
	{name: "doesn't see a transaction's own writes", must: []string{"txn/reads-own-writes", "txn/reads-behind", "write/random-sequence"}, may: []string{"txn/*", "foreign/in-txn", "soak/*"},
		suite: onTxn(func(c *mapCache, tx backend.Txn) *brokenTxn { return &brokenTxn{Txn: tx, get: c.GetMany} })},
	{name: "sees only a transaction's own writes", must: []string{"txn/reads-behind", "txn/no-writes"}, may: []string{"txn/*", "foreign/in-txn", "write/random-sequence"},
		suite: onTxn(func(c *mapCache, tx backend.Txn) *brokenTxn {
			own := make(map[backend.Key]bool)
			return &brokenTxn{Txn: tx,
				set: func(ctx ctxT, items itemsT) error {
					for _, item := range items {
						own[item.Key] = true
					}
					return tx.SetMany(ctx, items)
				},
				get: func(ctx ctxT, keys keysT, visit visitT) error {
					return tx.GetMany(ctx, keys, func(i int, value []byte) error {
						if !own[keys[i]] {
							return nil
						}
						return visit(i, value)
					})
				}}
		})},
	{name: "swallows visit's error in a transaction", must: []string{"txn/visit-rules"}, may: []string{"ctx/*"},
		suite: onTxn(func(_ *mapCache, tx backend.Txn) *brokenTxn {
			return &brokenTxn{Txn: tx, get: func(ctx ctxT, keys keysT, visit visitT) error {
				failed := false
				err := tx.GetMany(ctx, keys, func(i int, value []byte) error { err := visit(i, value); failed = failed || err != nil; return err })
				if failed {
					return nil
				}
				return err
			}}
		})},
	{name: "lets a transaction's first write win", must: []string{"txn/last-wins", "txn/reads-own-writes"}, may: []string{"write/random-sequence", "txn/*"},
		suite: onTxn(func(_ *mapCache, tx backend.Txn) *brokenTxn {
			own := make(map[backend.Key]bool)
			return &brokenTxn{Txn: tx, set: func(ctx ctxT, items itemsT) error {
				var fresh itemsT
				for _, item := range items {
					if !own[item.Key] || len(item.Value) == 0 {
						fresh = append(fresh, item)
					}
				}
				for _, item := range items {
					own[item.Key] = true
				}
				return tx.SetMany(ctx, fresh)
			}}
		})},
	{name: "keeps the caller's items until the commit", must: []string{"txn/items-reused"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.txn = func(ctx ctxT, fn func(backend.Txn) error) error {
				var kept []itemsT
				err := c.Txn(ctx, func(tx backend.Txn) error {
					return fn(&brokenTxn{Txn: tx, set: func(ctx ctxT, items itemsT) error {
						kept = append(kept, items)
						return tx.SetMany(ctx, nil)
					}})
				})
				for _, items := range kept {
					if err == nil {
						err = c.SetMany(ctx, items)
					}
				}
				return err
			}
		})},
	{name: "writes at once what a transaction writes", must: []string{"txn/not-seen-before", "txn/error", "txn/panic", "txn/ends-goroutine"}, may: anywhere,
		suite: onTxn(func(c *mapCache, tx backend.Txn) *brokenTxn {
			return &brokenTxn{Txn: tx, set: func(ctx ctxT, items itemsT) error {
				if err := tx.SetMany(ctx, nil); err != nil {
					return err
				}
				return c.SetMany(ctx, items)
			}}
		})},
	{name: "swallows fn's error", must: []string{"txn/error", "txn/several"}, may: anywhere,
		suite: withTxn(func(c *mapCache) txnT {
			return func(ctx ctxT, fn func(backend.Txn) error) error {
				return c.Txn(ctx, func(tx backend.Txn) error { _ = fn(tx); return nil })
			}
		})},
	{name: "hides fn's error behind its own", must: []string{"txn/error", "write/random-sequence"}, may: anywhere,
		suite: withTxn(func(c *mapCache) txnT {
			return func(ctx ctxT, fn func(backend.Txn) error) error {
				return c.Txn(ctx, func(tx backend.Txn) error {
					if fn(tx) != nil {
						return errors.New("rolled back")
					}
					return nil
				})
			}
		})},
	{name: "commits when fn panics", must: []string{"txn/panic"}, may: []string{"txn/*"},
		suite: withTxn(func(c *mapCache) txnT {
			return func(ctx ctxT, fn func(backend.Txn) error) error {
				var panicked any
				err := c.Txn(ctx, func(tx backend.Txn) error {
					defer func() { panicked = recover() }()
					return fn(tx)
				})
				if panicked != nil {
					panic(panicked)
				}
				return err
			}
		})},
	{name: "can't read any more after a panic in a transaction's visit", must: []string{"txn/panic"}, may: []string{"txn/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			var stuck atomic.Bool
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				if stuck.Load() {
					return errors.New("a statement is still open")
				}
				ended := false
				defer func() {
					if !ended {
						stuck.Store(true)
					}
				}()
				err := c.GetMany(ctx, keys, visit)
				ended = true
				return err
			}
		})},
	{name: "makes an error of a panic", must: []string{"txn/panic"}, may: []string{"txn/*"},
		suite: withTxn(func(c *mapCache) txnT {
			return func(ctx ctxT, fn func(backend.Txn) error) (err error) {
				defer func() {
					if recover() != nil {
						err = errors.New("fn panicked")
					}
				}()
				return c.Txn(ctx, fn)
			}
		})},
	{name: "recovers from panics only", hangs: []string{"txn/ends-goroutine"},
		suite: overMap(func(c *mapCache, b *broken) {
			var one sync.Mutex
			b.txn = func(ctx ctxT, fn func(backend.Txn) error) (err error) {
				one.Lock()
				defer func() {
					if p := recover(); p != nil {
						one.Unlock()
						panic(p)
					}
				}()
				err = c.Txn(ctx, fn)
				one.Unlock()
				return err
			}
			b.set = func(ctx ctxT, items itemsT) error {
				one.Lock()
				defer one.Unlock()
				return c.SetMany(ctx, items)
			}
		}), may: []string{"close/*", "txn/*", "ctx/*", "batch/*"}},
	{name: "lets a transaction live on", must: []string{"txn/dead-after", "txn/ends-goroutine"},
		suite: withTxn(func(c *mapCache) txnT {
			return func(ctx ctxT, fn func(backend.Txn) error) error {
				over := false
				defer func() { over = true }()
				return c.Txn(ctx, func(tx backend.Txn) error {
					return fn(&brokenTxn{Txn: tx,
						get: func(ctx ctxT, keys keysT, visit visitT) error {
							if over {
								return c.GetMany(ctx, keys, visit)
							}
							return tx.GetMany(ctx, keys, visit)
						},
						set: func(ctx ctxT, items itemsT) error {
							if over {
								return c.SetMany(ctx, items)
							}
							return tx.SetMany(ctx, items)
						}})
				})
			}
		})},
	{name: "commits a large transaction in part", must: []string{"txn/large", "txn/too-large"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.txn = func(ctx ctxT, fn func(backend.Txn) error) error {
				return backend.BufferedTxn(ctx, &broken{Cache: c, set: func(ctx ctxT, items itemsT) error {
					return c.SetMany(ctx, items[:min(len(items), 1000)])
				}}, fn)
			}
		})},
	{name: "allows one transaction at a time", must: []string{"txn/several"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			var busy atomic.Bool
			b.txn = func(ctx ctxT, fn func(backend.Txn) error) error {
				if !busy.CompareAndSwap(false, true) {
					return errors.New("another transaction is open")
				}
				defer busy.Store(false)
				return c.Txn(ctx, func(tx backend.Txn) error { pause(); return fn(tx) })
			}
		})},
	{name: "commits half of a transaction, then the rest", must: []string{"batch/txn-read-while-written"}, may: []string{"batch/*", "soak/*", "drop/*", "ctx/*"},
		soak: []string{"soak/readers"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.txn = func(ctx ctxT, fn func(backend.Txn) error) error {
				return backend.BufferedTxn(ctx, &broken{Cache: c, set: func(ctx ctxT, items itemsT) error {
					if err := c.info.Check(items); err != nil {
						return err
					}
					if err := c.SetMany(ctx, items[:len(items)/2]); err != nil {
						return err
					}
					pause()
					return c.SetMany(ctx, items[len(items)/2:])
				}}, fn)
			}
		})},
	{name: "commits a transaction again after its failure", must: []string{"batch/fails-in-txn"}, may: []string{"drop/*", "ctx/*", "batch/*", "soak/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.txn = func(ctx ctxT, fn func(backend.Txn) error) error {
				return backend.BufferedTxn(ctx, &broken{Cache: c, set: func(ctx ctxT, items itemsT) error {
					err := c.SetMany(ctx, items)
					if err != nil && c.fault.Load() != nil { // retries what fits
						c.mu.Lock()
						defer c.mu.Unlock()
						for _, item := range items[:len(items)/2] {
							c.entries[item.Key] = bytes.Clone(item.Value)
						}
					}
					return err
				}}, fn)
			}
		})},
}
