package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/embedonce/embedonce/backend"
)

var errEmptyReadOnly = fmt.Errorf("%w: it is empty, and a read-only cache is not created", backend.ErrUnavailable)

// SetMany implements backend.Cache: a batch is one transaction.
func (c *Cache) SetMany(ctx context.Context, items []backend.Item) error {
	if ctx.Err() != nil {
		return c.ended(ctx, "write", nil)
	}
	if err := c.calls.enter(); err != nil {
		return err
	}
	defer c.calls.leave()
	return c.setMany(ctx, items)
}

func (c *Cache) setMany(ctx context.Context, items []backend.Item) error {
	if ctx.Err() != nil {
		return c.ended(ctx, "write", nil)
	}
	if err := c.info.Check(items); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	if len(items) == 0 {
		return nil
	}
	return c.write(ctx, "write", func(w *conn) error {
		for i := range items {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := w.store(&items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// write runs work in one write transaction and commits it.
func (c *Cache) write(ctx context.Context, doing string, work func(w *conn) error) error {
	if c.options.ReadOnly {
		return fmt.Errorf("sqlite: %s: %s: %w: it was opened with Options.ReadOnly or Immutable", c.path, doing, backend.ErrReadOnly)
	}
	start := time.Now()
	if err := c.writing.pass(ctx); err != nil {
		return c.ended(ctx, "wait for other writes", nil)
	}
	defer c.writing.leave()
	if err := c.transact(ctx, start, work); err != nil {
		return c.failOrEnded(ctx, doing, err)
	}
	c.shortenLog(ctx)
	return nil
}

// transact runs work in one transaction; the caller has passed c.writing.
func (c *Cache) transact(ctx context.Context, start time.Time, work func(w *conn) error) error {
	if c.writer == nil {
		w, err := openConn(c.path, &c.options, false)
		if err != nil {
			return err
		}
		c.writer = w
	}
	w := c.writer
	// BusyTimeout counts while SQLite's lock is taken, which may have begun while
	// this call waited for others: then they don't add up. The others' own writing
	// doesn't count.
	from := time.Now()
	if since := c.lockedSince; !since.IsZero() {
		if from = start; since.After(start) {
			from = since
		}
	}
	err := untilFree(ctx, from, c.options.BusyTimeout, func() error {
		err := w.ready(&c.options, false)
		if err == nil {
			err = w.beginWrite()
		}
		switch {
		case err == nil:
			c.lockedSince = time.Time{}
		case failureOf(err) == busyFailure && c.lockedSince.IsZero():
			c.lockedSince = time.Now()
		}
		return err
	})
	// Nothing half done may stay open, also when work panics; a connection that
	// can't promise that goes.
	committed := false
	defer func() {
		if !committed && w.end() != nil {
			c.writer = nil
			_ = w.close()
		}
	}()
	if err == nil {
		err = work(w)
	}
	if err == nil {
		err = c.commitInPlace(ctx, w)
	}
	committed = err == nil
	return err
}

// commitInPlace commits if the file is still where it was and ctx has not ended.
func (c *Cache) commitInPlace(ctx context.Context, w *conn) error {
	if err := c.checkInPlace(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.commitWrite()
}
