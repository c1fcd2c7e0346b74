package s3

import (
	"context"
	"fmt"
	"time"

	"github.com/embedonce/embedonce/backend"
)

const (
	// deleteKeys is how many keys one segment of tombstones has at most.
	deleteKeys = 4096
	// rematches is how often Delete looks again at entries that are written while
	// it works.
	rematches = 8
)

// Delete implements backend.Deleter: it writes tombstones, 4,096 in a segment, which
// hide the records from this handle at once, and from others within
// Options.Freshness. The records themselves leave the bucket with a later Compact,
// when Options.Grace is over; the tombstones are kept for seven days. Where two handles
// delete an entry at the same time, both count it.
func (c *Cache) Delete(ctx context.Context, keys []backend.Key, match func(i int, value []byte) bool) (removed int, err error) {
	if err := c.enter(ctx, "delete"); err != nil {
		return 0, err
	}
	defer c.calls.leave()
	if len(keys) == 0 {
		return 0, nil
	}
	if c.options.ReadOnly {
		return 0, c.readOnly("delete")
	}
	if err := c.freshen(ctx, time.Now(), false); err != nil {
		return 0, err
	}
	seen := make(map[backend.Key]bool, len(keys))
	var indexes []int
	// One after the other: of two that delete the same entry, one has removed it.
	select {
	case c.deleting <- struct{}{}:
	case <-ctx.Done():
		return 0, c.remote.ended(ctx, "delete")
	}
	defer func() { <-c.deleting }()
	if c.writes.settle(ctx) != nil {
		return 0, c.remote.ended(ctx, "delete")
	}
	flush := func() error {
		n, err := c.deleteSome(ctx, keys, indexes, match)
		removed += n
		indexes = indexes[:0]
		return err
	}
	for i, key := range keys {
		if seen[key] {
			continue
		}
		seen[key] = true
		if indexes = append(indexes, i); len(indexes) == deleteKeys {
			if err := flush(); err != nil {
				return removed, err
			}
		}
	}
	return removed, flush()
}

// deleteSome deletes the entries of the keys at indexes, which are all different.
func (c *Cache) deleteSome(ctx context.Context, keys []backend.Key, indexes []int, match func(i int, value []byte) bool) (removed int, err error) {
	for range rematches {
		if len(indexes) == 0 {
			break
		}
		part := make([]backend.Key, len(indexes))
		for n, i := range indexes {
			part[n] = keys[i]
		}
		newest := make([]version, len(part))
		for n, candidates := range c.view.candidates(part) {
			if len(candidates) > 0 {
				newest[n] = candidates[0].version
			}
		}
		chosen := func(n int) bool { return newest[n] != version{} }
		if match != nil {
			yes := make([]bool, len(part))
			r := newReading(c, part, func(n int, value []byte, v version) error {
				yes[n] = match(indexes[n], value)
				if newest[n].less(v) { // it was written since
					newest[n] = v
				}
				return nil
			})
			if err := r.run(ctx); err != nil {
				return removed, err
			}
			chosen = func(n int) bool { return yes[n] }
		}
		w := &waiting{done: make(chan struct{})}
		var tried []int
		for n := range part {
			if chosen(n) {
				w.tombs = append(w.tombs, tomb{key: part[n], upTo: newest[n]})
				tried = append(tried, n)
			}
		}
		if len(tried) == 0 {
			return removed, nil
		}
		deleted, err := c.write(ctx, w)
		if err != nil {
			return removed, err
		}
		// What was written after it had been looked at, and before it was deleted, is
		// still there, and is looked at anew.
		var again []int
		left := make([]backend.Key, len(tried))
		for m, n := range tried {
			left[m] = part[n]
		}
		for m, candidates := range c.view.candidates(left) {
			if len(candidates) > 0 && candidates[0].version.less(deleted) {
				again = append(again, indexes[tried[m]])
			} else {
				removed++
			}
		}
		indexes = again
	}
	if len(indexes) > 0 {
		return removed, fmt.Errorf("s3: %s: delete: %w: entries are written faster than they can be deleted", c.remote.where(), backend.ErrUnavailable)
	}
	return removed, nil
}

// Stats implements backend.Statter. Bytes has every object under the prefix that is
// the cache's, those that were replaced and wait for their deletion as well.
// FreeBytes has those, and the values that were overwritten or deleted; it is up to
// an eighth too low where values have many lengths.
func (c *Cache) Stats(ctx context.Context) (backend.Stats, error) {
	unknown := backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}
	if err := c.enter(ctx, "stats"); err != nil {
		return unknown, err
	}
	defer c.calls.leave()
	if err := c.freshen(ctx, time.Now(), true); err != nil {
		return unknown, err
	}
	listed, _ := c.fresh.listing()
	var stats backend.Stats
	for name, o := range listed {
		if _, ours := parseName(name); ours {
			stats.Bytes += o.bytes
		}
	}
	usage := c.view.usage()
	used := int64(0)
	for s, u := range usage.bySegment {
		used += u.live + s.bytes - int64(s.data)
	}
	stats.Entries = usage.entries
	stats.FreeBytes = max(0, stats.Bytes-used)
	return stats, nil
}

// segmentUsage is how much of a segment's frames is what.
type segmentUsage struct {
	live   int64 // bytes of frames that are the newest of their key
	killed int64 // bytes of frames that are deleted
	// shadowed has bytes of frames by the segment that has the newest of their key.
	shadowed map[*segment]int64
}

type usage struct {
	entries   int64
	bySegment map[*segment]*segmentUsage
}

// usage goes through the whole table.
func (v *view) usage() usage {
	v.mu.RLock()
	defer v.mu.RUnlock()
	u := usage{bySegment: make(map[*segment]*segmentUsage)}
	of := func(s *segment) *segmentUsage {
		own := u.bySegment[s]
		if own == nil {
			own = &segmentUsage{shadowed: make(map[*segment]int64)}
			u.bySegment[s] = own
		}
		return own
	}
	for _, s := range v.byName {
		if s.shown {
			of(s)
		}
	}
	tombs := make(map[uint64]version, len(v.tombs))
	for key, upTo := range v.tombs {
		tombs[v.table.hash(&key)] = upTo
	}
	v.table.distinct(func(hash uint64, places []place) {
		var newest candidate
		upTo, deleted := version{}, false
		if len(tombs) > 0 {
			upTo, deleted = tombs[hash]
		}
		for _, p := range places {
			c := v.candidate(p)
			if c.segment.shown && (!deleted || upTo.less(c.version)) && (newest.segment == nil || newest.version.less(c.version)) {
				newest = c
			}
		}
		for _, p := range places {
			c := v.candidate(p)
			switch {
			case !c.segment.shown:
			case deleted && !upTo.less(c.version):
				of(c.segment).killed += int64(c.atMost)
			case c == newest:
				of(c.segment).live += int64(c.atMost)
			default:
				of(c.segment).shadowed[newest.segment] += int64(c.atMost)
			}
		}
		if newest.segment != nil {
			u.entries++
		}
	})
	return u
}
