package embed

import (
	"cmp"
	"errors"
	"fmt"
)

// emitter is the consumer's side of a stream.
type emitter struct {
	*pipeline
	yield func(StreamItem, error) bool
	fatal error // ends the stream after what was looked up already
}

// emit yields the texts of all chunks. It returns what ended the stream early, or
// nil, also when the consumer left.
func (p *pipeline) emit(yield func(StreamItem, error) bool) error {
	e := &emitter{pipeline: p, yield: yield}
	for {
		var ch *chunk
		var ok bool
		select {
		case ch, ok = <-p.chunks:
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
		if !ok {
			break
		}
		left, err := e.emitChunk(ch)
		if left || err != nil {
			return err
		}
		<-p.window
	}
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if e.fatal == nil {
		if p.sourceFailure.Load() != nil {
			return errSourceExit // a panic goes its own way
		}
	}
	return e.fatal
}

// emitChunk waits for the vectors of a chunk and yields them.
func (e *emitter) emitChunk(ch *chunk) (left bool, err error) {
	s, c := e.stream, e.client
	usage := Usage{}
	var cacheErr error // the first
	for _, m := range ch.misses {
		if r := m.pending(); r != nil {
			if !r.wait(e.ctx) {
				return false, e.ctx.Err()
			}
			e.account(r, &usage)
			cacheErr = cmp.Or(cacheErr, r.cacheErr)
		}
		if m.joins != nil {
			m.vector, m.err = m.joins.vector, m.joins.err
		}
		if m.cut {
			usage.Truncated++
		}
		if errors.Is(m.err, ErrBudget) {
			e.end(m.err)
		}
	}
	if ch.lookup.err != nil && e.ctx.Err() == nil {
		usage.CacheFailures++
		failure := fmt.Errorf("reading the cache: %w", ch.lookup.err)
		cacheErr = fmt.Errorf("embed: %w", failure)
		if c.opts.Strict {
			e.end(failure)
		}
	}
	errs := ch.lookup.settle(e.ctx, ch.misses, &usage)
	usage.LogicalTokens += usage.BilledTokens
	s.mu.Lock()
	usage.LeastRequests = e.packer.limits.least(ch.load) - s.usage.LeastRequests
	s.usage.add(&usage)
	s.cacheErr = cmp.Or(s.cacheErr, cacheErr)
	s.mu.Unlock()
	c.countCall(&usage)

	rows := ch.lookup.rows
	ch.lookup.free()
	for i, id := range ch.ids {
		item := StreamItem{ID: id, Index: ch.index + i}
		var failure error
		if errs != nil {
			failure = errs[i]
		}
		if failure == nil {
			item.Vector = rows.row(i)
		}
		if !e.yield(item, failure) {
			return true, nil
		}
	}
	return false, nil
}

// pending returns the request whose end m waits for, or nil.
func (m *miss) pending() *request {
	if m.joins != nil {
		return m.joins.request
	}
	return m.request
}

// account adds what a request did, once, and looks at whether the stream can go on.
func (e *emitter) account(r *request, usage *Usage) {
	if r.accounted {
		return
	}
	r.accounted = true
	usage.add(&r.usage)
	if cause := e.siblings.failure(); cause != nil {
		e.end(cause)
	}
}

// end makes the stream end with cause when all that was looked up is yielded, and
// keeps further requests from being sent.
func (e *emitter) end(cause error) {
	if e.fatal == nil {
		e.fatal = cause
		e.siblings.stopWith(cause)
	}
}
