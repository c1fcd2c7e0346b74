package s3

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/embedonce/embedonce/backend"
)

const (
	// longestCompact ends a Compact, so that what it writes late can't bring back what
	// was deleted: tombstones live for much longer.
	longestCompact = time.Hour
	// groupInputs bounds the requests, and the names, of one output.
	groupInputs = 2000
)

// Compact implements backend.Compacter: it joins small segments into large ones,
// leaves out what was overwritten or deleted, and then deletes segments that were
// replaced longer than Options.Grace ago. A cron job can run it, on any number of
// machines: two that work on the same segments only waste bytes.
//
// Overwritten values are left out where their successors are in the same output, so
// that their room stays taken while these are far apart in large segments; a larger
// Options.CompactBytes brings them together.
//
// It takes an hour at most, then its error wraps backend.ErrUnavailable, and it can
// be called again. Segments that are damaged are left as they are, and make an error
// that wraps backend.ErrCorrupt, after all the others were worked on.
func (c *Cache) Compact(ctx context.Context) error {
	if err := c.enter(ctx, "compact"); err != nil {
		return err
	}
	defer c.calls.leave()
	if c.options.ReadOnly {
		return c.readOnly("compact")
	}
	own, cancel := context.WithTimeout(ctx, longestCompact)
	defer cancel()
	err := c.compact(own)
	if err != nil && ctx.Err() == nil && own.Err() != nil {
		return fmt.Errorf("s3: %s: compact: %w: not done within %v; call it again", c.remote.where(), backend.ErrUnavailable, longestCompact)
	}
	return err
}

func (c *Cache) compact(ctx context.Context) error {
	if err := c.freshen(ctx, time.Now(), true); err != nil {
		return err
	}
	listed, now := c.fresh.listing()
	damaged := 0
	for _, group := range c.groups(listed) {
		switch err := c.compactGroup(ctx, group, listed, now); {
		case ctx.Err() != nil:
			return c.remote.ended(ctx, "compact")
		case errors.Is(err, errMissing): // somebody else was faster
		case errors.Is(err, errForeignObject), errors.Is(err, errFuture):
			damaged++
		case err != nil:
			return err
		}
	}
	if err := c.sweep(ctx); err != nil {
		return err
	}
	if damaged > 0 {
		return fmt.Errorf("s3: %s: compact: %w: %d groups of segments have a damaged one and were left as they are", c.remote.where(), backend.ErrCorrupt, damaged)
	}
	return nil
}

// groups chooses what to join: small segments in the order of their age, those of
// which a quarter was deleted, and those that were mostly overwritten with the ones
// that did it.
func (c *Cache) groups(listed map[string]object) (groups [][]*segment) {
	usage := c.view.usage()
	var all []*segment
	for s := range usage.bySegment {
		if _, there := listed[s.name]; there {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *segment) int {
		switch av, bv := a.first(), b.first(); {
		case av.less(bv):
			return -1
		case bv.less(av):
			return 1
		}
		return 0
	})
	limit := int64(c.options.CompactBytes)
	keeps := func(s *segment) int64 { return int64(s.data) - usage.bySegment[s].killed }
	taken := make(map[*segment]bool)
	var group []*segment
	bytes, entries, tombs := int64(0), 0, 0
	end := func() {
		if len(group) > 1 || len(group) == 1 && usage.bySegment[group[0]].killed > 0 {
			groups = append(groups, group)
			for _, s := range group {
				taken[s] = true
			}
		}
		group, bytes, entries, tombs = nil, 0, 0, 0
	}
	for _, s := range all {
		if int64(s.data) > limit/2 {
			continue
		}
		if len(group) == groupInputs || bytes+keeps(s) > limit || entries+s.entries > maxBatchItems || tombs+len(s.tombs) > maxBatchItems {
			end()
		}
		group = append(group, s)
		bytes, entries, tombs = bytes+keeps(s), entries+s.entries, tombs+len(s.tombs)
	}
	end()
	for _, s := range all {
		if u := usage.bySegment[s]; !taken[s] && u.killed*4 >= int64(s.data) && u.killed > 0 {
			groups = append(groups, []*segment{s})
			taken[s] = true
		}
	}
	for _, s := range all {
		group, bytes, entries := []*segment{s}, usage.bySegment[s].live, s.entries
		shadowed := int64(0)
		for by, n := range usage.bySegment[s].shadowed {
			shadowed += n
			if by != s {
				group, bytes, entries = append(group, by), bytes+keeps(by), entries+by.entries
			}
		}
		if shadowed*2 < int64(s.data) || shadowed == 0 || bytes > limit || entries > maxBatchItems ||
			slices.ContainsFunc(group, func(s *segment) bool { _, there := listed[s.name]; return taken[s] || !there }) {
			continue
		}
		groups = append(groups, group)
		for _, s := range group {
			taken[s] = true
		}
	}
	return groups
}

// first returns the lowest version in s.
func (s *segment) first() version {
	if s.parsed.compacted && len(s.runs) > 0 {
		return slices.MinFunc(s.runs, func(a, b runEnd) int {
			if a.version.less(b.version) {
				return -1
			}
			return 1
		}).version
	}
	return s.parsed.version
}

// input is a segment that is compacted.
type input struct {
	segment *segment
	tail    *tail
}

// keeper is where the record of a key is that an output keeps.
type keeper struct {
	version version
	input   int
	frame   int
}

// compactGroup writes one output for a group, and shows it. Its PUT is the commit:
// until then nothing has changed, and afterwards readers find the output or, if they
// don't know it yet, what it replaces.
func (c *Cache) compactGroup(ctx context.Context, group []*segment, listed map[string]object, now time.Time) error {
	inputs := make([]input, len(group))
	err := inParallel(ctx, c.options.ParallelGets, len(group), func(ctx context.Context, i int) error {
		t, err := c.loadTail(ctx, group[i].parsed, group[i].bytes)
		inputs[i] = input{segment: group[i], tail: t}
		return err
	})
	if err != nil {
		return err
	}
	kept := c.choose(inputs)
	parts := make([]segmentWriter, len(inputs))
	err = inParallel(ctx, c.options.ParallelGets, len(inputs), func(ctx context.Context, i int) error {
		return c.copyKept(ctx, &parts[i], inputs, i, kept)
	})
	if err != nil {
		return err
	}
	w := &segmentWriter{data: make([]byte, 0, keptBytes(inputs, kept))}
	for i := range parts {
		w.data = append(w.data, parts[i].data...)
		w.entries = append(w.entries, parts[i].entries...)
		w.runs = append(w.runs, parts[i].runs...)
		w.replaced = append(w.replaced, inputs[i].segment.name)
		parts[i] = segmentWriter{}
	}
	w.tombs = c.keptTombs(inputs, listed, now)
	body, tailBytes := w.finish()
	name := objectName{compacted: true, tail: uint32(tailBytes), count: uint32(len(w.entries))}
	_, _ = rand.Read(name.unique[:]) // it never fails
	if err := c.remote.put(ctx, name.String(), body); err != nil {
		return err
	}
	t, err := parseTail(name, body, int64(len(body)))
	if err != nil {
		return fmt.Errorf("s3: an output that was just made can't be read: %w", err) // never
	}
	c.view.add(newSegment(name, t, time.Time{}), t)
	c.remote.counted.compacted.Add(int64(len(group)))
	return nil
}

// choose returns, for each key, the newest record in inputs that wasn't deleted.
func (c *Cache) choose(inputs []input) map[backend.Key]keeper {
	kept := make(map[backend.Key]keeper)
	for i := range inputs {
		t := inputs[i].tail
		frame := 0
		for _, r := range t.runs {
			for range r.frames {
				key := t.key(frame)
				if old, known := kept[*key]; (!known || old.version.less(r.version)) && !c.view.deleted(key, r.version) {
					kept[*key] = keeper{r.version, i, frame}
				}
				frame++
			}
		}
	}
	return kept
}

func keptBytes(inputs []input, kept map[backend.Key]keeper) (n int) {
	for _, k := range kept {
		n += frameHead + int(inputs[k.input].tail.size(k.frame)) + entrySize
	}
	return n + len(inputs)*(runSize+128) + footerSize
}

// copyKept reads all of an input, appends what is kept of it, and checks that it is
// as it was written.
func (c *Cache) copyKept(ctx context.Context, w *segmentWriter, inputs []input, number int, kept map[backend.Key]keeper) error {
	in := &inputs[number]
	t := in.tail
	if t.frames == 0 {
		return nil
	}
	sum := xxh3.New()
	read := uint64(0) // whole frames
	frame, inRun, runIndex := 0, uint32(0), 0
	runFrom := len(w.entries)
	endRun := func() {
		if n := len(w.entries) - runFrom; n > 0 {
			w.runs = append(w.runs, run{t.runs[runIndex].version, uint32(n)})
		}
		runFrom, inRun = len(w.entries), 0
		runIndex++
	}
	next := func() (uint64, uint64) { return read, t.dataBytes }
	err := c.remote.get(ctx, in.segment.name, next, func(_ *attempt, body io.Reader) error {
		from := bufio.NewReaderSize(body, 64<<10)
		for ; frame < int(t.frames); frame++ {
			for runIndex < len(t.runs) && inRun == t.runs[runIndex].frames {
				endRun()
			}
			at := len(w.data)
			length := frameHead + int(t.size(frame))
			w.data = slices.Grow(w.data, length)[:at+length]
			whole := w.data[at:]
			if _, err := io.ReadFull(from, whole); err != nil {
				w.data = w.data[:at]
				return bodyFailure(err)
			}
			if *t.key(frame) != backend.Key(whole) || binary.LittleEndian.Uint32(whole[len(backend.Key{}):]) != t.size(frame) {
				return fmt.Errorf("%w: a frame is another than its index has", errForeignObject)
			}
			_, _ = sum.Write(whole) // it never fails
			read += uint64(length)
			inRun++
			if k := kept[*t.key(frame)]; k.input == number && k.frame == frame && k.version == t.runs[runIndex].version {
				w.entries = append(w.entries, entry{*t.key(frame), t.size(frame)})
			} else {
				w.data = w.data[:at]
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for runIndex < len(t.runs) {
		endRun()
	}
	if sum.Sum64() != t.dataSum {
		return fmt.Errorf("%w: wrong checksum of the frames", errForeignObject)
	}
	return nil
}

// keptTombs returns the tombstones of inputs that are still needed: for as long as a
// late output could bring back what they delete, and while any other segment has it.
func (c *Cache) keptTombs(inputs []input, listed map[string]object, now time.Time) (tombs []tomb) {
	replaced := make(map[string]bool, len(inputs))
	for i := range inputs {
		replaced[inputs[i].segment.name] = true
	}
	at := make(map[backend.Key]int)
	for i := range inputs {
		for _, t := range inputs[i].tail.tombs {
			if t.created == 0 {
				t.created = listed[inputs[i].segment.name].modified.Unix()
			}
			if n, again := at[t.key]; !again {
				at[t.key] = len(tombs)
				tombs = append(tombs, t)
			} else {
				if tombs[n].upTo.less(t.upTo) {
					tombs[n].upTo = t.upTo
				}
				tombs[n].created = max(tombs[n].created, t.created)
			}
		}
	}
	return slices.DeleteFunc(tombs, func(t tomb) bool {
		old := !now.IsZero() && now.Sub(time.Unix(t.created, 0)) > c.retention
		return old && !c.view.elsewhere(&t, replaced)
	})
}

// elsewhere says whether a segment that is not replaced now has a record that t
// deletes.
func (v *view) elsewhere(t *tomb, replaced map[string]bool) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, p := range v.table.find(v.table.hash(&t.key), nil) {
		if c := v.candidate(p); c.segment.shown && !replaced[c.segment.name] && !t.upTo.less(c.version) {
			return true
		}
	}
	return false
}
