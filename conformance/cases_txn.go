package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var txnCases = []testcase{
	{name: "txn/commit", rules: "T1 T3", fn: txnCommit},
	{name: "txn/callers-goroutine", rules: "T1", fn: txnCallersGoroutine},
	{name: "txn/no-writes", rules: "T3", fn: txnNoWrites},
	{name: "txn/reads-own-writes", rules: "T2", fn: txnReadsOwnWrites},
	{name: "txn/reads-behind", rules: "T2 G1 G2", fn: txnReadsBehind},
	{name: "txn/visit-rules", rules: "T2 G3 G6 G7", fn: txnVisitRules},
	{name: "txn/last-wins", rules: "T3 S2", fn: txnLastWins},
	{name: "txn/items-reused", rules: "T3 S5", fn: txnItemsReused},
	{name: "txn/not-seen-before", rules: "T3", fn: txnNotSeenBefore},
	{name: "txn/error", rules: "T4", fn: txnError},
	{name: "txn/panic", rules: "T5", fn: txnPanic},
	{name: "txn/ends-goroutine", rules: "T5", fn: txnEndsGoroutine},
	{name: "txn/dead-after", rules: "T6", fn: txnDeadAfter},
	{name: "txn/refused-item", rules: "T3 S7", fn: txnRefusedItem},
	{name: "txn/large", rules: "T3 S8", fn: txnLarge},
	{name: "txn/too-large", rules: "T3 S1 S8", needs: []need{needMaxItems}, fn: txnTooLarge},
	{name: "txn/several", rules: "T3 X3", fn: txnSeveral},
}

func txnCommit(e *env) {
	c := e.cache()
	before := e.batch(e.keys("a", 50), 1)
	e.set(c, before)
	items := e.batch(e.keys("a", e.atMost(100)), 2)
	runs := 0
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		runs++
		for at := 0; at < len(items); at += 10 {
			e.set(tx, items[at:min(at+10, len(items))])
		}
		return nil
	})
	e.check(err == nil, "T3", "Txn of ten SetMany calls", "nil", errText(err))
	e.check(runs == 1, "T1", "Txn", "fn runs once", fmt.Sprintf("%d runs", runs))
	e.stored(c, "T3", "Txn of ten SetMany calls", items)
}

func txnCallersGoroutine(e *env) {
	c := e.cache()
	own := goroutineID()
	keys := e.keys("a", e.atMost(20))
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		e.check(goroutineID() == own, "T1", "Txn", "fn on the caller's goroutine", "fn on another one")
		e.set(tx, e.batch(keys, 1))
		return tx.GetMany(e.ctx, keys, func(int, []byte) error {
			e.check(goroutineID() == own, "G3", "GetMany of a transaction", "visit on the caller's goroutine", "visit on another one")
			return nil
		})
	})
	e.check(err == nil, "T3", "Txn", "nil", errText(err))
}

func txnNoWrites(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 10), 1)
	e.set(c, items)
	runs := 0
	err := c.Txn(e.ctx, func(backend.Txn) error { runs++; return nil })
	e.check(err == nil && runs == 1, "T3", "Txn whose function does nothing", "nil after one run", fmt.Sprintf("%s after %d runs", errText(err), runs))
	err = c.Txn(e.ctx, func(tx backend.Txn) error {
		e.stored(tx, "T2", "GetMany of a transaction that writes nothing", items)
		e.check(tx.SetMany(e.ctx, nil) == nil, "S6", "SetMany of a transaction, without items", "nil", "an error")
		return nil
	})
	e.check(err == nil, "T3", "Txn that only reads", "nil", errText(err))
	e.stored(c, "S9", "Txn that only reads", items)
}

func txnReadsOwnWrites(e *env) {
	c := e.cache()
	e.set(c, e.batch(e.keys("a", 30), 1))
	n := e.atMost(60)
	first, second := e.batch(e.keys("a", n), 2), e.batch(e.keys("a", n/2), 3)
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		e.set(tx, first)
		e.stored(tx, "T2", "GetMany of a transaction after its SetMany", first)
		e.set(tx, second)
		now := append(append([]backend.Item{}, second...), first[n/2:]...)
		e.stored(tx, "T2", "GetMany of a transaction after it wrote some keys again", now)
		keys := append(keysOf(now), keysOf(now)...)
		for i, value := range e.read(tx, keys) {
			e.check(bytes.Equal(value, now[i%n].Value), "T2", "GetMany of a transaction, each key twice", "the transaction's own values", fmt.Sprintf("other bytes for index %d", i))
		}
		return nil
	})
	e.check(err == nil, "T3", "Txn", "nil", errText(err))
	e.stored(c, "T3", "Txn that wrote some keys twice", append(second, first[n/2:]...))
}

func txnReadsBehind(e *env) {
	c := e.cache()
	stored := e.batch(e.keys("a", 40), 1)
	e.set(c, stored)
	n := e.atMost(20)
	own := e.batch(e.keys("a", n), 2)
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		e.stored(tx, "T2", "GetMany of a transaction before it wrote", stored)
		e.absent(tx, "T2", "GetMany of a transaction, missing keys", e.keys("never", 20))
		e.set(tx, own)
		want := append(append([]backend.Item{}, own...), stored[n:]...)
		var keys []backend.Key // own, missing and stored ones in turn
		for i, item := range want {
			keys = append(keys, item.Key, e.key("never", i))
		}
		for i, value := range e.read(tx, keys) {
			switch {
			case i%2 == 1:
				e.check(value == nil, "T2", "GetMany of a transaction, missing keys among others", "no visit", fmt.Sprintf("a visit of index %d", i))
			default:
				e.check(bytes.Equal(value, want[i/2].Value), "T2", "GetMany of a transaction, own keys among stored ones",
					"the transaction's value, else the stored one", fmt.Sprintf("%d other bytes for index %d", len(value), i))
			}
		}
		visits := 0
		err := tx.GetMany(e.ctx, nil, func(int, []byte) error { visits++; return nil })
		e.check(err == nil && visits == 0, "G2", "GetMany of a transaction, without keys", "nil, no visit", fmt.Sprintf("%s, %d visits", errText(err), visits))
		return nil
	})
	e.check(err == nil, "T3", "Txn", "nil", errText(err))
}

// txnVisitRules: the rules of visits hold inside a transaction too.
func txnVisitRules(e *env) {
	c := e.cache()
	stored := e.batch(e.keys("a", 20), 1)
	e.set(c, stored)
	own := e.batch(e.keys("b", e.atMost(20)), 1)
	keys := append(keysOf(own), keysOf(stored)...)
	stop := errors.New("stop")
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		e.set(tx, own)
		for _, at := range []int{1, len(own) + 1, len(keys)} {
			visits := 0
			err := tx.GetMany(e.ctx, keys, func(int, []byte) error {
				visits++
				if visits >= at {
					return stop
				}
				return nil
			})
			e.check(errors.Is(err, stop) && visits == at, "G7", fmt.Sprintf("GetMany of a transaction, where visit %d returns an error", at),
				"an error that wraps it, no further visit", fmt.Sprintf("%s, %d visits", errText(err), visits))
		}
		seen := make(map[int]bool)
		err := tx.GetMany(e.ctx, keys, func(i int, _ []byte) error {
			seen[i] = true
			if i%3 == 0 {
				return backend.ErrForeign
			}
			return nil
		})
		e.check(err == nil && len(seen) == len(keys), "G6", "GetMany of a transaction, where visit declines every third value",
			"nil, every stored key visited", fmt.Sprintf("%s, %d of %d visited", errText(err), len(seen), len(keys)))
		return nil
	})
	e.check(err == nil, "T3", "Txn whose reads were stopped by visit", "nil", errText(err))
	e.stored(c, "T3", "Txn whose reads were stopped by visit", own)
}

func txnLastWins(e *env) {
	c := e.cache()
	keys := e.keys("a", e.atMost(16))
	e.set(c, e.batch(keys, 1))
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		for version := uint64(2); version < 9; version++ {
			e.set(tx, e.batch(keys, version))
		}
		return nil
	})
	e.check(err == nil, "T3", "Txn that writes the same keys seven times", "nil", errText(err))
	e.stored(c, "S2", "Txn that writes the same keys seven times", e.batch(keys, 8))
}

func txnItemsReused(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", e.atMost(50)), 1)
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		given := cloneItems(items)
		e.set(tx, given)
		e.check(equalItems(given, items), "S5", "SetMany of a transaction", "the caller's items as they were", "other keys or values")
		for i := range given {
			given[i].Key = e.key("other", i)
			clear(given[i].Value)
		}
		e.stored(tx, "S5", "SetMany of a transaction, after which the caller writes over its items", items)
		return nil
	})
	e.check(err == nil, "T3", "Txn", "nil", errText(err))
	e.stored(c, "S5", "SetMany of a transaction, after which the caller writes over its items", items)
}

// txnNotSeenBefore reads from another goroutine while fn runs. Such a read may
// wait for the transaction; if it doesn't, it sees what was there before.
func txnNotSeenBefore(e *env) {
	c := e.cache()
	n := e.atMost(32)
	before := e.batch(e.keys("a", n/2), 1)
	e.set(c, before)
	items := e.batch(e.keys("a", n), 2)
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var done <-chan struct{}
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		e.set(tx, items)
		done = e.background(func() {
			values, err := e.tryRead(ctx, c, keysOf(items))
			select {
			case <-ctx.Done(): // the read waited, and is over too late to say anything
				return
			default:
			}
			e.check(err == nil, "G2", "GetMany beside a running transaction", "nil", errText(err))
			for i, value := range values {
				want := []byte(nil)
				if i < len(before) {
					want = before[i].Value
				}
				e.check(bytes.Equal(value, want), "T3", "GetMany beside a transaction whose fn has written and still runs",
					"what was stored before it", fmt.Sprintf("%d other bytes for index %d", len(value), i))
			}
		})
		select {
		case <-done:
		case <-time.After(10 * grace):
			cancel()
		}
		return nil
	})
	e.check(done != nil, "T1", "Txn", "fn to run", "it didn't, and Txn returned "+errText(err))
	<-done
	if e.Failed() {
		e.FailNow()
	}
	e.check(err == nil, "T3", "Txn beside a reader", "nil", errText(err))
	e.stored(c, "T3", "Txn beside a reader", items)
}
