package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/embedonce/embedonce/backend"
)

// fail wraps err, which is not nil, with the file and what was being done, and
// with the sentinel that fits. Errors of SQLite name tables and columns, never
// what is in them.
func (c *Cache) fail(doing string, err error) error {
	return fmt.Errorf("sqlite: %s: %s: %w", c.path, doing, explain(err))
}

// failOrEnded is fail, or ended if ctx has: then that is what the caller asks about.
func (c *Cache) failOrEnded(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return c.ended(ctx, doing, err)
	}
	return c.fail(doing, err)
}

func explain(err error) error {
	switch failureOf(err) {
	case busyFailure:
		return fmt.Errorf("%w: another process or handle holds the lock: %w", backend.ErrUnavailable, err)
	case fullFailure:
		return fmt.Errorf("%w: the disk or its quota is full: %w", backend.ErrUnavailable, err)
	case corruptFailure:
		return fmt.Errorf("%w: %w", backend.ErrCorrupt, err)
	case readOnlyFailure:
		return fmt.Errorf("%w: the file can't be written: %w", backend.ErrReadOnly, err)
	case movedFailure:
		return fmt.Errorf("%w: %w", errMoved, err)
	case tooBigFailure:
		return fmt.Errorf("%w: %w", backend.ErrTooLarge, err)
	case brokenFailure:
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case sharedNotFound:
		return fmt.Errorf("%w: the file, or NAME-wal and NAME-shm beside it, can't be opened; they are made in the file's directory, which must be writable (see Options.Immutable): %w", backend.ErrUnavailable, err)
	}
	return err
}

// errMoved: writing on would acknowledge what nobody can ever read.
var errMoved = fmt.Errorf("%w: the file was removed or replaced while it was open; close the cache and open it again", backend.ErrUnavailable)

var errClosed = fmt.Errorf("sqlite: cache is %w", backend.ErrClosed)

// ended returns an error that wraps ctx.Err(), and cause where that is not nil.
func (c *Cache) ended(ctx context.Context, doing string, cause error) error {
	if cause == nil || errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("sqlite: %s: %s: %w", c.path, doing, ctx.Err())
	}
	return fmt.Errorf("sqlite: %s: %s: %w: %w", c.path, doing, ctx.Err(), explain(cause))
}
