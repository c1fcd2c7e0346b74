package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// GetMany implements backend.Cache: all of one call is read in one transaction.
// value is SQLite's own memory.
func (c *Cache) GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if ctx.Err() != nil {
		return c.ended(ctx, "read", nil)
	}
	if err := c.calls.enter(); err != nil {
		return err
	}
	defer c.calls.leave()
	return c.getMany(ctx, keys, visit)
}

func (c *Cache) getMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if ctx.Err() != nil {
		return c.ended(ctx, "read", nil)
	}
	if len(keys) == 0 {
		return nil
	}
	return c.inRead(ctx, func(r *conn) error { return c.lookupAll(ctx, r, keys, visit) })
}

// inRead runs work in a read transaction; the caller has entered c.calls.
func (c *Cache) inRead(ctx context.Context, work func(r *conn) error) (err error) {
	if err := c.reading.pass(ctx); err != nil {
		return c.ended(ctx, "wait for other reads", nil)
	}
	defer c.reading.leave()
	r, err := c.beginRead(ctx)
	if err != nil {
		return err
	}
	// Also when work panics.
	whole := false
	defer func() {
		endErr := r.finishRead(whole)
		c.putReader(r, endErr == nil)
		if err == nil && endErr != nil {
			err = c.fail("end of read", endErr)
		}
	}()
	err = work(r)
	whole = err == nil
	return err
}

func (c *Cache) lookupAll(ctx context.Context, r *conn, keys []backend.Key, visit func(i int, value []byte) error) error {
	// A damaged page makes its own entries unreadable, not those beside it: what is
	// not read counts as missing, and is paid for again.
	damaged, damage := 0, error(nil)
	for i := range keys {
		if ctx.Err() != nil {
			return c.ended(ctx, "read", damage)
		}
		visitErr, err := r.lookup(&keys[i], i, visit)
		if visitErr != nil && !errors.Is(visitErr, backend.ErrForeign) {
			return fmt.Errorf("sqlite: visit: %w", visitErr)
		}
		switch {
		case err == nil:
		case failureOf(err) == corruptFailure && r.inTransaction():
			if damaged++; damage == nil {
				damage = err
			}
		default:
			return c.fail("read", err)
		}
	}
	if damage != nil {
		return c.fail(fmt.Sprintf("read %d of %d keys", damaged, len(keys)), damage)
	}
	return nil
}

// finishRead ends the read transaction, whole if nothing went wrong in it.
func (r *conn) finishRead(whole bool) error {
	if whole {
		return r.endRead()
	}
	return r.end()
}

// beginRead returns an idle reader, or a new one, in a read transaction.
func (c *Cache) beginRead(ctx context.Context) (*conn, error) {
	r := c.idleReader()
	if r == nil {
		var err error
		if r, err = openConn(c.path, &c.options, true); err != nil {
			return nil, c.failOrEnded(ctx, "open for reading", err)
		}
		if c.identity != nil {
			if err := c.checkInPlace(); err != nil {
				_ = r.close()
				return nil, c.failOrEnded(ctx, "open for reading", err)
			}
		}
	}
	err := untilFree(ctx, time.Now(), c.options.BusyTimeout, func() error {
		if err := r.ready(&c.options, true); err != nil {
			return err
		}
		return r.beginRead()
	})
	if err == nil {
		return r, nil
	}
	c.putReader(r, false)
	return nil, c.failOrEnded(ctx, "read", err)
}

func (c *Cache) idleReader() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.readers) == 0 {
		return nil
	}
	last := len(c.readers) - 1
	r := c.readers[last]
	c.readers = c.readers[:last]
	return r
}

// putReader keeps r for the next call, or closes it if it is not usable.
func (c *Cache) putReader(r *conn, usable bool) {
	if !usable {
		_ = r.close() // why it is not usable has been reported
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers = append(c.readers, r)
}
