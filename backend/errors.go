package backend

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed: the cache, or the transaction, has ended.
	ErrClosed = errors.New("closed")

	// ErrForeign is what a visit function returns for a value that is not its
	// own, or not whole. It is no failure: see rule G6.
	ErrForeign = errors.New("foreign entry")

	// ErrEmptyValue: an item without a value was to be stored.
	ErrEmptyValue = errors.New("empty value")

	// ErrTooLarge: a value or a batch is over a limit of the store.
	ErrTooLarge = errors.New("too large for this store")

	// ErrReadOnly: the store, or this handle on it, takes no writes.
	ErrReadOnly = errors.New("store is read-only")

	// ErrCorrupt: what is stored there is damaged, or is no store of this kind.
	ErrCorrupt = errors.New("store is corrupt or not of this kind")

	// ErrUnavailable: the store can't be reached or is busy; later it may work.
	ErrUnavailable = errors.New("store is unavailable")

	// ErrUnsupported: this store can't do what was asked. It wraps
	// [errors.ErrUnsupported].
	ErrUnsupported = fmt.Errorf("backend: %w", errors.ErrUnsupported)
)

// BatchError is the error of a SetMany that stored some of its items, as only a
// store whose Info.Atomic is false may do (rule S1).
type BatchError struct {
	// NotStored has the index, in the items of the call, of every item that is
	// not known to be stored, in ascending order.
	NotStored []int
	// Err is why. It is never nil.
	Err error
}

// Error says how many items are missing; it names no key.
func (e *BatchError) Error() string {
	return fmt.Sprintf("%d items of the batch are not stored: %v", len(e.NotStored), e.Err)
}

// Unwrap returns Err.
func (e *BatchError) Unwrap() error { return e.Err }
