package s3

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/embedonce/embedonce/backend"
)

// SetMany implements backend.Cache: a batch is in one segment, which becomes
// visible as a whole. Calls that wait while a segment is being written go out
// together in the next one; each returns when its own items are stored. A call whose
// context ends while its segment is being written returns at once, and the segment
// is written to its end.
func (c *Cache) SetMany(ctx context.Context, items []backend.Item) error {
	if err := c.enter(ctx, "write"); err != nil {
		return err
	}
	defer c.calls.leave()
	return c.setMany(ctx, items)
}

func (c *Cache) setMany(ctx context.Context, items []backend.Item) error {
	if ctx.Err() != nil {
		return c.remote.ended(ctx, "write")
	}
	if err := c.info.Check(items); err != nil {
		return fmt.Errorf("s3: %w", err)
	}
	if len(items) == 0 {
		return nil
	}
	if c.options.ReadOnly {
		return c.readOnly("write")
	}
	w := newWrite(items)
	_, err := c.write(ctx, w)
	return err
}

func (c *Cache) readOnly(doing string) error {
	return fmt.Errorf("s3: %s: %s: %w: it was opened with Options.ReadOnly", c.remote.where(), doing, backend.ErrReadOnly)
}

const (
	// laneBytes must be waiting for a second segment to be written beside the first:
	// less goes out faster if it is collected.
	laneBytes = 1 << 20
	// groupBytes bounds a segment that several calls share.
	groupBytes = 64 << 20
)

// waiting is one call that waits for its records to be stored.
type waiting struct {
	frames  []byte // all of its records, copied
	entries []entry
	tombs   []tomb

	done    chan struct{}
	err     error // set before done is closed
	taken   bool  // a lane is writing it; guarded by writes.mu
	version version
}

func newWrite(items []backend.Item) *waiting {
	w := &waiting{done: make(chan struct{})}
	last := make(map[backend.Key]int, len(items))
	size := 0
	for i := range items {
		last[items[i].Key] = i
		size += frameHead + len(items[i].Value)
	}
	// Some room for the index, so that a segment of one call is not copied again.
	w.frames = make([]byte, 0, size+len(items)*entrySize+runSize+footerSize)
	w.entries = make([]entry, 0, len(last))
	for i := range items {
		if last[items[i].Key] == i {
			w.frames = appendFrame(w.frames, &items[i].Key, items[i].Value)
			w.entries = append(w.entries, entry{items[i].Key, uint32(len(items[i].Value))})
		}
	}
	return w
}

func (w *waiting) size() int { return len(w.frames) + len(w.entries)*entrySize + len(w.tombs)*tombSize }

// writes is the queue of the calls that wait, and who works on it.
type writes struct {
	mu      sync.Mutex
	queue   []*waiting
	queued  int      // bytes
	idle    []writer // those that no lane uses
	working int
	lanes   sync.WaitGroup
	left    []<-chan struct{} // done of those that were left by their callers, and go on
}

// writer is who wrote a segment: no two lanes, handles or processes share one.
type writer struct {
	id  uint64
	seq uint32
}

func (q *writes) init(lanes int) {
	for range lanes {
		q.idle = append(q.idle, writer{id: randomID()})
	}
}

// write queues w and waits until it is stored.
func (c *Cache) write(ctx context.Context, w *waiting) (version, error) {
	q := &c.writes
	q.mu.Lock()
	q.queue = append(q.queue, w)
	q.queued += w.size()
	if len(q.idle) > 0 && (q.working == 0 || q.queued >= laneBytes) {
		lane := q.idle[len(q.idle)-1]
		q.idle = q.idle[:len(q.idle)-1]
		q.working++
		q.lanes.Go(func() { c.lane(lane) })
	}
	q.mu.Unlock()
	select {
	case <-w.done:
		return w.version, w.err
	case <-ctx.Done():
	}
	q.mu.Lock()
	if w.taken {
		q.left = append(slices.DeleteFunc(q.left, isClosed), w.done)
	} else { // nobody will write it
		for i, other := range q.queue {
			if other == w {
				q.queue = append(q.queue[:i], q.queue[i+1:]...)
				break
			}
		}
		q.queued -= w.size()
	}
	q.mu.Unlock()
	return version{}, c.remote.ended(ctx, "write")
}

// settle waits until the writes that were left by their callers have come to an
// end: what they store must not come back after a deletion that begins now.
func (q *writes) settle(ctx context.Context) error {
	q.mu.Lock()
	left := slices.DeleteFunc(q.left, isClosed)
	q.left = left
	left = slices.Clone(left)
	q.mu.Unlock()
	for _, done := range left {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// lane writes segment after segment until nothing waits.
func (c *Cache) lane(own writer) {
	q := &c.writes
	for {
		q.mu.Lock()
		group := q.take()
		if len(group) == 0 {
			q.idle = append(q.idle, own)
			q.working--
			q.mu.Unlock()
			return
		}
		// Under the lock: what is taken later, by another lane, is newer.
		own.seq++
		v := version{c.clock.next(), own.id}
		q.mu.Unlock()
		err := c.store(v, own.seq, group)
		for _, w := range group {
			w.version, w.err = v, err
			close(w.done)
		}
		// Those who were waiting often write again at once, and can share then.
		for range len(group) {
			runtime.Gosched()
		}
	}
}

// take returns the calls whose records go into one segment.
func (q *writes) take() (group []*waiting) {
	size, entries, tombs := 0, 0, 0
	for len(q.queue) > 0 {
		w := q.queue[0]
		size, entries, tombs = size+w.size(), entries+len(w.entries), tombs+len(w.tombs)
		if len(group) > 0 && (size > groupBytes || entries > maxBatchItems || tombs > maxBatchItems) {
			break
		}
		q.queue = q.queue[1:]
		q.queued -= w.size()
		w.taken = true
		group = append(group, w)
	}
	return group
}

// store writes one segment and shows it to the readers of this handle. What it began
// it ends, whoever is still waiting for it.
func (c *Cache) store(v version, seq uint32, group []*waiting) error {
	w := merge(group)
	if len(w.entries) > 0 {
		w.runs = []run{{v, uint32(len(w.entries))}}
	}
	body, tailBytes := w.finish()
	name := objectName{version: v, seq: seq, tail: uint32(tailBytes), count: uint32(len(w.entries))}
	if err := c.remote.put(c.ended, name.String(), body); err != nil {
		return err
	}
	t, err := parseTail(name, body, int64(len(body)))
	if err != nil {
		return fmt.Errorf("s3: a segment that was just made can't be read: %w", err) // never
	}
	// Its own age is not known before it is listed; nothing asks for it until then.
	c.view.add(newSegment(name, t, c.clock.now()), t)
	return nil
}

// merge makes one segment of what several calls want to store. They are all new at
// the same moment: of equal keys, those of the later call win.
func merge(group []*waiting) *segmentWriter {
	w := &segmentWriter{}
	if len(group) == 1 {
		w.data, w.entries, w.tombs = group[0].frames, group[0].entries, group[0].tombs
		return w
	}
	size, n := 0, 0
	last := make(map[backend.Key]int)
	for i, g := range group {
		size += g.size()
		n += len(g.entries)
		for j := range g.entries {
			last[g.entries[j].key] = i
		}
		w.tombs = append(w.tombs, g.tombs...)
	}
	w.data = make([]byte, 0, size+runSize+footerSize)
	w.entries = make([]entry, 0, n)
	for i, g := range group {
		frames := g.frames
		for j := range g.entries {
			length := frameHead + int(g.entries[j].size)
			if last[g.entries[j].key] == i {
				w.data = append(w.data, frames[:length]...)
				w.entries = append(w.entries, g.entries[j])
			}
			frames = frames[length:]
		}
	}
	return w
}
