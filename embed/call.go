package embed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/internal/record"
)

// Call is one embedding of some texts, with the settings that are per call.
type Call struct {
	// Texts are what to embed: at least one. They are not changed.
	Texts []string
	// Refresh ignores what the cache has and pays again; the new vectors replace
	// the old ones.
	Refresh bool
	// NoStore writes nothing to the cache.
	NoStore bool
	// CacheOnly sends nothing: a text that the cache doesn't have fails with
	// ErrNotCached. It is for programs that must not spend.
	CacheOnly bool
	// Into is memory for the vectors, used if its capacity is at least n x d. The
	// Response then lies in it, and the caller must not use it for another call
	// while that Response is needed.
	Into []float32
}

func (call *Call) check() error {
	switch {
	case call == nil:
		return errors.New("embed: call is nil; it must have texts")
	case len(call.Texts) == 0:
		return errors.New("embed: Call.Texts is empty; at least 1 text is needed")
	case call.CacheOnly && call.Refresh:
		return errors.New("embed: Call.CacheOnly and Call.Refresh exclude each other; at most one is allowed")
	}
	return nil
}

// Embed returns the vectors of texts, one for each, and pays only for those that
// the cache doesn't have. It is Do with nothing but texts; no texts are an error.
func (c *Client) Embed(ctx context.Context, texts []string) (*Response, error) {
	return c.Do(ctx, &Call{Texts: texts})
}

// Do returns the vectors of call.Texts, one for each.
//
// When ctx ends, Do returns at once with what it has. Requests that were sent go
// on, since they may be billed, and their vectors are stored.
//
// # Errors
//
// If some texts, or all, got no vector, the error wraps a *PartialError with the
// reason of each, and the Response has the others. Without a Response the
// arguments were wrong, the Client is closed (ErrClosed), ctx had ended, or the
// cache could not be read with Options.Strict. A call without texts is such a wrong
// argument; the errors of arguments wrap no sentinel. In strict mode a cache that
// could not be written is an error too, beside the Response.
func (c *Client) Do(ctx context.Context, call *Call) (*Response, error) {
	if err := call.check(); err != nil {
		return nil, err
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	defer c.running.Done()

	l := c.newLookup(call.Texts)
	defer l.free()
	l.makeRows(call.Into)
	if !call.Refresh {
		l.read(ctx, false)
	}
	if l.err != nil && c.opts.Strict && ctx.Err() == nil {
		return nil, fmt.Errorf("embed: reading the cache: %w", l.err)
	}
	misses := l.misses()
	response := &Response{texts: len(call.Texts)}
	if l.err != nil && ctx.Err() == nil {
		response.Usage.CacheFailures++
		response.CacheErr = fmt.Errorf("embed: reading the cache: %w", l.err)
	}
	if call.CacheOnly {
		for _, m := range misses {
			m.err = ErrNotCached
		}
	} else {
		misses = c.fulfil(ctx, misses, !call.NoStore, response)
	}
	errs := l.settle(ctx, misses, &response.Usage)
	response.matrix, response.dimensions = l.rows.matrix, l.rows.dimensions
	response.Usage.LogicalTokens += response.Usage.BilledTokens
	c.countCall(&response.Usage)
	err := response.partial(errs)
	if c.opts.Strict && response.CacheErr != nil {
		err = errors.Join(err, response.CacheErr)
	}
	return response, err
}

// miss is a distinct text that the cache doesn't have, on its way to a vector.
type miss struct {
	index  int
	text   string // as it is sent, prefix included
	digest digest
	scope  *digest
	key    backend.Key
	long   bool // could have been cut
	cut    bool
	future bool // a record of a later version is stored, and stays
	unseen bool // the cache wasn't asked, or didn't answer
	tokens int  // 0 until they are counted

	// Set when its request is over; until then they are the request's.
	vector []float32
	err    error

	// In a stream: the request it went into, or the miss of an earlier chunk that
	// is the same text.
	request *request
	joins   *miss
}

// misses returns the distinct texts that were not found, in the order of the
// call. They share no memory with l.
func (l *lookup) misses() []*miss {
	n := 0
	for _, i := range l.where {
		if l.slots[i] != hit {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	// One array for all of them, and pointers, since requests regroup them.
	array := make([]miss, 0, n)
	misses := make([]*miss, 0, n)
	for k, i := range l.where {
		if l.slots[i] == hit {
			continue
		}
		array = append(array, miss{
			index:  int(i),
			text:   l.client.spec.Prefix + l.texts[i],
			digest: l.digests[i],
			scope:  l.scope(int(i)),
			key:    l.keys[k],
			long:   l.long[i],
			future: l.slots[i] == slot(record.Future),
			unseen: !l.asked || l.err != nil,
		})
		misses = append(misses, &array[len(array)-1])
	}
	return misses
}

// settle puts the vectors of the misses and of all repeats in their rows, and
// counts what became of each text. It returns the errors of the texts by index,
// or nil if there is none.
func (l *lookup) settle(ctx context.Context, misses []*miss, u *Usage) (errs []error) {
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(l.texts))
		}
		errs[i] = err
	}
	unsent := 0 // bytes
	for _, m := range misses {
		switch {
		case m.joins != nil:
			u.Joined++
			unsent += len(l.texts[m.index])
		case errors.Is(m.err, ErrTextTooLong):
			u.Refused++
		default:
			u.Misses++
		}
		if m.err != nil {
			fail(m.index, m.err)
			continue
		}
		if l.rows.dimensions != len(m.vector) && !slices.Contains(l.slots, hit) {
			l.rows.make(len(m.vector))
		}
		if l.rows.dimensions != len(m.vector) {
			// A response never mixes dimensions. The vector is stored; its next call
			// finds it, and that the others are not of this model.
			fail(m.index, fmt.Errorf("%w: its vectors have %d dimensions, the cached ones of this call %d; repeat the call", ErrModelChanged, len(m.vector), l.rows.dimensions))
			continue
		}
		copy(l.rows.row(m.index), m.vector)
	}

	u.Texts += len(l.texts)
	for i, text := range l.texts {
		first := int(l.first[i])
		switch {
		case l.slots[i] == blank:
			fail(i, ErrBlankText)
			u.Refused++
			continue
		case l.slots[first] == hit:
			u.Hits++
		case first == i:
			if reason := record.Reason(l.slots[i]); reason != record.Valid {
				u.addForeign(reason.String(), 1)
			}
			continue
		default:
			u.Deduplicated++
			if errs != nil && errs[first] != nil {
				fail(i, errs[first])
				continue
			}
		}
		unsent += len(text)
		if first != i {
			copy(l.rows.row(i), l.rows.row(first))
		}
	}
	for i, err := range errs {
		if err != nil && l.rows.dimensions > 0 {
			clear(l.rows.row(i)) // lent memory holds what the caller left there
		}
	}
	u.LogicalTokens += l.client.tokensOf(unsent)
	l.reportForeign(ctx, u)
	return errs
}

// partial makes of the errors of some texts the error of the call.
func (r *Response) partial(errs []error) error {
	if errs == nil {
		return nil
	}
	partial := &PartialError{Texts: len(errs)}
	r.missing = make([]bool, len(errs))
	for i, err := range errs {
		if err != nil {
			partial.Failures = append(partial.Failures, Failure{Index: i, Err: err})
			r.missing[i] = true
		}
	}
	return fmt.Errorf("embed: %w", partial)
}
