package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/embedonce/embedonce/backend"
)

// onSet is a cache whose SetMany gets other items than it was given.
func onSet(change func(c *mapCache, items itemsT) itemsT) func() Suite {
	return overMap(func(c *mapCache, b *broken) {
		b.set = func(ctx ctxT, items itemsT) error {
			if err := c.info.Check(items); err != nil {
				return err
			}
			return c.SetMany(ctx, change(c, items))
		}
	})
}

var writeMutants = []mutant{
	{name: "keeps what is stored already", must: []string{"write/overwrite", "write/random-sequence", "foreign/truncated"}, may: anywhere,
		suite: onSet(func(c *mapCache, items itemsT) itemsT {
			stored := c.found(keysOf(items))
			var fresh itemsT
			for i, item := range items {
				if _, ok := stored[i]; !ok {
					fresh = append(fresh, item)
				}
			}
			return fresh
		})},
	{name: "lets the first of equal keys win", must: []string{"write/last-wins"}, may: []string{"write/*"},
		suite: onSet(func(_ *mapCache, items itemsT) itemsT {
			items = slices.Clone(items)
			slices.Reverse(items)
			return items
		})},
	{name: "forgets the neighbours of a single write", must: []string{"write/neighbours"}, may: anywhere,
		suite: onSet(func(c *mapCache, items itemsT) itemsT {
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(items) == 1 {
				for k := range c.entries {
					if k[0] == items[0].Key[0] {
						delete(c.entries, k)
					}
				}
			}
			return items
		})},
	{name: "clears the store when there are no items", must: []string{"write/no-items"}, may: []string{"txn/*", "write/*", "foreign/*", "ctx/*"},
		suite: onSet(func(c *mapCache, items itemsT) itemsT {
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(items) == 0 {
				clear(c.entries)
			}
			return items
		})},
	{name: "stores the rest of a batch with an empty value", must: []string{"write/empty-value", "size/one-batch-of-ten-thousand"}, may: []string{"txn/refused-item"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				rest := slices.DeleteFunc(slices.Clone(items), func(item backend.Item) bool { return len(item.Value) == 0 })
				if err := c.SetMany(ctx, rest); err != nil || len(rest) == len(items) {
					return err
				}
				return backend.ErrEmptyValue
			}
		})},
	{name: "stores empty values", must: []string{"write/empty-value", "size/one-batch-of-ten-thousand"}, may: []string{"txn/refused-item"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				items = slices.Clone(items)
				for i := range items {
					if len(items[i].Value) == 0 {
						items[i].Value = []byte{0}
					}
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "skips an empty value in a transaction", must: []string{"txn/refused-item"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.txn = func(ctx ctxT, fn func(backend.Txn) error) error {
				return c.Txn(ctx, func(tx backend.Txn) error {
					return fn(&brokenTxn{Txn: tx, set: func(ctx ctxT, items itemsT) error {
						return tx.SetMany(ctx, slices.DeleteFunc(slices.Clone(items), func(item backend.Item) bool { return len(item.Value) == 0 }))
					}})
				})
			}
		})},
	{name: "sorts the caller's items", must: []string{"write/items-unchanged"}, may: anywhere,
		suite: onSet(func(_ *mapCache, items itemsT) itemsT {
			slices.SortStableFunc(items, func(a, b backend.Item) int { return bytes.Compare(a.Key[:], b.Key[:]) })
			return items
		})},
	{name: "keeps the caller's values", must: []string{"write/items-reused", "write/shared-memory"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if err := c.SetMany(ctx, items); err != nil {
					return err
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				for _, item := range items {
					c.entries[item.Key] = item.Value
				}
				return nil
			}
		})},
	{name: "refuses what is stored already", must: []string{"write/again"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				for i, value := range c.found(keysOf(items)) {
					if bytes.Equal(value, items[i].Value) {
						return errors.New("UNIQUE constraint failed")
					}
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "keeps lengths in 16 bits", must: []string{"size/values", "size/many-sizes-in-one-call"}, may: []string{"size/*", "drop/*", "scan/sizes", "ctx/get-behind-write"},
		suite: onSet(func(_ *mapCache, items itemsT) itemsT {
			items = slices.Clone(items)
			for i := range items {
				items[i].Value = items[i].Value[:max(1, len(items[i].Value)&0xffff)]
			}
			return items
		})},
	{name: "refuses values at the limit", must: []string{"size/largest-value"}, may: []string{"size/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				for _, item := range items {
					if len(item.Value) >= c.info.MaxValueBytes {
						return backend.ErrTooLarge
					}
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "has no limits", must: []string{"size/largest-value", "size/largest-batch", "size/largest-bytes"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.info = func() backend.Info { return mapInfo }
			c.info = backend.Info{}
		})},
	{name: "stores what fits of a batch that is too large", must: []string{"size/largest-batch", "txn/too-large"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if n := c.info.MaxBatchItems; len(items) > n {
					return errors.Join(c.SetMany(ctx, items[:n]), backend.ErrTooLarge)
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "drops items after the 5,000th", must: []string{"size/one-batch-of-ten-thousand", "size/ten-thousand-keys"}, may: []string{"ctx/ends-during-get", "size/*", "evict/*"},
		suite: onSet(func(_ *mapCache, items itemsT) itemsT { return items[:min(5000, len(items))] })},
	{name: "drops what goes over 6 MiB", must: []string{"drop/at-the-limits"}, may: []string{"size/*", "batch/read-while-written", "batch/txn-read-while-written"},
		suite: overMap(func(c *mapCache, b *broken) {
			var stored atomic.Int64
			b.set = func(ctx ctxT, items itemsT) error {
				for _, item := range items {
					stored.Add(int64(len(item.Value)))
				}
				if stored.Load() > 6<<20 && len(items) > 1 {
					return nil
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "drops a write that has to wait", must: []string{"drop/sixteen-writers", "batch/sixteen-writers"}, may: []string{"*/*writers*", "drop/*", "ctx/*", "close/*", "txn/several", "batch/*", "soak/*"},
		soak: []string{"soak/order", "soak/oracle"},
		suite: overMap(func(c *mapCache, b *broken) {
			var busy sync.Mutex
			b.set = func(ctx ctxT, items itemsT) error {
				if !busy.TryLock() {
					return nil
				}
				defer busy.Unlock()
				pause()
				return c.SetMany(ctx, items)
			}
		})},
	{name: "keeps the last 100 batches", must: []string{"drop/many-batches", "size/many-sizes-in-one-call"}, may: []string{"drop/*", "write/*", "foreign/*", "batch/*", "delete/*", "scan/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			var mu sync.Mutex
			var batches []keysT
			b.set = func(ctx ctxT, items itemsT) error {
				mu.Lock()
				defer mu.Unlock()
				batches = append(batches, keysOf(items))
				if len(batches) > 100 {
					c.mu.Lock()
					for _, k := range batches[0] {
						delete(c.entries, k)
					}
					c.mu.Unlock()
					batches = batches[1:]
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "acknowledges before it stores", must: []string{"read/round-trip", "drop/sixteen-writers"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			// It stores when the next read is over, however soon that comes.
			var mu sync.Mutex
			var late []itemsT
			store := func() {
				mu.Lock()
				defer mu.Unlock()
				for _, items := range late {
					_ = c.SetMany(context.Background(), items)
				}
				late = nil
			}
			b.set = func(ctx ctxT, items itemsT) error {
				if err := c.info.Check(items); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				late = append(late, cloneItems(items))
				return nil
			}
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				defer store()
				return c.GetMany(ctx, keys, visit)
			}
			b.close = func() error { store(); return c.Close() }
		})},
	{name: "invents a limit", must: []string{"size/one-batch-of-ten-thousand"}, may: []string{"size/*", "evict/*", "ctx/ends-during-get"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if len(items) > 4096 {
					return fmt.Errorf("%w: 4096 at most", backend.ErrTooLarge)
				}
				return c.SetMany(ctx, items)
			}
		})},
}
