package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// mapCache is a right cache, small enough to be seen as such; the broken ones
// are made of it. Every handle is a store of its own.
type mapCache struct {
	info    backend.Info
	mu      sync.RWMutex
	entries map[backend.Key][]byte // never written into; nil: of a wrong type
	order   []backend.Key          // of insertion, where Capacity is bounded
	bytes   int64
	closed  bool
	calls   sync.WaitGroup
	fault   atomic.Pointer[Fault]
	room    atomic.Int64 // while Full
}

var mapInfo = backend.Info{
	Atomic: true, SnapshotReads: true,
	MaxValueBytes: 1 << 20, MaxBatchItems: 12_000, MaxBatchBytes: 4 << 20,
}

var errLocked = fmt.Errorf("map: %w: locked", backend.ErrUnavailable)

func (c *mapCache) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("map: %w", err)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return fmt.Errorf("map: %w", backend.ErrClosed)
	}
	c.calls.Add(1)
	return nil
}

// suffer does what the fault does to a call that writes so many bytes.
func (c *mapCache) suffer(ctx context.Context, writes bool, items, size int) error {
	f := c.fault.Load()
	if f == nil {
		return nil
	}
	wait := func(d time.Duration, err error) error {
		select {
		case <-time.After(d):
			if ctx.Err() != nil {
				return fmt.Errorf("map: %w", ctx.Err())
			}
			return err
		case <-ctx.Done():
			return fmt.Errorf("map: %w", ctx.Err())
		}
	}
	switch {
	case f.Kind == Slow:
		return wait(70*time.Millisecond, nil)
	case f.Kind == Cut:
		return fmt.Errorf("map: %w: cut", backend.ErrUnavailable)
	case writes && f.Kind == Locked:
		return wait(80*time.Millisecond, errLocked)
	case writes && f.Kind == FailAtItem && items > f.Item:
		return errors.New("map: write failed")
	case writes && f.Kind == FailAtCommit:
		return errors.New("map: commit failed")
	case writes && f.Kind == Full && c.room.Add(-int64(size)) < 0:
		return fmt.Errorf("map: %w: full", backend.ErrUnavailable)
	}
	return nil
}

func (c *mapCache) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.calls.Done()
	if err := c.suffer(ctx, false, 0, 0); err != nil {
		return err
	}
	c.mu.RLock()
	found := make([][]byte, len(keys))
	stored := make([]bool, len(keys))
	for i, k := range keys {
		found[i], stored[i] = c.entries[k]
	}
	c.mu.RUnlock()
	for i, value := range found {
		if !stored[i] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("map: %w", err)
		}
		if err := visit(i, value); err != nil && !errors.Is(err, backend.ErrForeign) {
			return fmt.Errorf("map: visit: %w", err)
		}
	}
	return nil
}

func (c *mapCache) SetMany(ctx context.Context, items []backend.Item) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.calls.Done()
	if err := c.info.Check(items); err != nil {
		return fmt.Errorf("map: %w", err)
	}
	if len(items) == 0 {
		return nil
	}
	size := 0
	for _, item := range items {
		size += len(item.Value)
	}
	if err := c.suffer(ctx, true, len(items), size); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("map: %w", err)
	}
	for _, item := range items {
		c.put(item)
	}
	return nil
}

// put stores a copy and, in a bounded cache, makes room first.
func (c *mapCache) put(item backend.Item) {
	c.remove(item.Key)
	size := int64(32 + len(item.Value))
	for c.info.Capacity > 0 && c.bytes+size > c.info.Capacity && len(c.order) > 0 {
		c.remove(c.order[0])
	}
	if c.info.Capacity > 0 {
		c.order = append(c.order, item.Key)
	}
	c.entries[item.Key] = bytes.Clone(item.Value)
	c.bytes += size
}

func (c *mapCache) remove(k backend.Key) {
	value, known := c.entries[k]
	if !known {
		return
	}
	delete(c.entries, k)
	c.bytes -= int64(32 + len(value))
	for i := range c.order {
		if c.order[i] == k {
			c.order = append(c.order[:i], c.order[i+1:]...)
			break
		}
	}
}

func (c *mapCache) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	return backend.BufferedTxn(ctx, c, fn)
}

func (c *mapCache) Info() backend.Info { return c.info }

func (c *mapCache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.calls.Wait()
	return nil
}

// hub finds the handles of a location, for planting and faults.
type hub struct {
	mu      sync.Mutex
	handles map[string][]*mapCache
	next    int
}

var mapHub = hub{handles: make(map[string][]*mapCache)}

func (h *hub) each(location string, f func(c *mapCache)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.handles[location] {
		f(c)
	}
}

// mapSuite runs mapCaches with this Info, each as breakIt makes it.
func mapSuite(info backend.Info, breakIt func(c *mapCache) backend.Cache) Suite {
	return Suite{
		New: func(t testing.TB) string {
			mapHub.mu.Lock()
			defer mapHub.mu.Unlock()
			mapHub.next++
			location := fmt.Sprint("map ", mapHub.next)
			t.Cleanup(func() {
				mapHub.mu.Lock()
				defer mapHub.mu.Unlock()
				delete(mapHub.handles, location)
			})
			return location
		},
		Open: func(_ testing.TB, location string) backend.Cache {
			c := &mapCache{info: info, entries: make(map[backend.Key][]byte)}
			mapHub.mu.Lock()
			mapHub.handles[location] = append(mapHub.handles[location], c)
			mapHub.mu.Unlock()
			return breakIt(c)
		},
		Want: info,
		Plant: func(_ testing.TB, location string, k backend.Key, what Foreign) {
			mapHub.each(location, func(c *mapCache) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.remove(k)
				c.entries[k] = nil
				if what == Empty {
					c.entries[k] = []byte{}
				}
			})
		},
		Fault: func(_ testing.TB, location string, f Fault) func() {
			if f.Kind == Damage {
				mapHub.each(location, func(c *mapCache) { c.damage(f.Item) })
				return func() {}
			}
			mapHub.each(location, func(c *mapCache) { c.room.Store(1 << 20); c.fault.Store(&f) })
			return func() { mapHub.each(location, func(c *mapCache) { c.fault.Store(nil) }) }
		},
	}
}

// damage changes a bit of three values.
func (c *mapCache) damage(place int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(c.entries), func(a, b backend.Key) int { return bytes.Compare(a[:], b[:]) })
	for i := range min(3, len(keys)) {
		k := keys[(place+i*len(keys)/3)%len(keys)]
		value := bytes.Clone(c.entries[k]) // readers may have the other one
		value[place*7%len(value)] ^= 1 << (place % 8)
		c.entries[k] = value
	}
}

// broken is a cache some of whose methods are replaced.
type broken struct {
	backend.Cache
	optional
	m     *mapCache // below, if it is one
	get   func(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error
	set   func(ctx context.Context, items []backend.Item) error
	txn   func(ctx context.Context, fn func(tx backend.Txn) error) error
	info  func() backend.Info
	close func() error
}

func (b *broken) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	if b.get == nil {
		return b.Cache.GetMany(ctx, keys, visit)
	}
	return b.get(ctx, keys, visit)
}

func (b *broken) SetMany(ctx context.Context, items []backend.Item) error {
	if b.set == nil {
		return b.Cache.SetMany(ctx, items)
	}
	return b.set(ctx, items)
}

// Txn goes through the broken methods, as in a real backend.
func (b *broken) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	switch {
	case b.txn != nil:
		return b.txn(ctx, fn)
	case b.get != nil || b.set != nil:
		return backend.BufferedTxn(ctx, b, fn)
	}
	return b.Cache.Txn(ctx, fn)
}

func (b *broken) Info() backend.Info {
	if b.info == nil {
		return b.Cache.Info()
	}
	return b.info()
}

func (b *broken) Close() error {
	if b.close == nil {
		return b.Cache.Close()
	}
	return b.close()
}

// overMap is a suite of broken mapCaches.
func overMap(breakIt func(c *mapCache, b *broken)) func() Suite {
	return overMapWith(mapInfo, breakIt)
}

func overMapWith(info backend.Info, breakIt func(c *mapCache, b *broken)) func() Suite {
	return func() Suite {
		return mapSuite(info, func(c *mapCache) backend.Cache {
			b := &broken{Cache: c, m: c}
			breakIt(c, b)
			return b
		})
	}
}

// found is what c holds under keys, by index.
func (c *mapCache) found(keys []backend.Key) map[int][]byte {
	c.mu.RLock()
	defer c.mu.RUnlock()
	values := make(map[int][]byte)
	for i, k := range keys {
		if value, stored := c.entries[k]; stored {
			values[i] = value
		}
	}
	return maps.Clone(values)
}

// all is a copy of what c holds.
func (c *mapCache) all() map[backend.Key][]byte {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.entries)
}
