package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Synchronous says when a batch counts as written.
type Synchronous uint8

const (
	// Full syncs each batch to the disk before it is acknowledged: it survives a
	// power failure. This is SQLite's synchronous=FULL, and fullfsync where the
	// system has it. A batch costs one sync more than with Normal: 0 to 25 % of the
	// time for 512 entries of 6 KB, measured on a virtual disk.
	Full Synchronous = iota
	// Normal syncs only when the log is moved into the file: an acknowledged batch
	// survives the end of the process, SIGKILL included, and a power failure may
	// take the last batches, each as a whole. The file stays sound. This is
	// SQLite's synchronous=NORMAL.
	Normal
)

// String returns "full" or "normal".
func (s Synchronous) String() string {
	switch s {
	case Full:
		return "full"
	case Normal:
		return "normal"
	}
	return fmt.Sprintf("unknown (%d)", uint8(s))
}

// Options sets up a Cache. The zero value of each field is its default.
type Options struct {
	// ReadOnly takes no writes: SetMany returns backend.ErrReadOnly. The file must
	// exist. Its directory must be writable all the same, unless another process
	// has the file open: readers put their locks into NAME-shm.
	ReadOnly bool
	// Immutable is ReadOnly for a file that nobody writes while the handle is
	// open, such as one in a container image. It takes no locks and needs no
	// writable directory. A file with a NAME-wal that is not empty is refused.
	Immutable bool
	// Synchronous says when a batch counts as written; the default is Full.
	Synchronous Synchronous
	// BusyTimeout is how long a call waits for a lock that another process or
	// handle holds, and how long Open waits. A context that ends earlier ends the
	// wait with its own error; BusyTimeout ends it with backend.ErrUnavailable.
	// Calls that queue up behind each other for the same lock wait together, not
	// one after the other. 0 is 10 seconds.
	BusyTimeout time.Duration
	// Readers is how many GetMany calls read at once, each over a connection of
	// its own; more calls wait for their turn. 0 is GOMAXPROCS: more than one a
	// core is slower.
	Readers int
	// PageSize is the page size in bytes of a file that Open creates, a power of
	// two from 512 to 65,536; a file that exists keeps its own. 0 is 16,384:
	// with entries of 6 KB, 4,096 and 8,192 write slower, and 32,768 rewrites more
	// of the index with each batch of a large cache.
	PageSize int
	// MmapBytes is how much of the file is read through a memory map, at most
	// 2,147,418,112 bytes (a limit of SQLite); the rest is read the usual way.
	// 0 is that limit, and 256 MiB on a 32-bit system.
	MmapBytes int64
	// DisableMmap reads without a memory map: a failing disk is an error then and
	// no SIGBUS, and reading takes up to twice as long.
	DisableMmap bool

	fault func() error // of tests: called before each call of SQLite, which it may replace
}

const (
	defaultBusyTimeout = 10 * time.Second
	defaultPageSize    = 16 << 10
	maxReaders         = 1024
	maxMmapBytes       = 0x7fff0000 // SQLITE_MAX_MMAP_SIZE
)

// withDefaults returns a copy of o, which may be nil, with every default filled
// in, and the absolute path; or one error that lists all that is wrong.
func (o *Options) withDefaults(path string) (string, Options, error) {
	var full Options
	if o != nil {
		full = *o
	}
	problems := []error{checkPath(path)}
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	if full.Synchronous > Normal {
		wrong("Options.Synchronous is %d; Full and Normal are allowed", full.Synchronous)
	}
	if full.BusyTimeout < 0 {
		wrong("Options.BusyTimeout is %v; at least 0 is allowed", full.BusyTimeout)
	}
	if full.Readers < 0 || full.Readers > maxReaders {
		wrong("Options.Readers is %d; 0 to %d are allowed", full.Readers, maxReaders)
	}
	if p := full.PageSize; p != 0 && (p < 512 || p > 65536 || p&(p-1) != 0) {
		wrong("Options.PageSize is %d; 0 and the powers of two from 512 to 65536 are allowed", p)
	}
	if full.MmapBytes < 0 || full.MmapBytes > maxMmapBytes {
		wrong("Options.MmapBytes is %d; 0 to %d are allowed", full.MmapBytes, maxMmapBytes)
	}
	if full.DisableMmap && full.MmapBytes != 0 {
		wrong("Options.MmapBytes is %d while Options.DisableMmap is set; one of them is allowed", full.MmapBytes)
	}
	if err := errors.Join(problems...); err != nil {
		return "", full, fmt.Errorf("sqlite.Open: %w", err)
	}

	full.ReadOnly = full.ReadOnly || full.Immutable
	if full.BusyTimeout == 0 {
		full.BusyTimeout = defaultBusyTimeout
	}
	if full.Readers == 0 {
		full.Readers = min(runtime.GOMAXPROCS(0), maxReaders)
	}
	if full.PageSize == 0 {
		full.PageSize = defaultPageSize
	}
	if full.MmapBytes == 0 && !full.DisableMmap {
		full.MmapBytes = defaultMmapBytes()
	}
	// Connections are opened later too: a change of the working directory must
	// not send them elsewhere.
	path, err := filepath.Abs(path)
	if err != nil {
		return "", full, fmt.Errorf("sqlite.Open: %w", err)
	}
	return path, full, nil
}

func defaultMmapBytes() int64 {
	if ^uint(0)>>32 == 0 {
		return 256 << 20 // the address space has 4 GiB for everything
	}
	return maxMmapBytes
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
