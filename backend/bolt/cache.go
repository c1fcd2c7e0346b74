package bolt

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// Cache is a backend.Cache in a bbolt file. Open makes one; any number of
// goroutines may use it.
type Cache struct {
	path    string
	options Options
	info    backend.Info

	calls   calls
	closing sync.Once

	// phase guards what follows. It is held for reading while bbolt begins and ends
	// a read transaction, unless a commit is under way.
	phase sync.RWMutex
	// committing is not nil while a commit is under way.
	committing *commit
	store      *store // nil if it could not be opened again
	broken     error  // why bbolt can't be called any more, not even to close

	queue queue
	hooks atomic.Pointer[hooks]
}

// hooks lets tests fail a write where nothing outside can. Each may be nil.
type hooks struct {
	put    func(item int) error // before an item of a batch is put
	commit func() error         // before a commit
}

func (h *hooks) beforePut(item int) error {
	if h == nil || h.put == nil {
		return nil
	}
	return h.put(item)
}

func (h *hooks) beforeCommit() error {
	if h == nil || h.commit == nil {
		return nil
	}
	return h.commit()
}

var (
	_ backend.Cache   = (*Cache)(nil)
	_ backend.Scanner = (*Cache)(nil)
	_ backend.Deleter = (*Cache)(nil)
	_ backend.Statter = (*Cache)(nil)
)

const (
	// maxValueBytes is far below bbolt's own limit (2 GiB): a value is held three
	// times while it is written, and the promise must be true on a 32-bit system too.
	maxValueBytes = 64 << 20
	// splitKeys and writers: BenchmarkCache/Sweep and BenchmarkWriters are the
	// sweeps, docs/backends.md has them.
	splitKeys = 256
	writers   = 8
)

// Open opens the cache in the file at path and creates the file if there is none
// or if it is empty; the directory must exist. opts may be nil. One handle may
// have a file open for writing, or any number with Options.ReadOnly.
//
// # Errors
//
// A file that is no bbolt database, that is damaged or truncated where that can
// be seen, that belongs to another program or that has another layout is refused
// with backend.ErrCorrupt; one that can't be written with backend.ErrReadOnly,
// unless Options.ReadOnly is set; one that can't be reached, or that another
// process or handle has open for longer than Options.LockTimeout, with
// backend.ErrUnavailable. Errors name the file.
func Open(path string, opts *Options) (*Cache, error) {
	path, o, err := opts.withDefaults("Open", path)
	if err != nil {
		return nil, err
	}
	c := &Cache{
		path:    path,
		options: o,
		info: backend.Info{
			Atomic:        true,
			Durability:    backend.SurvivesPowerLoss,
			Reach:         backend.ReachHandle,
			SnapshotReads: true,
			MaxValueBytes: maxValueBytes,
			Readers:       o.Readers,
			Writers:       writers,
			SplitKeys:     splitKeys,
		},
	}
	if o.NoSync {
		c.info.Durability = backend.SurvivesCrash
	}
	if c.store, err = openStore(path, &c.options, time.Now().Add(o.LockTimeout)); err != nil {
		return nil, c.fail("open", err)
	}
	return c, nil
}

// Info implements backend.Cache.
func (c *Cache) Info() backend.Info { return c.info }

// Close implements backend.Cache. It waits for every GetMany and for the commits
// that are under way, also those whose callers have left.
func (c *Cache) Close() error {
	var err error
	c.closing.Do(func() {
		c.calls.end()
		switch {
		case c.store == nil:
		case c.broken != nil:
			// bbolt is in the middle of a call that will never end and holds its locks. The
			// map stays until the process ends.
			_ = c.store.file.Close()
		default:
			if e := c.closeStore(); e != nil {
				err = c.fail("close", e)
			}
		}
	})
	return err
}

func (c *Cache) closeStore() (err error) {
	defer guard(&err)
	return c.store.db.Close()
}

// Txn implements backend.Cache. No lock is held while fn runs.
func (c *Cache) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	if ctx.Err() != nil {
		return c.ended(ctx, "transaction")
	}
	if err := c.calls.enter(); err != nil {
		return err
	}
	defer c.calls.leave()
	return backend.BufferedTxn(ctx, entered{c}, fn)
}

// entered is the cache inside a call that Close waits for already: what the call
// does further must not be turned away.
type entered struct{ *Cache }

func (e entered) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	return e.getMany(ctx, keys, visit)
}

// SetMany stores what a transaction has collected, which nobody else has.
func (e entered) SetMany(ctx context.Context, items []backend.Item) error {
	return e.setMany(ctx, items, true)
}

// faultsPanic lets the calling goroutine survive an access to a page of the map
// that the file doesn't have, until the returned value is given to
// debug.SetPanicOnFault.
func faultsPanic() (before bool) { return debug.SetPanicOnFault(true) }
