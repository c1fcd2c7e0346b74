package embed

import (
	"context"
	"errors"
	"fmt"
)

// Plan is what a call would do and cost, found without doing it.
type Plan struct {
	Texts        int
	Hits         int // in the cache
	Misses       int // distinct texts to be sent
	Deduplicated int // repeats of those
	Refused      int // blank texts, and too long ones where those are refused
	Truncated    int // texts that would be cut

	Requests int   // to the provider
	Tokens   int64 // to be billed
	// Exact says that Tokens are counted as the provider counts, not estimated.
	Exact bool
	// Dollars is the price of Tokens; 0 where the provider's price is not known.
	Dollars float64
}

// Plan finds out what Embed would do with texts now. It reads the cache, sends
// nothing and stores nothing.
//
// # Errors
//
// Wrong arguments, ErrClosed, the end of ctx, and a cache that can't be read: then
// it can't be told what is in it.
func (c *Client) Plan(ctx context.Context, texts []string) (*Plan, error) {
	if len(texts) == 0 {
		return nil, errors.New("embed: texts is empty; at least 1 text is needed")
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	defer c.running.Done()
	l := c.newLookup(texts)
	defer l.free()
	l.read(ctx, true)
	if l.err != nil {
		return nil, fmt.Errorf("embed: reading the cache: %w", l.err)
	}

	plan := &Plan{Texts: len(texts), Exact: c.tokenizer.Exact()}
	for i := range texts {
		switch first := l.first[i]; {
		case l.slots[i] == blank:
			plan.Refused++
		case l.slots[first] == hit:
			plan.Hits++
		case int(first) != i:
			plan.Deduplicated++
		}
	}
	misses := l.misses()
	c.fitLongTexts(ctx, misses)
	sent := misses[:0]
	for _, m := range misses {
		if m.err != nil {
			plan.Refused++
			continue
		}
		if m.cut {
			plan.Truncated++
		}
		sent = append(sent, m)
	}
	plan.Misses = len(sent)
	c.countTokens(sent)
	for _, m := range sent {
		plan.Tokens += int64(m.tokens)
	}
	requests, _ := c.pack(sent)
	plan.Requests = len(requests)
	plan.Dollars = float64(plan.Tokens) * c.spec.DollarsPerMillion / 1e6
	return plan, nil
}
