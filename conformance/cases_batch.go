package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var batchCases = []testcase{
	{name: "batch/fails-at-item-0", rules: "S1 S4", needs: []need{needFault}, fn: func(e *env) { e.failsAt(0) }},
	{name: "batch/fails-at-item-1", rules: "S1 S4", needs: []need{needFault}, fn: func(e *env) { e.failsAt(1) }},
	{name: "batch/fails-at-item-256", rules: "S1 S4", needs: []need{needFault}, fn: func(e *env) { e.failsAt(256) }},
	{name: "batch/fails-at-item-511", rules: "S1 S4", needs: []need{needFault}, fn: func(e *env) { e.failsAt(511) }},
	{name: "batch/fails-in-txn", rules: "T3 S1 S4", needs: []need{needFault}, fn: batchFailsInTxn},
	{name: "batch/fails-at-commit", rules: "S1 S3 S4 T3 D4", needs: []need{needFault}, fn: batchFailsAtCommit},
	{name: "batch/fails-beside-others", rules: "S1 S3 S4", needs: []need{needFault}, fn: batchFailsBesideOthers},
	{name: "batch/written-while-read", rules: "S10", needs: []need{needSnapshot}, fn: batchWrittenWhileRead},
	{name: "batch/read-while-written", rules: "S3 S10", fn: func(e *env) { e.readWhileWritten(setDirect, 200) }},
	{name: "batch/txn-read-while-written", rules: "T3 S3 S10", fn: func(e *env) { e.readWhileWritten(setInTxn, 100) }},
	{name: "batch/two-writers", rules: "S1 S2", needs: []need{needAtomic}, fn: func(e *env) { e.writersInSomeOrder(2, 20) }},
	{name: "batch/sixteen-writers", rules: "S1 S2", needs: []need{needAtomic}, fn: func(e *env) { e.writersInSomeOrder(16, 5) }},
}

// failsAt lets the store fail in the middle of a batch of 512.
func (e *env) failsAt(item int) {
	location := e.location()
	c := e.open(location)
	n := e.atMost(512)
	if item >= n {
		e.Skipf("a batch of %d items has no item %d", n, item)
	}
	other := e.batch(e.keys("other", min(n, 20)), 1)
	e.set(c, other)
	undo := e.fault(location, Fault{Kind: FailAtItem, Item: item})
	items := e.batch(e.keys("a", n), 1)
	err := c.SetMany(e.ctx, items)
	undo()
	action := fmt.Sprintf("SetMany of %d items, during which the store fails at item %d", n, item)
	e.allOrNone(c, action, items, nil, err)
	e.stored(c, "S9", action+": what was stored before", other)
	err = c.SetMany(e.ctx, items)
	e.check(err == nil, "S4", action+", then once more without the failure", "nil", errText(err))
	e.stored(c, "S4", action+", then once more without the failure", items)
	if e.s.Want.Reach >= backend.ReachHost {
		e.seen(e.open(location), "S3", action+", then once more, read through another handle", items)
	}
}

// batchFailsAtCommit: everything was accepted, and then the commit fails. Nobody may be
// told that it is stored, or gone.
func batchFailsAtCommit(e *env) {
	location := e.location()
	c := e.open(location)
	before := e.batch(e.keys("before", 40), 1)
	e.set(c, before)
	undo := e.fault(location, Fault{Kind: FailAtCommit})
	var all []*written
	for round, n := range []int{1, 64, 3} {
		items, inTxn := e.batch(e.keys(fmt.Sprint("SetMany", round), e.atMost(n)), 1), e.batch(e.keys(fmt.Sprint("Txn", round), e.atMost(n)), 1)
		all = append(all, &written{number: round, items: items, err: c.SetMany(e.ctx, items)},
			&written{number: round, items: inTxn, err: setInTxn(c, e.ctx, inTxn)})
	}
	gone := before[:20]
	_, deleteErr := backend.Delete(e.ctx, c, keysOf(gone), nil)
	undo()
	e.settle(c)
	action := "Delete of entries whose commit fails"
	if !errors.Is(deleteErr, backend.ErrUnsupported) {
		e.goneOrThere(c, action, gone, deleteErr)
	}
	e.accountFor(location, c, "SetMany or Txn whose commit fails", all, before[20:])
}

// batchFailsBesideOthers: writers at the same time, whose batches a store may put
// together. Some of them fail; each is stored or not as its own call said.
func batchFailsBesideOthers(e *env) {
	location := e.location()
	c := e.open(location)
	before := e.batch(e.keys("before", 20), 1)
	e.set(c, before)
	most := e.atMost(12)
	undo := e.fault(location, Fault{Kind: FailAtItem, Item: most / 2})
	const writers, batches = 8, 6
	all := make([]*written, writers*batches)
	action := fmt.Sprintf("SetMany of one of 8 writers while batches of more than %d items fail", most/2)
	e.parallel(writers, func(w int) {
		for b := range batches {
			n := most
			if (w+b)%2 == 0 {
				n = max(1, most/8)
			}
			items := e.batch(e.keys(fmt.Sprintf("writer %d batch %d", w, b), n), 1)
			all[w*batches+b] = &written{writer: w, number: b, items: items, err: c.SetMany(e.ctx, items)}
		}
	})
	undo()
	e.settle(c)
	e.accountFor(location, c, action, all, before)
}

func batchFailsInTxn(e *env) {
	location := e.location()
	c := e.open(location)
	n := e.atMost(512)
	before := e.batch(e.keys("other", 20), 1)
	e.set(c, before)
	for _, item := range []int{0, n / 2, n - 1} {
		undo := e.fault(location, Fault{Kind: FailAtItem, Item: item})
		items := e.batch(e.keys(fmt.Sprint("txn", item), n), 1)
		err := c.Txn(e.ctx, func(tx backend.Txn) error {
			for at := 0; at < n; at += 64 {
				if err := tx.SetMany(e.ctx, items[at:min(at+64, n)]); err != nil {
					return err
				}
			}
			return nil
		})
		undo()
		action := fmt.Sprintf("Txn of %d items, during which the store fails at item %d", n, item)
		e.allOrNone(c, action, items, nil, err)
		e.stored(c, "S9", action+": what was stored before", before)
		e.usable(c, "S4", action)
	}
}

// batchWrittenWhileRead commits a batch, and another in a transaction, from
// another goroutine as soon as visit was called. The write may have to wait for
// the read; if it doesn't, the read must not see it.
func batchWrittenWhileRead(e *env) {
	c := e.cache()
	n := e.atMost(512)
	if limit := e.s.Want.SnapshotKeys; limit > 0 {
		n = min(n, limit)
	}
	keys := e.keys("a", n)
	e.set(c, e.batch(keys, 0))
	for round, write := range []func(setterTxn, context.Context, []backend.Item) error{setDirect, setInTxn} {
		old, fresh := e.batch(keys, uint64(round)), e.batch(keys, uint64(round+1))
		var done <-chan struct{}
		first := true
		olds, news := 0, 0
		err := c.GetMany(e.ctx, keys, func(i int, value []byte) error {
			if first {
				first = false
				done = e.background(func() {
					err := write(c, e.ctx, fresh)
					e.check(err == nil, "S3", "SetMany beside a GetMany", "nil", errText(err))
				})
				select {
				case <-done:
				case <-time.After(grace):
				}
			}
			switch {
			case bytes.Equal(value, old[i].Value):
				olds++
			case bytes.Equal(value, fresh[i].Value):
				news++
			default:
				e.broken("G4", "GetMany while the keys are written", "the value before or after", "other bytes")
			}
			return nil
		})
		e.check(done != nil, "G1", "GetMany of stored keys", "a visit", "none, and "+errText(err))
		<-done
		if e.Failed() {
			e.FailNow()
		}
		e.check(err == nil, "G2", "GetMany while the keys are written", "nil", errText(err))
		e.check(olds == n || news == n, "S10", fmt.Sprintf("GetMany of %d keys, all of which are written while visit runs", n),
			"all of the batch or nothing of it", fmt.Sprintf("%d old values and %d new ones", olds, news))
		e.stored(c, "S3", "SetMany beside a GetMany", fresh)
	}
}

// setterTxn is a Cache without the rest.
type setterTxn interface {
	setter
	Txn(ctx context.Context, fn func(tx backend.Txn) error) error
}

func setDirect(c setterTxn, ctx context.Context, items []backend.Item) error {
	return c.SetMany(ctx, items)
}

func setInTxn(c setterTxn, ctx context.Context, items []backend.Item) error {
	return c.Txn(ctx, func(tx backend.Txn) error {
		half := len(items) / 2
		if err := tx.SetMany(ctx, items[:half]); err != nil {
			return err
		}
		return tx.SetMany(ctx, items[half:])
	})
}

// readWhileWritten: one writer commits so many batches of the same keys or more, readers
// look. Each call sees one batch if Info says so, and never one that is older
// than what was acknowledged before it began.
func (e *env) readWhileWritten(write func(setterTxn, context.Context, []backend.Item) error, batches int) {
	c := e.cache()
	n := e.atMost(48)
	if limit := e.s.Want.SnapshotKeys; limit > 0 {
		n = min(n, limit)
	}
	keys := e.keys("a", n)
	// A store that takes microseconds is given more batches: what is shared by mistake
	// shows only while both are at work.
	const atLeast = 200 * time.Millisecond
	e.set(c, e.batch(keys, 0))
	var acknowledged, begun atomic.Int64
	stop := make(chan struct{})
	var readers [3]<-chan struct{}
	for i := range readers {
		readers[i] = e.background(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				least := int(acknowledged.Load())
				values := e.read(c, keys)
				most := int(begun.Load())
				e.versionsFit(keys, values, least, most)
				runtime.Gosched() // the writer's next step must not wait for time slices of readers
			}
		})
	}
	func() {
		defer func() {
			for _, done := range readers {
				<-done
			}
		}()
		defer close(stop)
		start := time.Now()
		for v := 1; (v <= batches || time.Since(start) < atLeast) && !e.Failed(); v++ {
			begun.Store(int64(v))
			err := write(c, e.ctx, e.batch(keys, uint64(v)))
			e.check(err == nil, "S3", "a write beside readers", "nil", errText(err))
			acknowledged.Store(int64(v))
			if v%20 == 0 {
				e.versionsFit(keys, e.read(c, keys), v, v)
			}
		}
	}()
	if e.Failed() {
		e.FailNow()
	}
}

// versionsFit checks one answer to a reader of keys that are all written at once.
func (e *env) versionsFit(keys []backend.Key, values [][]byte, least, most int) {
	low, high := 1<<30, -1
	version := most
	for i, value := range values {
		is := func(v int) bool { return bytes.Equal(value, payload(keys[i], uint64(v), e.size(i))) }
		if !is(version) { // of the key before
			for version = most; version >= 0 && !is(version); version-- {
			}
		}
		e.check(version >= 0, "G4", "GetMany while the keys are written", "a value that was written", fmt.Sprintf("%d other bytes for index %d", len(value), i))
		low, high = min(low, version), max(high, version)
	}
	e.check(low >= least, "S3", fmt.Sprintf("GetMany begun after batch %d was acknowledged", least), "that batch or a later one", fmt.Sprintf("batch %d", low))
	e.check(low == high || !e.s.Want.SnapshotReads, "S10", fmt.Sprintf("GetMany of %d keys while batches of all of them are written", len(values)),
		"one batch", fmt.Sprintf("values of batches %d to %d", low, high))
}

// written is one batch of several that were written at the same time.
type written struct {
	writer, number int
	items          []backend.Item
	err            error
	begun, ended   int64 // by a clock that counts; ended is 0 for a batch that failed
}

// writersInSomeOrder: batches of several writers overlap; what is stored in the
// end must be what some order of them leaves.
func (e *env) writersInSomeOrder(writers, batches int) {
	c := e.cache()
	random := e.rand("writers")
	all := make([]*written, 0, writers*batches)
	for w := range writers {
		for b := range batches {
			n := e.atMost(2 + random.IntN(40))
			keys := make([]backend.Key, 0, n)
			for _, i := range random.Perm(60)[:n] {
				keys = append(keys, e.key("a", i))
			}
			all = append(all, &written{writer: w, number: b, items: e.batch(keys, uint64(w*batches+b+1))})
		}
	}
	var clock atomic.Int64
	e.parallel(writers, func(w int) {
		for i := range batches {
			batch := all[w*batches+i]
			batch.begun = clock.Add(1)
			if (w+i)%3 == 0 {
				batch.err = setInTxn(c, e.ctx, batch.items)
			} else {
				batch.err = c.SetMany(e.ctx, batch.items)
			}
			if batch.err == nil {
				batch.ended = clock.Add(1)
			}
		}
	})
	e.someOrder(c, all, fmt.Sprintf("%d batches of %d writers with keys in common", writers*batches, writers))
}

// someOrder looks for a cycle of "must have come before". Batches that failed
// count only where a value of theirs is there.
func (e *env) someOrder(c getter, all []*written, action string) {
	byValue := make(map[string]int) // key and value to batch
	writersOf := make(map[backend.Key][]int)
	for n, batch := range all {
		for _, item := range batch.items {
			byValue[string(item.Key[:])+string(item.Value)] = n
			writersOf[item.Key] = append(writersOf[item.Key], n)
		}
	}
	keys := make([]backend.Key, 0, len(writersOf))
	for k := range writersOf {
		keys = append(keys, k)
	}
	final := make(map[backend.Key]int)
	applied := make([]bool, len(all))
	for n := range all {
		applied[n] = all[n].err == nil
	}
	for i, value := range e.read(c, keys) {
		n, known := byValue[string(keys[i][:])+string(value)]
		if value == nil {
			for _, w := range writersOf[keys[i]] {
				e.check(all[w].err != nil, "S3", action, "every acknowledged key stored", "a key of an acknowledged batch is missing")
			}
			continue
		}
		e.check(known, "G4", action, "a value that was written under the key", fmt.Sprintf("%d other bytes", len(value)))
		final[keys[i]] = n
		applied[n] = true
	}
	later := make([][]int, len(all)) // later[a]: what must have come after a
	for k, last := range final {
		for _, n := range writersOf[k] {
			if n != last && applied[n] {
				later[n] = append(later[n], last)
			}
		}
	}
	for n := range all { // what began after another had ended comes later
		for m := range all {
			if all[n].ended > 0 && all[n].ended < all[m].begun && applied[n] && applied[m] {
				later[n] = append(later[n], m)
			}
		}
	}
	state := make([]int, len(all))
	var visit func(n int)
	visit = func(n int) {
		state[n] = 1
		for _, m := range later[n] {
			e.check(state[m] != 1, "S1", action, "contents that some order of the batches leaves",
				fmt.Sprintf("a mixture: each of batches %d and %d must have come before the other", n, m))
			if state[m] == 0 {
				visit(m)
			}
		}
		state[n] = 2
	}
	for n := range all {
		if state[n] == 0 {
			visit(n)
		}
	}
}
