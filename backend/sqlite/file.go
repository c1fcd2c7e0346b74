package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/embedonce/embedonce/backend"
)

// creating guards makeFile: closing a file drops the POSIX locks of the whole
// process on it, so no other handle of this process may open it between.
var creating sync.Mutex

// makeFile sees to it that path is a regular file; unless readOnly it creates an
// empty one, with mode 0600, where there is none. SQLite gives NAME-wal and
// NAME-shm the mode that the file has.
func makeFile(path string, readOnly bool) error {
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return fmt.Errorf("%w: it is a directory", backend.ErrCorrupt)
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%w: it is no regular file", backend.ErrCorrupt)
	case err == nil && info.Size() == 1 && runtime.GOOS != "darwin":
		// SQLite takes it for an empty file, because on macOS it makes such files.
		return fmt.Errorf("%w: file is not a database", backend.ErrCorrupt)
	case err == nil:
		// Another handle may have made it just now, and not closed it yet.
		creating.Lock()
		defer creating.Unlock()
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case readOnly:
		return fmt.Errorf("%w: it does not exist, and a read-only cache is not created: %w", backend.ErrUnavailable, fs.ErrNotExist)
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%w: its directory must exist: %w", backend.ErrUnavailable, err)
	} else if !info.IsDir() {
		return fmt.Errorf("%w: %s is no directory", backend.ErrUnavailable, dir)
	}

	creating.Lock()
	defer creating.Unlock()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		return file.Close()
	case errors.Is(err, fs.ErrExist):
		return nil // somebody else was faster
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: it can't be created: %w", backend.ErrReadOnly, err)
	}
	return fmt.Errorf("%w: it can't be created: %w", backend.ErrUnavailable, err)
}

// logPath returns the name of the log of the file at path, which exists. SQLite
// keeps it beside the file that a symbolic link leads to.
func logPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path + "-wal"
}

// checkNoLog returns an error if there is a log at path: an immutable database is
// read without it, and what is in it would be missing.
func checkNoLog(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: Options.Immutable is set, but %s is not empty: another process uses the file, or did not close it; open it once without Immutable", backend.ErrUnavailable, path)
}

// checkInPlace returns errMoved unless path is still the file that is open. It
// does not open the file, see creating.
func (c *Cache) checkInPlace() error {
	now, err := os.Stat(c.path)
	if err != nil {
		return fmt.Errorf("%w: %w", errMoved, err)
	}
	if !os.SameFile(c.identity, now) {
		return errMoved
	}
	return nil
}
