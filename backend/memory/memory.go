// Package memory is a cache in the memory of one process, bounded in bytes. It
// suits tests, short jobs, and the upper layer of a tiered cache: what it holds
// is gone with the process, and beyond its bound it evicts.
package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/embedonce/embedonce/backend"
	"github.com/maypok86/otter/v2"
)

// DefaultMaxBytes holds about 43,000 vectors of 1,536 dimensions.
const DefaultMaxBytes = 256 << 20

// Options bound a Cache.
type Options struct {
	// MaxBytes is how many bytes of keys and values the cache holds before it
	// evicts entries that are unlikely to be read again; 0 is DefaultMaxBytes. The
	// process uses about 150 bytes more for each entry.
	MaxBytes int64
}

const (
	keyBytes  = int64(len(backend.Key{}))
	splitKeys = 1024 // below, handing work to a second goroutine costs more than it brings
	lookAtCtx = 256  // keys between two looks at the context
)

// Cache implements [backend.Cache]. Any number of goroutines may use it.
//
// A batch becomes visible at once: the lock below is held for the whole of it,
// since the eviction library alone would show half a batch.
type Cache struct {
	maxBytes int64
	scratch  sync.Pool // of *[][]byte: the values of a GetMany

	mu      sync.RWMutex
	entries *otter.Cache[backend.Key, []byte] // a stored value is never written to again
	closed  bool
	calls   sync.WaitGroup
}

var _ backend.Cache = (*Cache)(nil)

// New returns an empty cache. opts may be nil.
//
// # Errors
//
// A negative MaxBytes, or one too small for a single entry, is refused.
func New(opts *Options) (*Cache, error) {
	maxBytes := int64(DefaultMaxBytes)
	if opts != nil && opts.MaxBytes != 0 {
		maxBytes = opts.MaxBytes
	}
	if maxBytes <= keyBytes {
		return nil, fmt.Errorf("memory: Options.MaxBytes is %d; allowed are 0 for the default of %d, and more than %d", maxBytes, int64(DefaultMaxBytes), keyBytes)
	}
	entries, err := otter.New(&otter.Options[backend.Key, []byte]{
		MaximumWeight: uint64(maxBytes),
		Weigher:       func(_ backend.Key, value []byte) uint32 { return uint32(keyBytes) + uint32(len(value)) },
		// Upkeep runs inside the call that makes it due: no goroutine outlives a call.
		Executor: func(upkeep func()) { upkeep() },
	})
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	c := &Cache{maxBytes: maxBytes, entries: entries}
	c.scratch.New = func() any { return new([][]byte) }
	return c, nil
}

// Info says that entries live as long as the handle, and may be evicted beyond
// Options.MaxBytes.
func (c *Cache) Info() backend.Info {
	// Values may fill one half, keys the other: so a batch always fits.
	half := min(c.maxBytes/2, math.MaxInt32)
	value := min(half, c.maxBytes-keyBytes)
	return backend.Info{
		Atomic:        true,
		Durability:    backend.NotDurable,
		Reach:         backend.ReachHandle,
		SnapshotReads: true,
		MayEvict:      true,
		Capacity:      c.maxBytes,
		MaxValueBytes: int(value),
		MaxBatchItems: int(max(half/keyBytes, 1)),
		MaxBatchBytes: int(value),
		Readers:       runtime.GOMAXPROCS(0),
		Writers:       1,
		SplitKeys:     splitKeys,
	}
}

// begin counts a call that Close has to wait for; the caller ends it with
// c.calls.Done.
func (c *Cache) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return fmt.Errorf("memory: %w", backend.ErrClosed)
	}
	c.calls.Add(1)
	return nil
}

// GetMany implements [backend.Cache]. The lock is held only while the values
// are looked up, not while visit works on them.
func (c *Cache) GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.calls.Done()

	scratch := c.scratch.Get().(*[][]byte)
	values := (*scratch)[:0]
	defer func() {
		clear(values) // evicted values must not stay alive in the pool
		*scratch = values
		c.scratch.Put(scratch)
	}()

	c.mu.RLock()
	for _, key := range keys {
		value, _ := c.entries.GetIfPresent(key)
		values = append(values, value)
	}
	c.mu.RUnlock()

	for i, value := range values {
		if i%lookAtCtx == lookAtCtx-1 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if value == nil {
			continue
		}
		if err := visit(i, value); err != nil && !errors.Is(err, backend.ErrForeign) {
			return fmt.Errorf("memory: visit: %w", err)
		}
	}
	return nil
}

// SetMany implements [backend.Cache]. The limits that Info declares are such that
// a batch within them can be held whole.
func (c *Cache) SetMany(ctx context.Context, items []backend.Item) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.calls.Done()
	if err := c.Info().Check(items); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	// One allocation for each value: a slab for the batch would stay whole as long
	// as one of its entries does, and break the bound.
	own := make([]backend.Item, len(items))
	for i, item := range items {
		own[i] = backend.Item{Key: item.Key, Value: bytes.Clone(item.Value)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, item := range own {
		c.entries.Set(item.Key, item.Value)
	}
	return nil
}

// Txn implements [backend.Cache] with [backend.BufferedTxn].
func (c *Cache) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	return backend.BufferedTxn(ctx, c, fn)
}

// Close waits for running calls and drops every entry. Later calls return nil.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.calls.Wait()
	c.mu.Lock()
	c.entries.InvalidateAll()
	c.mu.Unlock()
	return nil
}
