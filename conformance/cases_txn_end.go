package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/embedonce/embedonce/backend"
)

// How transactions end.

func txnError(e *env) {
	c := e.cache()
	n := e.atMost(512)
	before := e.batch(e.keys("a", n/2), 1)
	e.set(c, before)
	for _, cause := range []error{&visitError{7}, context.Canceled, backend.ErrForeign, backend.ErrClosed, backend.ErrUnavailable} {
		items := e.batch(e.keys("a", n), 2)
		err := c.Txn(e.ctx, func(tx backend.Txn) error {
			e.set(tx, items)
			return fmt.Errorf("fn: %w", cause)
		})
		action := fmt.Sprintf("Txn whose fn wrote %d items and returns %q", n, cause)
		e.check(errors.Is(err, cause), "T4", action, "an error that wraps it", errText(err))
		e.stored(c, "T4", action, before)
		e.absent(c, "T4", action, keysOf(items)[n/2:])
	}
	e.usable(c, "T4", "transactions that failed")
}

func txnPanic(e *env) {
	c := e.cache()
	n := e.atMost(512)
	before := e.batch(e.keys("a", n/2), 1)
	e.set(c, before)
	read := e.batch(e.keys("b", 3), 1)
	e.set(c, read)
	inVisit := &visitError{5}
	for _, value := range []any{"a string", &visitError{3}, error(&visitError{4}), inVisit} {
		items := e.batch(e.keys("a", n), 2)
		var got any
		func() {
			defer func() { got = recover() }()
			err := c.Txn(e.ctx, func(tx backend.Txn) error {
				e.set(tx, items)
				if own := goroutineID(); value == any(inVisit) {
					_ = tx.GetMany(e.ctx, keysOf(read), func(int, []byte) error {
						if goroutineID() == own { // on another one it would end the process (rule G3)
							panic(value)
						}
						return nil
					})
				}
				panic(value)
			})
			e.broken("T5", "Txn whose fn panics", "the panic", "Txn returned "+errText(err))
		}()
		e.check(got == value, "T5", "Txn whose fn panics", "the same value from recover", fmt.Sprintf("%T", got))
		e.stored(c, "T5", "Txn whose fn panics", before)
		e.absent(c, "T5", "Txn whose fn panics", keysOf(items)[n/2:])
	}
	for range 3 { // whichever connection has the turn
		e.stored(c, "T5", "Txn whose fn panics", read)
	}
	e.usable(c, "T5", "a panic in a transaction")
}

// txnEndsGoroutine: t.FailNow inside fn is runtime.Goexit, which recover doesn't see.
func txnEndsGoroutine(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", e.atMost(100)), 1)
	var dead backend.Txn
	<-e.background(func() {
		_ = c.Txn(e.ctx, func(tx backend.Txn) error {
			dead = tx
			e.set(tx, items)
			runtime.Goexit()
			return nil
		})
	})
	e.check(dead != nil, "T1", "Txn", "fn to run", "it didn't")
	e.usable(c, "T5", "a transaction whose fn ended its goroutine")
	e.absent(c, "T5", "Txn whose fn ends its goroutine", keysOf(items))
	e.dead(dead, "whose fn ended its goroutine")
}

// dead checks that tx has ended.
func (e *env) dead(tx backend.Txn, how string) {
	items := e.batch(e.keys("dead", 3), 1)
	for _, n := range []int{len(items), 0} {
		visits := 0
		err := tx.GetMany(e.ctx, keysOf(items)[:n], func(int, []byte) error { visits++; return nil })
		e.check(errors.Is(err, backend.ErrClosed) && visits == 0, "T6", fmt.Sprintf("GetMany of %d keys through a transaction %s", n, how),
			"ErrClosed, no visit", fmt.Sprintf("%s, %d visits", errText(err), visits))
		err = tx.SetMany(e.ctx, items[:n])
		e.check(errors.Is(err, backend.ErrClosed), "T6", fmt.Sprintf("SetMany of %d items through a transaction %s", n, how), "ErrClosed", errText(err))
	}
}

func txnDeadAfter(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 5), 1)
	for _, how := range []string{"whose fn returned nil", "whose fn returned an error", "whose fn panicked"} {
		var dead backend.Txn
		func() {
			defer func() { _ = recover() }()
			_ = c.Txn(e.ctx, func(tx backend.Txn) error {
				dead = tx
				e.set(tx, items)
				switch how {
				case "whose fn returned nil":
					return nil
				case "whose fn returned an error":
					return errors.New("failed")
				}
				panic("panicked")
			})
		}()
		e.dead(dead, how)
		e.absent(c, "T6", "SetMany through a transaction "+how, e.keys("dead", 3))
		e.usable(c, "T6", "the use of a transaction "+how)
	}
}

// txnRefusedItem: SetMany of a transaction may refuse an item at once, or Txn may
// at the end.
func txnRefusedItem(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", e.atMost(20)), 1)
	bad := e.batch(e.keys("bad", min(4, len(items))), 1)
	bad[len(bad)-1].Value = nil
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		if err := tx.SetMany(e.ctx, items[:len(items)-1]); err != nil {
			return err
		}
		return tx.SetMany(e.ctx, bad)
	})
	e.check(errors.Is(err, backend.ErrEmptyValue), "S7", "Txn in which an item has no bytes", "ErrEmptyValue", errText(err))
	e.absent(c, "T4", "Txn in which an item has no bytes", append(keysOf(items), keysOf(bad)...))
}

func txnLarge(e *env) {
	c := e.cache()
	n := e.atMost(2000)
	items := e.batch(e.keys("a", n), 1)
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		for at := 0; at < n; at += 250 {
			e.set(tx, items[at:min(at+250, n)])
		}
		e.stored(tx, "T2", "GetMany of a large transaction", items)
		return nil
	})
	e.check(err == nil, "T3", fmt.Sprintf("Txn of %d items", n), "nil", errText(err))
	e.stored(c, "T3", fmt.Sprintf("Txn of %d items", n), items)
}

// txnTooLarge: a transaction may be allowed more than a batch, but not a part.
func txnTooLarge(e *env) {
	c := e.cache()
	n := e.s.Want.MaxBatchItems + 1
	if int64(n)*64 > defaultRoom {
		e.Skipf("Info.MaxBatchItems is %d, which is more than the case stores", n-1)
	}
	items := make([]backend.Item, n)
	for i := range items {
		items[i] = backend.Item{Key: e.key("a", i), Value: []byte{1}}
	}
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		if err := tx.SetMany(e.ctx, items[:n-1]); err != nil {
			return err
		}
		return tx.SetMany(e.ctx, items[n-1:])
	})
	action := fmt.Sprintf("Txn of %d items, one more than a batch may have", n)
	e.check(err == nil || errors.Is(err, backend.ErrTooLarge), "S8", action, "nil or ErrTooLarge", errText(err))
	if err != nil {
		e.absent(c, "S8", action, keysOf(items))
		return
	}
	e.stored(c, "T3", action, items)
}

// txnSeveral runs transactions at the same time. They may wait for each other
// or go in parallel; one that says nil is stored, whatever happens to others.
func txnSeveral(e *env) {
	c := e.cache()
	const n = 8
	batches := make([][]backend.Item, n)
	errs := make([]error, n)
	e.parallel(n, func(i int) {
		batches[i] = e.batch(e.keys(fmt.Sprint("txn", i), e.atMost(40)), 1)
		errs[i] = c.Txn(e.ctx, func(tx backend.Txn) error {
			e.set(tx, batches[i])
			runtime.Gosched()
			if i%4 == 3 {
				return errors.New("failed")
			}
			e.stored(tx, "T2", "GetMany of one of 8 transactions", batches[i])
			return nil
		})
	})
	for i, err := range errs {
		action := fmt.Sprintf("Txn %d of 8 at the same time", i)
		if i%4 == 3 {
			e.check(err != nil, "T4", action, "the error of fn", "nil")
			e.absent(c, "T4", action, keysOf(batches[i]))
			continue
		}
		e.allOrNone(c, action, batches[i], nil, err)
		e.check(err == nil, "T3", action, "nil", errText(err))
	}
}
