package conformance

import (
	"strings"

	"github.com/embedonce/embedonce/backend"
)

// location makes a place for a store.
func (e *env) location() string {
	e.labelled(false)
	defer e.labelled(true)
	return e.s.New(e)
}

// open opens the store at location, and closes it when the case ends.
func (e *env) open(location string) backend.Cache {
	return e.openAfter(location, "S3", "Open")
}

// openAfter is open where Open has to get over something that was done to the
// store. If it doesn't, that breaks rule.
func (e *env) openAfter(location, rule, action string) backend.Cache {
	c, refusal := e.tryOpen(location)
	e.check(refusal == "", rule, action, "a handle on the store", refusal)
	return c
}

// tryOpen is open for a store that may refuse: what Open said before it failed or
// panicked comes back as the refusal.
func (e *env) tryOpen(location string) (c backend.Cache, refusal string) {
	opening := &recorder{TB: e.TB, name: e.name, ctx: e.recorder.ctx, cancel: func() {}}
	// Open may end its goroutine.
	<-e.background(func() {
		defer opening.recover()
		c = e.s.Open(opening, location)
	})
	// What it made lives as long as the case, whether it failed or not.
	opening.mu.Lock()
	cleanups := opening.cleanups
	opening.mu.Unlock()
	for _, cleanup := range cleanups {
		e.Cleanup(cleanup)
	}
	failed, skipped, messages := opening.close()
	if c != nil {
		e.Cleanup(func() { e.close(c) })
	}
	switch {
	case failed:
		return nil, "it failed: " + strings.Join(messages, "\n")
	case skipped:
		e.add(messages)
		e.SkipNow()
	case c == nil:
		return nil, "nil"
	}
	e.add(messages)
	return c, ""
}

// close closes c, which may be closed already.
func (e *env) close(c backend.Cache) {
	err := c.Close()
	e.check(err == nil, "C1", "Close", "nil", errText(err))
}

// cache opens a fresh store.
func (e *env) cache() backend.Cache { return e.open(e.location()) }
