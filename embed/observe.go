package embed

import (
	"context"
	"log/slog"
	"time"
)

// Observer has functions that a Client calls when something happened; each may
// be nil. They are called on the goroutine that did the work, several at once,
// and must return soon. An Observer costs nothing where a function is nil.
type Observer struct {
	Lookup  func(context.Context, LookupEvent)
	Request func(context.Context, RequestEvent)
	Write   func(context.Context, WriteEvent)
	Fault   func(context.Context, FaultEvent)
}

// LookupEvent is one look into the cache for the texts of a call or of a
// stream's chunk.
type LookupEvent struct {
	Texts    int // distinct ones
	Hits     int
	Foreign  int // entries that were not usable
	Duration time.Duration
	Err      error // the cache could not be read, wholly or in part
}

// RequestEvent is one attempt of a request to the provider.
type RequestEvent struct {
	Texts        int
	Attempt      int // 0 is the first
	BilledTokens int // what its answer bills
	Duration     time.Duration
	Err          error
}

// WriteEvent is one batch written to the cache.
type WriteEvent struct {
	Items    int
	Bytes    int
	Duration time.Duration
	Err      error
}

// FaultEvent is something that was survived, and that somebody may want to know
// of: foreign entries, a cache that can't be used, a model that changed.
type FaultEvent struct {
	Message string // what the logger gets
	Err     error
}

// faultsAreTold says whether anybody is told of faults.
func (c *Client) faultsAreTold() bool {
	return c.opts.Logger != nil || c.opts.Observer != nil && c.opts.Observer.Fault != nil
}

// fault tells logger and observer of something survived.
func (c *Client) fault(ctx context.Context, message string, err error, attrs ...slog.Attr) {
	if observer := c.opts.Observer; observer != nil && observer.Fault != nil {
		observer.Fault(ctx, FaultEvent{Message: message, Err: err})
	}
	if c.opts.Logger != nil {
		if err != nil {
			attrs = append(attrs, slog.String("error", err.Error()))
		}
		c.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "embedonce: "+message, attrs...)
	}
}
