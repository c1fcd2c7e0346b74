package conformance

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/embedonce/embedonce/backend"
)

type (
	ctxT   = context.Context
	keysT  = []backend.Key
	itemsT = []backend.Item
	visitT = func(i int, value []byte) error
)

// Every case that goes through the client, for caches that treat ErrForeign wrongly.
var declining = []string{"foreign/*", "read/declined"}

// Any case: for caches that are wrong wherever they are used.
var anywhere = []string{"*/*"}

var readMutants = []mutant{
	{name: "skips the last key", must: []string{"read/round-trip", "size/ten-thousand-keys"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys[:max(0, len(keys)-1)], visit)
			}
		})},
	{name: "visits missing keys", must: []string{"read/missing", "read/near-keys"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				seen := make(map[int]bool)
				err := c.GetMany(ctx, keys, func(i int, value []byte) error { seen[i] = true; return visit(i, value) })
				for i := range keys {
					if err == nil && !seen[i] {
						if e := visit(i, nil); e != nil && !errors.Is(e, backend.ErrForeign) {
							return e
						}
					}
				}
				return err
			}
		})},
	{name: "ignores the key's last byte", must: []string{"read/near-keys"},
		suite: overMap(func(c *mapCache, b *broken) {
			short := func(k backend.Key) backend.Key { k[31] = 0; return k }
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				keys = slices.Clone(keys)
				for i := range keys {
					keys[i] = short(keys[i])
				}
				return c.GetMany(ctx, keys, visit)
			}
			b.set = func(ctx ctxT, items itemsT) error {
				items = slices.Clone(items)
				for i := range items {
					items[i].Key = short(items[i].Key)
				}
				return c.SetMany(ctx, items)
			}
		}), may: []string{"foreign/*", "scan/*", "delete/*", "stats/*", "compact/*"}}, // what is planted isn't found
	{name: "trims zeros at the end", must: []string{"read/odd-bytes"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys, func(i int, value []byte) error { return visit(i, bytes.TrimRight(value, "\x00")) })
			}
		})},
	{name: "reads invalid UTF-8 as U+FFFD", must: []string{"read/odd-bytes", "read/round-trip"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys, func(i int, value []byte) error { return visit(i, bytes.ToValidUTF8(value, []byte("\ufffd"))) })
			}
		})},
	{name: "refuses a call without keys", must: []string{"read/no-keys"}, may: []string{"txn/reads-behind", "ctx/ended-*", "close/then-closed"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				if len(keys) == 0 {
					return errors.New("no keys")
				}
				return c.GetMany(ctx, keys, visit)
			}
			b.txn = c.Txn
		})},
	{name: "visits equal keys once", must: []string{"read/equal-keys", "size/ten-thousand-keys"}, may: []string{"write/*", "txn/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				seen := make(map[backend.Key]bool)
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					if seen[keys[i]] {
						return nil
					}
					seen[keys[i]] = true
					return visit(i, value)
				})
			}
		})},
	{name: "gives a neighbour's value", must: []string{"read/round-trip"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error { // a neighbour's value
				return c.GetMany(ctx, keys, func(i int, value []byte) error { return visit(i^1&(len(keys)-1), value) })
			}
		})},
	{name: "visits on another goroutine", must: []string{"read/callers-goroutine"}, may: []string{"txn/callers-goroutine", "close/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) (err error) {
				var done sync.WaitGroup
				done.Go(func() { err = c.GetMany(ctx, keys, visit) })
				done.Wait()
				return err
			}
		})},
	{name: "passes ErrForeign on", must: []string{"read/declined", "foreign/many-in-one-call", "foreign/future", "foreign/wrong-type"},
		may: append(declining, "read/after-visit-error", "txn/visit-rules"),
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				var foreign error
				err := c.GetMany(ctx, keys, func(i int, value []byte) error {
					err := visit(i, value)
					if errors.Is(err, backend.ErrForeign) {
						foreign = err
					}
					return err
				})
				return errors.Join(err, foreign)
			}
		})},
	{name: "knows ErrForeign only unwrapped", must: []string{"read/declined"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					err := visit(i, value)
					if errors.Is(err, backend.ErrForeign) && err != backend.ErrForeign {
						return errors.New("visit failed")
					}
					return err
				})
			}
		})},
	{name: "stops quietly at ErrForeign", must: []string{"read/declined", "foreign/flipped-header", "foreign/flipped-body", "foreign/truncated", "foreign/trailing", "foreign/random-bytes", "foreign/other-text", "foreign/other-scope", "foreign/other-dimensions", "foreign/not-finite", "foreign/empty-to-client", "foreign/wrong-type-to-client"},
		may: append(declining, "txn/visit-rules", "read/*", "damage/*"),
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				over := false
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					if over {
						return nil
					}
					err := visit(i, value)
					over = errors.Is(err, backend.ErrForeign)
					return err
				})
			}
		})},
	{name: "begins again after ErrForeign", must: []string{"read/declined"}, may: append(declining, "txn/visit-rules", "read/*"),
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				again := false
				err := c.GetMany(ctx, keys, func(i int, value []byte) error {
					err := visit(i, value)
					again = again || errors.Is(err, backend.ErrForeign)
					return err
				})
				if again && err == nil {
					return c.GetMany(ctx, keys, visit)
				}
				return err
			}
		})},
	{name: "deletes what is declined", must: []string{"read/declined", "foreign/future"}, may: append(declining, "read/after-visit-error", "txn/visit-rules"),
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					err := visit(i, value)
					if errors.Is(err, backend.ErrForeign) {
						c.mu.Lock()
						delete(c.entries, keys[i])
						c.mu.Unlock()
					}
					return err
				})
			}
		})},
	{name: "fails at a wrong type", must: []string{"foreign/wrong-type", "foreign/wrong-type-to-client", "foreign/in-txn"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					if value == nil {
						return errors.New("not a byte string")
					}
					return visit(i, value)
				})
			}
		})},
	{name: "takes wrong types and empty values for missing", must: []string{"foreign/wrong-type", "foreign/empty", "foreign/empty-to-client", "foreign/in-txn"},
		may: declining,
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					if len(value) == 0 {
						return nil
					}
					return visit(i, value)
				})
			}
		})},
	{name: "gives a wrong type as text", must: []string{"foreign/wrong-type", "foreign/in-txn"}, may: declining,
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					if value == nil {
						value = []byte("a text")
					}
					return visit(i, value)
				})
			}
		})},
	{name: "goes on when visit fails at a wrong type", must: []string{"foreign/wrong-type"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					err := visit(i, value)
					if value == nil {
						err = nil
					}
					return err
				})
			}
		})},
	{name: "swallows visit's error", must: []string{"read/visit-error", "read/after-visit-error", "read/visit-error-of-context"}, may: []string{"txn/visit-rules", "foreign/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				stop := errors.New("stop")
				err := c.GetMany(ctx, keys, func(i int, value []byte) error {
					if err := visit(i, value); err != nil && !errors.Is(err, backend.ErrForeign) {
						return stop
					}
					return nil
				})
				if errors.Is(err, stop) {
					return nil
				}
				return err
			}
		})},
	{name: "hides visit's error behind its own", must: []string{"read/visit-error", "read/visit-error-of-context"}, may: []string{"txn/visit-rules", "read/after-visit-error", "foreign/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					err := visit(i, value)
					if err != nil && !errors.Is(err, backend.ErrForeign) {
						return errors.New("visit failed: " + err.Error())
					}
					return err
				})
			}
		})},
	{name: "goes on after visit's error", must: []string{"read/visit-error", "read/visit-error-of-context"}, may: []string{"txn/visit-rules", "foreign/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				var first error
				err := c.GetMany(ctx, keys, func(i int, value []byte) error {
					if err := visit(i, value); err != nil && first == nil && !errors.Is(err, backend.ErrForeign) {
						first = err
					}
					return nil
				})
				return errors.Join(err, first)
			}
		})},
	{name: "takes visit's context error for its own", must: []string{"read/visit-error-of-context"}, may: []string{"ctx/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				err := c.GetMany(ctx, keys, visit)
				if errors.Is(err, context.Canceled) {
					return ctx.Err()
				}
				return err
			}
		})},
	{name: "keeps its lock after visit's error", hangs: []string{"read/after-visit-error"}, may: []string{"read/*", "txn/visit-rules"},
		suite: overMap(func(c *mapCache, b *broken) {
			slot := make(chan struct{}, 8) // a pool of connections
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				select {
				case slot <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				err := c.GetMany(ctx, keys, visit)
				if err == nil || ctx.Err() != nil {
					<-slot
				}
				return err
			}
		})},
	{name: "sorts the caller's keys", must: []string{"read/keys-unchanged"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				slices.SortFunc(keys, func(a, b backend.Key) int { return bytes.Compare(a[:], b[:]) })
				return c.GetMany(ctx, keys, visit)
			}
		})},
	{name: "remembers calls by their slice", must: []string{"read/keys-reused"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			var mu sync.Mutex
			var last *backend.Key
			var answer map[int][]byte
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				mu.Lock()
				if len(keys) == 50 && last != &keys[0] {
					last, answer = &keys[0], c.found(keys)
				}
				own, known := answer, len(keys) == 50
				mu.Unlock()
				if !known {
					return c.GetMany(ctx, keys, visit)
				}
				for i, value := range own {
					if err := visit(i, value); err != nil {
						return err
					}
				}
				return nil
			}
		})},
	{name: "leaves a long value in a buffer for a short one", must: []string{"size/many-sizes-in-one-call", "read/round-trip"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				var buf []byte
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					if len(value) > len(buf) {
						buf = make([]byte, len(value))
					}
					copy(buf, value)
					return visit(i, buf)
				})
			}
		})},
	{name: "reads at most 4,096 keys", must: []string{"size/ten-thousand-keys", "size/one-batch-of-ten-thousand"}, may: []string{"ctx/ends-during-get", "evict/*", "size/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				return c.GetMany(ctx, keys[:min(4096, len(keys))], visit)
			}
		})},
}
