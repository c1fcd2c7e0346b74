package embed

import (
	"errors"
	"time"
)

// sourceFailure is a panic of the source, or the end of its goroutine.
type sourceFailure struct {
	panicked any // nil for the end of its goroutine
}

var errSourceExit = errors.New("the source ended its goroutine (runtime.Goexit) instead of returning")

// run starts source and planner. The channel it returns is closed when the planner
// has ended.
func (p *pipeline) run() (planned <-chan struct{}) {
	done := make(chan struct{})
	go p.runSource()
	go func() {
		defer close(done)
		p.plan()
	}()
	return done
}

// runSource takes texts from the source until it ends, or nobody wants more.
func (p *pipeline) runSource() {
	defer close(p.texts)
	returned := false
	defer func() {
		if cause := recover(); cause != nil || !returned {
			p.sourceFailure.Store(&sourceFailure{cause})
		}
	}()
	for id, text := range p.stream.source {
		if !p.enqueue(streamText{id, text}) {
			break
		}
	}
	returned = true
}

// awaitSource waits until the source has returned, so that it doesn't use what its
// consumer releases after the stream; but not for ever, for it may itself wait for
// something that comes no more.
func (p *pipeline) awaitSource() {
	timer := time.NewTimer(sourceGrace)
	defer timer.Stop()
	for {
		select {
		case _, more := <-p.texts: // closed when the source has returned
			if !more {
				return
			}
		case <-timer.C:
			return
		}
	}
}

// enqueue waits for room and hands a text to the planner; false means that the
// stream is over.
func (p *pipeline) enqueue(t streamText) bool {
	for p.queued.Load() > queueBytes {
		select {
		case <-p.room:
		case <-p.ctx.Done():
			return false
		case <-p.siblings.stops:
			return false
		}
	}
	p.queued.Add(int64(len(t.text)))
	select {
	case p.texts <- t:
		return true
	case <-p.ctx.Done():
		return false
	case <-p.siblings.stops:
		return false
	}
}

// dequeued makes room for the source.
func (p *pipeline) dequeued(t streamText) {
	if p.queued.Add(-int64(len(t.text))) <= queueBytes {
		select {
		case p.room <- struct{}{}:
		default:
		}
	}
}
