package s3

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var (
	_ backend.Scanner   = (*Cache)(nil)
	_ backend.Deleter   = (*Cache)(nil)
	_ backend.Statter   = (*Cache)(nil)
	_ backend.Compacter = (*Cache)(nil)
)

const (
	// scanEntries and scanRuns bound one Scan.
	scanEntries = 1024
	scanRuns    = 64
)

// place in a scan: entries are walked through by version, and by key within one. A
// compaction changes where records are, but neither of these.
type scanPlace struct {
	version version
	key     backend.Key
	inside  bool // what has this version is done up to key; else all of it is
}

func (p scanPlace) position() backend.Position {
	b := binary.BigEndian.AppendUint64(nil, p.version.stamp)
	b = binary.BigEndian.AppendUint64(b, p.version.writer)
	if p.inside {
		b = append(b, p.key[:]...)
	}
	return backend.Position(hex.EncodeToString(b))
}

func parsePosition(p backend.Position) (at scanPlace, err error) {
	b, err := hex.DecodeString(string(p))
	if err != nil || len(b) != 16 && len(b) != 16+len(at.key) {
		return at, errors.New("the position is not one that Scan returned")
	}
	at.version = version{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
	at.inside = copy(at.key[:], b[16:]) > 0
	return at, nil
}

// Scan implements backend.Scanner: about 1,024 entries a call, in the order in which
// they were written. Where head is 0 it reads indexes alone. A scan that begins sees
// everything that was stored before, by anybody.
func (c *Cache) Scan(ctx context.Context, from backend.Position, head int, visit func(e backend.Entry) error) (next backend.Position, err error) {
	if err := c.enter(ctx, "scan"); err != nil {
		return from, err
	}
	defer c.calls.leave()
	var after scanPlace
	notBefore := time.Now()
	if from != "" {
		if after, err = parsePosition(from); err != nil {
			return from, fmt.Errorf("s3: %s: scan: %w", c.remote.where(), err)
		}
		notBefore = notBefore.Add(-c.options.Freshness)
	}
	if err := c.freshen(ctx, notBefore, from == ""); err != nil {
		return from, err
	}
	for tried := 0; ; tried++ {
		entries, last, err := c.scanPart(ctx, after)
		if errors.Is(err, errMissing) && tried < relooks {
			if err := c.freshen(ctx, time.Now(), true); err != nil {
				return from, err
			}
			continue
		}
		if err == nil {
			err = c.visitEntries(ctx, entries, head, visit)
		}
		switch {
		case err != nil && ctx.Err() != nil && !errors.As(err, new(*visitError)):
			return from, c.remote.ended(ctx, "scan")
		case errors.Is(err, errMissing):
			return from, c.remote.fail(opGet, err)
		case err != nil:
			return from, err
		case last == (scanPlace{}):
			return "", nil
		}
		return last.position(), nil
	}
}

// scanned is an entry that a scan is going to visit.
type scanned struct {
	key  backend.Key
	size int
}

// scanPart returns the entries of some runs behind after, and the place behind them,
// which is the zero one at the end.
func (c *Cache) scanPart(ctx context.Context, after scanPlace) (entries []scanned, last scanPlace, err error) {
	runs, more := c.view.runsFrom(after, scanRuns)
	var names []*segment
	for _, r := range runs {
		if !slices.Contains(names, r.segment) {
			names = append(names, r.segment)
		}
	}
	tails := make([]*readTail, len(names))
	err = inParallel(ctx, c.options.ParallelGets, len(names), func(ctx context.Context, i int) (err error) {
		tails[i], err = c.tails.get(ctx, c, names[i])
		return err
	})
	if err != nil {
		return nil, last, err
	}
	for i := 0; i < len(runs); {
		v := runs[i].version
		var keys []scanned
		for ; i < len(runs) && runs[i].version == v; i++ { // one run may be in several segments
			t := tails[slices.Index(names, runs[i].segment)]
			keys = append(keys, t.keysOf(runs[i].number, after, v)...)
		}
		slices.SortFunc(keys, func(a, b scanned) int { return bytes.Compare(a.key[:], b.key[:]) })
		keys = slices.CompactFunc(keys, func(a, b scanned) bool { return a.key == b.key })
		cut := false
		if room := scanEntries - len(entries); len(keys) > room {
			keys, cut = keys[:max(1, room)], true
		}
		entries = append(entries, c.view.current(keys, v)...)
		last = scanPlace{version: v}
		if cut {
			last.key, last.inside = keys[len(keys)-1].key, true
			return entries, last, nil
		}
		if len(entries) >= scanEntries {
			return entries, last, nil
		}
	}
	if more {
		return entries, last, nil
	}
	// An entry that was overwritten since runs were listed is in a later one now.
	if later, _ := c.view.runsFrom(cmp.Or(last, after), 1); len(later) > 0 {
		return entries, cmp.Or(last, after), nil
	}
	return entries, scanPlace{}, nil
}

// visitEntries reads the heads of entries, if any are asked for, and visits them.
func (c *Cache) visitEntries(ctx context.Context, entries []scanned, head int, visit func(e backend.Entry) error) error {
	do := func(e backend.Entry) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := visit(e); err != nil {
			return &visitError{err}
		}
		return nil
	}
	if head <= 0 {
		for i := range entries {
			if err := do(backend.Entry{Key: entries[i].key, Size: entries[i].size}); err != nil {
				return err
			}
		}
		return nil
	}
	keys := make([]backend.Key, len(entries))
	pending := make([]int, len(entries))
	for i := range entries {
		keys[i], pending[i] = entries[i].key, i
	}
	for tried := 0; len(pending) > 0; tried++ {
		if tried > 0 {
			if tried > relooks {
				return errMissing
			}
			if err := c.freshen(ctx, time.Now(), true); err != nil {
				return err
			}
		}
		var wants []want
		all := c.view.candidates(keys)
		for _, k := range pending {
			if len(all[k]) > 0 { // else it was deleted meanwhile
				wants = append(wants, want{all[k][0], k, uint32(min(head, math.MaxInt32))})
			}
		}
		gone, err := c.fetch(ctx, keys, plan(wants, c.options.GapBytes), func(ch chunk) error {
			for _, f := range ch.found {
				if err := do(backend.Entry{Key: keys[f.want.key], Value: f.value, Size: f.size}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		pending = pending[:0]
		for _, w := range gone {
			pending = append(pending, w.key)
		}
	}
	return nil
}

// scanRun is a run of one segment.
type scanRun struct {
	version version
	segment *segment
	number  int
}

// runsFrom returns the runs that are shown from after on, in order, about limit of
// them and all of one version; more says that there are others behind.
func (v *view) runsFrom(after scanPlace, limit int) (runs []scanRun, more bool) {
	v.mu.RLock()
	for _, s := range v.byName {
		if !s.shown {
			continue
		}
		for i, r := range s.runs {
			if after.version.less(r.version) || after.inside && r.version == after.version {
				runs = append(runs, scanRun{r.version, s, i})
			}
		}
	}
	v.mu.RUnlock()
	slices.SortFunc(runs, func(a, b scanRun) int {
		switch {
		case a.version.less(b.version):
			return -1
		case b.version.less(a.version):
			return 1
		}
		return 0
	})
	n := min(limit, len(runs))
	for n > 0 && n < len(runs) && runs[n].version == runs[n-1].version {
		n++
	}
	return runs[:n], n < len(runs)
}

// current returns those of keys whose newest record has this version.
func (v *view) current(keys []scanned, of version) (current []scanned) {
	var places []place
	var candidates []candidate
	v.mu.RLock()
	defer v.mu.RUnlock()
	for i := range keys {
		places = v.table.find(v.table.hash(&keys[i].key), places[:0])
		candidates = v.appendCandidates(candidates[:0], &keys[i].key, places)
		if len(candidates) > 0 && candidates[0].version == of {
			current = append(current, keys[i])
		}
	}
	return current
}

// readTail is a tail with, for each run that was asked for, the order of its keys.
type readTail struct {
	name string
	tail *tail
	mu   sync.Mutex
	sort map[int][]scanned
}

// keysOf returns the keys of a run behind after, in order.
func (t *readTail) keysOf(number int, after scanPlace, v version) []scanned {
	t.mu.Lock()
	defer t.mu.Unlock()
	sorted, ok := t.sort[number]
	if !ok {
		from := 0
		for _, r := range t.tail.runs[:number] {
			from += int(r.frames)
		}
		for i := range int(t.tail.runs[number].frames) {
			sorted = append(sorted, scanned{*t.tail.key(from + i), int(t.tail.size(from + i))})
		}
		slices.SortFunc(sorted, func(a, b scanned) int { return bytes.Compare(a.key[:], b.key[:]) })
		t.sort[number] = sorted
	}
	if !after.inside || after.version != v {
		return sorted
	}
	n, found := slices.BinarySearchFunc(sorted, after.key, func(e scanned, key backend.Key) int { return bytes.Compare(e.key[:], key[:]) })
	if found {
		n++
	}
	return sorted[n:]
}

// tailCache keeps the tail that was read last: a scan goes through a large segment in
// many calls.
type tailCache struct {
	mu   sync.Mutex
	last *readTail
}

func (t *tailCache) get(ctx context.Context, c *Cache, s *segment) (*readTail, error) {
	t.mu.Lock()
	last := t.last
	t.mu.Unlock()
	if last != nil && last.name == s.name {
		return last, nil
	}
	parsed, err := c.loadTail(ctx, s.parsed, s.bytes)
	if err != nil {
		return nil, err
	}
	read := &readTail{name: s.name, tail: parsed, sort: make(map[int][]scanned)}
	t.mu.Lock()
	t.last = read
	t.mu.Unlock()
	return read, nil
}
