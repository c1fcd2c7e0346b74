//go:build unix

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// fileCache is a right cache in one file: a log of batches, each with a
// checksum, that processes append to under a lock. Its flaws make it a wrong one.
type fileCache struct {
	flaws  fileFlaws
	info   backend.Info
	path   string
	file   *os.File
	turn   chan struct{} // one writer of this handle at a time
	mu     sync.RWMutex
	known  int64 // how far the log was read
	index  map[backend.Key][]byte
	opened bool
	loaded atomic.Int64 // how many entries there were then
	closed bool
	calls  sync.WaitGroup
	held   bytes.Buffer // batches not yet written, with a flaw
}

// fileFlaws are ways to be wrong.
type fileFlaws struct {
	forgets        bool // the log is emptied when it is opened
	losesLast      bool // the last batch is not read when it is opened
	keepsFive      bool // only the last five batches are read when it is opened
	buffers        bool // batches are written at Close
	neverRefreshes bool // what others write is not read
	locksNothing   bool // writers overwrite each other's batches
	nilWhenLocked  bool // a lock time-out is no error
	piecemeal      bool // each item is written as a batch of its own
	writesInFn     bool // a transaction's writes are in the log before its end
	leavesLock     bool // a lock file is held during calls
	nilWhenFull    bool
	wipesWhenFull  bool
	nilWhenCut     bool
	nilWhenSlow    bool
	leaksFile      bool
	leaksNewFile   bool // where there was none
	closesAll      bool // Close of one handle closes the others
	dropsAtClose   bool // a write that meets Close returns nil
	txnLostAtClose bool // a transaction that meets Close returns nil and stores nothing
	locksInProcess bool // writers of other processes are not kept out
	waitsToOpen    bool // a second handle waits for the first one to be closed
	stopsAtDamage  bool // what is damaged ends the log when it is opened
	skipsDamaged   bool // what is damaged is missing

	scansOwnView    bool // Scan, Delete and Stats don't see what others write
	ownPositions    bool // a walk can't go on in another handle
	deletesInMemory bool // what is deleted is so for this handle alone
	countsLog       bool // Stats counts what was read when the log was opened
	compactsAway    bool // Compact empties the log

	// These are odd, and right.
	exclusive     bool // a second handle is refused
	ownView       bool // what others write is kept, and read when the log is opened
	refusesDamage bool // a log with damage in it is not opened
}

var fileInfo = backend.Info{Atomic: true, Durability: backend.SurvivesCrash, Reach: backend.ReachHost, SnapshotReads: true, MaxBatchItems: 11_000}

const (
	fileLockWait = 200 * time.Millisecond
	slowness     = 100 * time.Millisecond
)

var fileHandles = struct {
	sync.Mutex
	byPath map[string][]*fileCache
}{byPath: make(map[string][]*fileCache)}

var filesLeaked sync.Map

func openFile(path string, info backend.Info, flaws fileFlaws) (*fileCache, error) {
	if _, err := os.Stat(path); err != nil && flaws.leaksNewFile {
		leaked, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		filesLeaked.Store(path, leaked) // the garbage collector would close it
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	c := &fileCache{flaws: flaws, info: info, path: path, file: file, turn: make(chan struct{}, 1), index: make(map[backend.Key][]byte)}
	if flaws.exclusive || flaws.waitsToOpen {
		if err := c.lockForGood(); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	if flaws.forgets {
		err = file.Truncate(0)
	}
	if err = errors.Join(err, c.refresh(true)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	fileHandles.Lock()
	fileHandles.byPath[path] = append(fileHandles.byPath[path], c)
	fileHandles.Unlock()
	return c, nil
}

// lockForGood takes the lock until the file is closed.
func (c *fileCache) lockForGood() error {
	wait := fileLockWait
	if c.flaws.waitsToOpen {
		wait = 20 * time.Second // not for ever: this is a test
	}
	for end := time.Now().Add(wait); ; {
		err := syscall.Flock(int(c.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("file: %w: another handle is open: %w", backend.ErrUnavailable, err)
		}
		if err := c.wait(context.Background(), 2*time.Millisecond); err != nil {
			return err
		}
	}
}

func (c *fileCache) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("file: %w", err)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return fmt.Errorf("file: %w", backend.ErrClosed)
	}
	c.calls.Add(1)
	return nil
}

// wait waits for d, or until ctx ends.
func (c *fileCache) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return fmt.Errorf("file: %w", ctx.Err())
	}
	return nil
}

// locksByPath has the locks of this process, for a flaw.
var locksByPath sync.Map

// fileFault is what a test leaves beside the log.
type fileFault struct {
	Fault
	Limit int64 // of the file, while Full
}

func (c *fileCache) fault() fileFault {
	var f fileFault
	if text, err := os.ReadFile(c.path + ".fault"); err == nil {
		_ = json.Unmarshal(text, &f) // the test writes it in one piece
	}
	return f
}

func (c *fileCache) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.calls.Done()
	if c.flaws.leavesLock {
		unlock, err := c.lockFile(ctx)
		if err != nil {
			return err
		}
		defer unlock()
	}
	switch c.fault().Kind {
	case Cut:
		return fmt.Errorf("file: %w", backend.ErrUnavailable)
	case Slow:
		if err := c.wait(ctx, slowness); err != nil {
			return err
		}
	}
	if !c.flaws.ownView {
		if err := c.refresh(false); err != nil {
			return err
		}
	}
	c.mu.RLock()
	values := make([][]byte, len(keys))
	stored := make([]bool, len(keys))
	for i, k := range keys {
		values[i], stored[i] = c.index[k]
	}
	c.mu.RUnlock()
	for i := range keys {
		if !stored[i] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("file: %w", err)
		}
		if err := visit(i, values[i]); err != nil && !errors.Is(err, backend.ErrForeign) {
			return fmt.Errorf("file: visit: %w", err)
		}
	}
	return nil
}

// lockFile is a lock that outlives the process that held it.
func (c *fileCache) lockFile(ctx context.Context) (unlock func(), err error) {
	path := c.path + ".lock"
	for end := time.Now().Add(fileLockWait); ; {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			return func() { file.Close(); os.Remove(path) }, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("file: %w: locked", backend.ErrUnavailable)
		}
		if err := c.wait(ctx, 2*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// lock takes the right to write, within this handle and among processes.
func (c *fileCache) lock(ctx context.Context) (unlock func(), err error) {
	end := time.Now().Add(fileLockWait)
	select {
	case c.turn <- struct{}{}:
	case <-time.After(20 * fileLockWait): // for the other writers of the handle, on a busy machine too
		return nil, fmt.Errorf("file: %w: busy", backend.ErrUnavailable)
	case <-ctx.Done():
		return nil, fmt.Errorf("file: %w", ctx.Err())
	}
	if c.flaws.locksNothing || c.flaws.exclusive || c.flaws.waitsToOpen {
		return func() { <-c.turn }, nil
	}
	if c.flaws.locksInProcess {
		lock, _ := locksByPath.LoadOrStore(c.path, new(sync.Mutex))
		lock.(*sync.Mutex).Lock()
		return func() { lock.(*sync.Mutex).Unlock(); <-c.turn }, nil
	}
	for {
		if err = syscall.Flock(int(c.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return func() {
				_ = syscall.Flock(int(c.file.Fd()), syscall.LOCK_UN) // Close unlocks too
				<-c.turn
			}, nil
		}
		if ctx.Err() == nil && time.Now().After(end) {
			<-c.turn
			return nil, fmt.Errorf("file: %w: locked", backend.ErrUnavailable)
		}
		if err := c.wait(ctx, 2*time.Millisecond); err != nil {
			<-c.turn
			return nil, err
		}
	}
}

func (c *fileCache) SetMany(ctx context.Context, items []backend.Item) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.calls.Done()
	if len(items) == 0 {
		return nil
	}
	return c.locked(ctx, func() error { return c.store(ctx, items) })
}

func (c *fileCache) locked(ctx context.Context, f func() error) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		if c.flaws.nilWhenLocked && errors.Is(err, backend.ErrUnavailable) {
			return nil
		}
		return err
	}
	defer unlock()
	return f()
}

// store appends a batch; the lock is held.
func (c *fileCache) store(ctx context.Context, items []backend.Item) error {
	if err := c.info.Check(items); err != nil {
		return fmt.Errorf("file: %w", err)
	}
	if len(items) == 0 {
		return nil
	}
	if c.flaws.dropsAtClose {
		time.Sleep(100 * time.Microsecond)
		c.mu.RLock()
		closing := c.closed
		c.mu.RUnlock()
		if closing {
			return nil
		}
	}
	if err := c.refresh(false); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("file: %w", err)
	}
	failAt := len(items)
	switch f := c.fault(); {
	case f.Kind == Cut && c.flaws.nilWhenCut, f.Kind == Slow && c.flaws.nilWhenSlow:
		return nil
	case f.Kind == Cut:
		return fmt.Errorf("file: %w", backend.ErrUnavailable)
	case f.Kind == Slow:
		if err := c.wait(ctx, slowness); err != nil {
			return err
		}
	case f.Kind == Full && c.readTo() > f.Limit:
		if c.flaws.wipesWhenFull {
			return errors.Join(c.file.Truncate(0), fmt.Errorf("file: %w: full", backend.ErrUnavailable))
		}
		if c.flaws.nilWhenFull {
			return nil
		}
		return fmt.Errorf("file: %w: full", backend.ErrUnavailable)
	case f.Kind == FailAtItem && len(items) > f.Item:
		failAt = f.Item
	}
	if c.flaws.piecemeal {
		for i := range items {
			if i == failAt {
				return errors.New("file: write failed")
			}
			if i == len(items)/2 && len(items) >= 200 {
				time.Sleep(500 * time.Millisecond) // long enough to be killed here, also on a busy machine
			}
			if err := c.append(frame(items[i : i+1])); err != nil {
				return err
			}
		}
		return c.refresh(true)
	}
	if failAt < len(items) {
		return errors.New("file: write failed")
	}
	if c.flaws.buffers {
		c.held.Write(frame(items))
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, item := range items {
			c.index[item.Key] = bytes.Clone(item.Value)
		}
		return nil
	}
	if err := c.append(frame(items)); err != nil {
		return err
	}
	return c.refresh(true)
}

// append writes behind the last whole batch, over a torn one.
func (c *fileCache) append(b []byte) error {
	at := c.readTo()
	if c.flaws.piecemeal {
		info, err := c.file.Stat()
		if err != nil {
			return err
		}
		at = info.Size()
	}
	if c.flaws.locksNothing {
		pause()
	}
	// A reader must not see the new batch inside what is left of a torn one.
	info, err := c.file.Stat()
	if err == nil && info.Size() > at {
		err = c.file.Truncate(at)
	}
	if err == nil {
		_, err = c.file.WriteAt(b, at)
	}
	return err
}
