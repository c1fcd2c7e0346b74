package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// Cases of the group delete in which the store misbehaves, or a caller has left.

func deleteUnderFaults(e *env) {
	e.eachFault(func(e *env, kind FaultKind) {
		location, c, items := e.deletable(120)
		first, second, rest := items[:40], items[40:80], items[80:]
		undo := e.fault(location, Fault{Kind: kind})
		deadline := fmt.Sprintf("Delete with a deadline of 50 ms while the store is %v", kind)
		firstErr := e.withDeadline(deadline, func(ctx context.Context) error {
			_, err := backend.Delete(ctx, c, keysOf(first), nil)
			return err
		})
		var secondErr error
		free := fmt.Sprintf("Delete without a deadline while the store is %v", kind)
		e.within(e.runner.patience, "X3", free, func() {
			_, secondErr = backend.Delete(e.ctx, c, keysOf(second), func(int, []byte) bool { return true })
		})
		undo()
		e.settle(c)
		e.goneOrThere(c, deadline, first, firstErr)
		e.goneOrThere(c, free, second, secondErr)
		e.stored(c, "D4", free+": the others", rest)
		e.remove(c, keysOf(items[:80]))
		e.absent(c, "D3", "Delete once more after a time when the store was "+kind.String(), keysOf(items[:80]))
	}, Full, Slow, Cut, Locked)
}

// deleteFull: a deletion may need room before it gives any. In a store that has none it
// may fail, but not go on for ever; also while a visit keeps what could be used again.
func deleteFull(e *env) {
	location, c, items := e.deletable(400)
	undo := e.fault(location, Fault{Kind: Full})
	e.fill(c, 64<<10)
	e.fill(c, 3000)
	at := 0
	var looks []func() // at what came of it: a reader may have to wait for the visit
	remove := func(n int, when string) {
		piece := items[at : at+n]
		at += n
		action := fmt.Sprintf("Delete of %d entries of a store that has no room%s", n, when)
		e.within(e.runner.patience, "X3", action, func() {
			_, err := backend.Delete(e.ctx, c, keysOf(piece), nil)
			looks = append(looks, func() { e.goneOrThere(c, action, piece, err) })
		})
	}
	for _, n := range []int{1, 1, 2, 2, 20, 200} {
		remove(n, "")
	}
	inside, release := make(chan struct{}), make(chan struct{})
	visited := e.background(func() {
		err := c.GetMany(e.ctx, keysOf(items[399:]), func(int, []byte) error {
			close(inside)
			<-release
			return nil
		})
		e.check(err == nil, "G2", "GetMany beside deletions from a store that has no room", "nil", errText(err))
	})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	select {
	case <-inside:
	case <-visited:
	}
	for _, n := range []int{1, 1, 1, 1, 1, 1, 2, 2, 20, 100} {
		remove(n, ", while a visit runs")
	}
	free()
	<-visited
	for _, look := range looks {
		look()
	}
	e.stored(c, "D4", "Delete of other entries of a store that has no room", items[at:])
	undo()
	e.settle(c)
	e.remove(c, keysOf(items[:at]))
	e.absent(c, "D3", "Delete once more, with room", keysOf(items[:at]))
	e.usable(c, "X3", "deletions in a store that had no room")
}

// fill writes values of so many bytes until the store has refused three in a row, or
// has taken 8 MiB.
func (e *env) fill(c backend.Cache, size int) {
	size = e.sized(size)
	refused := 0
	for i := 0; i < (8<<20)/size && refused < 3; i++ {
		k := e.key(fmt.Sprint("fill", size), i)
		err := c.SetMany(e.ctx, []backend.Item{{Key: k, Value: payload(k, 1, size)}})
		if refused++; err == nil {
			refused = 0
		}
	}
}

// deleteLeft is ctxLeft for a removal, before a write and after it.
func deleteLeft(e *env) {
	location := e.location()
	c := e.open(location)
	e.needDelete(c)
	var gone []backend.Key
	e.eachLook("SetMany, then a Delete,", func(ctx context.Context, n int, action string) error {
		keys := e.keys(fmt.Sprint("written", n), e.atMost(20))
		err := c.SetMany(ctx, e.batch(keys, 1))
		_, deleteErr := backend.Delete(e.ctx, c, keys, func(int, []byte) bool { return true })
		e.check(deleteErr == nil, "D1", action, "nil", errText(deleteErr))
		gone = append(gone, keys...)
		return err
	})
	var all []backend.Item
	e.eachLook("Delete, then a SetMany,", func(ctx context.Context, n int, _ string) error {
		keys := e.keys(fmt.Sprint("removed", n), e.atMost(20))
		e.set(c, e.batch(keys, 1))
		_, err := backend.Delete(ctx, c, keys, nil)
		items := e.batch(keys, 2)
		e.set(c, items)
		all = append(all, items...)
		return err
	})
	<-time.After(grace)
	e.absent(c, "S4", "Delete after writes of the same keys whose callers had left", gone)
	e.stored(c, "S4", "SetMany after removals of the same keys whose callers had left", all)
}

// deleteLeftSlow: the caller of a write leaves while the store is slow, and deletes what
// it wrote. The write may still be under way.
func deleteLeftSlow(e *env) {
	location := e.location()
	c := e.open(location)
	e.needDelete(c)
	undo := e.fault(location, Fault{Kind: Slow})
	action := "Delete, with a match that returns true, after a SetMany whose caller had left a slow store"
	var gone []backend.Key
	for n := range 3 {
		items := e.batch(e.keys(fmt.Sprint("slow", n), e.atMost(20)), 1)
		ctx, cancel := e.timeout(time.Duration(10*(n+1)) * time.Millisecond)
		err := c.SetMany(ctx, items)
		cancel()
		e.check(err == nil || errors.Is(err, context.DeadlineExceeded), "X2", "SetMany with a short deadline while the store is Slow", "nil, or an error that wraps ctx.Err()", errText(err))
		e.within(e.runner.patience, "X3", action, func() {
			_, err = backend.Delete(e.ctx, c, keysOf(items), func(int, []byte) bool { return true })
		})
		e.check(err == nil, "D1", action, "nil", errText(err))
		gone = append(gone, keysOf(items)...)
	}
	undo()
	e.settle(c)
	e.usable(c, "S4", action) // a write that comes after all those
	<-time.After(grace)
	e.absent(c, "S4", action, gone)
}

// deleteReopenMuch removes more than the store's own notes of free room may hold in one
// place, and opens it again.
func deleteReopenMuch(e *env) {
	location := e.location()
	c := e.open(location)
	e.needDelete(c)
	const entries = 6000 // of about a page each
	keys := e.keys("much", entries)
	items := make([]backend.Item, entries)
	for i, k := range keys {
		items[i] = backend.Item{Key: k, Value: payload(k, 1, e.sized(4000))}
	}
	e.set(c, items)
	stay := items[entries-10:]
	e.delete(c, fmt.Sprintf("Delete of %d entries", entries-10), keys[:entries-10], nil, entries-10)
	e.usable(c, "S9", "deleting much")
	e.close(c)
	c = e.openAfter(location, "S9", "Open of a store of which much was deleted")
	e.stored(c, "S9", "Delete of much else, Close, Open", stay)
	e.absent(c, "D3", "Delete of much, Close, Open", keys[:entries-10])
	e.set(c, items[:100])
	e.stored(c, "S3", "SetMany into a store of which much was deleted", items[:100])
	e.stored(c, "S9", "SetMany into a store of which much was deleted: the others", stay)
}
