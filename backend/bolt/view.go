package bolt

import (
	"context"
	"errors"
	"os"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// bbolt's locks know no context. A read transaction waits, when it begins and
// when it ends, while a commit writes a meta page or extends the map; and the
// latter waits for every transaction that reads. So while a commit is under way
// both are done on goroutines of their own, which a call can leave.

// begin returns a read transaction; end must follow.
func (c *Cache) begin(ctx context.Context) (*bbolt.Tx, error) {
	tx, committing, err := c.beginNow(ctx)
	if tx != nil || err != nil {
		return tx, err
	}
	timeout := time.NewTimer(c.options.StallTimeout)
	defer timeout.Stop()
	for {
		if tx, err = c.beginBeside(ctx, timeout.C, committing); tx != nil || err != nil {
			return tx, err
		}
		if tx, committing, err = c.beginNow(ctx); tx != nil || err != nil {
			return tx, err
		}
	}
}

// beginNow returns a transaction, an error, or the commit that is under way.
func (c *Cache) beginNow(ctx context.Context) (*bbolt.Tx, *commit, error) {
	for {
		tx, committing, err := c.tryBegin()
		switch {
		case err != nil:
			return nil, nil, c.fail("read", c.brokenBy(err))
		case tx != nil || committing != nil:
			return tx, committing, nil
		}
		// There is no store since it could not be opened again. Who writes tries to, so
		// write nothing.
		if err := c.write(ctx, new(request)); err != nil {
			return nil, nil, err
		}
	}
}

func (c *Cache) tryBegin() (*bbolt.Tx, *commit, error) {
	c.phase.RLock()
	defer c.phase.RUnlock()
	switch {
	case c.broken != nil:
		return nil, nil, c.broken
	case c.committing != nil:
		return nil, c.committing, nil
	case c.store == nil:
		return nil, nil, nil
	}
	tx, err := c.store.begin(false)
	return tx, nil, err
}

// beginBeside begins a transaction while a commit is under way. It returns
// neither transaction nor error if the store was closed meanwhile.
func (c *Cache) beginBeside(ctx context.Context, timeout <-chan time.Time, committing *commit) (*bbolt.Tx, error) {
	type beginning struct {
		tx  *bbolt.Tx
		err error
	}
	began, left := make(chan beginning), make(chan struct{})
	if committing.store != nil {
		c.calls.behind(func() {
			faultsPanic()
			tx, err := committing.store.begin(false)
			err = c.brokenBy(err)
			select {
			case began <- beginning{tx, err}:
			case <-left:
				if tx != nil {
					_ = rollback(tx) // of a transaction that only reads
				}
			}
		})
	}
	leave := func(err error) (*bbolt.Tx, error) {
		close(left)
		return nil, err
	}
	var over <-chan struct{} // set when there is nothing else to wait for
	if committing.store == nil {
		over = committing.over
	}
	for {
		select {
		case b := <-began:
			if errors.Is(b.err, berrors.ErrDatabaseNotOpen) || errors.Is(b.err, berrors.ErrInvalidMapping) || errors.Is(b.err, os.ErrClosed) {
				over = committing.over // it is being opened again
				continue
			}
			if b.err != nil {
				return leave(c.fail("read", b.err))
			}
			return b.tx, nil
		case <-over:
			return leave(nil)
		case <-ctx.Done():
			return leave(c.ended(ctx, "read"))
		case <-timeout:
			return leave(c.stalled("read"))
		}
	}
}

// end ends a read transaction.
func (c *Cache) end(tx *bbolt.Tx) {
	c.phase.RLock()
	defer c.phase.RUnlock()
	if c.committing == nil {
		_ = rollback(tx) // of a transaction that only reads
		return
	}
	c.calls.behind(func() { _ = rollback(tx) })
}

func rollback(tx *bbolt.Tx) (err error) {
	defer guard(&err)
	return tx.Rollback()
}

// begin begins a transaction of bbolt. A lockedUp error says that nothing can be
// done with the store any more.
func (s *store) begin(writable bool) (tx *bbolt.Tx, err error) {
	if err := s.atLeast(s.minBytes); err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = lockedUp{damage(p)}
		}
	}()
	return s.db.Begin(writable)
}

// lockedUp is the error of a panic inside of bbolt's locks.
type lockedUp struct{ error }

func (l lockedUp) Unwrap() error { return l.error }

// brokenBy returns err, and notes it if bbolt must not be called any more.
func (c *Cache) brokenBy(err error) error {
	if _, locked := errors.AsType[lockedUp](err); locked {
		c.phase.Lock()
		defer c.phase.Unlock()
		if c.broken == nil {
			c.broken = err
		}
	}
	return err
}
