package embed

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// request is some misses that go to the provider together.
type request struct {
	misses []*miss
	tokens int // of all texts; at most, where they were not counted

	// Closed when the request is over; then the rest, and the misses' vectors and
	// errors, may be read.
	done     chan struct{}
	usage    Usage
	cacheErr error
	// Misses of earlier requests whose vectors were held back until now: to be
	// stored with its own.
	held []*miss

	accounted bool // the stream's consumer has counted usage
}

// couldBeCut says whether text may be over the limit: no text has more tokens
// than bytes.
func (c *Client) couldBeCut(text string) bool {
	return c.textLimit > 0 && len(c.spec.Prefix)+len(text) > c.textLimit
}

// fitLongTexts applies Options.LongTexts to the texts that could be over the
// limit.
func (c *Client) fitLongTexts(ctx context.Context, misses []*miss) {
	var over atomic.Int64
	c.parallel(len(misses), func(from, to int) {
		for _, m := range misses[from:to] {
			if !m.long {
				continue
			}
			// Cut looks at no more of a text than it needs; Count would read all of one
			// that may have gigabytes.
			fitting, tokens := c.tokenizer.Cut(m.text, c.textLimit)
			if len(fitting) == len(m.text) {
				m.tokens = tokens
				continue
			}
			switch c.opts.LongTexts {
			case TruncateLongTexts:
				// The prefix may have been cut too.
				kept := fitting[min(len(c.spec.Prefix), len(fitting)):]
				if strings.TrimSpace(kept) == "" {
					m.err = fmt.Errorf("%w: what fits into %d tokens is blank", ErrTextTooLong, c.textLimit)
					continue
				}
				m.text, m.tokens, m.cut = fitting, tokens, true
			case RefuseLongTexts:
				m.err = fmt.Errorf("%w: more than %d tokens", ErrTextTooLong, c.textLimit)
			case SendLongTexts:
				over.Add(1)
			}
		}
	})
	if n := over.Load(); n > 0 {
		c.fault(ctx, "texts over the token limit are sent as they are", nil, slog.Int64("texts", n), slog.Int("limit", c.textLimit))
	}
}

// countTokens counts the texts that were not counted yet.
func (c *Client) countTokens(misses []*miss) {
	c.parallel(len(misses), func(from, to int) {
		for _, m := range misses[from:to] {
			if m.tokens == 0 {
				m.tokens = c.tokenizer.Count(m.text)
			}
		}
	})
}

// packer fills requests up to the provider's limits, in the order of the texts.
type packer struct {
	limits Limits
	open   *request // takes more
	bytes  int      // of open
}

// newPacker returns a packer for texts that were counted, or not.
func (c *Client) newPacker(counted bool) *packer {
	limits := c.spec.Limits
	if counted {
		limits.Tokens = c.usable(limits.Tokens)
	}
	return &packer{limits: limits}
}

// add puts m in the open request, and returns the one before it if m didn't fit
// there. A text that no request could hold goes alone.
func (p *packer) add(m *miss) (full *request) {
	tokens := m.mostTokens()
	over := func(value, limit int) bool { return limit > 0 && value > limit }
	if r := p.open; r != nil && (over(len(r.misses)+1, p.limits.Items) ||
		over(r.tokens+tokens, p.limits.Tokens) || over(p.bytes+len(m.text), p.limits.Bytes)) {
		full = p.flush()
	}
	if p.open == nil {
		p.open = &request{done: make(chan struct{})}
	}
	m.request = p.open
	p.open.misses = append(p.open.misses, m)
	p.open.tokens += tokens
	p.bytes += len(m.text)
	return full
}

// flush returns the open request, or nil, and opens none.
func (p *packer) flush() *request {
	r := p.open
	p.open, p.bytes = nil, 0
	return r
}

// mostTokens returns the tokens of m, or what bounds them.
func (m *miss) mostTokens() int {
	if m.tokens > 0 {
		return m.tokens
	}
	return len(m.text)
}

// load is what some texts ask of a provider's limits. A text that is over a limit
// counts as one that just fits: it goes alone, in one request.
type load struct{ texts, tokens, bytes int }

func (l *load) add(m *miss, limits *Limits) {
	atMost := func(value, limit int) int {
		if limit > 0 {
			return min(value, limit)
		}
		return value
	}
	l.texts++
	l.tokens += atMost(m.mostTokens(), limits.Tokens)
	l.bytes += atMost(len(m.text), limits.Bytes)
}

// least returns the fewest requests that could hold l.
func (limits *Limits) least(l load) int {
	if l.texts == 0 {
		return 0
	}
	least := 1
	for _, bound := range []struct{ value, limit int }{{l.texts, limits.Items}, {l.tokens, limits.Tokens}, {l.bytes, limits.Bytes}} {
		if bound.limit > 0 {
			least = max(least, (bound.value+bound.limit-1)/bound.limit)
		}
	}
	return least
}

// pack returns the requests for misses, and the fewest that could have held them.
func (c *Client) pack(misses []*miss) (requests []*request, least int) {
	bytes := 0
	for _, m := range misses {
		bytes += len(m.text)
	}
	// Bytes bound tokens: where all fit in one request anyway, nobody counts.
	counted := c.opts.MaxBilledTokens > 0 || c.spec.Limits.Tokens > 0 && bytes > c.spec.Limits.Tokens
	if counted {
		c.countTokens(misses)
	}
	p := c.newPacker(counted)
	var all load
	for _, m := range misses {
		all.add(m, &p.limits)
		if full := p.add(m); full != nil {
			requests = append(requests, full)
		}
	}
	if last := p.flush(); last != nil {
		requests = append(requests, last)
	}
	return requests, p.limits.least(all)
}
