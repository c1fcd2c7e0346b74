package conformance

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"sync/atomic"

	"github.com/embedonce/embedonce/backend"
)

// What the cases of the optional interfaces share: the groups scan, delete, stats
// and compact. A cache that lacks one, or a decorator over it, says ErrUnsupported;
// the cases are skipped then.

func (e *env) needScan(c backend.Cache) {
	_, err := backend.Scan(e.ctx, c, "", 0, func(backend.Entry) error { return nil })
	e.needs("Scan", err)
}

func (e *env) needDelete(c backend.Cache) {
	_, err := backend.Delete(e.ctx, c, nil, nil)
	e.needs("Delete", err)
}

func (e *env) needStats(c backend.Cache) {
	_, err := backend.ReadStats(e.ctx, c)
	e.needs("Stats", err)
}

func (e *env) needCompact(c backend.Cache) { e.needs("Compact", backend.Compact(e.ctx, c)) }

func (e *env) needs(method string, err error) {
	if errors.Is(err, backend.ErrUnsupported) {
		e.Skipf("the cache has no %s", method)
	}
}

// canDelete says whether c is a Deleter.
func (e *env) canDelete(c backend.Cache) bool {
	_, err := backend.Delete(e.ctx, c, nil, nil)
	return !errors.Is(err, backend.ErrUnsupported)
}

// remove deletes what is under keys, which must work.
func (e *env) remove(c backend.Cache, keys []backend.Key) (removed int) {
	removed, err := backend.Delete(e.ctx, c, keys, nil)
	e.check(err == nil, "D1", fmt.Sprintf("Delete of %d keys", len(keys)), "nil", errText(err))
	return removed
}

// eachFault runs f once for each of these kinds of fault that the store offers.
func (e *env) eachFault(f func(e *env, kind FaultKind), kinds ...FaultKind) {
	offered := 0
	for _, kind := range kinds {
		skipped, messages := e.attempt(fmt.Sprintf("while the store is %v:", kind), e.seed, func(e *env) { f(e, kind) })
		if skipped {
			e.add(messages)
		} else {
			offered++
		}
	}
	if offered == 0 {
		e.SkipNow()
	}
}

// unseen checks that a handle no longer sees keys, after Info.Lag.
func (e *env) unseen(c getter, action string, keys []backend.Key) {
	poll(e.s.lag(), func() bool {
		for _, value := range e.read(c, keys) {
			if value != nil {
				return false
			}
		}
		return true
	})
	e.absent(c, "D3", action, keys)
}

// sighting is what a walk has seen of one key.
type sighting struct {
	value []byte // of the last visit
	size  int
}

// walk is a walk through a store, Scan by Scan.
type walk struct {
	e     *env
	c     backend.Cache
	head  int
	at    backend.Position
	over  bool
	parts int
	seen  map[backend.Key]sighting
	// each, if set, looks at every entry too.
	each func(entry backend.Entry)
}

func (e *env) walk(c backend.Cache, head int) *walk {
	return &walk{e: e, c: c, head: head, seen: make(map[backend.Key]sighting)}
}

func (w *walk) action() string {
	head := fmt.Sprint(w.head)
	if w.head == backend.WholeValue {
		head = "WholeValue"
	}
	return fmt.Sprintf("Scan with head %s, call %d of a walk", head, w.parts+1)
}

// part calls Scan once.
func (w *walk) part() {
	e, action := w.e, w.action()
	var inside atomic.Bool
	next, err := backend.Scan(e.ctx, w.c, w.at, w.head, func(entry backend.Entry) error {
		e.check(inside.CompareAndSwap(false, true), "N3", action, "one visit at a time", "visit called while another visit runs")
		defer inside.Store(false)
		size := max(entry.Size, 0)
		e.check(entry.Size >= -1, "N2", action, "a size, or -1", fmt.Sprintf("size %d", entry.Size))
		e.check(len(entry.Value) >= min(w.head, size) && len(entry.Value) <= size, "N2", action,
			fmt.Sprintf("the first %d bytes at least, and no more than there are", min(w.head, size)), fmt.Sprintf("%d bytes of a value of size %d", len(entry.Value), entry.Size))
		w.seen[entry.Key] = sighting{bytes.Clone(entry.Value), entry.Size}
		if w.each != nil {
			w.each(entry)
		}
		return nil
	})
	e.check(err == nil, "N1", action, "nil", errText(err))
	w.at, w.over = next, next == ""
	w.parts++
	e.check(w.over || w.parts <= 4*len(w.seen)+1000, "N1", action, `a walk that comes to an end, the position ""`,
		fmt.Sprintf("none after %d calls, which visited %d keys", w.parts, len(w.seen)))
}

// rest goes on to the end.
func (w *walk) rest() *walk {
	for !w.over {
		w.part()
	}
	return w
}

// has checks that the walk has seen items, each as it is stored.
func (w *walk) has(action string, items []backend.Item) {
	for i, item := range items {
		seen, ok := w.seen[item.Key]
		w.e.check(ok, "N1", action, "a visit of every entry that is stored", fmt.Sprintf("none of entry %d of %d, in %d calls that visited %d keys", i, len(items), w.parts, len(w.seen)))
		w.e.check(seen.size == len(item.Value), "N2", action, fmt.Sprintf("size %d", len(item.Value)), fmt.Sprintf("size %d for entry %d of %d", seen.size, i, len(items)))
		w.e.check(bytes.HasPrefix(item.Value, seen.value), "N2", action, "the first bytes of each value", fmt.Sprintf("%d other bytes for entry %d of %d", len(seen.value), i, len(items)))
	}
}

// hasOnly is has, and nothing else was seen.
func (w *walk) hasOnly(action string, items []backend.Item) {
	w.has(action, items)
	w.e.check(len(w.seen) <= len(items), "N2", action, fmt.Sprintf("no visit of what isn't stored: %d keys", len(items)), fmt.Sprintf("%d keys", len(w.seen)))
}

// scanEntries is how many entries a walk has to find: more than one part of most
// stores.
const scanEntries = 2500

// roleScanOn goes on with a walk that began in the parent.
func roleScanOn(c *child) {
	e := c.env()
	cache := c.open()
	c.say("ready")
	at, err := base64.StdEncoding.DecodeString(c.hear())
	if err != nil {
		c.say("the position: %v", err)
		return
	}
	w := e.walk(cache, 0)
	w.at = backend.Position(at)
	w.rest()
	found := new(big.Int)
	for i := range c.job.Number {
		if _, ok := w.seen[e.key("a", i)]; ok {
			found.SetBit(found, i, 1)
		}
	}
	c.say("saw %x", found)
	if err := cache.Close(); err != nil {
		c.say("Close: %v", err)
	}
}

// roleDeletes deletes what the parent has written, and says how much that was.
func roleDeletes(c *child) {
	e := c.env()
	cache := c.open()
	removed, err := backend.Delete(e.ctx, cache, e.keys("parent", c.job.Number), nil)
	if err != nil {
		c.say("Delete: %v", err)
		return
	}
	c.say("removed %d", removed)
	c.hear()
	if err := cache.Close(); err != nil {
		c.say("Close: %v", err)
	}
}
