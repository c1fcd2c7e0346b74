package bolt

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Options sets up a Cache. The zero value of each field is its default.
type Options struct {
	// ReadOnly takes no writes: SetMany returns backend.ErrReadOnly. The file must
	// exist. Any number of processes may read it so at the same time, as long as
	// nobody has it open for writing.
	ReadOnly bool
	// NoSync acknowledges a batch before it is synced to the disk: it survives the
	// end of the process, SIGKILL included. A power failure or a crash of the
	// system may then leave a file that can't be read at all, and with it
	// everything is lost that was stored: it suits what can be paid for again.
	NoSync bool
	// LockTimeout is how long Open waits for a file that another process, or another
	// handle of this one, has open; 0 is 5 seconds.
	LockTimeout time.Duration
	// StallTimeout is how long a call waits, beside its context, while one commit
	// makes no end: the disk hangs, or the map must grow (see MapBytes) while a
	// GetMany lingers in its visit. The call then returns backend.ErrUnavailable,
	// and the commit may still be stored. 0 is 30 seconds.
	StallTimeout time.Duration
	// Readers goes into Info.Readers: how many GetMany calls may usefully run at
	// once. It limits nothing. 0 is GOMAXPROCS.
	Readers int
	// PageSize is the page size in bytes of a file that Open creates, a power of two
	// from 4,096 to 65,536; a file that exists keeps its own. 0 is 4,096: larger
	// pages write no faster and need up to a third more room.
	PageSize int
	// MaxBytes is how large the file may become; a batch that needs more is refused
	// with backend.ErrUnavailable, and nothing of it is stored. The file grows in
	// steps, so the last one may not be used. 0 is no limit.
	MaxBytes int64
	// MapBytes is how much of the address space is set aside for the file. As long
	// as the file is smaller, a commit never waits for a GetMany; when it becomes
	// larger, the commit that extends the map waits for every GetMany that is
	// running, and those that begin wait for it. Address space costs no memory.
	// 0 is 1 TiB, or as much as the file needs where the system does not grant that
	// much, on Windows (where the file would become as large) and on a 32-bit
	// system.
	MapBytes int64
}

const (
	defaultLockTimeout  = 5 * time.Second
	defaultStallTimeout = 30 * time.Second
	defaultPageSize     = 4096
	defaultMapBytes     = 1 << 40
	maxReaders          = 1024
	minMaxBytes         = 1 << 20
)

// withDefaults returns a copy of o, which may be nil, with every default filled
// in, and the absolute path; or one error that lists all that is wrong.
func (o *Options) withDefaults(doing, path string) (string, Options, error) {
	var full Options
	if o != nil {
		full = *o
	}
	problems := []error{checkPath(path)}
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	if full.LockTimeout < 0 {
		wrong("Options.LockTimeout is %v; at least 0 is allowed", full.LockTimeout)
	}
	if full.StallTimeout < 0 {
		wrong("Options.StallTimeout is %v; at least 0 is allowed", full.StallTimeout)
	}
	if full.Readers < 0 || full.Readers > maxReaders {
		wrong("Options.Readers is %d; 0 to %d are allowed", full.Readers, maxReaders)
	}
	if p := full.PageSize; p != 0 && (p < 4096 || p > 65536 || p&(p-1) != 0) {
		wrong("Options.PageSize is %d; 0 and the powers of two from 4096 to 65536 are allowed", p)
	}
	if m := full.MaxBytes; m != 0 && (m < minMaxBytes || m > math.MaxInt) {
		wrong("Options.MaxBytes is %d; 0 and %d to %d are allowed", m, minMaxBytes, math.MaxInt)
	}
	if m := full.MapBytes; m < 0 || m > math.MaxInt {
		wrong("Options.MapBytes is %d; 0 to %d are allowed", m, math.MaxInt)
	}
	if err := errors.Join(problems...); err != nil {
		return "", full, fmt.Errorf("bolt.%s: %w", doing, err)
	}

	if full.LockTimeout == 0 {
		full.LockTimeout = defaultLockTimeout
	}
	if full.StallTimeout == 0 {
		full.StallTimeout = defaultStallTimeout
	}
	if full.Readers == 0 {
		full.Readers = min(runtime.GOMAXPROCS(0), maxReaders)
	}
	if full.PageSize == 0 {
		full.PageSize = defaultPageSize
	}
	// The file is looked for again with each batch: a change of the working
	// directory must not send that elsewhere.
	path, err := filepath.Abs(path)
	if err != nil {
		return "", full, fmt.Errorf("bolt.%s: %w", doing, err)
	}
	return path, full, nil
}

// mapBytes is MapBytes with its default; given says that the user chose it.
func (o *Options) mapBytes() (n int, given bool) {
	switch {
	case o.MapBytes != 0:
		return int(o.MapBytes), true
	case runtime.GOOS == "windows", math.MaxInt < defaultMapBytes:
		return 0, false
	}
	return int(int64(defaultMapBytes) & math.MaxInt), false // a constant that a 32-bit int can't hold
}

func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("path is empty; the name of a file is needed")
	case path == ":memory:":
		return errors.New("path is \":memory:\"; package backend/memory is the cache without a file")
	case strings.HasPrefix(path, "file:"):
		return errors.New("path is a URI; the name of a file is needed, and Options instead of parameters")
	case strings.ContainsRune(path, 0):
		return errors.New("path has a NUL character")
	}
	return nil
}
