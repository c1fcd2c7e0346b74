package conformance

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/embedonce/embedonce/backend"
)

// The optional interfaces on mapCache, as simple and right as the rest of it: a
// walk goes by the order of the keys.

// mapPart is how many entries one Scan visits.
const mapPart = 400

func (c *mapCache) Scan(ctx context.Context, from backend.Position, head int, visit func(backend.Entry) error) (backend.Position, error) {
	if err := c.begin(ctx); err != nil {
		return from, err
	}
	defer c.calls.Done()
	if err := c.suffer(ctx, false, 0, 0); err != nil {
		return from, err
	}
	entries, next := part(c.all(), from, mapPart)
	for _, item := range entries {
		if err := ctx.Err(); err != nil {
			return from, fmt.Errorf("map: %w", err)
		}
		if err := visit(entryOf(item, head)); err != nil {
			return from, fmt.Errorf("map: visit: %w", err)
		}
	}
	return next, nil
}

// part returns the next entries of a walk by the order of the keys, at most limit.
func part(all map[backend.Key][]byte, from backend.Position, limit int) (entries []backend.Item, next backend.Position) {
	after, _ := hex.DecodeString(string(from)) // made below
	for k, value := range all {
		if from == "" || bytes.Compare(k[:], after) > 0 {
			entries = append(entries, backend.Item{Key: k, Value: value})
		}
	}
	slices.SortFunc(entries, func(a, b backend.Item) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	if len(entries) > limit {
		entries = entries[:limit]
		next = backend.Position(hex.EncodeToString(entries[limit-1].Key[:]))
	}
	return entries, next
}

// entryOf is an item as a scan shows it.
func entryOf(item backend.Item, head int) backend.Entry {
	entry := backend.Entry{Key: item.Key, Size: len(item.Value)}
	if item.Value == nil {
		entry.Size = -1
	}
	entry.Value = item.Value[:min(max(head, 0), len(item.Value))]
	return entry
}

func (c *mapCache) Delete(ctx context.Context, keys []backend.Key, match func(i int, value []byte) bool) (removed int, err error) {
	if err := c.begin(ctx); err != nil {
		return 0, err
	}
	defer c.calls.Done()
	if err := c.suffer(ctx, true, 0, 0); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range keys {
		if err := ctx.Err(); err != nil {
			return removed, fmt.Errorf("map: %w", err)
		}
		if value, stored := c.entries[k]; stored && (match == nil || match(i, value)) {
			c.remove(k)
			removed++
		}
	}
	return removed, nil
}

func (c *mapCache) Stats(ctx context.Context) (backend.Stats, error) {
	if err := c.begin(ctx); err != nil {
		return backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}, err
	}
	defer c.calls.Done()
	c.mu.RLock()
	defer c.mu.RUnlock()
	return backend.Stats{Entries: int64(len(c.entries)), Bytes: max(c.bytes, 0)}, ctx.Err()
}

// Compact gives back what a map keeps of entries that are gone.
func (c *mapCache) Compact(ctx context.Context) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.calls.Done()
	if err := c.suffer(ctx, true, 0, 0); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("map: %w", err)
	}
	fresh := make(map[backend.Key][]byte, len(c.entries))
	maps.Copy(fresh, c.entries)
	c.entries = fresh
	return nil
}

type (
	scanT    = func(ctx ctxT, from backend.Position, head int, visit func(backend.Entry) error) (backend.Position, error)
	deleteT  = func(ctx ctxT, keys keysT, match matchT) (int, error)
	matchT   = func(i int, value []byte) bool
	statsT   = func(ctx ctxT) (backend.Stats, error)
	compactT = func(ctx ctxT) error
)

// optional has the methods of the optional interfaces that are replaced.
type optional struct {
	scan    scanT
	del     deleteT
	stats   statsT
	compact compactT
}

func (b *broken) Scan(ctx context.Context, from backend.Position, head int, visit func(backend.Entry) error) (backend.Position, error) {
	if b.scan == nil {
		return backend.Scan(ctx, b.Cache, from, head, visit)
	}
	return b.scan(ctx, from, head, visit)
}

func (b *broken) Delete(ctx context.Context, keys []backend.Key, match func(i int, value []byte) bool) (int, error) {
	if b.del == nil {
		return backend.Delete(ctx, b.Cache, keys, match)
	}
	return b.del(ctx, keys, match)
}

func (b *broken) Stats(ctx context.Context) (backend.Stats, error) {
	if b.stats == nil {
		return backend.ReadStats(ctx, b.Cache)
	}
	return b.stats(ctx)
}

func (b *broken) Compact(ctx context.Context) error {
	if b.compact == nil {
		return backend.Compact(ctx, b.Cache)
	}
	return b.compact(ctx)
}

// onScan is a cache with another Scan.
func onScan(scan func(c *mapCache) scanT) func() Suite {
	return overMap(func(c *mapCache, b *broken) { b.scan = scan(c) })
}

// onEntries is a cache whose Scan visits other entries than it should.
func onEntries(change func(e backend.Entry, n int, visit func(backend.Entry) error) error) func() Suite {
	return onScan(func(c *mapCache) scanT {
		return func(ctx ctxT, from backend.Position, head int, visit func(backend.Entry) error) (backend.Position, error) {
			n := 0
			return c.Scan(ctx, from, head, func(e backend.Entry) error { n++; return change(e, n, visit) })
		}
	})
}

func onDelete(del func(c *mapCache) deleteT) func() Suite {
	return overMap(func(c *mapCache, b *broken) { b.del = del(c) })
}

func onStats(stats func(c *mapCache) statsT) func() Suite {
	return overMap(func(c *mapCache, b *broken) { b.stats = stats(c) })
}

func onCompact(compact func(c *mapCache) compactT) func() Suite {
	return overMap(func(c *mapCache, b *broken) { b.compact = compact(c) })
}

// Odd, and right.
func init() {
	oddCaches = append(oddCaches,
		mutant{name: "walks in parts of three, some empty, and twice over", suite: overMap(func(c *mapCache, b *broken) {
			b.scan = func(ctx ctxT, from backend.Position, head int, visit func(backend.Entry) error) (backend.Position, error) {
				if err := c.begin(ctx); err != nil {
					return from, err
				}
				defer c.calls.Done()
				if err := c.suffer(ctx, false, 0, 0); err != nil {
					return from, err
				}
				place, empty := strings.CutPrefix(string(from), "empty ")
				if empty { // as a range without entries is
					return backend.Position("after " + place), nil
				}
				place, _ = strings.CutPrefix(place, "after ")
				entries, next := part(c.all(), backend.Position(place), 3)
				for range 2 {
					for _, item := range entries {
						if err := ctx.Err(); err != nil {
							return from, err
						}
						if err := visit(entryOf(item, head)); err != nil {
							return from, fmt.Errorf("odd: %w", err)
						}
					}
				}
				if next != "" && len(entries) > 0 && entries[0].Key[0]%4 == 0 {
					return "empty " + next, nil
				}
				if next != "" {
					return "after " + next, nil
				}
				return "", nil
			}
		})},
		mutant{name: "walks through everything at once, and lends one buffer and spoils it", suite: overMap(func(c *mapCache, b *broken) {
			b.scan = func(ctx ctxT, from backend.Position, head int, visit func(backend.Entry) error) (backend.Position, error) {
				if err := c.begin(ctx); err != nil {
					return from, err
				}
				defer c.calls.Done()
				if err := c.suffer(ctx, false, 0, 0); err != nil {
					return from, err
				}
				var buf []byte
				for k, value := range c.all() {
					if err := ctx.Err(); err != nil {
						return from, err
					}
					e := entryOf(backend.Item{Key: k, Value: value}, backend.WholeValue) // more than was asked for
					buf = append(buf[:0], e.Value...)
					e.Value = buf
					err := visit(e)
					for at := range buf {
						buf[at] = 0xdb
					}
					if err != nil {
						return from, errors.Join(err)
					}
				}
				return "", nil
			}
		})},
		mutant{name: "looks twice before it deletes", suite: overMap(func(c *mapCache, b *broken) {
			// It compares and swaps, and begins again when the entry has changed.
			b.del = func(ctx ctxT, keys keysT, match matchT) (int, error) {
				if match == nil {
					return c.Delete(ctx, keys, nil)
				}
				if err := c.begin(ctx); err != nil {
					return 0, err
				}
				defer c.calls.Done()
				removed := 0
				for i := range keys {
					for {
						value, stored := c.found(keys[i : i+1])[0]
						if !stored || !match(i, value) || !match(i, value) {
							break
						}
						if err := ctx.Err(); err != nil {
							return removed, err
						}
						if err := c.suffer(ctx, true, 0, 0); err != nil {
							return removed, err
						}
						n := 0
						c.mu.Lock()
						if now, still := c.entries[keys[i]]; still && bytes.Equal(now, value) {
							c.remove(keys[i])
							n = 1
						}
						c.mu.Unlock()
						if removed += n; n > 0 {
							break
						}
					}
				}
				return removed, nil
			}
		})},
		mutant{name: "can't tell how much it holds", suite: onStats(func(c *mapCache) statsT {
			return func(ctx ctxT) (backend.Stats, error) {
				_, err := c.Stats(ctx)
				return backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}, err
			}
		})},
		mutant{name: "over a cache with none of the optional methods", suite: overMap(func(c *mapCache, b *broken) { b.Cache = bare{c} })},
	)
}

// bare hides the optional methods of a cache.
type bare struct{ backend.Cache }
