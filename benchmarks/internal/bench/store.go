package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/benchmarks/internal/floor"
)

// Store is a store that was filled once and stays as it is: measured are its
// copies. A store that its own repetitions had grown would not be the same one each
// time.
type Store struct {
	run     *Run
	backend *Backend
	place   string
	source  backend.Cache // open where copies are made entry by entry
}

// Prepare makes a store and has fill put the entries into it. The caller must Close
// it.
func (r *Run) Prepare(ctx context.Context, b *Backend, fill func(c backend.Cache) error) (_ *Store, err error) {
	s := &Store{run: r, backend: b}
	if s.place, err = r.TempDir(); err != nil {
		return nil, err
	}
	if s.source, err = b.open(ctx, r, s.place); err != nil {
		return nil, err
	}
	if err := fill(s.source); err != nil {
		return nil, errors.Join(fmt.Errorf("filling a store of %s: %w", b.Name, err), s.Close(ctx))
	}
	if b.files {
		err, s.source = s.source.Close(), nil
	}
	return s, err
}

// Repeat prepares a store and calls measure once for each repetition of the run. what
// is said of the store as it goes on, and fill as for Prepare.
func (r *Run) Repeat(ctx context.Context, b *Backend, what string, fill func(c backend.Cache) error, measure func(repetition int, s *Store) error) error {
	s, err := r.Prepare(ctx, b, fill)
	if err != nil {
		return err
	}
	for repetition := range r.Runs {
		r.Logf("%s, run %d of %d", what, repetition+1, r.Runs)
		if err := measure(repetition, s); err != nil {
			return errors.Join(err, s.Close(ctx))
		}
	}
	return s.Close(ctx)
}

// BesideFloor calls measure with two fresh copies, one of which is open by hand, and
// removes both.
func (s *Store) BesideFloor(ctx context.Context, measure func(copied *Copy, byHand *Floor) error) (err error) {
	copied, err := s.Fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Remove(ctx)) }()
	byHand, err := s.Floor(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, byHand.Remove(ctx)) }()
	return measure(copied, byHand)
}

// Close removes the store.
func (s *Store) Close(ctx context.Context) error {
	var errs []error
	if s.source != nil {
		if s.backend.drop != nil {
			errs = append(errs, s.backend.drop(ctx, s.run, s.source))
		}
		errs = append(errs, s.source.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.place))...)
}

// Copy is a fresh copy of a Store, open as a user opens it.
type Copy struct {
	backend.Cache
	store *Store
	Place string // its directory; for other processes
}

// Fresh returns a copy, which the caller must Remove.
func (s *Store) Fresh(ctx context.Context) (*Copy, error) {
	place, err := s.copyFiles()
	if err != nil {
		return nil, err
	}
	c, err := s.backend.open(ctx, s.run, place)
	if err != nil {
		return nil, err
	}
	copied := &Copy{Cache: c, store: s, Place: place}
	if s.source != nil {
		if _, err := backend.Copy(ctx, s.source, c, &backend.CopyOptions{Overwrite: true}); err != nil {
			return nil, errors.Join(err, copied.Remove(ctx))
		}
	}
	return copied, nil
}

// Remove closes the copy and removes it.
func (c *Copy) Remove(ctx context.Context) error {
	var errs []error
	if c.store.backend.drop != nil {
		errs = append(errs, c.store.backend.drop(ctx, c.store.run, c.Cache))
	}
	return errors.Join(append(errs, c.Close(), os.RemoveAll(c.Place))...)
}

// Floor is a fresh copy of a Store that is read and written by hand.
type Floor struct {
	floor.Store
	of     *Store
	copied *Copy  // stays open where the store needs it to live or to be removed
	place  string // else its directory
}

// Floor returns a copy that is open by hand, which the caller must Remove.
func (s *Store) Floor(ctx context.Context) (*Floor, error) {
	if s.backend.files {
		place, err := s.copyFiles()
		if err != nil {
			return nil, err
		}
		store, err := s.backend.floor(ctx, s.run, place, nil)
		return &Floor{Store: store, of: s, place: place}, err
	}
	copied, err := s.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	store, err := s.backend.floor(ctx, s.run, copied.Place, copied.Cache)
	if err != nil {
		return nil, errors.Join(err, copied.Remove(ctx))
	}
	return &Floor{Store: store, of: s, copied: copied}, nil
}

// Remove closes the copy and removes it.
func (f *Floor) Remove(ctx context.Context) error {
	err := f.Close()
	if f.copied != nil {
		return errors.Join(err, f.copied.Remove(ctx))
	}
	return errors.Join(err, os.RemoveAll(f.place))
}

// Files returns the directory of a fresh copy that nobody has open, of a store that is
// files; the caller must remove it.
func (s *Store) Files() (place string, err error) {
	if !s.backend.files {
		return "", fmt.Errorf("a store of %s has no files", s.backend.Name)
	}
	return s.copyFiles()
}

// copyFiles copies the directory of the store, which is empty where entries are not
// in files, and returns the name of the copy. It is on the disk then: what is left to
// write would be written while the copy is measured.
func (s *Store) copyFiles() (string, error) {
	place, err := s.run.TempDir()
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(place, os.DirFS(s.place)); err != nil {
		return "", err
	}
	names, err := os.ReadDir(place)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		file, err := os.OpenFile(filepath.Join(place, name.Name()), os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		if err := errors.Join(file.Sync(), file.Close()); err != nil {
			return "", err
		}
	}
	return place, nil
}
