package tiered

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// DefaultFillBytes holds 5,000 vectors of 1,536 dimensions.
const DefaultFillBytes = 32 << 20

// Options set up a Cache. The zero value of each field is its default.
type Options struct {
	// LeaveOpen leaves both layers open when the Cache is closed. The default is to
	// close them: the Cache owns them once New has returned nil.
	LeaveOpen bool
	// FillBytes is how many bytes of values one GetMany copies at most from the
	// slow layer into the fast one, and how much memory it takes for that. 0 is
	// DefaultFillBytes, -1 copies nothing: then only writes fill the fast layer.
	FillBytes int
	// MaxAge is how long the fast layer answers for an entry after it was written
	// or copied there by this Cache; then the slow layer is asked again. So it
	// bounds how long this handle serves what another one overwrote or deleted.
	// What a fast layer held before New counts as older. It costs about 60 bytes
	// of memory for an entry, and some 50 ns for each key read. 0 is no limit.
	MaxAge time.Duration
	// OnFault is told when the fast layer fails, once for each outage, on the
	// goroutine of a call; it must not use the Cache. nil is a warning to
	// slog.Default.
	OnFault func(ctx context.Context, err error)
}

// Cache implements [backend.Cache] over two others. Any number of goroutines may
// use it.
type Cache struct {
	fast, slow backend.Cache
	fastInfo   backend.Info
	info       backend.Info
	leaveOpen  bool
	fillBytes  int

	calls     calls
	closing   sync.Once
	reads     sync.Pool // of *read
	turns     turns
	trust     trust
	unwritten unwritten
	outage    outage
	counts    counters
}

var (
	_ backend.Cache     = (*Cache)(nil)
	_ backend.Layered   = (*Cache)(nil)
	_ backend.Scanner   = (*Cache)(nil)
	_ backend.Deleter   = (*Cache)(nil)
	_ backend.Statter   = (*Cache)(nil)
	_ backend.Compacter = (*Cache)(nil)
)

// New joins two caches, which must not be used otherwise afterwards; see
// Options.LeaveOpen for who closes them. opts may be nil.
//
// # Errors
//
// What is wrong with the arguments is one error that lists every problem; the
// layers stay open. A fast layer that several machines share over a slow one that
// they don't is refused: its entries would come from stores that are not this one.
func New(fast, slow backend.Cache, opts *Options) (*Cache, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if err := check(fast, slow, o); err != nil {
		return nil, fmt.Errorf("tiered.New: %w", err)
	}
	c := &Cache{fast: fast, slow: slow, fastInfo: fast.Info(), leaveOpen: o.LeaveOpen}
	c.info = combine(c.fastInfo, slow.Info(), o.MaxAge)
	c.fillBytes = o.FillBytes
	if c.fillBytes == 0 {
		c.fillBytes = DefaultFillBytes
	}
	if half := c.fastInfo.Capacity / 2; c.fastInfo.MayEvict && half > 0 && int64(c.fillBytes) > half {
		c.fillBytes = int(half) // more would only push itself out
	}
	c.reads.New = func() any { return newRead(c) }
	c.turns.keys = make(map[backend.Key]turn)
	c.trust.maxAge, c.trust.began = o.MaxAge, time.Now()
	c.outage.told = o.OnFault
	return c, nil
}

func check(fast, slow backend.Cache, o Options) error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if fast == nil {
		wrong("fast is nil; a cache is needed")
	}
	if slow == nil {
		wrong("slow is nil; a cache is needed")
	}
	if fast != nil && slow != nil {
		if reflect.ValueOf(fast).Comparable() && reflect.ValueOf(slow).Comparable() && fast == slow {
			wrong("fast and slow are the same cache; two are needed")
		}
		upper, lower := fast.Info().Reach, slow.Info().Reach
		if upper == backend.ReachHosts && lower != backend.ReachHosts {
			wrong("fast reaches other hosts and slow only its %v; the slow layer must reach as far", lower)
		}
		if fast.Info().Durability > slow.Info().Durability && slow.Info().Durability == backend.NotDurable {
			wrong("fast outlives the process and slow does not, so that nothing would be kept: are they swapped?")
		}
	}
	if o.FillBytes < -1 {
		wrong("Options.FillBytes is %d; allowed are -1 for none, 0 for the default of %d, and more", o.FillBytes, DefaultFillBytes)
	}
	if o.MaxAge < 0 {
		wrong("Options.MaxAge is %v; at least 0 is allowed", o.MaxAge)
	}
	return errors.Join(problems...)
}

// combine says what holds for fast over slow. An entry counts as stored when the
// slow layer has it, so the promises are the slow layer's, with one exception: a
// GetMany that takes some keys from one layer and some from the other may see a
// part of a batch that is written in between. What others overwrite in a slow
// layer that is shared is hidden by the copies in the fast one, up to maxAge.
func combine(fast, slow backend.Info, maxAge time.Duration) backend.Info {
	info := slow
	info.SnapshotReads, info.SnapshotKeys = false, 0
	switch {
	case slow.Reach == backend.ReachHandle: // there are no others
	case maxAge > 0:
		info.Lag += maxAge
	default:
		info.Copies = true
	}
	info.Readers = max(fast.Readers, slow.Readers)
	if slow.SplitKeys > 0 { // else the slow layer wants a call whole
		info.SplitKeys = max(fast.SplitKeys, slow.SplitKeys)
	}
	return info
}

// Info has the promises and limits of the slow layer, without snapshot reads, and
// with Copies, or Options.MaxAge in Lag, where other handles share the slow layer. A
// batch that is too large for the fast layer is written there in pieces; a value
// that is too large for it is read from the slow one.
func (c *Cache) Info() backend.Info { return c.info }

// Authoritative returns the slow layer, or the authoritative layer of that.
func (c *Cache) Authoritative() backend.Cache { return backend.Authoritative(c.slow) }

// Txn implements [backend.Cache] with [backend.BufferedTxn].
func (c *Cache) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	if err := c.enter(ctx); err != nil {
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

// Close waits for running calls and closes both layers, unless Options.LeaveOpen
// is set. Later calls return nil.
func (c *Cache) Close() error {
	var err error
	c.closing.Do(func() {
		c.calls.end()
		if c.leaveOpen {
			return
		}
		if e := c.fast.Close(); e != nil {
			err = fmt.Errorf("tiered: fast layer: close: %w", e)
		}
		if e := c.slow.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("tiered: slow layer: close: %w", e))
		}
	})
	return err
}

// Counts says how much of what was read came from which layer, since New.
type Counts struct {
	Fast    int64 // keys whose value visit accepted from the fast layer
	Slow    int64 // and from the slow one
	Missing int64 // keys that neither had, or not acceptably
	Filled  int64 // values copied from the slow layer into the fast one
	// FastFailures is how many operations of the fast layer failed.
	FastFailures int64
}

type counters struct{ fast, slow, missing, filled, failures atomic.Int64 }

// Counts may be called at any time, also after Close.
func (c *Cache) Counts() Counts {
	return Counts{
		Fast:         c.counts.fast.Load(),
		Slow:         c.counts.slow.Load(),
		Missing:      c.counts.missing.Load(),
		Filled:       c.counts.filled.Load(),
		FastFailures: c.counts.failures.Load(),
	}
}

// enter begins a call; if it returns nil, c.calls.leave must follow.
func (c *Cache) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("tiered: %w", err)
	}
	return c.calls.enter()
}

// calls counts the calls that are running, so that Close can wait for them.
type calls struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

func (c *calls) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("tiered: cache is %w", backend.ErrClosed)
	}
	c.running.Add(1)
	return nil
}

func (c *calls) leave() { c.running.Done() }

// end lets nobody enter any more and returns when all have left.
func (c *calls) end() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
}
