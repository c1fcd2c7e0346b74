package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// cancelled makes a call that may have to wait, and cancels it after a while: then it
// must end.
func (e *env) cancelled(action string, call func(ctx context.Context) error) (err error) {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	timer := time.AfterFunc(grace, cancel)
	defer timer.Stop()
	e.within(e.runner.patience, "X2", action, func() { err = call(ctx) })
	return err
}

// ctxSetBesideVisit: a visit takes its time. A write may have to wait for it, but
// not beyond the end of its context.
func ctxSetBesideVisit(e *env) {
	c := e.cache()
	items, other := e.batch(e.keys("a", 3), 1), e.batch(e.keys("b", 3), 1)
	e.set(c, items)
	action := "SetMany that is cancelled while another goroutine's visit runs"
	visits, written := 0, error(nil)
	err := c.GetMany(e.ctx, keysOf(items), func(int, []byte) error {
		if visits++; visits == 1 {
			written = e.cancelled(action, func(ctx context.Context) error { return c.SetMany(ctx, other) })
		}
		return nil
	})
	e.check(err == nil, "G2", "GetMany beside a SetMany", "nil", errText(err))
	e.check(written == nil || errors.Is(written, context.Canceled), "X2", action, "nil, or an error that wraps ctx.Err()", errText(written))
	e.allOrNone(c, action, other, nil, written)
}

// ctxBesideClose: while Close waits for a visit, other calls may be turned away or
// served, but not held up beyond the end of their context. A read-write lock that each
// call holds for reading, and Close for writing, does that.
func ctxBesideClose(e *env) {
	c := e.cache()
	items, other := e.batch(e.keys("a", 3), 1), e.batch(e.keys("b", 3), 1)
	e.set(c, items)
	calls := []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{"GetMany", func(ctx context.Context) error {
			return c.GetMany(ctx, keysOf(other), func(int, []byte) error { return nil })
		}},
		{"SetMany", func(ctx context.Context) error { return c.SetMany(ctx, other) }},
		{"Txn", func(ctx context.Context) error { return setInTxn(c, ctx, other) }},
	}
	var closed <-chan struct{}
	visits := 0
	err := c.GetMany(e.ctx, keysOf(items), func(int, []byte) error {
		if visits++; visits > 1 {
			return nil
		}
		closed = e.background(func() { e.close(c) })
		<-time.After(grace) // Close waits by then
		for _, call := range calls {
			action := call.name + " that is cancelled while Close waits for another goroutine's visit"
			err := e.cancelled(action, call.do)
			e.check(err == nil || errors.Is(err, context.Canceled) || errors.Is(err, backend.ErrClosed), "X2", action,
				"nil, ErrClosed, or an error that wraps ctx.Err()", errText(err))
		}
		return nil
	})
	if closed != nil { // nothing was visited, which other cases find
		<-closed
	}
	e.check(err == nil, "C2", "GetMany during which Close is called", "nil", errText(err))
}

// ctxGetBesideVisits: with as many visits under way as the store says it reads at once,
// one more GetMany may have to wait. If its context ends meanwhile, what is stored must
// not look as if it were missing.
func ctxGetBesideVisits(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 3), 1)
	e.set(c, items)
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	var visits []<-chan struct{}
	inside := make(chan struct{}, 16)
	for range min(max(1, c.Info().Readers), cap(inside)) {
		visits = append(visits, e.background(func() {
			seen := 0
			err := c.GetMany(e.ctx, keysOf(items), func(int, []byte) error {
				if seen++; seen == 1 {
					inside <- struct{}{}
					<-release
				}
				return nil
			})
			e.check(err == nil && seen == len(items), "G1", "GetMany whose visit takes its time", "nil and every key", fmt.Sprintf("%s and %d of %d keys", errText(err), seen, len(items)))
		}))
	}
	for range visits {
		select {
		case <-inside:
		case <-time.After(grace): // Info.Readers is advice
		}
	}
	action := "GetMany that is cancelled beside as many visits as Info().Readers"
	found := 0
	err := e.cancelled(action, func(ctx context.Context) error {
		return c.GetMany(ctx, keysOf(items), func(int, []byte) error { found++; return nil })
	})
	e.check(err == nil && found == len(items) || errors.Is(err, context.Canceled), "G1", action,
		"every key and nil, or an error that wraps ctx.Err()", fmt.Sprintf("%d of %d keys and %s", found, len(items), errText(err)))
	free()
	for _, done := range visits {
		<-done
	}
	e.usable(c, "X2", action)
}

// ctxBehindLocked: one write waits for a lock that somebody else has, and another one of
// the same handle behind it, until its context ends.
func ctxBehindLocked(e *env) {
	location := e.location()
	c := e.open(location)
	first, second := e.batch(e.keys("a", e.atMost(20)), 1), e.batch(e.keys("b", e.atMost(20)), 1)
	undo := e.fault(location, Fault{Kind: Locked})
	var firstErr error
	waits := e.background(func() { firstErr = c.SetMany(e.ctx, first) })
	<-time.After(grace) // it waits by then
	action := "SetMany with a deadline of 50 ms behind one that waits for a lock"
	err := e.withDeadline(action, func(ctx context.Context) error { return c.SetMany(ctx, second) })
	e.within(e.runner.patience, "X3", "SetMany while the store is locked", func() { <-waits })
	undo()
	e.settle(c)
	e.allOrNone(c, action, second, nil, err)
	e.allOrNone(c, "SetMany while the store is locked", first, nil, firstErr)
	e.usable(c, "X3", action)
}

// ctxLeft: a write may go on for a while when its caller has gone, but not into
// what the same handle writes afterwards. deleteLeft is the same for removals.
func ctxLeft(e *env) {
	c := e.cache()
	var all []backend.Item
	for _, how := range []string{"SetMany", "Txn"} {
		write := c.SetMany
		if how == "Txn" {
			write = func(ctx context.Context, items []backend.Item) error { return setInTxn(c, ctx, items) }
		}
		e.eachLook(how+", then a SetMany of other values,", func(ctx context.Context, n int, _ string) error {
			keys := e.keys(fmt.Sprint(how, n), e.atMost(20))
			err := write(ctx, e.batch(keys, 1))
			items := e.batch(keys, 2)
			e.set(c, items)
			all = append(all, items...)
			return err
		})
	}
	<-time.After(grace)
	e.stored(c, "S4", "SetMany after writes of the same keys whose callers had left", all)
}

// ctxGetBehindWrite: a visit takes its time, and beside it a write that is so large
// that a store may have to make room, for which it may have to wait for the visit. One
// more reader may have to wait behind the write, but not beyond the end of its context;
// and if it doesn't wait, it finds what is stored.
func ctxGetBehindWrite(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 2000), 1)
	e.set(c, items)
	size := e.sized(1<<20 - 4096)
	if limit := e.s.Want.MaxBatchBytes; limit > 0 {
		size = min(size, limit/4)
	}
	var large []backend.Item
	for _, k := range e.keys("large", e.atMost(4)) {
		large = append(large, backend.Item{Key: k, Value: payload(k, 1, size)})
	}
	at := e.onTheWay(c)
	var written <-chan struct{}
	var writeErr error
	visits := 0
	err := c.GetMany(e.ctx, keysOf(items[:3]), func(int, []byte) error {
		if visits++; visits > 1 {
			return nil
		}
		written = e.background(func() { writeErr = c.SetMany(e.ctx, large) })
		<-time.After(grace) // it waits by then, or is done
		for range 2 {
			e.getOrCancelled(c, items)
			e.scanOrCancelled(c, at)
		}
		return nil
	})
	e.check(err == nil && visits == 3, "G1", "GetMany whose visit takes its time", "nil and every key", fmt.Sprintf("%s and %d of 3 keys", errText(err), visits))
	e.within(e.runner.patience, "X3", "SetMany beside a GetMany that takes its time", func() { <-written })
	e.allOrNone(c, "SetMany beside a GetMany that takes its time", large, nil, writeErr)
	e.within(e.runner.patience, "X3", "GetMany after calls that were cancelled behind a write", func() { e.stored(c, "S9", "calls that were cancelled behind a write", items) })
	e.usable(c, "X2", "calls that were cancelled behind a write")
	// What a call has left behind, such as a transaction that it waited for, must not
	// hold up the next one.
	again := e.changed(large)
	e.within(e.runner.patience, "X3", "SetMany after calls that were cancelled behind a write", func() { e.set(c, again) })
	e.within(e.runner.patience, "C2", "Close after calls that were cancelled behind a write", func() { e.close(c) })
}

// onTheWay returns a position in the middle of a walk; "" where there is none.
func (e *env) onTheWay(c backend.Cache) backend.Position {
	at, err := backend.Scan(e.ctx, c, "", 0, func(backend.Entry) error { return nil })
	e.check(err == nil || errors.Is(err, backend.ErrUnsupported), "N1", "Scan", "nil", errText(err))
	return at
}

func (e *env) getOrCancelled(c backend.Cache, items []backend.Item) {
	action := "GetMany that is cancelled behind a write that waits"
	found := 0
	err := e.cancelled(action, func(ctx context.Context) error {
		return c.GetMany(ctx, keysOf(items), func(int, []byte) error { found++; return nil })
	})
	e.check(err == nil && found == len(items) || errors.Is(err, context.Canceled), "G1", action,
		"every key and nil, or an error that wraps ctx.Err()", fmt.Sprintf("%d of %d keys and %s", found, len(items), errText(err)))
}

func (e *env) scanOrCancelled(c backend.Cache, at backend.Position) {
	action := "Scan that is cancelled behind a write that waits"
	var next backend.Position
	err := e.cancelled(action, func(ctx context.Context) (err error) {
		next, err = backend.Scan(ctx, c, at, 0, func(backend.Entry) error { return nil })
		return err
	})
	if errors.Is(err, backend.ErrUnsupported) {
		return
	}
	e.check(err == nil || errors.Is(err, context.Canceled), "X2", action, "nil, or an error that wraps ctx.Err()", errText(err))
	e.check(err == nil || next == at, "N4", action+", with "+errText(err), "the position that the call began at", "another one")
}
