package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"syscall"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/embedonce/embedonce/backend"
)

// fail wraps err, which is not nil, with the file and what was being done, and
// with the sentinel that fits. Errors of bbolt name pages, never what is in them.
func (c *Cache) fail(doing string, err error) error {
	return fmt.Errorf("bolt: %s: %s: %w", c.path, doing, explain(err))
}

// explain adds the sentinel that fits to an error that has none.
func explain(err error) error {
	for _, sentinel := range []error{
		backend.ErrClosed, backend.ErrCorrupt, backend.ErrReadOnly, backend.ErrUnavailable,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, sentinel) {
			return err
		}
	}
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%w: another process, or another handle of this one, has it open: %w", backend.ErrUnavailable, err)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return fmt.Errorf("%w: %w", backend.ErrCorrupt, err)
	case errors.Is(err, berrors.ErrMaxSizeReached):
		return fmt.Errorf("%w: it is full, Options.MaxBytes is reached: %w", backend.ErrUnavailable, err)
	case errors.Is(err, syscall.ENOSPC), strings.Contains(err.Error(), syscall.ENOSPC.Error()):
		return fmt.Errorf("%w: the disk or its quota is full: %w", backend.ErrUnavailable, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: the file can't be written: %w", backend.ErrReadOnly, err)
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

var (
	errClosed = fmt.Errorf("bolt: cache is %w", backend.ErrClosed)
	// errMoved: writing on would acknowledge what nobody can ever read.
	errMoved = fmt.Errorf("%w: the file was removed or replaced while it was open; close the cache and open it again", backend.ErrUnavailable)
	// errTruncated: bbolt would fill the hole with zeros.
	errTruncated = fmt.Errorf("%w: the file is shorter than what is stored in it: it was truncated", backend.ErrCorrupt)
	errEmpty     = fmt.Errorf("%w: it is empty, and a read-only cache is not created", backend.ErrUnavailable)
)

// ended returns an error that wraps ctx.Err().
func (c *Cache) ended(ctx context.Context, doing string) error {
	return fmt.Errorf("bolt: %s: %s: %w", c.path, doing, ctx.Err())
}

// stalled is the error of a call that has waited for Options.StallTimeout.
func (c *Cache) stalled(doing string) error {
	return fmt.Errorf("bolt: %s: %s: %w: a commit has not ended for %v (Options.StallTimeout); it waits for the disk, or for a GetMany that began before it",
		c.path, doing, backend.ErrUnavailable, c.options.StallTimeout)
}

// guard, deferred around a call of bbolt, makes an error of its panic: bbolt
// panics over a damaged page, and the map faults where the file has none.
// debug.SetPanicOnFault must be on for the latter.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = damage(p)
	}
}

func damage(p any) error {
	if fault, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	}); ok {
		return fmt.Errorf("%w: a page can't be read: the file was truncated, the disk failed, or a damaged page points nowhere: %w", backend.ErrCorrupt, fault)
	}
	if err, ok := p.(error); ok {
		return fmt.Errorf("%w: a page is damaged: %w", backend.ErrCorrupt, err)
	}
	return fmt.Errorf("%w: a page is damaged: %v", backend.ErrCorrupt, p)
}
