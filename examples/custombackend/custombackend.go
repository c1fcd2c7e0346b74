// Package custombackend is the cache that docs/backends.md builds: a file for each batch.
package custombackend

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/embedonce/embedonce/backend"
)

// Cache is a directory, and in memory what was read from it.
type Cache struct {
	dir     string
	calls   sync.RWMutex // calls hold it for reading, so that Close waits for them
	closing sync.Once
	mu      sync.Mutex // guards next, the first file that was not read yet, and values
	next    int
	values  map[backend.Key][]byte
}

// Open makes the directory if there is none.
func Open(dir string) (*Cache, error) {
	return &Cache{dir: dir, values: make(map[backend.Key][]byte)}, os.MkdirAll(dir, 0o700)
}

// Info promises what the code below keeps.
func (c *Cache) Info() backend.Info {
	return backend.Info{Atomic: true, SnapshotReads: true, Durability: backend.SurvivesCrash, Reach: backend.ReachHost, MaxValueBytes: 64 << 20}
}

// GetMany visits what it finds.
func (c *Cache) GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if !c.calls.TryRLock() { // Close waits or is over; RLock would wait with it
		return backend.ErrClosed
	}
	defer c.calls.RUnlock()
	found, _, err := c.find(ctx, keys)
	for i := 0; err == nil && i < len(found); i++ {
		if err = ctx.Err(); err == nil && found[i] != nil { // nil is missing
			if err = visit(i, found[i]); errors.Is(err, backend.ErrForeign) {
				err = nil
			}
		}
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

// find reads the files that are new since the last call, then looks for keys.
func (c *Cache) find(ctx context.Context, keys []backend.Key) (found [][]byte, next int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; ; c.next++ {
		file, err := os.Open(c.path(c.next))
		if _, dirErr := os.Stat(c.dir); errors.Is(err, os.ErrNotExist) && dirErr == nil {
			break // the directory is there, a further file isn't
		} else if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
		var items []backend.Item
		if err := errors.Join(gob.NewDecoder(file).Decode(&items), file.Close()); err != nil {
			return nil, 0, fmt.Errorf("%w: %s: %w", backend.ErrCorrupt, file.Name(), err)
		}
		for _, item := range items {
			c.values[item.Key] = item.Value
		}
	}
	for _, key := range keys {
		found = append(found, c.values[key])
	}
	return found, c.next, nil
}

// SetMany fills a file under another name, then gives it the first free number.
func (c *Cache) SetMany(ctx context.Context, items []backend.Item) error {
	if !c.calls.TryRLock() { // Close waits or is over; RLock would wait with it
		return backend.ErrClosed
	}
	defer c.calls.RUnlock()
	if err := errors.Join(ctx.Err(), c.Info().Check(items)); err != nil || len(items) == 0 {
		return err
	}
	file, err := os.CreateTemp(c.dir, "new-*")
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	defer os.Remove(file.Name())
	err = errors.Join(gob.NewEncoder(file).Encode(items), file.Close())
	_, next, findErr := c.find(ctx, nil)
	for err = errors.Join(err, findErr); err == nil || errors.Is(err, os.ErrExist); next++ { // from the first free number on, as somebody else may be faster
		if err = os.Link(file.Name(), c.path(next)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// Txn collects in memory what fn writes, and stores it with one SetMany.
func (c *Cache) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	return backend.BufferedTxn(ctx, c, fn)
}

// Close waits for the calls that are running, and keeps the lock for ever.
func (c *Cache) Close() error {
	c.closing.Do(c.calls.Lock)
	return nil
}

func (c *Cache) path(n int) string { return filepath.Join(c.dir, fmt.Sprintf("%010d.batch", n)) }
