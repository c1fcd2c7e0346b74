package conformance

import (
	"fmt"
	"math/big"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// Cases of the group drop with several handles or processes that write.

// dropTwoHandles opens a store a second time that one handle has for itself. The
// second handle may be refused, or both may work: what either of them
// acknowledges is kept.
func dropTwoHandles(e *env) {
	for first := range 2 {
		if !e.twoHandles(first) {
			return
		}
	}
}

// twoHandles closes the handle number first before the other one. It returns
// false if the second handle is refused.
func (e *env) twoHandles(first int) bool {
	location := e.location()
	handles := []backend.Cache{e.open(location)}
	common := e.keys("common", e.atMost(20))
	last := [][]backend.Item{e.batch(common, 1)} // the batches that may be the last one stored under them
	e.set(handles[0], last[0])
	action := "Open of a second handle while the first one is open"
	e.within(e.runner.patience, "X3", action, func() {
		two, refusal := e.tryOpen(location)
		if refusal != "" {
			e.Logf("%s: %s", action, refusal)
			return
		}
		handles = append(handles, two)
	})
	var all []*written
	write := func(h int, name string) {
		batch := &written{writer: h, items: e.batch(e.keys(name, e.atMost(20)), 1)}
		batch.err = handles[h].SetMany(e.ctx, batch.items)
		all = append(all, batch)
		e.check(batch.err == nil || len(handles) > 1, "S3", "SetMany through a handle beside which another was refused", "nil", errText(batch.err))
	}
	action = fmt.Sprintf("SetMany through each of %d handles on a store that reaches one handle", len(handles))
	for round := range 6 {
		h := round % len(handles)
		write(h, fmt.Sprint("round", round))
		items := e.batch(common, uint64(round+2))
		if err := handles[h].SetMany(e.ctx, items); err == nil {
			last = last[:0]
			e.stored(handles[h], "S3", action+", read by itself", items)
		}
		last = append(last, items)
	}
	beside := make([][]*written, len(handles))
	e.parallel(len(handles), func(h int) {
		for b := range 10 {
			items := e.batch(e.keys(fmt.Sprintf("beside %d %d", h, b), e.atMost(20)), 1)
			beside[h] = append(beside[h], &written{writer: h, items: items, err: handles[h].SetMany(e.ctx, items)})
		}
	})
	for _, own := range beside {
		all = append(all, own...)
	}
	for _, batch := range all {
		e.allOrNone(handles[batch.writer], action+", read by itself", batch.items, nil, batch.err)
	}
	if len(handles) > 1 {
		e.close(handles[first])
		write(1-first, "after the other was closed")
		e.close(handles[1-first])
	} else {
		e.close(handles[0])
	}
	c := e.openAfter(location, "S9", "Open after each handle of the store was closed")
	stored := 0
	for _, batch := range all {
		if batch.err == nil {
			stored++
			e.stored(c, "S9", action+", after opening again", batch.items)
		}
		e.allOrNone(c, action+", after opening again", batch.items, nil, batch.err)
	}
	e.check(stored > 0, "S3", action, "at least one batch that is stored", "none is")
	whole, _ := e.contentsOf(c, action+" with keys in common, after opening again", last...)
	e.check(whole || !e.s.Want.Atomic, "S1", action+" with keys in common, after opening again", "the last batch, whole", "a mixture")
	return len(handles) > 1
}

// A writer of dropWritersThroughProcesses writes enough batches for long enough, on
// a fast store and on a slow one, that those which start with it write beside it.
func together(n int, since time.Duration) bool {
	switch {
	case n < 20:
		return true
	case n < 150:
		return since < 250*time.Millisecond
	}
	return n < 3000 && since < 60*time.Millisecond
}

// togetherBatch is batch n of a writer.
func (e *env) togetherBatch(writer string, n int) []backend.Item {
	return e.batch(e.keys(fmt.Sprintf("%s batch %d", writer, n), e.atMost(1+n%4)), 1)
}

// writeTogether writes until enough is written. done has a bit for each batch
// that was acknowledged.
func (e *env) writeTogether(c backend.Cache, writer string) (done *big.Int, n int) {
	done = new(big.Int)
	for start := time.Now(); together(n, time.Since(start)); n++ {
		if c.SetMany(e.ctx, e.togetherBatch(writer, n)) == nil {
			done.SetBit(done, n, 1)
		}
	}
	return done, n
}

func roleWriteTogether(c *child) {
	e := c.env()
	cache := c.open()
	c.say("ready")
	c.hear()
	done, n := e.writeTogether(cache, fmt.Sprint("child ", c.job.Number))
	c.say("wrote %d %x", n, done)
	if err := cache.Close(); err != nil {
		c.say("Close: %v", err)
	}
}

// dropWritersThroughProcesses: two processes and a handle of this one write at
// the same time, again and again. A write may fail for want of a lock, but not in
// silence.
func dropWritersThroughProcesses(e *env) {
	location := e.location()
	c := e.open(location)
	const children = 2
	var processes []*process
	for i := range children {
		p := e.spawn("write-together", location, i)
		p.expect("ready")
		processes = append(processes, p)
	}
	for _, p := range processes {
		p.tell("go")
	}
	type writer struct {
		name string
		done *big.Int
		n    int
	}
	own := writer{name: "parent"}
	own.done, own.n = e.writeTogether(c, own.name)
	writers := []writer{own}
	for i, p := range processes {
		w := writer{name: fmt.Sprint("child ", i), done: new(big.Int)}
		line, ok := p.next()
		if !ok {
			<-p.ended
			p.broken("that it says what it wrote")
		}
		if _, err := fmt.Sscanf(line, "wrote %d %x", &w.n, w.done); err != nil {
			e.Fatalf("a writer: %s", line)
		}
		p.expectEnd()
		writers = append(writers, w)
	}
	stored := 0
	for _, reader := range []backend.Cache{c, e.open(location)} {
		for _, w := range writers {
			action := fmt.Sprintf("SetMany of %s, one of %d processes that write at the same time", w.name, len(writers))
			var acknowledged []backend.Item
			for n := range w.n {
				items := e.togetherBatch(w.name, n)
				if w.done.Bit(n) == 1 {
					acknowledged = append(acknowledged, items...)
					continue
				}
				now, _ := e.contents(reader, action, items, nil)
				e.check(now == 0 || now == len(items) || !e.s.Want.Atomic, "S1", action+", not acknowledged", "all or nothing", fmt.Sprintf("%d of %d items", now, len(items)))
			}
			e.seen(reader, "S3", fmt.Sprintf("%s (%d batches)", action, w.n), acknowledged)
			stored += len(acknowledged)
		}
	}
	e.check(stored > 0, "S3", "SetMany of several processes", "at least one batch that is stored", "none is")
}
