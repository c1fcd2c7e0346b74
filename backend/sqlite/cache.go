package sqlite

import (
	"context"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// Cache is a backend.Cache in a SQLite file. Open makes one; any number of
// goroutines may use it.
type Cache struct {
	path     string
	options  Options
	info     backend.Info
	identity fs.FileInfo // of the file that is open; nil if it is not written

	calls   calls
	closing sync.Once

	writing gate  // of one: guards writer
	writer  *conn // nil if ReadOnly, or until the next SetMany replaces a broken one
	// lockedSince is when a write first found the lock of SQLite taken, zero once
	// one has got it.
	lockedSince time.Time
	log         logLimit

	reading gate // as many as Options.Readers
	mu      sync.Mutex
	readers []*conn // the idle ones, the last one used on top
}

var _ backend.Cache = (*Cache)(nil)

const (
	// maxValueBytes is far below SQLite's own limit (a row of 1,000,000,000
	// bytes): a value is held three times while it is written, and the promise
	// must be true on a 32-bit system too.
	maxValueBytes = 64 << 20
	// splitKeys: BenchmarkCache/Sweep is the sweep, docs/backends.md has it.
	splitKeys = 256
)

// Open opens the cache in the file at path and creates the file if there is none
// or if it is empty; the directory must exist. opts may be nil. Any number of
// handles and processes may open a new file at the same moment.
//
// # Errors
//
// A file that is no database, that belongs to another application or that has
// another layout is refused with backend.ErrCorrupt; one that can't be written
// with backend.ErrReadOnly, unless Options.ReadOnly is set; one that can't be
// reached, or that stays locked for Options.BusyTimeout, with
// backend.ErrUnavailable. Errors name the file.
func Open(path string, opts *Options) (*Cache, error) {
	path, o, err := opts.withDefaults(path)
	if err != nil {
		return nil, err
	}
	c := &Cache{
		path:    path,
		options: o,
		writing: make(gate, 1),
		reading: make(gate, o.Readers),
		log:     logLimit{bytes: logBytes, wait: logWait},
		info: backend.Info{
			Atomic:        true,
			Durability:    backend.SurvivesPowerLoss,
			Reach:         backend.ReachHost,
			SnapshotReads: true,
			MaxValueBytes: maxValueBytes,
			Readers:       o.Readers,
			Writers:       1,
			SplitKeys:     splitKeys,
		},
	}
	if o.Synchronous != Full {
		c.info.Durability = backend.SurvivesCrash
	}
	if err := c.open(); err != nil {
		return nil, c.fail("open", err)
	}
	return c, nil
}

func (c *Cache) open() error {
	if err := makeFile(c.path, c.options.ReadOnly); err != nil {
		return err
	}
	c.log.path = logPath(c.path)
	if c.options.ReadOnly {
		return c.openFirstReader()
	}
	w, err := openConn(c.path, &c.options, false)
	if err != nil {
		return err
	}
	if c.identity, err = os.Stat(c.path); err == nil {
		err = untilFree(context.Background(), time.Now(), c.options.BusyTimeout, func() error {
			if err := w.setUp(&c.options); err != nil {
				return err
			}
			if err := w.initialize(c.options.PageSize); err != nil {
				return err
			}
			return w.ready(&c.options, false)
		})
	}
	if err != nil {
		_ = w.close() // the error that is known already says more
		return err
	}
	c.writer = w
	return nil
}

// openFirstReader opens a reader at once, so that what is wrong with the file
// comes out of Open.
func (c *Cache) openFirstReader() error {
	if c.options.Immutable {
		if err := checkNoLog(c.log.path); err != nil {
			return err
		}
	}
	r, err := openConn(c.path, &c.options, true)
	if err != nil {
		return err
	}
	err = untilFree(context.Background(), time.Now(), c.options.BusyTimeout, func() error {
		if err := r.setUp(&c.options); err != nil {
			return err
		}
		ours, err := r.readLayout()
		if err != nil {
			return err
		}
		if !ours {
			return errEmptyReadOnly
		}
		return r.ready(&c.options, true)
	})
	if err != nil {
		_ = r.close()
		return err
	}
	c.readers = append(c.readers, r)
	return nil
}

// Info implements backend.Cache.
func (c *Cache) Info() backend.Info { return c.info }

// Close implements backend.Cache. The last handle on the file that closes moves
// the log into it.
func (c *Cache) Close() error {
	var err error
	c.closing.Do(func() {
		c.calls.end()
		// The writer last: only it can move the log into the file.
		for _, r := range c.readers {
			if e := r.close(); e != nil && err == nil {
				err = c.fail("close", e)
			}
		}
		c.readers = nil
		if c.writer != nil {
			if e := c.writer.close(); e != nil && err == nil {
				err = c.fail("close", e)
			}
			c.writer = nil
		}
	})
	return err
}

// Txn implements backend.Cache.
func (c *Cache) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	if err := ctx.Err(); err != nil {
		return c.ended(ctx, "transaction", nil)
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

func (e entered) SetMany(ctx context.Context, items []backend.Item) error {
	return e.setMany(ctx, items)
}
