//go:build unix

package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
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
	closesAll      bool // Close of one handle closes the others
	dropsAtClose   bool // a write that meets Close returns nil
	txnLostAtClose bool // a transaction that meets Close returns nil and stores nothing
}

var fileInfo = backend.Info{Atomic: true, Durability: backend.SurvivesCrash, Reach: backend.ReachHost, SnapshotReads: true, MaxBatchItems: 11_000}

const fileLockWait = 200 * time.Millisecond

var fileHandles = struct {
	sync.Mutex
	byPath map[string][]*fileCache
}{byPath: make(map[string][]*fileCache)}

func openFile(path string, info backend.Info, flaws fileFlaws) (*fileCache, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	c := &fileCache{flaws: flaws, info: info, path: path, file: file, turn: make(chan struct{}, 1), index: make(map[backend.Key][]byte)}
	if flaws.forgets {
		err = file.Truncate(0)
	}
	fileHandles.Lock()
	fileHandles.byPath[path] = append(fileHandles.byPath[path], c)
	fileHandles.Unlock()
	return c, errors.Join(err, c.refresh(true))
}

const batchHeader = 4 + sha256.Size

// frame is a batch as the log has it.
func frame(items []backend.Item) []byte {
	b := make([]byte, batchHeader)
	for _, item := range items {
		b = append(b, item.Key[:]...)
		size := uint32(len(item.Value))
		if item.Value == nil {
			size = 1<<32 - 1 // of a wrong type
		}
		b = binary.LittleEndian.AppendUint32(b, size)
		b = append(b, item.Value...)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-batchHeader))
	sum := sha256.Sum256(b[batchHeader:])
	copy(b[4:], sum[:])
	return b
}

func unframe(payload []byte) (items []backend.Item) {
	for len(payload) > 0 {
		item := backend.Item{Key: backend.Key(payload[:32])}
		size := binary.LittleEndian.Uint32(payload[32:])
		payload = payload[36:]
		if size != 1<<32-1 {
			item.Value = append([]byte{}, payload[:size]...)
			payload = payload[size:]
		}
		items = append(items, item)
	}
	return items
}

// refresh reads what the log has more, up to a batch that isn't whole.
func (c *fileCache) refresh(opening bool) error {
	if c.flaws.neverRefreshes && !opening {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	rest, err := io.ReadAll(io.NewSectionReader(c.file, c.known, 1<<40))
	if err != nil {
		return err
	}
	var batches [][]backend.Item
	for len(rest) >= batchHeader {
		end := batchHeader + int(binary.LittleEndian.Uint32(rest))
		if end > len(rest) || sha256.Sum256(rest[batchHeader:end]) != [32]byte(rest[4:batchHeader]) {
			break
		}
		batches = append(batches, unframe(rest[batchHeader:end]))
		c.known += int64(end)
		rest = rest[end:]
	}
	if opening && c.flaws.losesLast && len(batches) > 0 {
		batches = batches[:len(batches)-1]
	}
	if opening && c.flaws.keepsFive {
		batches = batches[max(0, len(batches)-5):]
	}
	for _, items := range batches {
		for _, item := range items {
			c.index[item.Key] = item.Value
		}
	}
	return nil
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
		if err := c.wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if err := c.refresh(false); err != nil {
		return err
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
	case <-time.After(4 * fileLockWait):
		return nil, fmt.Errorf("file: %w: busy", backend.ErrUnavailable)
	case <-ctx.Done():
		return nil, fmt.Errorf("file: %w", ctx.Err())
	}
	if c.flaws.locksNothing {
		return func() { <-c.turn }, nil
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
		if err := c.wait(ctx, 100*time.Millisecond); err != nil {
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
	_, err := c.file.WriteAt(b, at)
	return err
}
