package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var closeCases = []testcase{
	{name: "close/twice", rules: "C1", fn: closeTwice},
	{name: "close/at-the-same-time", rules: "C1", fn: closeAtTheSameTime},
	{name: "close/waits-for-get", rules: "C2", fn: closeWaitsForGet},
	{name: "close/waits-for-txn", rules: "C2", fn: closeWaitsForTxn},
	{name: "close/then-closed", rules: "C3 T1", fn: closeThenClosed},
	{name: "close/info-after", rules: "C3 I1", fn: closeInfoAfter},
	{name: "close/under-writers", rules: "C2 C3 S3", fn: closeUnderWriters},
	{name: "close/leaves-nothing", rules: "C4", fn: closeLeavesNothing},
	{name: "close/one-of-two-handles", rules: "C1 S3", needs: []need{needHost}, fn: closeOneOfTwo},
}

func closeTwice(e *env) {
	c := e.cache()
	e.set(c, e.batch(e.keys("a", 3), 1))
	for i := range 3 {
		err := c.Close()
		e.check(err == nil, "C1", fmt.Sprintf("Close, call %d", i+1), "nil", errText(err))
	}
	unused := e.cache()
	err := unused.Close()
	e.check(err == nil, "C1", "Close of a cache that was not used", "nil", errText(err))
}

func closeAtTheSameTime(e *env) {
	c := e.cache()
	e.set(c, e.batch(e.keys("a", 3), 1))
	e.within(e.runner.patience, "C1", "16 calls of Close at the same time", func() {
		e.parallel(16, func(int) { e.close(c) })
	})
}

// closeWhile calls Close while call runs and waits in inside, and returns the
// error of call. call says by inside() that it is there.
func (e *env) closeWhile(c backend.Cache, action string, mustWait bool, call func(inside func()) error) (err error) {
	entered, release := make(chan struct{}), make(chan struct{})
	var over atomic.Bool
	var once sync.Once
	returned := e.background(func() {
		err = call(func() {
			once.Do(func() { close(entered) })
			<-release
			over.Store(true)
		})
	})
	select {
	case <-entered:
	case <-returned:
		close(release)
		e.broken("C2", action, "the call to run", "it ended at once with "+errText(err))
	}
	var early atomic.Bool
	closed := e.background(func() {
		e.close(c)
		early.Store(!over.Load())
	})
	select {
	case <-closed:
	case <-time.After(grace):
	}
	close(release)
	e.within(e.runner.patience, "C2", action, func() { <-returned; <-closed })
	e.check(!mustWait || !early.Load(), "C2", action, "Close to wait for the call", "Close returned first")
	return err
}

func closeWaitsForGet(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 100), 1)
	e.set(c, items)
	visits, wrong := 0, 0
	err := e.closeWhile(c, "Close while visit of a GetMany runs", true, func(inside func()) error {
		return c.GetMany(e.ctx, keysOf(items), func(i int, value []byte) error {
			visits++
			if visits == 50 {
				inside()
			}
			if string(value) != string(items[i].Value) {
				wrong++
			}
			return nil
		})
	})
	e.check(wrong == 0, "C2", "GetMany during which Close is called", "right values", fmt.Sprintf("%d wrong ones", wrong))
	e.check(err == nil && visits == 100, "C2", "GetMany during which Close is called", "nil after 100 visits", fmt.Sprintf("%s after %d visits", errText(err), visits))
}

func closeWaitsForTxn(e *env) {
	location := e.location()
	c := e.open(location)
	items := e.batch(e.keys("a", e.atMost(100)), 1)
	action := "Txn during whose fn Close is called"
	err := e.closeWhile(c, action, false, func(inside func()) error {
		return c.Txn(e.ctx, func(tx backend.Txn) error {
			e.set(tx, items)
			inside()
			return nil
		})
	})
	e.check(err == nil || errors.Is(err, backend.ErrClosed), "C2", action, "nil or ErrClosed", errText(err))
	if e.s.Want.Durability == backend.NotDurable {
		return
	}
	again := e.open(location)
	if err == nil {
		e.stored(again, "S3", action+" and which returned nil, after opening again", items)
		return
	}
	e.absent(again, "C2", action+" and which returned ErrClosed, after opening again", keysOf(items))
}

func closeThenClosed(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 10), 1)
	e.set(c, items)
	e.close(c)
	for _, n := range []int{len(items), 1, 0} {
		visits := 0
		err := c.GetMany(e.ctx, keysOf(items)[:n], func(int, []byte) error { visits++; return nil })
		e.check(errors.Is(err, backend.ErrClosed) && visits == 0, "C3", fmt.Sprintf("GetMany of %d keys after Close", n), "ErrClosed, no visit",
			fmt.Sprintf("%s, %d visits", errText(err), visits))
		err = c.SetMany(e.ctx, items[:n])
		e.check(errors.Is(err, backend.ErrClosed), "C3", fmt.Sprintf("SetMany of %d items after Close", n), "ErrClosed", errText(err))
		runs := 0
		err = c.Txn(e.ctx, func(tx backend.Txn) error { runs++; return tx.SetMany(e.ctx, items[:n]) })
		e.check(errors.Is(err, backend.ErrClosed), "C3", "Txn after Close", "ErrClosed", errText(err))
		e.check(runs == 0, "T1", "Txn after Close", "fn doesn't run", "fn ran")
	}
}

func closeInfoAfter(e *env) {
	c := e.cache()
	before := c.Info()
	e.close(c)
	e.within(e.runner.patience, "C3", "Info after Close", func() {
		after := c.Info()
		e.check(after == before, "C3", "Info after Close", fmt.Sprintf("%+v", before), fmt.Sprintf("%+v", after))
	})
}

// closeUnderWriters: what was acknowledged before or during Close is there when
// the store is opened again.
func closeUnderWriters(e *env) {
	location := e.location()
	c := e.open(location)
	const writers = 8
	acknowledged := make([][]backend.Item, writers)
	started := make(chan struct{}, writers)
	e.parallel(writers+1, func(w int) {
		if w == writers {
			for range writers {
				<-started
			}
			e.close(c)
			return
		}
		for n := range 200 {
			items := e.batch(e.keys(fmt.Sprintf("writer %d batch %d", w, n), e.atMost(8)), 1)
			err := c.SetMany(e.ctx, items)
			if n == 2 || err != nil && n < 2 {
				started <- struct{}{}
			}
			if err != nil {
				e.check(errors.Is(err, backend.ErrClosed), "C3", "SetMany while Close is called", "nil or ErrClosed", errText(err))
				return
			}
			acknowledged[w] = append(acknowledged[w], items...)
		}
	})
	if e.s.Want.Durability == backend.NotDurable {
		return
	}
	again := e.open(location)
	for w := range acknowledged {
		e.stored(again, "S3", "SetMany that returned nil while Close was called, after opening again", acknowledged[w])
	}
}

// closeLeavesNothing looks for files and connections; goroutines are looked for
// after every case.
func closeLeavesNothing(e *env) {
	location := e.location()
	e.useAndClose(location) // what the first use in a process opens for good is no leak
	before, ok := openFiles(location)
	if !ok {
		e.Log("open files can't be listed on this system: only goroutines were checked")
	}
	for range 10 {
		e.useAndClose(location)
	}
	if !ok {
		return
	}
	e.leavesNothing(location, before, "opening, using and closing the store ten times")
	for range 10 { // what makes a store may leave something too
		if fresh := e.location(); filepath.IsAbs(fresh) { // else the author's own sockets count
			e.useAndClose(fresh)
			e.leavesNothing(fresh, nil, "making, using and closing a store")
		}
	}
}

// leavesNothing checks that no more files are open at location than before.
func (e *env) leavesNothing(location string, before []string, action string) {
	var left []string
	if !poll(min(leakPatience, e.runner.patience), func() bool {
		rest := slices.Clone(before)
		left = nil
		now, _ := openFiles(location)
		for _, file := range now {
			if at := slices.Index(rest, file); at >= 0 {
				rest = slices.Delete(rest, at, at+1)
			} else {
				left = append(left, file)
			}
		}
		return len(left) == 0
	}) {
		e.broken("C4", action, "no file and no connection left open", strings.Join(left, ", "))
	}
}

func (e *env) useAndClose(location string) {
	c := e.open(location)
	items := e.batch(e.keys("a", 20), 1)
	e.set(c, items)
	e.read(c, keysOf(items))
	stop := errors.New("stop")
	_ = c.GetMany(e.ctx, keysOf(items), func(int, []byte) error { return stop })
	_ = c.Txn(e.ctx, func(tx backend.Txn) error { e.read(tx, keysOf(items)); return stop })
	e.close(c)
}

// openFiles lists what this process has open at location or, where that is no
// path, its sockets; ok is false where the system can't tell.
func openFiles(location string) (files []string, ok bool) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, false
	}
	isPath := filepath.IsAbs(location)
	if real, err := filepath.EvalSymlinks(location); err == nil {
		location = real
	}
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if isPath && strings.HasPrefix(target, location) || !isPath && strings.HasPrefix(target, "socket:") {
			files = append(files, target)
		}
	}
	return files, true
}

func closeOneOfTwo(e *env) {
	location := e.location()
	one, two := e.open(location), e.open(location)
	items := e.batch(e.keys("a", 20), 1)
	e.set(one, items)
	e.close(one)
	e.seen(two, "S3", "SetMany through a handle that was then closed, read through another one", items)
	e.usable(two, "C1", "closing another handle on the store")
}

// seen checks that another handle sees items, after Info.Lag.
func (e *env) seen(c getter, rule, action string, items []backend.Item) {
	keys := keysOf(items)
	poll(e.s.lag(), func() bool {
		for i, value := range e.read(c, keys) {
			if string(value) != string(items[i].Value) {
				return false
			}
		}
		return true
	})
	e.stored(c, rule, action, items)
}
