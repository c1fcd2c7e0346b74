package conformance

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var crashCases = []testcase{
	{name: "crash/after-acknowledgement", rules: "S3", needs: []need{needDurable}, fn: crashAfterAcknowledgement},
	{name: "crash/in-txn", rules: "T3 S1 X3", needs: []need{needDurable}, fn: func(e *env) { e.dies("die-in-txn") }},
	{name: "crash/in-visit", rules: "S9 X3", needs: []need{needDurable}, fn: func(e *env) { e.dies("die-in-visit") }},
	{name: "crash/while-writing", rules: "S1 S3", needs: []need{needDurable}, fn: crashWhileWriting},
}

// roles are the parts that another process plays.
var roles = map[string]role{
	"write-and-die":    {"open a new store, write to it and be killed", roleWriteAndDie},
	"read-then-write":  {"open a store that is open here, read it and write to it", roleReadThenWrite},
	"stay-in-txn":      {"open a store that is open here and write to it in Txn", roleStayInTxn},
	"die-in-txn":       {"open a new store and be killed in the middle of Txn", roleDieInTxn},
	"die-in-visit":     {"open a new store and be killed in the middle of GetMany", roleDieInVisit},
	"write-on":         {"open a new store", roleWriteOn},
	"write-and-delete": {"open a new store", roleWriteAndDelete},
	"scan-on":          {"open a store that is open here and go on with a walk through it", roleScanOn},
	"delete":           {"open a store that is open here and delete from it", roleDeletes},
	"write-together":   {"open a store that is open here and write to it", roleWriteTogether},
	"write-beside":     {"open a store that is open here and write to it", roleWriteBeside},
}

// role is such a part; action goes into the message when it fails.
type role struct {
	action string
	play   func(c *child)
}

// childBatch is the n-th batch that a child writes.
func (e *env) childBatch(n int) []backend.Item {
	return e.batch(e.keys(fmt.Sprintf("child %d", n), e.atMost(64)), 1)
}

func roleWriteAndDie(c *child) {
	e := c.env()
	cache := c.open()
	for n := range c.job.Number {
		if err := cache.SetMany(context.Background(), e.childBatch(n)); err != nil {
			c.Fatalf("SetMany: %v", err)
		}
	}
	c.die()
}

func crashAfterAcknowledgement(e *env) {
	location := e.location()
	const batches = 20
	e.spawn("write-and-die", location, batches).expectEnd()
	c := e.openAfter(location, "S3", "Open after SIGKILL of a process in which SetMany had returned nil")
	for n := range batches {
		e.stored(c, "S3", fmt.Sprintf("SetMany %d of %d in a process that was killed after the last returned nil", n+1, batches), e.childBatch(n))
	}
	e.usable(c, "X3", "a process that was killed")
}

func roleReadThenWrite(c *child) {
	e := c.env()
	cache := c.open()
	mine := e.batch(e.keys("parent", e.atMost(100)), 1)
	seen := poll(c.s.lag(), func() bool {
		values, err := e.tryRead(context.Background(), cache, keysOf(mine))
		for i, value := range values {
			if err != nil || string(value) != string(mine[i].Value) {
				return false
			}
		}
		return true
	})
	if !seen {
		c.say("rule %s -- what the parent stored is not all readable here", ruleText("S3"))
		return
	}
	c.say("read all")
	if err := cache.SetMany(context.Background(), e.childBatch(0)); err != nil {
		c.say("SetMany: %v", err)
		return
	}
	c.say("wrote")
	c.hear()
	if err := cache.Close(); err != nil {
		c.say("Close: %v", err)
	}
}

func roleStayInTxn(c *child) {
	e := c.env()
	cache := c.open()
	err := cache.Txn(context.Background(), func(tx backend.Txn) error {
		if err := tx.SetMany(context.Background(), e.childBatch(0)); err != nil {
			return err
		}
		c.say("in transaction")
		c.hear()
		return nil
	})
	if err != nil {
		c.say("Txn: %v", err)
		return
	}
	c.say("done")
	if err := cache.Close(); err != nil {
		c.say("Close: %v", err)
	}
}

func roleDieInTxn(c *child) {
	e := c.env()
	cache := c.open()
	if err := cache.SetMany(context.Background(), e.childBatch(0)); err != nil {
		c.Fatalf("SetMany: %v", err)
	}
	err := cache.Txn(context.Background(), func(tx backend.Txn) error {
		if err := tx.SetMany(context.Background(), e.childBatch(1)); err != nil {
			return err
		}
		c.die()
		return nil
	})
	c.Fatalf("Txn: %v", err)
}

func roleDieInVisit(c *child) {
	e := c.env()
	cache := c.open()
	if err := cache.SetMany(context.Background(), e.childBatch(0)); err != nil {
		c.Fatalf("SetMany: %v", err)
	}
	visits := 0
	err := cache.GetMany(context.Background(), keysOf(e.childBatch(0)), func(int, []byte) error {
		if visits++; visits == 2 {
			c.die()
		}
		return nil
	})
	c.Fatalf("GetMany: %v", err)
}

// dies opens a store whose last user was killed in the middle of a call.
func (e *env) dies(role string) {
	location := e.location()
	for round := range 2 {
		p := e.spawn(role, location, 0)
		if round > 0 {
			p.action = "open the store after SIGKILL in the middle of a call, and be killed in the same way"
		}
		p.expectEnd()
		c := e.openAfter(location, "S9", "Open after SIGKILL of a process in the middle of a call")
		e.stored(c, "S3", "SetMany in a process that was then killed in another call", e.childBatch(0))
		e.absent(c, "T3", "a transaction whose process was killed in fn", keysOf(e.childBatch(1)))
		e.usable(c, "X3", "a process that was killed in a call")
		e.close(c)
	}
}

// roleWriteOn does one operation after the other, and says before and after each
// what it does. Batches are of several sizes, by SetMany and by Txn.
func roleWriteOn(c *child)        { c.writeOn(false) }
func roleWriteAndDelete(c *child) { c.writeOn(true) }

func (c *child) writeOn(deletes bool) {
	e := c.env()
	cache := c.open()
	c.say("ready")
	for n := 0; ; n++ {
		batch, version := crashOperation(n, deletes)
		items := e.crashBatch(c.job.Number, batch, version)
		c.say("begin %d", n)
		var err error
		switch {
		case version == 0:
			_, err = backend.Delete(context.Background(), cache, keysOf(items), nil)
		case n%3 == 2:
			err = setInTxn(cache, context.Background(), items)
		default:
			err = cache.SetMany(context.Background(), items)
		}
		if err != nil {
			c.say("failed %d: %v", n, err)
			continue
		}
		c.say("done %d", n)
	}
}

// crashOperation says what operation n is: the batch that it writes, and the
// version; version 0 deletes the batch. What is deleted is written again every
// other time.
func crashOperation(n int, deletes bool) (batch int, version uint64) {
	switch {
	case deletes && n%5 == 2:
		return n - 1, 0
	case deletes && n%10 == 3:
		return n - 2, 2
	}
	return n, 1
}

// crashBatch is a version of a batch of run number run.
func (e *env) crashBatch(run, n int, version uint64) []backend.Item {
	size := e.atMost([]int{1, 40, 7, 200, 3, 512, 64}[n%7])
	return e.batch(e.keys(fmt.Sprintf("run %d batch %d", run, n), size), version)
}

// crashWhileWriting kills a writer when it has said that it begins with a large
// batch: at once, and a little later. Soak does it at random times and more often.
func crashWhileWriting(e *env) {
	location := e.location()
	for run, lines := range []int{7, 11, 25} /* begin 3, 5 and 12: 200, 512 and 512 items */ {
		e.killWriter(location, run, false, func(p *process, said *crashLog) {
			for range lines {
				if !said.next(p) {
					return
				}
			}
			<-time.After(time.Duration(run) * 4 * time.Millisecond)
		})
	}
}

// crashLog is what a writer said before it was killed.
type crashLog struct {
	begun, done int // how many batches
	failed      map[int]bool
}

func (l *crashLog) take(p *process, line string) {
	var n int
	if _, err := fmt.Sscanf(line, "begin %d", &n); err == nil {
		l.begun = n + 1
	} else if _, err := fmt.Sscanf(line, "done %d", &n); err == nil {
		l.done = n + 1
	} else if _, err := fmt.Sscanf(line, "failed %d", &n); err == nil {
		l.failed[n] = true
		l.done = n + 1
		p.e.Logf("the writer: %s", line)
	} else {
		p.e.Fatalf("the writer: %s", line)
	}
}

// next waits for one more line; it returns false when the writer has ended.
func (l *crashLog) next(p *process) bool {
	line, ok := p.next()
	if ok {
		l.take(p, line)
	}
	return ok
}

// crashState is what the operations of a writer may have left of a batch.
type crashState struct {
	run, batch int
	versions   map[uint64]bool // 0 is nothing
	parts      bool            // a deletion may have been done in part
}

// statesAfter returns what may be left of each batch. One operation more than was
// announced counts: a line may be lost with the process.
func (l *crashLog) statesAfter(run int, deletes bool) []*crashState {
	var states []*crashState
	byBatch := make(map[int]*crashState)
	for n := range l.begun + 1 {
		batch, version := crashOperation(n, deletes)
		s := byBatch[batch]
		if s == nil {
			s = &crashState{run: run, batch: batch, versions: map[uint64]bool{0: true}}
			byBatch[batch] = s
			states = append(states, s)
		}
		if n < l.done && !l.failed[n] {
			s.versions, s.parts = map[uint64]bool{version: true}, false
			continue
		}
		s.versions[version] = true
		s.parts = s.parts || version == 0
	}
	return states
}

// sure says whether there is only one thing that may be left.
func (s *crashState) sure() bool { return len(s.versions) == 1 }

// check looks at what is left of the batch.
func (s *crashState) check(e *env, c getter, action string) {
	var candidates [][]backend.Item
	for version := range s.versions {
		if version > 0 {
			candidates = append(candidates, e.crashBatch(s.run, s.batch, version))
		}
	}
	keys := keysOf(e.crashBatch(s.run, s.batch, 1))
	action = fmt.Sprintf("run %d, batch %d (%d items) of %s", s.run, s.batch, len(keys), action)
	if s.sure() && s.versions[0] {
		e.absent(c, "D3", action+": deleted and acknowledged", keys)
		return
	}
	if s.sure() {
		e.stored(c, "S3", action+": acknowledged", candidates[0])
		return
	}
	values := e.read(c, keys)
	missing, matches := 0, make([]int, len(candidates))
	for i, value := range values {
		known := value == nil && s.versions[0]
		if value == nil {
			missing++
		}
		for n, batch := range candidates {
			if bytes.Equal(value, batch[i].Value) {
				matches[n]++
				known = true
			}
		}
		e.check(known, "S9", action+": its last operation was not acknowledged", "what was there before, or what the operation leaves",
			fmt.Sprintf("%d other bytes under key %d (missing: %v)", len(value), i, value == nil))
	}
	whole := missing == len(keys) || slices.Contains(matches, len(keys))
	e.check(whole || s.parts || !e.s.Want.Atomic, "S1", action+": not acknowledged", "all of it or nothing", fmt.Sprintf("%d items missing, %v of each version", missing, matches))
}

// killWriter runs a writer until kill returns, kills it, and checks what is
// stored. It returns what is sure to be left of its batches.
func (e *env) killWriter(location string, run int, deletes bool, kill func(p *process, said *crashLog)) (sure []*crashState) {
	role := "write-on"
	if deletes {
		role = "write-and-delete"
	}
	p := e.spawn(role, location, run)
	if run > 0 {
		p.action = "open the store after SIGKILL in the middle of SetMany"
	}
	p.expect("ready")
	p.action = "write until it is killed"
	said := &crashLog{failed: make(map[int]bool)}
	kill(p, said)
	err := p.cmd.Process.Kill()
	for said.next(p) {
	}
	<-p.ended
	if err != nil || p.failed() {
		p.broken("no end before it is killed")
	}
	action := fmt.Sprintf("a writer that was killed (%d operations begun, %d done)", said.begun, said.done)
	c := e.openAfter(location, "S9", "Open after SIGKILL of "+action)
	for _, state := range said.statesAfter(run, deletes) {
		state.check(e, c, action)
		if state.sure() {
			sure = append(sure, state)
		}
	}
	e.usable(c, "X3", "a writer that was killed")
	e.close(c)
	return sure
}

func roleWriteBeside(c *child) {
	e := c.env()
	cache := c.open()
	c.say("ready")
	c.hear()
	for n := 0; ; n++ {
		items := e.batch(e.keys(fmt.Sprintf("child %d batch %d", c.job.Number, n), e.atMost(1+n%60)), 1)
		if err := cache.SetMany(context.Background(), items); err != nil {
			c.say("failed %d", n)
		} else {
			c.say("done %d", n)
		}
		select {
		case <-c.lines:
			c.say("end %d", n+1)
			if err := cache.Close(); err != nil {
				c.say("Close: %v", err)
			}
			return
		default:
		}
	}
}
