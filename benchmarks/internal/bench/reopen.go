package bench

import (
	"context"
	"errors"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// ErrInMemory is of a floor whose entries end with the handle: there is nothing to open.
var ErrInMemory = errors.New("there is nothing to open: the entries are in memory alone")

// Reopen closes the copy and opens it again, and returns how long each took. What
// lives in the memory of one handle is put back afterwards. After an error the copy
// can only be removed.
func (c *Copy) Reopen(ctx context.Context) (closing, opening time.Duration, err error) {
	begun := time.Now()
	if err := c.Close(); err != nil {
		return 0, 0, err
	}
	closed := time.Now()
	opened, err := c.store.backend.open(ctx, c.store.run, c.Place)
	opening = time.Since(closed)
	if err != nil {
		return 0, 0, err
	}
	c.Cache = opened
	if c.inMemory() {
		_, err = backend.Copy(ctx, c.store.source, opened, &backend.CopyOptions{Overwrite: true})
	}
	return closed.Sub(begun), opening, err
}

// inMemory says whether the entries end with the handle.
func (c *Copy) inMemory() bool {
	return !c.store.backend.files && c.Info().Reach == backend.ReachHandle
}

// Reopen closes the copy and opens it again by hand, and returns how long each took.
// It returns ErrInMemory, and does nothing, where the entries end with the handle.
func (f *Floor) Reopen(ctx context.Context) (closing, opening time.Duration, err error) {
	place, from := f.place, backend.Cache(nil)
	if f.copied != nil {
		if f.copied.inMemory() {
			return 0, 0, ErrInMemory
		}
		place, from = f.copied.Place, f.copied.Cache
	}
	begun := time.Now()
	if err := f.Close(); err != nil {
		return 0, 0, err
	}
	closed := time.Now()
	store, err := f.of.backend.floor(ctx, f.of.run, place, from)
	opening = time.Since(closed)
	if err != nil {
		return 0, 0, err
	}
	f.Store = store
	return closed.Sub(begun), opening, nil
}
