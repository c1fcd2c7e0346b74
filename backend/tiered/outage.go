package tiered

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

const (
	// bypassFor is how long a fast layer that failed is left alone.
	bypassFor = time.Second
	// fastPatience bounds a write to the fast layer: a copy that keeps a reader
	// waiting longer isn't worth it, and what the slow layer has acknowledged is not
	// held up for it.
	fastPatience = 2 * time.Second
)

// outage is what is known of a fast layer that fails.
type outage struct {
	until atomic.Int64 // Unix time in ns until which it is bypassed; 0: it works
	told  func(ctx context.Context, err error)
}

// fastUsable says whether to ask the fast layer now.
func (c *Cache) fastUsable() bool {
	if c.trust.off.Load() {
		return false
	}
	until := c.outage.until.Load()
	return until == 0 || time.Now().UnixNano() >= until
}

// fastWorked ends an outage.
func (c *Cache) fastWorked() {
	if c.outage.until.Load() != 0 {
		c.outage.until.Store(0)
	}
}

// fastFailed begins an outage, or prolongs it.
func (c *Cache) fastFailed(ctx context.Context, doing string, err error) {
	c.counts.failures.Add(1)
	if c.outage.until.Swap(time.Now().Add(bypassFor).UnixNano()) == 0 {
		c.tell(ctx, fmt.Errorf("tiered: fast layer: %s: %w", doing, err))
	}
}

func (c *Cache) tell(ctx context.Context, err error) {
	if c.outage.told != nil {
		c.outage.told(ctx, err)
		return
	}
	slog.Default().WarnContext(ctx, "embedonce: the fast layer of a tiered cache is bypassed", "error", err.Error())
}

// known are the errors that say by themselves what is the matter.
var known = []error{
	backend.ErrUnavailable, backend.ErrReadOnly, backend.ErrCorrupt, backend.ErrClosed,
	backend.ErrTooLarge, backend.ErrEmptyValue, backend.ErrUnsupported,
}

// slowError wraps an error of the slow layer.
func slowError(ctx context.Context, doing string, err error) error {
	return layerError(ctx, "slow layer: "+doing, err)
}

// fastError wraps an error of the fast layer, where that can't be made up for.
func fastError(ctx context.Context, doing string, err error) error {
	return layerError(ctx, "fast layer: "+doing, err)
}

func layerError(ctx context.Context, doing string, err error) error {
	if ended := ctx.Err(); ended != nil {
		if errors.Is(err, ended) {
			return fmt.Errorf("tiered: %s: %w", doing, err)
		}
		return fmt.Errorf("tiered: %s: %w: %w", doing, ended, err)
	}
	for _, sentinel := range known {
		if errors.Is(err, sentinel) {
			return fmt.Errorf("tiered: %s: %w", doing, err)
		}
	}
	return fmt.Errorf("tiered: %s: %w: %w", doing, backend.ErrUnavailable, err)
}
