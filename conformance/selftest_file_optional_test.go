//go:build unix

package conformance

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/embedonce/embedonce/backend"
)

// The optional interfaces on fileCache: what is deleted is in the log as an item
// of a batch.

// tombstone stands in the place of the value of a deleted entry.
var tombstone = []byte("deleted")

func isTombstone(value []byte) bool { return len(value) > 0 && &value[0] == &tombstone[0] }

// all is a copy of what the store holds.
func (c *fileCache) all() (map[backend.Key][]byte, error) {
	if !c.flaws.ownView && !c.flaws.scansOwnView {
		if err := c.refresh(false); err != nil {
			return nil, err
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.index), nil
}

// misbehaves is what a call that reads has to suffer.
func (c *fileCache) misbehaves(ctx context.Context) error {
	switch c.fault().Kind {
	case Cut:
		return fmt.Errorf("file: %w", backend.ErrUnavailable)
	case Slow:
		return c.wait(ctx, slowness)
	}
	return nil
}

func (c *fileCache) Scan(ctx context.Context, from backend.Position, head int, visit func(backend.Entry) error) (backend.Position, error) {
	if err := c.begin(ctx); err != nil {
		return from, err
	}
	defer c.calls.Done()
	if err := c.misbehaves(ctx); err != nil {
		return from, err
	}
	place := string(from)
	if c.flaws.ownPositions && from != "" {
		if place = strings.TrimPrefix(place, fmt.Sprintf("%p ", c)); place == string(from) {
			return "", nil // it knows no such walk
		}
	}
	all, err := c.all()
	if err != nil {
		return from, err
	}
	entries, next := part(all, backend.Position(place), mapPart)
	for _, item := range entries {
		if err := ctx.Err(); err != nil {
			return from, fmt.Errorf("file: %w", err)
		}
		if err := visit(entryOf(item, head)); err != nil {
			return from, fmt.Errorf("file: visit: %w", err)
		}
	}
	if c.flaws.ownPositions && next != "" {
		next = backend.Position(fmt.Sprintf("%p %s", c, next))
	}
	return next, nil
}

func (c *fileCache) Delete(ctx context.Context, keys []backend.Key, match func(i int, value []byte) bool) (removed int, err error) {
	if err := c.begin(ctx); err != nil {
		return 0, err
	}
	defer c.calls.Done()
	err = c.locked(ctx, func() error {
		if err := c.misbehaves(ctx); err != nil {
			return err
		}
		all, err := c.all()
		if err != nil {
			return err
		}
		var gone []backend.Item
		for i, k := range keys {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("file: %w", err)
			}
			value, stored := all[k]
			if stored && (match == nil || match(i, value)) {
				gone = append(gone, backend.Item{Key: k, Value: tombstone})
				delete(all, k) // equal keys count once
			}
		}
		if c.flaws.deletesInMemory {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, item := range gone {
				delete(c.index, item.Key)
			}
		} else if err := c.store(ctx, gone); err != nil {
			return err
		}
		removed = len(gone)
		return nil
	})
	return removed, err
}

func (c *fileCache) Stats(ctx context.Context) (backend.Stats, error) {
	unknown := backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}
	if err := c.begin(ctx); err != nil {
		return unknown, err
	}
	defer c.calls.Done()
	if err := c.misbehaves(ctx); err != nil {
		return unknown, err
	}
	all, err := c.all()
	if err != nil {
		return unknown, err
	}
	stats := backend.Stats{Entries: int64(len(all)), Bytes: c.readTo(), FreeBytes: -1}
	if c.flaws.countsLog {
		stats.Entries = c.loaded.Load()
	}
	return stats, nil
}

// Compact finds nothing to do: the log only grows.
func (c *fileCache) Compact(ctx context.Context) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.calls.Done()
	return c.locked(ctx, func() error {
		if err := c.misbehaves(ctx); err != nil {
			return err
		}
		if err := c.refresh(false); err != nil {
			return err
		}
		if !c.flaws.compactsAway {
			return ctx.Err()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.known = 0 // what is in memory is all that is left
		return c.file.Truncate(0)
	})
}
