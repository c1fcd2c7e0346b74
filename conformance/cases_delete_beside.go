package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// Cases of the group delete in which others write, contexts end, stores close or
// misbehave.

func deleteWrittenMeanwhile(e *env) {
	location := e.location()
	c := e.open(location)
	e.needDelete(c)
	e.writtenMeanwhile(c, c, "another goroutine")
}

func deleteWrittenByAnotherHandle(e *env) {
	location := e.location()
	c := e.open(location)
	e.needDelete(c)
	e.writtenMeanwhile(c, e.open(location), "another handle")
}

// writtenMeanwhile overwrites an entry as soon as match has seen it. The write may
// have to wait for Delete; either way the new value is there in the end.
func (e *env) writtenMeanwhile(c, writer backend.Cache, who string) {
	for round, n := range []int{1, 3, 100} {
		keys := e.keys(fmt.Sprint("round", round), n)
		old, fresh := e.batch(keys, 1), e.batch(keys, 2)
		e.set(c, old)
		e.seen(writer, "S3", "SetMany, read through "+who, old)
		target := n / 2
		action := fmt.Sprintf("Delete of %d entries, one of which %s overwrites when match has seen it", n, who)
		var done <-chan struct{}
		var writeErr error
		inside, again := false, false // the write was over before match returned; match saw what it wrote
		removed, err := backend.Delete(e.ctx, c, keys, func(i int, value []byte) bool {
			isOld := bytes.Equal(value, old[i].Value)
			again = again || i == target && !isOld
			e.check(isOld || i == target && bytes.Equal(value, fresh[i].Value), "D5", action, "the value before the write or after it", fmt.Sprintf("%d other bytes", len(value)))
			if i == target && done == nil {
				done = e.background(func() { writeErr = writer.SetMany(e.ctx, fresh[i:i+1]) })
				select {
				case <-done:
					inside = writeErr == nil
				case <-time.After(grace):
				}
			}
			return isOld
		})
		e.check(done != nil, "D5", action, "a call of match for each stored key", "none, and "+errText(err))
		known := writer == c || e.s.lag() == 0 && !e.s.Want.Copies // else this handle need not see it yet
		e.check(err != nil || again || !inside || !known, "D5", action, "another call of match, with the new value", "none")
		e.within(e.runner.patience, "X3", "SetMany beside Delete", func() { <-done })
		if writeErr == nil {
			e.stored(writer, "D2", action+"; read through "+who, fresh[target:target+1])
			e.seen(c, "D2", action, fresh[target:target+1])
		}
		others := slices.Delete(slices.Clone(keys), target, target+1)
		if err == nil && n > 1 {
			e.absent(c, "D3", action+": the others", others)
		}
		e.check(err != nil || removed == n-1 || removed == n, "D1", action, fmt.Sprintf("%d or %d entries removed", n-1, n), fmt.Sprint(removed))
	}
}

// deleteBesideWriters: what others write meanwhile stays, under other keys and
// under those that are deleted if they have their old values.
func deleteBesideWriters(e *env) {
	_, c, items := e.deletable(400)
	keys := keysOf(items)
	fresh := e.batch(keys, 2)
	var deleteErr error
	acknowledged := make([]bool, len(keys))
	own := make([][]backend.Item, 2)
	const piece = 40
	looked := make(chan int, len(keys)/piece) // match has begun to look at a piece
	e.parallel(4, func(w int) {
		switch w {
		case 0:
			defer close(looked)
			for at := 0; at < len(keys) && deleteErr == nil; at += piece {
				first := true
				_, deleteErr = backend.Delete(e.ctx, c, keys[at:at+piece], func(i int, value []byte) bool {
					if first {
						first = false
						looked <- at
					}
					return bytes.Equal(value, items[at+i].Value)
				})
			}
		case 1:
			for at := range looked {
				for i := at; i < at+piece; i += 4 {
					e.set(c, fresh[i:i+2])
					acknowledged[i], acknowledged[i+1] = true, true
				}
			}
		default:
			for b := range 25 {
				batch := e.batch(e.keys(fmt.Sprintf("writer %d batch %d", w, b), e.atMost(8)), 1)
				e.set(c, batch)
				e.stored(c, "S9", "SetMany beside a Delete of other keys", batch)
				own[w-2] = append(own[w-2], batch...)
			}
		}
	})
	e.check(deleteErr == nil, "D1", "Delete beside writers", "nil", errText(deleteErr))
	for _, batch := range own {
		e.stored(c, "S9", "SetMany beside a Delete of other keys", batch)
	}
	for i, value := range e.read(c, keys) {
		switch {
		case acknowledged[i]:
			e.check(bytes.Equal(value, fresh[i].Value), "D2", "Delete of entries with their old values, some of which are overwritten meanwhile",
				"every new value", fmt.Sprintf("%d other bytes for index %d (missing: %v)", len(value), i, value == nil))
		default:
			e.check(value == nil, "D3", "Delete beside writers", "everything removed that match wanted", fmt.Sprintf("a value under index %d", i))
		}
	}
}

// deleteSeveral: of several that delete the same, one has removed each entry.
func deleteSeveral(e *env) {
	_, c, items := e.deletable(400)
	keys := keysOf(items)
	var total atomic.Int64
	e.parallel(4, func(int) {
		for at := 0; at < len(keys); at += 20 {
			total.Add(int64(e.remove(c, keys[at:at+20])))
			e.absent(c, "D3", "Delete beside others of the same keys", keys[at:at+20])
		}
	})
	e.check(total.Load() == int64(len(keys)), "D1", "4 goroutines that delete the same 400 entries", "400 removed in all", fmt.Sprint(total.Load()))
}

func deleteEndedContext(e *env) {
	_, c, items := e.deletable(20)
	for how, ctx := range e.ended() {
		for _, keys := range [][]backend.Key{keysOf(items), nil} {
			calls := 0
			for _, match := range []func(int, []byte) bool{nil, func(int, []byte) bool { calls++; return true }} {
				removed, err := backend.Delete(ctx, c, keys, match)
				action := fmt.Sprintf("Delete of %d keys with a context that is %s", len(keys), how)
				e.check(errors.Is(err, ctx.Err()), "X1", action, "an error that wraps ctx.Err()", errText(err))
				e.check(removed == 0 && calls == 0, "X1", action, "nothing removed, no call of match", fmt.Sprintf("%d removed, %d calls", removed, calls))
				e.stored(c, "X1", action, items)
			}
		}
	}
}

func deleteEndsAtEachLook(e *env) {
	_, c, others := e.deletable(20)
	items := e.batch(e.keys("b", 64), 1)
	e.eachLook("Delete of 64 keys", func(ctx context.Context, n int, action string) error {
		e.set(c, items)
		var match func(int, []byte) bool
		if n%2 == 0 {
			match = func(int, []byte) bool { return true }
		}
		_, err := backend.Delete(ctx, c, keysOf(items), match)
		e.goneOrThere(c, action, items, err)
		e.stored(c, "D4", action+": other entries", others)
		return err
	})
	_, many, items := e.deletable(2500)
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	calls := 0
	_, err := backend.Delete(ctx, many, keysOf(items), func(int, []byte) bool { cancel(); calls++; return true })
	action := "Delete whose context is cancelled in the first match"
	e.check(calls <= mostAfterEnd, "X2", action, fmt.Sprintf("an end within %d calls of match", mostAfterEnd), fmt.Sprintf("%d calls", calls))
	e.goneOrThere(many, action, items, err)
	e.delete(c, "Delete after calls that were cancelled", keysOf(others), nil, len(others))
	e.usable(c, "X3", "calls of Delete that were cancelled")
}

// goneOrThere checks what a Delete that ended with err has left of items.
func (e *env) goneOrThere(c getter, action string, items []backend.Item, err error) {
	for i, value := range e.read(c, keysOf(items)) {
		e.check(err != nil || value == nil, "D3", action+", which returned nil", "everything removed", fmt.Sprintf("a value under index %d", i))
		e.check(value == nil || bytes.Equal(value, items[i].Value), "D4", action+", which returned "+errText(err), "each value as it was, or none", fmt.Sprintf("%d other bytes", len(value)))
	}
}

func deleteClosed(e *env) {
	_, c, items := e.deletable(5)
	e.close(c)
	for _, keys := range [][]backend.Key{keysOf(items), nil} {
		removed, err := backend.Delete(e.ctx, c, keys, nil)
		e.check(errors.Is(err, backend.ErrClosed) && removed == 0, "C3", fmt.Sprintf("Delete of %d keys after Close", len(keys)), "ErrClosed, nothing removed",
			fmt.Sprintf("%s, %d removed", errText(err), removed))
	}
}

func deleteCloseWaits(e *env) {
	location, c, items := e.deletable(100)
	calls := 0
	err := e.closeWhile(c, "Close while match of a Delete runs", true, func(inside func()) error {
		_, err := backend.Delete(e.ctx, c, keysOf(items), func(int, []byte) bool {
			if calls++; calls == 50 {
				inside()
			}
			return true
		})
		return err
	})
	e.check(err == nil, "C2", "Delete during which Close is called", "nil", errText(err))
	if e.s.Want.Durability >= backend.SurvivesCrash {
		e.absent(e.open(location), "D3", "Delete during which Close is called, after opening again", keysOf(items))
	}
}
