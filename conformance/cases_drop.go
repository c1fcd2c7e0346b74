package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var dropCases = []testcase{
	{name: "drop/sixteen-writers", rules: "S3 S9", fn: dropSixteenWriters},
	{name: "drop/many-batches", rules: "S3 S9", fn: dropManyBatches},
	{name: "drop/at-the-limits", rules: "S3 S8", room: 64 << 20, fn: dropAtTheLimits},
	{name: "drop/reopen", rules: "S3 S9", needs: []need{needDurable}, fn: dropReopen},
	{name: "drop/reopen-often", rules: "S3 S9", needs: []need{needDurable}, fn: dropReopenOften},
	{name: "drop/other-handle", rules: "S2 S3", needs: []need{needHost, needNoCopies}, fn: dropOtherHandle},
	{name: "drop/writers-through-handles", rules: "S1 S3", needs: []need{needHost}, fn: dropWritersThroughHandles},
	{name: "drop/writers-through-processes", rules: "S1 S3", needs: []need{needHost}, fn: dropWritersThroughProcesses},
	{name: "drop/two-handles", rules: "S3 S9 X3", needs: []need{needDurable, needOneHandle}, fn: dropTwoHandles},
	{name: "drop/other-process", rules: "S3", needs: []need{needHost}, fn: dropOtherProcess},
	{name: "drop/process-holds-lock", rules: "S3 X2 X3", needs: []need{needHost}, fn: dropProcessHoldsLock},
	{name: "drop/locked", rules: "S1 S3 X3", needs: []need{needFault}, fn: func(e *env) { e.writersUnder(Locked) }},
	{name: "drop/full", rules: "S1 S3 S9", needs: []need{needFault}, room: 64 << 20, fn: dropFull},
	{name: "drop/slow", rules: "S1 S3", needs: []need{needFault}, fn: func(e *env) { e.writersUnder(Slow) }},
	{name: "drop/cut", rules: "S1 S3 S9", needs: []need{needFault}, fn: func(e *env) { e.writersUnder(Cut) }},
}

// dropSixteenWriters: each writer reads what was acknowledged to it at once, and
// everything is there in the end.
func dropSixteenWriters(e *env) {
	c := e.cache()
	const writers, batches = 16, 10
	all := make([][]backend.Item, writers*batches)
	e.parallel(writers, func(w int) {
		for b := range batches {
			items := e.batch(e.keys(fmt.Sprintf("writer %d batch %d", w, b), e.atMost(8+w)), 1)
			var err error
			if b%4 == 3 {
				err = setInTxn(c, e.ctx, items)
			} else {
				err = c.SetMany(e.ctx, items)
			}
			e.check(err == nil, "S3", "SetMany of one of 16 writers", "nil", errText(err))
			e.stored(c, "S3", "SetMany of one of 16 writers, read by itself", items)
			all[w*batches+b] = items
		}
	})
	for _, items := range all {
		e.stored(c, "S9", "SetMany of one of 16 writers, read after all have written", items)
	}
}

func dropManyBatches(e *env) {
	c := e.cache()
	var all []backend.Item
	for b := range 150 {
		items := e.batch(e.keys(fmt.Sprint("batch", b), e.atMost(1+b%23)), 1)
		e.set(c, items)
		all = append(all, items...)
	}
	e.stored(c, "S9", "150 batches", all)
}

// dropAtTheLimits stores batches as large as Info allows, up to 8 MiB, and then
// looks at all of them.
func dropAtTheLimits(e *env) {
	c := e.cache()
	const bytes = 8 << 20
	each, items := 16<<10, 512
	each = e.sized(each)
	if limit := e.s.Want.MaxBatchItems; limit > 0 {
		items = min(items, limit)
	}
	if limit := e.s.Want.MaxBatchBytes; limit > 0 {
		each = min(each, limit)
		items = min(items, limit/each)
	}
	items = min(items, bytes/each)
	var all []backend.Item
	for b := range 2 {
		batch := make([]backend.Item, items)
		for i := range batch {
			k := e.key(fmt.Sprint("batch", b), i)
			batch[i] = backend.Item{Key: k, Value: payload(k, 1, each)}
		}
		err := c.SetMany(e.ctx, batch)
		action := fmt.Sprintf("SetMany of %d values of %d bytes, as Info allows", items, each)
		e.check(err == nil, "S8", action, "nil", errText(err))
		all = append(all, batch...)
	}
	e.stored(c, "S3", fmt.Sprintf("two batches of %d values of %d bytes", items, each), all)

	// Where nothing is declared, a batch of 20 MiB is within it.
	if e.s.Want.MaxBatchBytes > 0 || e.s.Want.MaxBatchItems > 0 {
		return
	}
	batch := make([]backend.Item, 5)
	for i := range batch {
		k := e.key("large", i)
		batch[i] = backend.Item{Key: k, Value: payload(k, 1, e.sized(4<<20))}
	}
	action := "SetMany of 5 values of up to 4 MiB, as Info allows"
	e.within(2*e.runner.patience, "X3", action, func() {
		err := c.SetMany(e.ctx, batch)
		e.check(err == nil, "S8", action, "nil", errText(err))
	})
	e.stored(c, "S3", action, batch)
}

func dropReopen(e *env) {
	location := e.location()
	c := e.open(location)
	items := e.batch(e.keys("a", 600), 1)
	e.set(c, items)
	again := e.batch(e.keys("a", e.atMost(100)), 2)
	e.set(c, again)
	inTxn := e.batch(e.keys("txn", e.atMost(100)), 1)
	err := setInTxn(c, e.ctx, inTxn)
	e.check(err == nil, "T3", "Txn", "nil", errText(err))
	k := e.key("large", 0)
	large := []backend.Item{{Key: k, Value: payload(k, 1, e.sized(1<<20))}}
	e.set(c, large)
	e.close(c)
	c = e.open(location)
	action := "SetMany, Close, Open"
	e.stored(c, "S3", action, again)
	e.stored(c, "S3", action, items[len(again):])
	e.stored(c, "S3", "Txn, Close, Open", inTxn)
	e.stored(c, "S3", action+", a large value", large)
	e.absent(c, "G2", action+", keys that were never written", e.keys("never", 20))
	e.usable(c, "S3", "opening again")
}

func dropReopenOften(e *env) {
	location := e.location()
	var all []backend.Item
	for round := range 8 {
		c := e.open(location)
		e.stored(c, "S9", fmt.Sprintf("batches of %d earlier handles", round), all)
		items := e.batch(e.keys(fmt.Sprint("round", round), e.atMost(20)), 1)
		e.set(c, items)
		all = append(all, items...)
		e.close(c)
	}
}

func dropOtherHandle(e *env) {
	location := e.location()
	one, two := e.open(location), e.open(location)
	keys := e.keys("a", e.atMost(50))
	for version := uint64(1); version <= 12; version++ {
		writer, reader := one, two
		if version%2 == 0 {
			writer, reader = two, one
		}
		items := e.batch(keys, version)
		e.set(writer, items)
		e.stored(writer, "S3", "SetMany through one of two handles, read through it", items)
		e.seen(reader, "S3", "SetMany through one of two handles, read through the other", items)
	}
	late := e.open(location)
	e.seen(late, "S3", "SetMany, read through a handle that was opened afterwards", e.batch(keys, 12))
}

// dropWritersThroughHandles: several handles write at the same time. A write may
// fail for want of a lock, but not in silence.
func dropWritersThroughHandles(e *env) {
	location := e.location()
	const handles, batches = 4, 10
	open := make([]backend.Cache, handles)
	for h := range open {
		open[h] = e.open(location)
	}
	all := make([]*written, handles*batches)
	e.parallel(handles, func(h int) {
		for b := range batches {
			items := e.batch(e.keys(fmt.Sprintf("handle %d batch %d", h, b), e.atMost(20)), 1)
			all[h*batches+b] = &written{writer: h, number: b, items: items, err: open[h].SetMany(e.ctx, items)}
		}
	})
	stored := 0
	for _, batch := range all {
		action := "SetMany through one of 4 handles that write at the same time"
		if batch.err == nil {
			stored++
			e.seen(open[(batch.writer+1)%handles], "S3", action+", read through another", batch.items)
		}
		e.allOrNone(open[batch.writer], action, batch.items, nil, batch.err)
	}
	e.check(stored > 0, "S3", "40 batches through 4 handles", "at least one that is stored", "none is")
}

func dropOtherProcess(e *env) {
	location := e.location()
	c := e.open(location)
	mine := e.batch(e.keys("parent", e.atMost(100)), 1)
	e.set(c, mine)
	p := e.spawn("read-then-write", location, 0)
	p.expect("read all")
	p.expect("wrote")
	e.seen(c, "S3", "SetMany in another process, read through a handle that was open before", e.batch(e.keys("child 0", e.atMost(64)), 1))
	p.tell("end")
	p.expectEnd()
	e.stored(c, "S9", "SetMany, and the use of the store by another process", mine)
}

// dropProcessHoldsLock: another process is inside a transaction that has
// written. Writes beside it may go on, wait or fail; they may not get lost.
func dropProcessHoldsLock(e *env) {
	location := e.location()
	c := e.open(location)
	p := e.spawn("stay-in-txn", location, 0)
	p.expect("in transaction")
	type attempt struct {
		items []backend.Item
		err   error
	}
	var attempts []attempt
	for i := range 3 {
		items := e.batch(e.keys(fmt.Sprint("attempt", i), e.atMost(20)), 1)
		ctx, cancel := e.timeout(60 * time.Millisecond)
		action := "SetMany with a deadline of 60 ms while another process is in a transaction"
		e.within(min(5*time.Second, e.runner.patience), "X2", action, func() {
			err := c.SetMany(ctx, items)
			attempts = append(attempts, attempt{items, err})
		})
		cancel()
	}
	items := e.batch(e.keys("no deadline", e.atMost(20)), 1)
	e.within(e.runner.patience, "X3", "SetMany without a deadline while another process is in a transaction", func() {
		attempts = append(attempts, attempt{items, c.SetMany(e.ctx, items)})
	})
	e.absent(c, "T3", "GetMany while another process is in a transaction that has written", e.keys("child 0", e.atMost(64)))
	p.tell("commit")
	p.expect("done")
	for _, a := range attempts {
		e.allOrNone(c, "SetMany while another process is in a transaction", a.items, nil, a.err)
	}
	e.seen(c, "T3", "Txn of another process that ended with nil", e.batch(e.keys("child 0", e.atMost(64)), 1))
	e.usable(c, "X3", "another process's transaction")
	p.expectEnd()
}

// writersUnder: four writers, one of them with transactions, while the store
// misbehaves; then everything that was acknowledged has to be there.
func (e *env) writersUnder(kind FaultKind) {
	location := e.location()
	c := e.open(location)
	before := e.batch(e.keys("before", e.atMost(100)), 1)
	e.set(c, before)
	undo := e.fault(location, Fault{Kind: kind})
	const writers = 4
	batches := 2
	if kind == Locked {
		batches = 1 // each waits for a time-out
	}
	all := make([]*written, writers*batches)
	action := fmt.Sprintf("SetMany of one of 4 writers while the store is %v", kind)
	e.within(2*e.runner.patience, "X3", action, func() {
		e.parallel(writers, func(w int) {
			for b := range batches {
				items := e.batch(e.keys(fmt.Sprintf("writer %d batch %d", w, b), e.atMost(30)), 1)
				batch := &written{writer: w, number: b, items: items}
				if w == 3 {
					batch.err = setInTxn(c, e.ctx, items)
				} else {
					batch.err = c.SetMany(e.ctx, items)
				}
				all[w*batches+b] = batch
			}
		})
	})
	e.notMissing(c, kind, before)
	undo()
	e.settle(c)
	e.accountFor(location, c, action, all, before)
}

// notMissing reads while the store misbehaves: it may fail, but what is stored
// isn't missing.
func (e *env) notMissing(c getter, kind FaultKind, items []backend.Item) {
	ctx, cancel := e.timeout(5 * time.Second)
	defer cancel()
	values, err := e.tryRead(ctx, c, keysOf(items))
	for i, value := range values {
		e.check(err != nil || value != nil, "G1", fmt.Sprintf("GetMany of stored keys while the store is %v", kind),
			"a visit for each, or an error", fmt.Sprintf("nil, and no visit of index %d", i))
	}
}

// accountFor checks each batch against what its call returned, on the handle and
// on others as far as Info reaches.
func (e *env) accountFor(location string, c backend.Cache, action string, all []*written, before []backend.Item) {
	e.stored(c, "S9", action+": what was stored before", before)
	for _, batch := range all {
		e.allOrNone(c, action, batch.items, nil, batch.err)
	}
	e.usable(c, "X3", action)
	if e.s.Want.Durability < backend.SurvivesCrash {
		return
	}
	e.close(c)
	again := e.open(location)
	e.stored(again, "S9", action+", after opening again: what was stored before", before)
	for _, batch := range all {
		if batch.err == nil {
			e.stored(again, "S3", action+", which returned nil, after opening again", batch.items)
		} else {
			e.allOrNone(again, action+", after opening again", batch.items, nil, batch.err)
		}
	}
}

// dropFull writes 64 KiB values into a store without room until it says no.
func dropFull(e *env) {
	location := e.location()
	c := e.open(location)
	before := e.batch(e.keys("before", e.atMost(100)), 1)
	e.set(c, before)
	undo := e.fault(location, Fault{Kind: Full})
	var all []*written
	action := "SetMany into a store that has no room"
	refused := 0
	for b := 0; b < 24 && refused < 3; b++ {
		items := make([]backend.Item, e.atMost(16))
		for i := range items {
			k := e.key(fmt.Sprint("full", b), i)
			size := e.sized(64 << 10)
			if limit := e.s.Want.MaxBatchBytes; limit > 0 {
				size = max(1, min(size, limit/len(items)))
			}
			items[i] = backend.Item{Key: k, Value: payload(k, 1, size)}
		}
		batch := &written{number: b, items: items}
		if b%2 == 1 {
			batch.err = setInTxn(c, e.ctx, items)
		} else {
			batch.err = c.SetMany(e.ctx, items)
		}
		if batch.err != nil {
			refused++
			e.check(!errors.Is(batch.err, backend.ErrTooLarge), "S8", action, "an error that isn't ErrTooLarge, as the batch is within Info's limits", errText(batch.err))
		}
		all = append(all, batch)
	}
	e.stored(c, "S9", action+": what was stored before, while there is no room", before)
	undo()
	e.settle(c)
	e.accountFor(location, c, action, all, before)
}
