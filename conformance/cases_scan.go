package conformance

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var scanCases = []testcase{
	{name: "scan/empty", rules: "N1", fn: scanEmpty},
	{name: "scan/one", rules: "N1 N2", fn: scanOne},
	{name: "scan/complete", rules: "N1 N2", fn: scanComplete},
	{name: "scan/sizes", rules: "N2", fn: scanSizes},
	{name: "scan/callers-goroutine", rules: "N3", fn: scanCallersGoroutine},
	{name: "scan/visit-error", rules: "N3 N4", fn: scanVisitError},
	{name: "scan/used-between", rules: "N1 N4", fn: scanUsedBetween},
	{name: "scan/place-deleted", rules: "N1", fn: scanPlaceDeleted},
	{name: "scan/after-close", rules: "N1", needs: []need{needDurable}, fn: scanAfterClose},
	{name: "scan/other-handle", rules: "N1 N2", needs: []need{needHost}, fn: scanOtherHandle},
	{name: "scan/other-process", rules: "N1", needs: []need{needHost}, fn: scanOtherProcess},
	{name: "scan/foreign", rules: "N2 G5", needs: []need{needPlant}, fn: scanForeign},
	{name: "scan/borrowed-while-written", rules: "N2 S3", fn: scanBorrowedWhileWritten},
	{name: "scan/while-written", rules: "N1 N2", fn: scanWhileWritten},
	{name: "scan/while-deleted", rules: "N1 D3", fn: scanWhileDeleted},
	{name: "scan/ended-context", rules: "X1 N4", fn: scanEndedContext},
	{name: "scan/ends-at-each-look", rules: "X2 N4", fn: scanEndsAtEachLook},
	{name: "scan/closed", rules: "C3 N4", fn: scanClosed},
	{name: "scan/close-waits", rules: "C2", fn: scanCloseWaits},
	{name: "scan/under-faults", rules: "N1 X1 X2 X3", needs: []need{needFault}, fn: scanUnderFaults},
}

// scannable makes a store with n entries under the keys "a".
func (e *env) scannable(n int) (location string, c backend.Cache, items []backend.Item) {
	location = e.location()
	c = e.open(location)
	e.needScan(c)
	items = e.batch(e.keys("a", n), 1)
	e.set(c, items)
	return location, c, items
}

func scanEmpty(e *env) {
	_, c, _ := e.scannable(0)
	w := e.walk(c, 64).rest()
	w.hasOnly("a walk through a fresh store", nil)
	e.usable(c, "N4", "a walk through a fresh store")
}

func scanOne(e *env) {
	_, c, items := e.scannable(1)
	for _, head := range []int{0, 1, 64, backend.WholeValue} {
		e.walk(c, head).rest().hasOnly("a walk through a store with one entry", items)
	}
}

func scanComplete(e *env) {
	_, c, items := e.scannable(scanEntries)
	action := fmt.Sprintf("a walk through a store with %d entries", len(items))
	for _, head := range []int{0, 64, backend.WholeValue} {
		e.walk(c, head).rest().hasOnly(action, items)
	}
	again := e.batch(keysOf(items[:500]), 2)
	e.set(c, again)
	e.walk(c, backend.WholeValue).rest().hasOnly(action+", 500 of which were overwritten", append(again, items[500:]...))
}

func scanSizes(e *env) {
	_, c, _ := e.scannable(0)
	var items []backend.Item
	for i, size := range []int{1, 2, 63, 64, 65, 1000, 4096, 70_000, 300_000} {
		if limit := e.s.Want.MaxValueBytes; limit > 0 && size > limit {
			continue
		}
		k := e.key("size", i)
		items = append(items, backend.Item{Key: k, Value: payload(k, 1, size)})
	}
	e.set(c, items)
	for _, head := range []int{-1, 0, 1, 64, 4096, 100_000, backend.WholeValue} {
		e.walk(c, head).rest().hasOnly(fmt.Sprintf("a walk with head %d through values of several sizes", head), items)
	}
}

func scanCallersGoroutine(e *env) {
	_, c, items := e.scannable(600)
	own := goroutineID()
	w := e.walk(c, 64)
	w.each = func(backend.Entry) {
		e.check(goroutineID() == own, "N3", "Scan", "visit on the caller's goroutine", "visit on another one")
	}
	w.rest().has("a walk", items)
}

// scanVisitError stops Scan at the beginning of a walk and on its way, and goes on
// from where it was.
func scanVisitError(e *env) {
	_, c, items := e.scannable(scanEntries)
	w := e.walk(c, 64)
	for !w.over && w.parts < 10 {
		for _, stop := range []int{1, 2, 100} {
			for _, cause := range []error{&visitError{stop}, backend.ErrForeign, context.Canceled} {
				visits := 0
				next, err := backend.Scan(e.ctx, c, w.at, 64, func(backend.Entry) error {
					if visits++; visits >= stop {
						return fmt.Errorf("visit: %w", cause)
					}
					return nil
				})
				if err == nil && visits < stop {
					continue // this part has no more
				}
				action := fmt.Sprintf("Scan where visit %d returns %q", stop, cause)
				e.check(errors.Is(err, cause), "N3", action, "an error that wraps visit's", errText(err))
				e.check(visits == stop, "N3", action, "no further visit", fmt.Sprintf("%d visits", visits))
				e.check(next == w.at, "N4", action, "the position that the call began at", "another one")
			}
		}
		w.part()
	}
	w.rest().hasOnly("a walk with calls that visit stopped", items)
	e.usable(c, "N4", "calls of Scan that visit stopped")
}

// scanUsedBetween uses the cache between any two parts of a walk.
func scanUsedBetween(e *env) {
	_, c, items := e.scannable(scanEntries)
	action := "a walk between whose parts the cache is used"
	w := e.walk(c, 64)
	for !w.over {
		w.part()
		if w.parts > 50 {
			continue
		}
		e.within(e.runner.patience, "N4", "SetMany, GetMany and Txn between two calls of Scan", func() {
			more := e.batch(e.keys(fmt.Sprint("between", w.parts), 2), 1)
			err := c.SetMany(e.ctx, more[:1])
			e.check(err == nil, "N4", "SetMany between two calls of Scan", "nil", errText(err))
			err = setInTxn(c, e.ctx, more[1:])
			e.check(err == nil, "N4", "Txn between two calls of Scan", "nil", errText(err))
			e.stored(c, "N4", "SetMany and Txn between two calls of Scan", more)
		})
	}
	w.has(action, items)
}

// scanPlaceDeleted deletes what a walk has just seen: its place must still be
// good.
func scanPlaceDeleted(e *env) {
	_, c, items := e.scannable(scanEntries)
	e.needDelete(c)
	w := e.walk(c, 0)
	gone := make(map[backend.Key]bool)
	for !w.over {
		var last []backend.Key
		w.each = func(entry backend.Entry) { last = append(last, entry.Key) }
		w.part()
		e.remove(c, last)
		for _, k := range last {
			gone[k] = true
		}
	}
	w.has("a walk where each call's entries are deleted before the next call", items)
	e.absent(c, "D3", "Delete of what a walk has seen", keysOf(items))
	e.check(len(gone) >= len(items), "N1", "a walk", "every entry", fmt.Sprintf("%d of %d", len(gone), len(items)))
}

func scanAfterClose(e *env) {
	location, c, items := e.scannable(scanEntries)
	w := e.walk(c, 64)
	for parts := 0; !w.over && parts < 20; parts++ {
		w.part()
		e.close(w.c)
		w.c = e.open(location)
	}
	w.rest().hasOnly(fmt.Sprintf("a walk of %d calls that went on after Close and Open", w.parts), items)
}

func scanOtherHandle(e *env) {
	location, c, _ := e.scannable(0)
	other := e.open(location)
	items := e.batch(e.keys("a", scanEntries), 1)
	e.set(c, items)
	poll(e.s.lag(), func() bool { return len(e.walk(other, 0).rest().seen) == len(items) })
	e.walk(other, 64).rest().hasOnly("SetMany, then a walk through another handle", items)
	w := e.walk(c, backend.WholeValue)
	for !w.over { // two handles, in turn
		w.part()
		if w.c = c; w.parts%2 == 1 {
			w.c = other
		}
	}
	w.hasOnly("a walk through two handles in turn", items)
}

func scanOtherProcess(e *env) {
	location, c, items := e.scannable(scanEntries)
	p := e.spawn("scan-on", location, len(items))
	p.expect("ready")
	w := e.walk(c, 0)
	w.part()
	if w.over {
		e.Log("one call of Scan visits everything: the other process does it all again")
		clear(w.seen)
	}
	p.tell(base64.StdEncoding.EncodeToString([]byte(w.at)))
	line, ok := p.next()
	if !ok {
		<-p.ended
		p.broken("that it says what it saw")
	}
	found := new(big.Int)
	if _, err := fmt.Sscanf(line, "saw %x", found); err != nil {
		e.Fatalf("the other process: %s", line)
	}
	for i, item := range items {
		_, here := w.seen[item.Key]
		e.check(here || found.Bit(i) == 1, "N1", "a walk that began here and went on in another process", "a visit of every entry", fmt.Sprintf("none of entry %d of %d", i, len(items)))
	}
	p.expectEnd()
}

// scanForeign: what can't be read as bytes is visited with size -1.
func scanForeign(e *env) {
	location, c, items := e.scannable(300)
	planted := make(map[backend.Key]Foreign)
	for i, what := range []Foreign{WrongType, Empty} {
		keys := []backend.Key{items[10+i].Key, items[200+i].Key, e.key("fresh", i)}
		skipped, _ := e.attempt("planting:", e.seed, func(e *env) {
			for _, k := range keys {
				e.plant(location, k, what)
			}
		})
		for _, k := range keys {
			if !skipped {
				planted[k] = what
			}
		}
	}
	if len(planted) == 0 {
		e.Skipf("Suite.Plant plants nothing")
	}
	for _, head := range []int{0, 64, backend.WholeValue} {
		w := e.walk(c, head).rest()
		action := "a walk through a store with foreign entries"
		for k, what := range planted {
			seen, ok := w.seen[k]
			e.check(ok, "N1", action, fmt.Sprintf("a visit of an entry that is %v", what), "none")
			want := -1
			if what == Empty {
				want = 0
			}
			e.check(seen.size == want, "N2", action, fmt.Sprintf("size %d for an entry that is %v", want, what), fmt.Sprintf("size %d", seen.size))
		}
		for _, item := range items {
			if _, bad := planted[item.Key]; !bad {
				w.has(action, []backend.Item{item})
			}
		}
	}
}

// scanBorrowedWhileWritten: the value of an entry stays as it is while visit has
// it, whatever is written meanwhile.
func scanBorrowedWhileWritten(e *env) {
	_, c, _ := e.scannable(0)
	k := e.key("borrowed", 0)
	old := backend.Item{Key: k, Value: payload(k, 1, e.sized(5000))}
	fresh := backend.Item{Key: k, Value: payload(k, 2, len(old.Value))}
	e.set(c, []backend.Item{old})
	action := "Scan during whose visit the entry is overwritten"
	var done <-chan struct{}
	var writeErr error
	w := e.walk(c, backend.WholeValue)
	w.each = func(entry backend.Entry) {
		if entry.Key != k || done != nil {
			return
		}
		done = e.background(func() { writeErr = c.SetMany(e.ctx, []backend.Item{fresh}) })
		select {
		case <-done:
		case <-time.After(4 * grace):
		}
		e.check(string(entry.Value) == string(old.Value), "N2", action, "the value as it was when visit began", "other bytes, before visit has returned")
	}
	w.rest()
	e.check(done != nil, "N1", action, "a visit of the entry", "none")
	e.within(e.runner.patience, "X3", "SetMany beside a Scan", func() { <-done })
	e.check(writeErr == nil, "S3", "SetMany beside a Scan", "nil", errText(writeErr))
	e.stored(c, "S3", "SetMany beside a Scan", []backend.Item{fresh})
}

func scanEndedContext(e *env) {
	_, c, _ := e.scannable(scanEntries)
	onTheWay := e.onTheWay(c)
	for how, ctx := range e.ended() {
		for _, from := range []backend.Position{"", onTheWay} {
			visits := 0
			next, err := backend.Scan(ctx, c, from, 64, func(backend.Entry) error { visits++; return nil })
			action := "Scan with a context that is " + how
			e.check(errors.Is(err, ctx.Err()), "X1", action, "an error that wraps ctx.Err()", errText(err))
			e.check(visits == 0, "X1", action, "no visit", fmt.Sprintf("%d visits", visits))
			e.check(next == from, "N4", action, "the position that the call began at", "another one")
		}
	}
}

// mostAfterEnd is how many entries a call may still look at once its context has
// ended: "soon", for work that takes a microsecond each.
const mostAfterEnd = 1024

func scanEndsAtEachLook(e *env) {
	_, c, items := e.scannable(scanEntries)
	w := e.walk(c, 64)
	w.part()
	// A Scan that ended early is no end of the walk.
	whole := func(action string, from, next backend.Position, visits int, err error) {
		if err == nil && from == "" && next == "" {
			e.check(visits >= len(items), "N1", action+", which returned nil and the end of the walk", fmt.Sprintf("%d entries visited", len(items)), fmt.Sprint(visits))
		}
	}
	// On the way, if the walk isn't over with one part.
	for _, from := range []backend.Position{"", w.at} {
		e.eachLook("Scan", func(ctx context.Context, _ int, action string) error {
			visits := 0
			next, err := backend.Scan(ctx, c, from, 64, func(backend.Entry) error { visits++; return nil })
			whole(action, from, next, visits, err)
			e.check(err == nil || next == from, "N4", action+", with "+errText(err), "the position that the call began at", "another one")
			return err
		})
	}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	visits := 0
	next, err := backend.Scan(ctx, c, "", 64, func(backend.Entry) error { cancel(); visits++; return nil })
	action := "Scan whose context is cancelled in the first visit"
	e.check(visits <= mostAfterEnd, "X2", action, fmt.Sprintf("an end within %d visits", mostAfterEnd), fmt.Sprintf("%d visits", visits))
	e.check(err == nil || errors.Is(err, context.Canceled) && next == "", "X2", action, "nil, or an error that wraps ctx.Err() and the position that the call began at", errText(err))
	whole(action, "", next, visits, err)
	w.rest().hasOnly("a walk beside calls that were cancelled", items)
	e.usable(c, "X3", "calls of Scan that were cancelled")
}

func scanClosed(e *env) {
	_, c, _ := e.scannable(scanEntries)
	onTheWay := e.onTheWay(c)
	e.close(c)
	for _, from := range []backend.Position{"", onTheWay} {
		visits := 0
		next, err := backend.Scan(e.ctx, c, from, 64, func(backend.Entry) error { visits++; return nil })
		e.check(errors.Is(err, backend.ErrClosed) && visits == 0, "C3", "Scan after Close", "ErrClosed, no visit", fmt.Sprintf("%s, %d visits", errText(err), visits))
		e.check(next == from, "N4", "Scan after Close", "the position that the call began at", "another one")
	}
}

func scanCloseWaits(e *env) {
	_, c, items := e.scannable(100)
	seen := 0
	err := e.closeWhile(c, "Close while visit of a Scan runs", true, func(inside func()) error {
		_, err := backend.Scan(e.ctx, c, "", 64, func(backend.Entry) error {
			seen++
			inside()
			return nil
		})
		return err
	})
	e.check(err == nil, "C2", "Scan during which Close is called", "nil", fmt.Sprintf("%s after %d of %d visits", errText(err), seen, len(items)))
}

func scanUnderFaults(e *env) {
	e.eachFault(func(e *env, kind FaultKind) {
		location, c, items := e.scannable(100)
		undo := e.fault(location, Fault{Kind: kind})
		_, ended := backend.Scan(e.ended()["cancelled"], c, "", 64, func(backend.Entry) error { return nil })
		e.check(errors.Is(ended, context.Canceled), "X1", fmt.Sprintf("Scan with a context that has ended while the store is %v", kind), "an error that wraps ctx.Err()", errText(ended))
		e.withDeadline(fmt.Sprintf("Scan with a deadline of 50 ms while the store is %v", kind), func(ctx context.Context) error {
			_, err := backend.Scan(ctx, c, "", 64, func(backend.Entry) error { return nil })
			return err
		})
		action := fmt.Sprintf("Scan while the store is %v", kind)
		w := e.walk(c, 64)
		var err error
		e.within(e.runner.patience, "X3", action, func() {
			for !w.over && err == nil {
				var next backend.Position
				next, err = backend.Scan(e.ctx, c, w.at, 64, func(entry backend.Entry) error {
					w.seen[entry.Key] = sighting{append([]byte{}, entry.Value...), entry.Size}
					return nil
				})
				e.check(err == nil || next == w.at, "N4", action+", with "+errText(err), "the position that the call began at", "another one")
				w.at, w.over = next, next == ""
			}
		})
		if err == nil {
			w.has(action+", which returned nil", items)
		}
		undo()
		e.settle(c)
		w.at, w.over = "", false
		w.rest().has("a walk after a time when the store was "+kind.String(), items)
	}, Slow, Cut, Locked)
}
