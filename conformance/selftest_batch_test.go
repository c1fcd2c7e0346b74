package conformance

import (
	"bytes"
	"errors"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var boundedInfo = backend.Info{Atomic: true, SnapshotReads: true, MayEvict: true, Capacity: 128 << 10}

var evictMutants = []mutant{
	{name: "evicts at half of its capacity", must: []string{"evict/small-values-within", "evict/large-values-within"}, may: []string{"evict/*"},
		suite: overMapWith(boundedInfo, func(c *mapCache, b *broken) {
			c.info.Capacity /= 2
			b.info = func() backend.Info { return boundedInfo }
		})},
	{name: "counts what was overwritten", must: []string{"evict/overwrites-within"},
		suite: overMapWith(boundedInfo, func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				again := int64(0)
				for _, value := range c.found(keysOf(items)) {
					again += int64(len(value))
				}
				err := c.SetMany(ctx, items)
				c.mu.Lock()
				defer c.mu.Unlock()
				c.bytes += again
				return err
			}
		})},
	{name: "keeps the old value where it has no room for the new one", must: []string{"evict/never-stale"}, may: []string{"evict/*"},
		suite: overMapWith(boundedInfo, func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				for i := range items {
					c.mu.RLock()
					full := c.bytes+int64(32+len(items[i].Value)) > c.info.Capacity
					_, known := c.entries[items[i].Key]
					c.mu.RUnlock()
					if full && known {
						continue
					}
					if err := c.SetMany(ctx, items[i:i+1]); err != nil {
						return err
					}
				}
				return nil
			}
		})},
	{name: "refuses a batch beyond its capacity", must: []string{"evict/batch-beyond"},
		suite: overMapWith(boundedInfo, func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				total := 0
				for _, item := range items {
					total += 32 + len(item.Value)
				}
				if int64(total) > c.info.Capacity {
					return backend.ErrTooLarge
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "never evicts", must: []string{"evict/bounded"},
		suite: overMapWith(boundedInfo, func(c *mapCache, b *broken) {
			c.info.Capacity = 0
			b.info = func() backend.Info { return boundedInfo }
		})},
	{name: "evicts unasked", must: []string{"evict/unasked"}, may: []string{"size/*", "ctx/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				err := c.SetMany(ctx, items)
				c.mu.Lock()
				defer c.mu.Unlock()
				for k := range c.entries {
					if len(c.entries) <= 12_500 {
						break
					}
					delete(c.entries, k)
				}
				return err
			}
		})},
}

// halves stores the first half of a batch, waits for another batch to come, which is
// stored whole, and then stores the second half. The batches of two writers so meet
// each other in pairs, the last two included. Once nobody came, it waits no more.
func halves(c *mapCache) func(ctx ctxT, items itemsT) error {
	var mu sync.Mutex
	var waiting chan struct{} // of a batch that has stored its first half
	alone := false
	return func(ctx ctxT, items itemsT) error {
		mu.Lock()
		if other := waiting; other != nil {
			waiting = nil
			err := c.SetMany(ctx, items)
			mu.Unlock()
			close(other)
			return err
		}
		half := len(items) / 2
		if alone || half == 0 {
			mu.Unlock()
			return c.SetMany(ctx, items)
		}
		met := make(chan struct{})
		waiting = met
		err := c.SetMany(ctx, items[:half])
		mu.Unlock()
		select {
		case <-met:
		case <-time.After(2 * time.Second):
			mu.Lock()
			if waiting == met {
				waiting, alone = nil, true
			}
			mu.Unlock()
		}
		return errors.Join(err, c.SetMany(ctx, items[half:]))
	}
}

var batchMutants = []mutant{
	{name: "lets another batch in between its halves", must: []string{"batch/two-writers"},
		may:   []string{"batch/*", "drop/*", "ctx/*", "txn/*", "close/*", "size/*"},
		suite: overMap(func(c *mapCache, b *broken) { b.set = halves(c) })},
	{name: "stores items one by one", must: []string{"batch/read-while-written", "batch/sixteen-writers"},
		may:  []string{"batch/*", "drop/*", "ctx/*", "soak/*", "txn/*", "close/*"},
		soak: []string{"soak/readers", "soak/order", "soak/faults", "soak/oracle"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if err := c.info.Check(items); err != nil {
					return err
				}
				f := c.fault.Load()
				for i := range items {
					if i%16 == 1 && len(items) < 60 {
						pause()
					}
					if f != nil && f.Kind == FailAtItem && i == f.Item {
						return errors.New("write failed")
					}
					c.mu.Lock()
					c.put(items[i])
					c.mu.Unlock()
				}
				return c.SetMany(ctx, nil)
			}
		})},
	{name: "stores what comes before the failure", must: []string{"batch/fails-at-item-1", "batch/fails-at-item-256", "batch/fails-at-item-511", "batch/fails-in-txn"}, may: []string{"drop/*", "batch/*"},
		soak:  []string{"soak/faults"},
		suite: whenItFails(func(items itemsT, at int) itemsT { return items[:at] })},
	{name: "stores what comes after the failure", must: []string{"batch/fails-at-item-0"}, may: []string{"batch/*", "drop/*"},
		suite: whenItFails(func(items itemsT, at int) itemsT { return items[at+1:] })},
	{name: "swallows the failure of a write", must: []string{"batch/fails-at-item-0", "batch/fails-at-item-511", "drop/full", "drop/cut", "drop/locked"}, may: []string{"batch/*", "drop/*", "ctx/*"},
		soak: []string{"soak/faults"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				err := c.SetMany(ctx, items)
				if c.fault.Load() != nil && ctx.Err() == nil {
					return nil
				}
				return err
			}
		})},
	{name: "takes what it can't reach for missing", must: []string{"drop/cut"}, may: []string{"read/visit-error-of-context", "ctx/cut"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				err := c.GetMany(ctx, keys, visit)
				if errors.Is(err, backend.ErrUnavailable) {
					return nil
				}
				return err
			}
		})},
	{name: "answers a slow write before it is done", must: []string{"drop/slow"}, may: []string{"ctx/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				if f := c.fault.Load(); f != nil && f.Kind == Slow {
					return ctx.Err()
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "reads while it visits", must: []string{"batch/written-while-read"}, may: []string{"batch/*", "soak/*", "close/waits-for-get", "ctx/beside-close"},
		suite: overMap(func(c *mapCache, b *broken) {
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				if len(keys) == 0 {
					return c.GetMany(ctx, keys, visit)
				}
				for i := range keys {
					if err := c.GetMany(ctx, keys[i:i+1], func(_ int, value []byte) error { return visit(i, value) }); err != nil {
						return err
					}
				}
				return nil
			}
		})},
	{name: "reads an old value now and then", must: []string{"batch/read-while-written"}, may: anywhere,
		soak: []string{"soak/readers", "soak/oracle"},
		suite: overMap(func(c *mapCache, b *broken) {
			var mu sync.Mutex
			calls := 0
			before := make(map[backend.Key][]byte)
			b.set = func(ctx ctxT, items itemsT) error {
				old := c.found(keysOf(items))
				mu.Lock()
				for i, value := range old {
					if !bytes.Equal(value, items[i].Value) {
						before[items[i].Key] = value
					}
				}
				mu.Unlock()
				return c.SetMany(ctx, items)
			}
			b.get = func(ctx ctxT, keys keysT, visit visitT) error {
				mu.Lock()
				defer mu.Unlock()
				calls++
				stale := calls%10 == 9
				return c.GetMany(ctx, keys, func(i int, value []byte) error {
					if old, ok := before[keys[i]]; ok && stale {
						value = old
					}
					return visit(i, value)
				})
			}
		})},
}

// whenItFails is a cache that stores a part of a batch whose item at is not
// written, and then fails as it should.
func whenItFails(part func(items itemsT, at int) itemsT) func() Suite {
	return overMap(func(c *mapCache, b *broken) {
		b.set = func(ctx ctxT, items itemsT) error {
			err := c.SetMany(ctx, items)
			if f := c.fault.Load(); err != nil && f != nil && f.Kind == FailAtItem && len(items) > f.Item {
				c.mu.Lock()
				defer c.mu.Unlock()
				for _, item := range part(items, f.Item) {
					c.put(item)
				}
			}
			return err
		}
	})
}
