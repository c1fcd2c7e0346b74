package conformance

import (
	"context"
	"fmt"

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
	"write-and-die":   {"open a new store, write to it and be killed", roleWriteAndDie},
	"read-then-write": {"open a store that is open here, read it and write to it", roleReadThenWrite},
	"stay-in-txn":     {"open a store that is open here and write to it in Txn", roleStayInTxn},
	"die-in-txn":      {"open a new store and be killed in the middle of Txn", roleDieInTxn},
	"die-in-visit":    {"open a new store and be killed in the middle of GetMany", roleDieInVisit},
	"write-on":        {"open a new store", roleWriteOn},
	"write-beside":    {"open a store that is open here and write to it", roleWriteBeside},
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
	c := e.open(location)
	for n := range batches {
		e.stored(c, "S3", fmt.Sprintf("SetMany %d of %d in a process that was killed after the last returned nil", n+1, batches), e.childBatch(n))
	}
	e.usable(c, "X3", "a process that was killed")
}

func roleReadThenWrite(c *child) {
	e := c.env()
	cache := c.open()
	mine := e.batch(e.keys("parent", e.atMost(100)), 1)
	seen := poll(c.s.Consistency, func() bool {
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
		c := e.open(location)
		e.stored(c, "S3", "SetMany in a process that was then killed in another call", e.childBatch(0))
		e.absent(c, "T3", "a transaction whose process was killed in fn", keysOf(e.childBatch(1)))
		e.usable(c, "X3", "a process that was killed in a call")
		e.close(c)
	}
}

// roleWriteOn writes batch after batch, and says before and after each what it
// does. Batches are of several sizes, by SetMany and by Txn, and every seventh
// writes the keys of the one before.
func roleWriteOn(c *child) {
	e := c.env()
	cache := c.open()
	c.say("ready")
	for n := 0; ; n++ {
		items := e.crashBatch(c.job.Number, n)
		c.say("begin %d", n)
		var err error
		if n%3 == 2 {
			err = setInTxn(cache, context.Background(), items)
		} else {
			err = cache.SetMany(context.Background(), items)
		}
		if err != nil {
			c.say("failed %d: %v", n, err)
			continue
		}
		c.say("done %d", n)
	}
}

// crashBatch is batch n of run number run.
func (e *env) crashBatch(run, n int) []backend.Item {
	size := e.atMost([]int{1, 40, 7, 200, 3, 512, 64}[n%7])
	return e.batch(e.keys(fmt.Sprintf("run %d batch %d", run, n), size), 1)
}

// crashWhileWriting kills a writer when it has said that it begins with a large
// batch. Soak does it at random times and more often.
func crashWhileWriting(e *env) {
	location := e.location()
	for run, lines := range []int{7, 11, 25} /* begin 3, 5 and 12: 200, 512 and 512 items */ {
		e.killWriter(location, run, func(p *process, said *crashLog) {
			for range lines {
				if !said.next(p) {
					return
				}
			}
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

// killWriter runs a writer until kill returns, kills it, and checks what is
// stored. It returns the numbers of the acknowledged batches.
func (e *env) killWriter(location string, run int, kill func(p *process, said *crashLog)) (acknowledged []int) {
	p := e.spawn("write-on", location, run)
	if run > 0 {
		p.action = "open the store after SIGKILL in the middle of SetMany"
	}
	p.expect("ready")
	p.action = "call SetMany and Txn until it is killed"
	said := &crashLog{failed: make(map[int]bool)}
	kill(p, said)
	err := p.cmd.Process.Kill()
	for said.next(p) {
	}
	<-p.ended
	if err != nil || p.failed() {
		p.broken("no end before it is killed")
	}
	c := e.open(location)
	// One more than was announced: a line may be lost with the process.
	for n := range said.begun + 1 {
		items := e.crashBatch(run, n)
		action := fmt.Sprintf("run %d, batch %d (%d items) of a writer that was killed (%d begun, %d done)", run, n, len(items), said.begun, said.done)
		if n < said.done && !said.failed[n] {
			acknowledged = append(acknowledged, n)
			e.stored(c, "S3", action+": acknowledged", items)
			continue
		}
		now, _ := e.contents(c, action, items, nil)
		e.check(now == 0 || now == len(items) || !e.s.Want.Atomic, "S1", action+": not acknowledged",
			"all of it or nothing", fmt.Sprintf("%d items", now))
	}
	e.usable(c, "X3", "a writer that was killed")
	e.close(c)
	return acknowledged
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
