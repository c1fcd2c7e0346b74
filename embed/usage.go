package embed

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
)

// tokenRate is how many tokens the provider billed for how many bytes.
type tokenRate struct {
	bytes, tokens atomic.Int64
}

func (r *tokenRate) note(bytes int, tokens int64) {
	r.bytes.Add(int64(bytes))
	r.tokens.Add(tokens)
}

// usualBytesPerToken is the rule of thumb for English text that OpenAI gives
// (help centre, "What are tokens and how to count them?"); it is used until the
// Client was billed for something.
const usualBytesPerToken = 4

// tokensOf estimates the tokens of so many bytes of text.
func (c *Client) tokensOf(bytes int) int64 {
	billedBytes, tokens := c.rate.bytes.Load(), c.rate.tokens.Load()
	if billedBytes == 0 || tokens == 0 {
		billedBytes, tokens = usualBytesPerToken, 1
	}
	return int64(float64(bytes) * float64(tokens) / float64(billedBytes))
}

// The Client's own usage is counted in two parts, since a request may outlive the
// call that began it: countRequest counts what a request did when it is over,
// countCall all else when the call is.

func (c *Client) countRequest(u *Usage) {
	of := u.clone()
	of.LogicalTokens = u.BilledTokens
	c.count(&of)
}

func (c *Client) countCall(u *Usage) {
	of := u.clone()
	of.LogicalTokens -= u.BilledTokens
	of.Requests, of.Retries, of.BilledTokens, of.EstimatedTokens = 0, 0, 0, 0
	of.ModelChanges, of.CacheFailures = 0, 0
	total := c.count(&of)
	if u.Texts <= yieldAfter && total/yieldAfter != (total-u.Texts)/yieldAfter {
		// Small calls yield as often as a large one does for the same texts: callers
		// that never wait for anything would else hold a processor for 10 ms each.
		runtime.Gosched()
	}
}

// noteRead notes whether the cache could be read. An outage is reported once,
// when it begins.
func (c *Client) noteRead(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		if err == nil && c.readsFail.Load() {
			c.readsFail.Store(false)
		}
		return
	}
	c.count(&Usage{CacheFailures: 1})
	if c.readsFail.CompareAndSwap(false, true) {
		c.fault(ctx, "cache can't be read, its texts are paid for again", err)
	}
}

// reportForeign tells of entries that were not usable.
func (l *lookup) reportForeign(ctx context.Context, u *Usage) {
	if len(u.Foreign) == 0 || !l.client.faultsAreTold() {
		return
	}
	attrs := make([]slog.Attr, 0, len(u.Foreign))
	for reason, n := range u.Foreign {
		attrs = append(attrs, slog.Int(reason, n))
	}
	l.client.fault(ctx, "cache has entries that are not usable, by reason", nil, attrs...)
}
