package conformance

import (
	"context"
	"errors"
	"time"
)

// ctxSetBesideVisit: a visit takes its time. A write may have to wait for it, but
// not beyond the end of its context.
func ctxSetBesideVisit(e *env) {
	c := e.cache()
	items, other := e.batch(e.keys("a", 3), 1), e.batch(e.keys("b", 3), 1)
	e.set(c, items)
	action := "SetMany that is cancelled while another goroutine's visit runs"
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	visits, written := 0, error(nil)
	err := c.GetMany(e.ctx, keysOf(items), func(int, []byte) error {
		if visits++; visits == 1 {
			timer := time.AfterFunc(grace, cancel)
			defer timer.Stop()
			e.within(e.runner.patience, "X2", action, func() { written = c.SetMany(ctx, other) })
		}
		return nil
	})
	e.check(err == nil, "G2", "GetMany beside a SetMany", "nil", errText(err))
	e.check(written == nil || errors.Is(written, context.Canceled), "X2", action, "nil, or an error that wraps ctx.Err()", errText(written))
	e.allOrNone(c, action, other, nil, written)
}
