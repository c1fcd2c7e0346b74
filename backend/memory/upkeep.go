package memory

import (
	"context"
	"fmt"

	"github.com/embedonce/embedonce/backend"
)

var (
	_ backend.Scanner = (*Cache)(nil)
	_ backend.Deleter = (*Cache)(nil)
	_ backend.Statter = (*Cache)(nil)
)

// Scan implements [backend.Scanner]. The whole cache is one part: what is stored
// when Scan begins is visited, without a lock, and from must be "". It holds 56
// bytes for each entry while it runs.
func (c *Cache) Scan(ctx context.Context, from backend.Position, head int, visit func(e backend.Entry) error) (backend.Position, error) {
	if err := c.begin(ctx); err != nil {
		return from, err
	}
	defer c.calls.Done()
	if from != "" {
		return from, fmt.Errorf("memory: position %q: Scan of a cache in memory has one part and returns \"\" alone", from)
	}
	for i, item := range c.all() {
		if i%lookAtCtx == lookAtCtx-1 {
			if err := ctx.Err(); err != nil {
				return from, err
			}
		}
		entry := backend.Entry{Key: item.Key, Value: item.Value[:min(max(head, 0), len(item.Value))], Size: len(item.Value)}
		if err := visit(entry); err != nil {
			return from, fmt.Errorf("memory: visit: %w", err)
		}
	}
	return "", nil
}

// all returns what is stored at this moment; the values are never written to.
func (c *Cache) all() []backend.Item {
	c.mu.RLock()
	defer c.mu.RUnlock()
	items := make([]backend.Item, 0, c.entries.EstimatedSize())
	for key, value := range c.entries.All() {
		items = append(items, backend.Item{Key: key, Value: value})
	}
	return items
}

// Delete implements [backend.Deleter]. Writers and lookups wait while match looks
// at 256 entries.
func (c *Cache) Delete(ctx context.Context, keys []backend.Key, match func(i int, value []byte) bool) (removed int, err error) {
	if err := c.begin(ctx); err != nil {
		return 0, err
	}
	defer c.calls.Done()
	for from := 0; from < len(keys); from += lookAtCtx {
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		removed += c.deleteSome(keys, from, min(from+lookAtCtx, len(keys)), match)
	}
	return removed, nil
}

func (c *Cache) deleteSome(keys []backend.Key, from, to int, match func(i int, value []byte) bool) (removed int) {
	c.mu.Lock()
	defer c.mu.Unlock() // also when match panics
	for i := from; i < to; i++ {
		value, stored := c.entries.GetIfPresent(keys[i])
		if stored && (match == nil || match(i, value)) {
			c.entries.Invalidate(keys[i])
			removed++
		}
	}
	return removed
}

// Stats implements [backend.Statter]: Bytes counts as Options.MaxBytes does, keys
// and values alone.
func (c *Cache) Stats(ctx context.Context) (backend.Stats, error) {
	if err := c.begin(ctx); err != nil {
		return backend.Stats{}, err
	}
	defer c.calls.Done()
	c.mu.RLock()
	defer c.mu.RUnlock()
	return backend.Stats{Entries: int64(c.entries.EstimatedSize()), Bytes: int64(c.entries.WeightedSize())}, nil
}
