package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var ctxCases = []testcase{
	{name: "ctx/ended-before-get", rules: "X1", fn: ctxEndedBeforeGet},
	{name: "ctx/ended-before-set", rules: "X1", fn: ctxEndedBeforeSet},
	{name: "ctx/ended-before-txn", rules: "X1", fn: ctxEndedBeforeTxn},
	{name: "ctx/ends-during-get", rules: "X2 G8", fn: ctxEndsDuringGet},
	{name: "ctx/ends-at-each-look-get", rules: "X2", fn: ctxEndsAtEachLookGet},
	{name: "ctx/ends-at-each-look-set", rules: "X2 S1", fn: ctxEndsAtEachLookSet},
	{name: "ctx/ends-at-each-look-txn", rules: "X2 S1 T3", fn: ctxEndsAtEachLookTxn},
	{name: "ctx/set-beside-visit", rules: "X2 X3", fn: ctxSetBesideVisit},
	{name: "ctx/beside-close", rules: "X2", fn: ctxBesideClose},
	{name: "ctx/get-beside-visits", rules: "G1 X2", fn: ctxGetBesideVisits},
	{name: "ctx/get-behind-write", rules: "G1 X2 X3 N4", room: 16 << 20, fn: ctxGetBehindWrite},
	{name: "ctx/behind-locked", rules: "S1 S3 X2", needs: []need{needFault}, fn: ctxBehindLocked},
	{name: "ctx/left", rules: "S4", fn: ctxLeft},
	{name: "ctx/ends-in-fn", rules: "X1 X2 T3", fn: ctxEndsInFn},
	{name: "ctx/ends-after", rules: "X2 S9", fn: ctxEndsAfter},
	{name: "ctx/of-another-call", rules: "X2 S3", fn: ctxOfAnotherCall},
	{name: "ctx/usable-after", rules: "X2 X3", fn: ctxUsableAfter},
	{name: "ctx/slow", rules: "X2 X3 S1", needs: []need{needFault}, fn: ctxSlow},
	{name: "ctx/locked", rules: "X2 X3 S1", needs: []need{needFault}, fn: ctxLocked},
	{name: "ctx/cut", rules: "X2 X3 S1", needs: []need{needFault}, fn: ctxCut},
}

// ended returns contexts that have ended in each way, with a name.
func (e *env) ended() map[string]context.Context {
	canceled, cancel := context.WithCancel(e.ctx)
	cancel()
	late, cancelLate := context.WithDeadline(e.ctx, time.Unix(1, 0))
	cancelLate()
	caused, cancelCaused := context.WithCancelCause(e.ctx)
	cancelCaused(errors.New("a cause that Err doesn't show"))
	child, cancelChild := context.WithTimeout(late, time.Hour)
	cancelChild()
	return map[string]context.Context{"cancelled": canceled, "past its deadline": late, "cancelled with a cause": caused, "child of one past its deadline": child}
}

func ctxEndedBeforeGet(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 20), 1)
	e.set(c, items)
	for how, ctx := range e.ended() {
		for _, keys := range [][]backend.Key{keysOf(items), e.keys("never", 3), nil} {
			visits := 0
			err := c.GetMany(ctx, keys, func(int, []byte) error { visits++; return nil })
			action := fmt.Sprintf("GetMany of %d keys with a context that is %s", len(keys), how)
			e.check(errors.Is(err, ctx.Err()), "X1", action, "an error that wraps ctx.Err()", errText(err))
			e.check(visits == 0, "X1", action, "no visit", fmt.Sprintf("%d visits", visits))
		}
	}
}

func ctxEndedBeforeSet(e *env) {
	c := e.cache()
	before := e.batch(e.keys("a", 10), 1)
	e.set(c, before)
	items := e.batch(e.keys("a", e.atMost(20)), 2)
	for how, ctx := range e.ended() {
		for _, n := range []int{len(items), 1, 0} {
			err := c.SetMany(ctx, items[:n])
			action := fmt.Sprintf("SetMany of %d items with a context that is %s", n, how)
			e.check(errors.Is(err, ctx.Err()), "X1", action, "an error that wraps ctx.Err()", errText(err))
			e.stored(c, "X1", action, before[:min(10, len(items))])
			e.absent(c, "X1", action, keysOf(items)[min(10, len(items)):])
		}
	}
}

func ctxEndedBeforeTxn(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", e.atMost(20)), 2)
	for how, ctx := range e.ended() {
		runs := 0
		err := c.Txn(ctx, func(tx backend.Txn) error {
			runs++
			return tx.SetMany(e.ctx, items)
		})
		action := "Txn with a context that is " + how
		e.check(errors.Is(err, ctx.Err()), "X1", action, "an error that wraps ctx.Err()", errText(err))
		e.check(runs == 0, "X1", action, "fn doesn't run", "fn ran")
		e.absent(c, "X1", action, keysOf(items))
	}
}

// ctxEndsDuringGet cancels inside visit. What is left of 10,000 keys need not be
// read to the end.
func ctxEndsDuringGet(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 10_000), 1)
	e.set(c, items)
	keys := keysOf(items)
	for _, at := range []int{1, 2, 1000} {
		ctx, cancel := context.WithCancel(e.ctx)
		defer cancel()
		visits := make([]int, len(keys))
		total := 0
		err := c.GetMany(ctx, keys, func(i int, value []byte) error {
			visits[i]++
			total++
			if total == at {
				cancel()
			}
			e.check(bytes.Equal(value, items[i].Value), "G8", "GetMany whose context ends", "right values all the same", "other bytes")
			e.check(visits[i] == 1, "G8", "GetMany whose context ends", "one visit for an index", "a second one")
			return nil
		})
		action := fmt.Sprintf("GetMany of 10,000 keys whose context is cancelled in visit %d", at)
		e.check(errors.Is(err, context.Canceled), "X2", action, "context.Canceled, as the call wasn't done", fmt.Sprintf("%s after %d visits", errText(err), total))
		e.check(total <= 5000, "X2", action, "an end soon", fmt.Sprintf("%d visits", total))
	}
	e.usable(c, "X3", "calls that were cancelled")
}

// countdown is a context that ends when it is looked at for the n-th time, so
// that a call can be cancelled at each point where it cares.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

func newCountdown(parent context.Context, n int) *countdown {
	c := new(countdown)
	c.Context, c.cancel = context.WithCancel(parent)
	c.left.Store(int64(n))
	return c
}

func (c *countdown) look() {
	if c.left.Add(-1) == 0 {
		c.cancel()
	}
}

func (c *countdown) Err() error            { c.look(); return c.Context.Err() }
func (c *countdown) Done() <-chan struct{} { c.look(); return c.Context.Done() }

// eachLook calls f with contexts that end at look 1, 2, ... until a call didn't
// look so often, at most 60 times. f returns the error of the call.
func (e *env) eachLook(action string, f func(ctx context.Context, n int, action string) error) {
	for n := 1; n <= 60; n++ {
		ctx := newCountdown(e.ctx, n)
		action := fmt.Sprintf("%s whose context ends when it is looked at %d times", action, n)
		err := f(ctx, n, action)
		whole := ctx.left.Load() > 0
		ctx.cancel()
		if whole {
			e.check(err == nil, "X2", action+", which did not happen", "nil", errText(err))
			return
		}
		e.check(err == nil || errors.Is(err, context.Canceled), "X2", action, "nil or an error that wraps ctx.Err()", errText(err))
	}
}

func ctxEndsAtEachLookGet(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 300), 1)
	e.set(c, items)
	e.eachLook("GetMany of 300 keys", func(ctx context.Context, _ int, action string) error {
		values, err := e.tryRead(ctx, c, keysOf(items))
		for i, value := range values {
			e.check(value == nil && err != nil || bytes.Equal(value, items[i].Value), "G8", action, "right values; all of them unless there is an error",
				fmt.Sprintf("%d other bytes for index %d, %s", len(value), i, errText(err)))
		}
		return err
	})
	e.usable(c, "X3", "reads that were cancelled")
}

func ctxEndsAtEachLookSet(e *env) {
	c := e.cache()
	keys := e.keys("a", e.atMost(64))
	before := e.batch(keys, 0)
	e.set(c, before)
	e.eachLook("SetMany", func(ctx context.Context, n int, action string) error {
		items := e.batch(keys, uint64(n))
		err := c.SetMany(ctx, items)
		e.allOrNone(c, action, items, before, err)
		e.set(c, items)
		before = items
		return err
	})
	e.usable(c, "X3", "writes that were cancelled")
}

func ctxEndsAtEachLookTxn(e *env) {
	c := e.cache()
	keys := e.keys("a", e.atMost(64))
	before := e.batch(keys, 0)
	e.set(c, before)
	e.eachLook("Txn", func(ctx context.Context, n int, action string) error {
		items := e.batch(keys, uint64(n))
		err := c.Txn(ctx, func(tx backend.Txn) error {
			if err := tx.SetMany(ctx, items[:len(items)/2]); err != nil {
				return err
			}
			if err := tx.GetMany(ctx, keys, func(int, []byte) error { return nil }); err != nil {
				return err
			}
			return tx.SetMany(ctx, items[len(items)/2:])
		})
		e.allOrNone(c, action, items, before, err)
		e.set(c, items)
		before = items
		return err
	})
	e.usable(c, "X3", "transactions that were cancelled")
}

func ctxEndsInFn(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", e.atMost(40)), 1)
	half := len(items) / 2
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	err := c.Txn(ctx, func(tx backend.Txn) error {
		e.set(tx, items[:half])
		cancel()
		err := tx.SetMany(ctx, items[half:])
		e.check(errors.Is(err, context.Canceled), "X1", "SetMany of a transaction with a context that is cancelled", "context.Canceled", errText(err))
		visits := 0
		err = tx.GetMany(ctx, keysOf(items), func(int, []byte) error { visits++; return nil })
		e.check(errors.Is(err, context.Canceled) && visits == 0, "X1", "GetMany of a transaction with a context that is cancelled",
			"context.Canceled, no visit", fmt.Sprintf("%s, %d visits", errText(err), visits))
		return nil
	})
	action := "Txn whose context ends in fn, which returns nil"
	e.check(err == nil || errors.Is(err, context.Canceled), "X2", action, "nil or an error that wraps ctx.Err()", errText(err))
	e.allOrNone(c, action, items[:half], nil, err)
	e.absent(c, "X1", action, keysOf(items)[half:])
	e.usable(c, "X3", action)
}

// ctxEndsAfter: a call that is over has nothing to do with its context any more.
func ctxEndsAfter(e *env) {
	c := e.cache()
	var all []backend.Item
	for round := range 10 {
		ctx, cancel := context.WithCancel(e.ctx)
		items := e.batch(e.keys(fmt.Sprint("a", round), e.atMost(20)), 1)
		err := c.SetMany(ctx, items)
		e.check(err == nil, "S3", "SetMany", "nil", errText(err))
		_, err = e.tryRead(ctx, c, keysOf(items))
		e.check(err == nil, "G2", "GetMany", "nil", errText(err))
		more := e.batch(e.keys(fmt.Sprint("b", round), e.atMost(20)), 1)
		err = c.Txn(ctx, func(tx backend.Txn) error { return tx.SetMany(ctx, more) })
		e.check(err == nil, "T3", "Txn", "nil", errText(err))
		cancel()
		e.stored(c, "S9", "SetMany whose context is cancelled after it returned", items)
		e.stored(c, "S9", "Txn whose context is cancelled after it returned", more)
		all = append(append(all, items...), more...)
	}
	e.usable(c, "X2", "contexts that ended after their calls")
	<-time.After(grace) // for what takes its time to be wrong
	e.stored(c, "S9", "writes whose contexts were cancelled after they returned", all)
}

// ctxOfAnotherCall: calls that share a flight, a commit or a connection don't
// share the end of one of their contexts.
func ctxOfAnotherCall(e *env) {
	c := e.cache()
	const n = 8
	batches := make([][]backend.Item, n)
	for i := range batches {
		batches[i] = e.batch(e.keys(fmt.Sprint("call", i), e.atMost(40)), 1)
	}
	for round := range 5 {
		e.parallel(n, func(i int) {
			ctx := context.Context(newCountdown(e.ctx, 2+round))
			if i%2 == 0 {
				ctx = e.ctx
			}
			err := c.SetMany(ctx, batches[i])
			if i%2 == 0 {
				e.check(err == nil, "X2", "SetMany beside others that are cancelled", "nil", errText(err))
				e.stored(c, "S3", "SetMany beside others that are cancelled", batches[i])
				return
			}
			e.check(err == nil || errors.Is(err, context.Canceled), "X2", "SetMany that is cancelled", "nil or context.Canceled", errText(err))
			_, err = e.tryRead(newCountdown(e.ctx, 1+round), c, keysOf(batches[i]))
			e.check(err == nil || errors.Is(err, context.Canceled), "X2", "GetMany that is cancelled", "nil or context.Canceled", errText(err))
		})
	}
}

func ctxUsableAfter(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", e.atMost(100)), 1)
	e.set(c, items)
	for i := range 120 {
		ctx := newCountdown(e.ctx, 1+i%6)
		switch i % 3 {
		case 0:
			_, _ = e.tryRead(ctx, c, keysOf(items))
		case 1:
			_ = c.SetMany(ctx, items)
		case 2:
			_ = c.Txn(ctx, func(tx backend.Txn) error { return tx.SetMany(ctx, items) })
		}
		ctx.cancel()
	}
	e.usable(c, "X3", "120 calls that were cancelled")
	e.stored(c, "S4", "writing the same items in calls that were cancelled", items)
}

func ctxSlow(e *env)   { e.deadlineUnder(Slow) }
func ctxLocked(e *env) { e.deadlineUnder(Locked) }
func ctxCut(e *env)    { e.deadlineUnder(Cut) }

// deadlineUnder calls a store that misbehaves, with a deadline and without one.
func (e *env) deadlineUnder(kind FaultKind) {
	location := e.location()
	c := e.open(location)
	keys := e.keys("a", e.atMost(40))
	before := e.batch(keys, 1)
	e.set(c, before)
	undo := e.fault(location, Fault{Kind: kind})
	items := e.batch(keys, 2)
	set := fmt.Sprintf("SetMany with a deadline of 50 ms while the store is %v", kind)
	setErr := e.withDeadline(set, func(ctx context.Context) error { return c.SetMany(ctx, items) })
	e.withDeadline(fmt.Sprintf("GetMany with a deadline of 50 ms while the store is %v", kind), func(ctx context.Context) error {
		_, err := e.tryRead(ctx, c, keys)
		return err
	})
	var last error
	free := fmt.Sprintf("SetMany without a deadline while the store is %v", kind)
	e.within(e.runner.patience, "X3", free, func() { last = c.SetMany(e.ctx, e.batch(keys, 3)) })
	undo()
	e.settle(c)
	if last != nil {
		// Either write may be stored whole, or neither.
		now, _ := e.contentsOf(c, free, e.batch(keys, 3), items, before)
		e.check(!e.s.Want.Atomic || now, "S1", free, "all items of a batch stored or none", "a part")
		if setErr == nil {
			now, _ := e.contentsOf(c, set, e.batch(keys, 3), items)
			e.check(now, "S3", set+", which returned nil", "every item stored", "something else")
		}
	} else {
		e.stored(c, "S3", free+", which returned nil", e.batch(keys, 3))
	}
	e.usable(c, "X3", fmt.Sprintf("a time when the store was %v", kind))
}

// contentsOf says whether the store has one of several batches of the same keys
// whole, and which.
func (e *env) contentsOf(c getter, action string, batches ...[]backend.Item) (whole bool, which int) {
	values := e.read(c, keysOf(batches[0]))
	for i, value := range values {
		known := false
		for _, batch := range batches {
			known = known || bytes.Equal(value, batch[i].Value)
		}
		e.check(known, "G4", action, "one of the values written", fmt.Sprintf("%d other bytes for item %d (missing: %v)", len(value), i, value == nil))
	}
	for which, batch := range batches {
		same := true
		for i := range batch {
			same = same && bytes.Equal(values[i], batch[i].Value)
		}
		if same {
			return true, which
		}
	}
	return false, -1
}

// settle waits until c answers again after a fault.
func (e *env) settle(c backend.Cache) {
	var err error
	if !poll(e.runner.patience, func() bool {
		_, err = e.tryRead(e.ctx, c, e.keys("settle", 1))
		return err == nil
	}) {
		e.broken("X3", "GetMany after a fault of the store is over", "nil", errText(err))
	}
}
