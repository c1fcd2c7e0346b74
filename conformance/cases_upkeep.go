package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/embedonce/embedonce/backend"
)

var statsCases = []testcase{
	{name: "stats/counts", rules: "A1", fn: statsCounts},
	{name: "stats/foreign", rules: "A1 G5", needs: []need{needPlant}, fn: statsForeign},
	{name: "stats/while-written", rules: "A1", fn: statsWhileWritten},
	{name: "stats/other-handle", rules: "A1", needs: []need{needHost}, fn: statsOtherHandle},
	{name: "stats/reopen", rules: "A1", needs: []need{needDurable}, fn: statsReopen},
	{name: "stats/ended-context", rules: "X1", fn: statsEndedContext},
	{name: "stats/ends-at-each-look", rules: "X2", fn: statsEndsAtEachLook},
	{name: "stats/closed", rules: "C3", fn: statsClosed},
}

var compactCases = []testcase{
	{name: "compact/changes-nothing", rules: "P1", fn: compactChangesNothing},
	{name: "compact/while-used", rules: "P1 S3", fn: compactWhileUsed},
	{name: "compact/reopen", rules: "P1", needs: []need{needDurable}, fn: compactReopen},
	{name: "compact/other-handle", rules: "P1 S3", needs: []need{needHost}, fn: compactOtherHandle},
	{name: "compact/ended-context", rules: "X1", fn: compactEndedContext},
	{name: "compact/ends-at-each-look", rules: "X2 P1", fn: compactEndsAtEachLook},
	{name: "compact/closed", rules: "C3", fn: compactClosed},
	{name: "compact/under-faults", rules: "P1 X2 X3", needs: []need{needFault}, fn: compactUnderFaults},
}

// counted checks what Stats says of a store with so many entries, after Info.Lag.
func (e *env) counted(c backend.Cache, action string, want int) {
	var stats backend.Stats
	poll(e.s.lag(), func() bool {
		stats = e.stats(c, action)
		return stats.Entries == int64(want)
	})
	e.check(stats.Entries == int64(want) || stats.Entries == -1, "A1", "Stats after "+action, fmt.Sprintf("%d entries, or -1 where that can't be told", want), fmt.Sprint(stats.Entries))
}

// stats calls Stats, and checks what holds for every answer.
func (e *env) stats(c backend.Cache, action string) backend.Stats {
	stats, err := backend.ReadStats(e.ctx, c)
	action = "Stats after " + action
	e.check(err == nil, "A1", action, "nil", errText(err))
	e.check(stats.Entries >= -1, "A1", action, "a number of entries, or -1", fmt.Sprint(stats.Entries))
	e.check(stats.Bytes >= -1 && stats.FreeBytes >= -1 && (stats.Bytes == -1 || stats.FreeBytes <= stats.Bytes), "A1", action,
		"Bytes, FreeBytes as a part of them, or -1 for what can't be told", fmt.Sprintf("Bytes %d, FreeBytes %d", stats.Bytes, stats.FreeBytes))
	return stats
}

func (e *env) countable() (location string, c backend.Cache) {
	location = e.location()
	c = e.open(location)
	e.needStats(c)
	return location, c
}

func statsCounts(e *env) {
	_, c := e.countable()
	e.counted(c, "opening a fresh store", 0)
	items := e.batch(e.keys("a", 300), 1)
	for at := 0; at < len(items); at += 100 {
		e.set(c, items[at:at+100])
		e.counted(c, fmt.Sprintf("writing %d entries", at+100), at+100)
	}
	e.set(c, e.batch(e.keys("a", 200), 2))
	e.counted(c, "overwriting 200 of 300 entries", 300)
	n := e.atMost(50)
	err := setInTxn(c, e.ctx, e.batch(e.keys("txn", n), 1))
	e.check(err == nil, "T3", "Txn", "nil", errText(err))
	e.counted(c, "a transaction", 300+n)
	e.read(c, e.keys("never", 50))
	e.counted(c, "reading keys that are missing", 300+n)
	if !e.canDelete(c) {
		return
	}
	e.remove(c, keysOf(items[:120]))
	e.counted(c, "deleting 120 entries", 180+n)
	e.set(c, items[:20])
	e.counted(c, "writing 20 of them again", 200+n)
	e.remove(c, append(keysOf(items), e.keys("txn", n)...))
	e.counted(c, "deleting everything", 0)
}

func statsForeign(e *env) {
	location, c := e.countable()
	e.set(c, e.batch(e.keys("a", 20), 1))
	want := 20
	for i, what := range []Foreign{WrongType, Empty} {
		skipped, _ := e.attempt("planting:", e.seed, func(e *env) {
			e.plant(location, e.key("fresh", i), what)
			e.plant(location, e.key("a", i), what)
		})
		if !skipped {
			want++
		}
	}
	if want == 20 {
		e.Skipf("Suite.Plant plants nothing")
	}
	e.counted(c, "planting foreign entries, which GetMany visits", want)
}

// statsWhileWritten: the number is one of the time of the call.
func statsWhileWritten(e *env) {
	_, c := e.countable()
	const batches = 40
	n := e.atMost(10)
	var begun, acknowledged atomic.Int64
	e.beside(func() {
		for b := range batches {
			begun.Add(int64(n))
			e.set(c, e.batch(e.keys(fmt.Sprint("batch", b), n), 1))
			acknowledged.Add(int64(n))
		}
	}, func() {
		least := acknowledged.Load()
		poll(e.s.lag(), func() bool {
			stats := e.stats(c, "writes")
			return stats.Entries >= least
		})
		stats := e.stats(c, "writes")
		most := begun.Load()
		e.check(stats.Entries == -1 || stats.Entries >= least && stats.Entries <= most, "A1", "Stats while a writer writes",
			fmt.Sprintf("%d to %d entries", least, most), fmt.Sprint(stats.Entries))
	})
	e.counted(c, "writes", batches*n)
}

func statsOtherHandle(e *env) {
	location, c := e.countable()
	other := e.open(location)
	e.set(c, e.batch(e.keys("a", 50), 1))
	e.counted(other, "writing 50 entries through another handle", 50)
	e.set(other, e.batch(e.keys("b", 30), 1))
	e.counted(c, "writing 30 more through another handle", 80)
	if e.canDelete(c) {
		e.remove(c, e.keys("a", 50))
		e.counted(other, "deleting 50 entries through another handle", 30)
	}
}

func statsReopen(e *env) {
	location, c := e.countable()
	e.set(c, e.batch(e.keys("a", 50), 1))
	e.set(c, e.batch(e.keys("a", 20), 2))
	want := 50
	if e.canDelete(c) {
		want -= e.remove(c, e.keys("a", 30))
	}
	e.close(c)
	e.counted(e.open(location), "closing the store and opening it again", want)
}

func statsEndedContext(e *env) {
	_, c := e.countable()
	for how, ctx := range e.ended() {
		_, err := backend.ReadStats(ctx, c)
		e.check(errors.Is(err, ctx.Err()), "X1", "Stats with a context that is "+how, "an error that wraps ctx.Err()", errText(err))
	}
}

func statsEndsAtEachLook(e *env) {
	_, c := e.countable()
	e.set(c, e.batch(e.keys("a", 50), 1))
	e.eachLook("Stats", func(ctx context.Context, _ int, action string) error {
		stats, err := backend.ReadStats(ctx, c)
		e.check(err != nil || stats.Entries == 50 || stats.Entries == -1, "A1", action+", which returned nil", "50 entries", fmt.Sprint(stats.Entries))
		return err
	})
	e.usable(c, "X3", "calls of Stats that were cancelled")
}

func statsClosed(e *env) {
	_, c := e.countable()
	e.close(c)
	_, err := backend.ReadStats(e.ctx, c)
	e.check(errors.Is(err, backend.ErrClosed), "C3", "Stats after Close", "ErrClosed", errText(err))
}

// compactable makes a store in which there is something to give back: entries that
// were overwritten with shorter ones or, where it can, deleted.
func (e *env) compactable() (location string, c backend.Cache, items []backend.Item, gone []backend.Key) {
	location = e.location()
	c = e.open(location)
	e.needCompact(c)
	items = e.batch(e.keys("a", 120), 2)
	long := make([]backend.Item, len(items))
	for i, item := range items {
		long[i] = backend.Item{Key: item.Key, Value: payload(item.Key, 1, e.sized(4000))}
	}
	e.set(c, long)
	e.set(c, items)
	if e.canDelete(c) {
		gone = keysOf(items[:60])
		e.remove(c, gone)
		items = items[60:]
	}
	return location, c, items, gone
}

// compacted checks that a store holds what compactable has put in.
func (e *env) compacted(c backend.Cache, action string, items []backend.Item, gone []backend.Key) {
	e.stored(c, "P1", action, items)
	e.absent(c, "P1", action, gone)
	if _, err := backend.Scan(e.ctx, c, "", 0, func(backend.Entry) error { return nil }); errors.Is(err, backend.ErrUnsupported) {
		return
	}
	w := e.walk(c, 64).rest()
	w.has(action, items)
	for _, k := range gone {
		_, back := w.seen[k]
		e.check(!back, "P1", action, "no visit of what was deleted", "a visit")
	}
}

func (e *env) compact(c backend.Cache) {
	err := backend.Compact(e.ctx, c)
	e.check(err == nil, "P1", "Compact", "nil", errText(err))
}

func compactChangesNothing(e *env) {
	_, c, items, gone := e.compactable()
	for _, action := range []string{"Compact", "Compact, once more"} {
		e.compact(c)
		e.compacted(c, action, items, gone)
	}
	again := e.batch(slices.Concat(gone, keysOf(items)), 3)
	e.set(c, again)
	e.stored(c, "S3", "SetMany after Compact", again)
	e.compact(c)
	e.stored(c, "P1", "SetMany, Compact", again)
}

// compactWhileUsed reads and writes while Compact runs.
func compactWhileUsed(e *env) {
	_, c, items, gone := e.compactable()
	e.whileCompacted(c, c, items, gone)
}

func compactOtherHandle(e *env) {
	location, c, items, gone := e.compactable()
	other := e.open(location)
	e.seen(other, "S3", "SetMany, read through another handle", items)
	e.unseen(other, "Delete, read through another handle", gone)
	all := e.whileCompacted(c, other, items, gone)
	late := e.open(location)
	e.seen(late, "P1", "Compact, read through a handle that was opened afterwards", all)
	e.compacted(late, "Compact, read through a handle that was opened afterwards", all, gone)
}

// whileCompacted lets one handle compact while the other one is used. It returns
// what is stored then.
func (e *env) whileCompacted(c, user backend.Cache, items []backend.Item, gone []backend.Key) (all []backend.Item) {
	var written []backend.Item
	round := 0
	e.beside(func() {
		for range 3 {
			// It may not get a lock beside a handle that goes on writing.
			err := backend.Compact(e.ctx, c)
			e.check(err == nil || errors.Is(err, backend.ErrUnavailable), "P1", "Compact beside reads and writes", "nil or ErrUnavailable", errText(err))
		}
	}, func() {
		e.stored(user, "P1", "GetMany while Compact runs", items)
		e.absent(user, "P1", "GetMany while Compact runs", gone)
		if round++; round > 60 {
			return
		}
		batch := e.batch(e.keys(fmt.Sprint("round", round), e.atMost(10)), 1)
		if err := user.SetMany(e.ctx, batch); err != nil {
			// A lock that Compact holds may time out, though not in silence.
			e.check(errors.Is(err, backend.ErrUnavailable), "S3", "SetMany while Compact runs", "nil or ErrUnavailable", errText(err))
			return
		}
		e.stored(user, "S3", "SetMany while Compact runs", batch)
		written = append(written, batch...)
	})
	all = slices.Concat(written, items)
	for _, handle := range []backend.Cache{c, user} {
		e.seen(handle, "P1", "SetMany while Compact ran", written)
		e.compacted(handle, "Compact beside reads and writes", all, gone)
	}
	return all
}

func compactReopen(e *env) {
	location, c, items, gone := e.compactable()
	for range 2 {
		e.compact(c)
		e.close(c)
		c = e.open(location)
		e.compacted(c, "Compact, Close, Open", items, gone)
	}
	e.usable(c, "P1", "Compact and opening again")
}

func compactEndedContext(e *env) {
	_, c, items, gone := e.compactable()
	for how, ctx := range e.ended() {
		err := backend.Compact(ctx, c)
		e.check(errors.Is(err, ctx.Err()), "X1", "Compact with a context that is "+how, "an error that wraps ctx.Err()", errText(err))
	}
	e.compacted(c, "Compact with a context that has ended", items, gone)
}

func compactEndsAtEachLook(e *env) {
	_, c, items, gone := e.compactable()
	e.eachLook("Compact", func(ctx context.Context, _ int, action string) error {
		err := backend.Compact(ctx, c)
		e.compacted(c, action, items, gone)
		return err
	})
	e.compact(c)
	e.compacted(c, "Compact after calls that were cancelled", items, gone)
	e.usable(c, "X3", "calls of Compact that were cancelled")
}

func compactClosed(e *env) {
	_, c, _, _ := e.compactable()
	e.close(c)
	err := backend.Compact(e.ctx, c)
	e.check(errors.Is(err, backend.ErrClosed), "C3", "Compact after Close", "ErrClosed", errText(err))
}

func compactUnderFaults(e *env) {
	e.eachFault(func(e *env, kind FaultKind) {
		location, c, items, gone := e.compactable()
		undo := e.fault(location, Fault{Kind: kind})
		e.withDeadline(fmt.Sprintf("Compact with a deadline of 50 ms while the store is %v", kind), func(ctx context.Context) error {
			return backend.Compact(ctx, c)
		})
		action := fmt.Sprintf("Compact while the store is %v", kind)
		if kind == Locked {
			undo() // a lock's time-out was waited for in enough other cases
		}
		e.within(e.runner.patience, "X3", action, func() { _ = backend.Compact(e.ctx, c) }) // it may fail, and change nothing
		undo()
		e.settle(c)
		e.compacted(c, action, items, gone)
		e.usable(c, "X3", action)
	}, Full, Cut, Locked)
}
