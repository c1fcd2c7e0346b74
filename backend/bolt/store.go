package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

// store is the open file.
type store struct {
	db       *bbolt.DB
	file     *os.File    // bbolt's own
	identity fs.FileInfo // of file
	minBytes int64       // of the meta pages
	free     int64       // pages that were free when it was opened
	pageSize int64
}

// openStore opens the file at path, makes it if there is none, and checks it.
// It waits for the lock until the deadline.
func openStore(path string, o *Options, deadline time.Time) (*store, error) {
	defer debug.SetPanicOnFault(faultsPanic())
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("%w: it is a directory", backend.ErrCorrupt)
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: it is no regular file", backend.ErrCorrupt)
	case err == nil && info.Size() == 0 && o.ReadOnly:
		return nil, errEmpty
	case err == nil:
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case o.ReadOnly:
		return nil, fmt.Errorf("%w: it does not exist, and a read-only cache is not created: %w", backend.ErrUnavailable, fs.ErrNotExist)
	default:
		if err := createFile(path, o); err != nil {
			return nil, err
		}
		info, _ = os.Stat(path)
	}
	// For reading first, also where it is then opened for writing: with the shared
	// lock held nobody changes what is checked, and bbolt doesn't yet trust it.
	if info != nil && info.Size() > 0 {
		s, err := openChecked(path, o, deadline)
		if err != nil || o.ReadOnly {
			return s, err
		}
		if err := s.db.Close(); err != nil {
			return nil, err
		}
	}
	s, err := openDB(path, o, deadline, false)
	if err != nil {
		return nil, err
	}
	if err := s.makeOurs(path); err != nil {
		_ = s.db.Close() // the error that is known says more
		return nil, err
	}
	return s, nil
}

// makeOurs makes an empty database a cache.
func (s *store) makeOurs(path string) error {
	ours, err := checkLayout(s.db)
	if err != nil {
		return err
	}
	if !ours {
		if err := errors.Join(createLayout(s.db), syncDir(filepath.Dir(path))); err != nil {
			return err
		}
	}
	return s.inPlace(path)
}

// openChecked opens the file for reading and checks header and layout.
func openChecked(path string, o *Options, deadline time.Time) (*store, error) {
	s, err := openDB(path, o, deadline, true)
	if err != nil {
		return nil, err
	}
	if err := s.check(o.ReadOnly); err != nil {
		_ = s.db.Close()
		return nil, err
	}
	return s, nil
}

func (s *store) check(needed bool) error {
	h, err := checkFile(s.file)
	if err != nil {
		return err
	}
	s.free = int64(h.free)
	ours, err := checkLayout(s.db)
	if err == nil && !ours && needed {
		err = errEmpty
	}
	return err
}

// openDB lets bbolt open the file.
func openDB(path string, o *Options, deadline time.Time, readOnly bool) (_ *store, err error) {
	var file *os.File
	defer func() {
		if err != nil && file != nil {
			_ = file.Close() // bbolt has not if it panicked
		}
	}()
	defer guard(&err)
	options := &bbolt.Options{
		// bbolt waits for ever if it is 0.
		Timeout:      max(time.Until(deadline), time.Nanosecond),
		ReadOnly:     readOnly,
		NoSync:       o.NoSync,
		PageSize:     o.PageSize,
		FreelistType: bbolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			var err error
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	}
	given := true
	if !readOnly {
		options.InitialMmapSize, given = o.mapBytes()
		options.MaxSize = int(o.MaxBytes)
	}
	db, err := bbolt.Open(path, 0o600, options)
	if err != nil && !given && errors.Is(err, syscall.ENOMEM) {
		options.InitialMmapSize = 0 // a limit on the address space, such as ulimit -v
		db, err = bbolt.Open(path, 0o600, options)
	}
	if err != nil {
		return nil, err
	}
	if o.MaxBytes != 0 {
		// The step in which the file grows: what is left of less than one is not used.
		db.AllocSize = int(min(int64(db.AllocSize), o.MaxBytes/16))
	}
	identity, err := file.Stat()
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	pageSize := int64(db.Info().PageSize)
	return &store{db: db, file: file, identity: identity, pageSize: pageSize, minBytes: 2 * pageSize}, nil
}

// createFile puts a cache without entries at path, or leaves what somebody else
// has put there meanwhile. The file gets its name when it is whole: a process
// that is killed leaves no half of one at path.
func createFile(path string, o *Options) (err error) {
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%w: its directory must exist: %w", backend.ErrUnavailable, err)
	} else if !info.IsDir() {
		return fmt.Errorf("%w: %s is no directory", backend.ErrUnavailable, dir)
	}
	temp, err := os.CreateTemp(dir, filepath.Base(path)+".new-*") // with mode 0600
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: it can't be created: %w", backend.ErrReadOnly, err)
	case err != nil:
		return fmt.Errorf("%w: it can't be created: %w", backend.ErrUnavailable, err)
	}
	defer func() {
		if e := os.Remove(temp.Name()); err == nil && e != nil {
			err = fmt.Errorf("%w: %w", backend.ErrUnavailable, e)
		}
	}()
	if err := temp.Close(); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	db, err := bbolt.Open(temp.Name(), 0o600, &bbolt.Options{PageSize: o.PageSize, Timeout: time.Second, NoSync: o.NoSync})
	if err != nil {
		return err
	}
	if err := errors.Join(createLayout(db), db.Close()); err != nil {
		return err
	}
	if os.Link(temp.Name(), path) != nil {
		// Somebody else was faster, or the file system has no links: then bbolt makes
		// the file in its place.
		return nil
	}
	return syncDir(dir)
}

// syncDir makes the name of a new file as durable as what will be in it.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // a directory can't be opened there
	}
	d, err := os.Open(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil && !errors.Is(err, syscall.EINVAL) { // a file system without it
		return fmt.Errorf("%w: its directory can't be synced: %w", backend.ErrUnavailable, err)
	}
	return nil
}

// inPlace returns errMoved unless path is still the file that is open.
func (s *store) inPlace(path string) error {
	now, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%w: %w", errMoved, err)
	}
	if !os.SameFile(s.identity, now) {
		return errMoved
	}
	return nil
}

// atLeast returns errTruncated if the file is shorter: bbolt holds locks while it
// looks at a meta page, and a fault there could never be put right.
func (s *store) atLeast(bytes int64) error {
	info, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	if info.Size() < bytes {
		return errTruncated
	}
	return nil
}
