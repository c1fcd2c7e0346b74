//go:build unix

package conformance

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/embedonce/embedonce/backend"
)

// Txn holds the lock while fn runs, as databases do.
func (c *fileCache) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.calls.Done()
	return c.locked(ctx, func() error {
		start := c.readTo()
		if !c.flaws.writesInFn {
			return backend.BufferedTxn(ctx, insideTxn{c}, fn)
		}
		err := fn(insideTxn{c})
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.known = start
			return errors.Join(err, c.file.Truncate(start))
		}
		return nil
	})
}

// readTo is how far the log was read.
func (c *fileCache) readTo() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.known
}

// insideTxn is the cache for a transaction that holds the lock.
type insideTxn struct{ *fileCache }

func (c insideTxn) SetMany(ctx context.Context, items []backend.Item) error {
	c.fileCache.mu.RLock()
	closed := c.closed
	c.fileCache.mu.RUnlock()
	if closed && c.flaws.txnLostAtClose {
		return nil
	}
	if closed {
		return fmt.Errorf("file: %w", backend.ErrClosed)
	}
	return c.store(ctx, items)
}

func (c *fileCache) Info() backend.Info { return c.info }

func (c *fileCache) Close() error {
	handles := []*fileCache{c}
	if c.flaws.closesAll {
		fileHandles.Lock()
		handles = append(handles, fileHandles.byPath[c.path]...)
		fileHandles.Unlock()
	}
	for _, h := range handles {
		h.mu.Lock()
		again := h.closed
		h.closed = true
		h.mu.Unlock()
		h.calls.Wait()
		if again {
			continue
		}
		if h.held.Len() > 0 {
			if _, err := h.file.WriteAt(h.held.Bytes(), h.readTo()); err != nil {
				return err
			}
		}
		if !h.flaws.leaksFile {
			if err := h.file.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func fileSuite(info backend.Info, flaws fileFlaws) Suite {
	return Suite{
		New: func(t testing.TB) string { return filepath.Join(t.TempDir(), "log") },
		Open: func(t testing.TB, location string) backend.Cache {
			c, err := openFile(location, info, flaws)
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		Want: info,
		Plant: func(t testing.TB, location string, k backend.Key, what Foreign) {
			c, err := openFile(location, info, fileFlaws{}) // beside an exclusive one too
			if err != nil {
				t.Fatal(err)
			}
			item := backend.Item{Key: k}
			if what == Empty {
				item.Value = []byte{}
			}
			if err := errors.Join(c.append(frame([]backend.Item{item})), c.Close()); err != nil {
				t.Fatal(err)
			}
		},
		Fault: func(t testing.TB, location string, f Fault) func() {
			if f.Kind == Locked && (flaws.exclusive || flaws.waitsToOpen) {
				return nil
			}
			return plantFileFault(t, location, f)
		},
	}
}

// damageFile changes a byte of a value in the log.
func damageFile(t testing.TB, location string, place int) {
	log, err := os.ReadFile(location)
	if err != nil {
		t.Fatal(err)
	}
	var values []int // where the values of each batch begin
	for at := 0; at < len(log); {
		_, length, _, err := unframe(log[at:])
		if err != nil || length == 0 {
			t.Fatalf("damage a log: %v", err)
		}
		heads := batchHeader + int(binary.LittleEndian.Uint32(log[at+batchHeader-4:]))*itemHead
		values = append(values, at+heads)
		at += length
	}
	log[values[place%len(values)]+place] ^= 1 << (place % 8)
	if err := os.WriteFile(location, log, 0o600); err != nil {
		t.Fatal(err)
	}
}

func plantFileFault(t testing.TB, location string, f Fault) func() {
	if f.Kind == Damage {
		damageFile(t, location, f.Item)
		return func() {}
	}
	if f.Kind == Locked {
		file, err := os.OpenFile(location, os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() { file.Close() }
	}
	info, err := os.Stat(location)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(fileFault{f, info.Size() + 1<<20})
	if err := os.WriteFile(location+".fault", text, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() { os.Remove(location + ".fault") }
}

func overFile(flaws fileFlaws) func() Suite { return overFileWith(fileInfo, flaws) }

func overFileWith(info backend.Info, flaws fileFlaws) func() Suite {
	return func() Suite { return fileSuite(info, flaws) }
}
