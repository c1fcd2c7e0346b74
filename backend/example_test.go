package backend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/embedonce/embedonce/backend"
)

// Map is a whole backend: it lives as long as the process, and every rule of
// backend.Cache holds for it.
type Map struct {
	mu      sync.RWMutex
	entries map[backend.Key][]byte // nil after Close
	reads   sync.WaitGroup         // Close waits for them
}

func (m *Map) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	values, err := m.find(ctx, keys)
	if err != nil {
		return err
	}
	defer m.reads.Done()
	for i := 0; err == nil && i < len(keys); i++ { // without the lock: visit may take its time
		if err = ctx.Err(); err == nil && values[i] != nil {
			err = visit(i, values[i])
		}
		if errors.Is(err, backend.ErrForeign) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

func (m *Map) find(ctx context.Context, keys []backend.Key) (values [][]byte, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := errors.Join(ctx.Err(), m.check()); err != nil {
		return nil, err
	}
	for _, key := range keys {
		values = append(values, m.entries[key])
	}
	m.reads.Add(1)
	return values, nil
}

func (m *Map) SetMany(ctx context.Context, items []backend.Item) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(ctx.Err(), m.check(), m.Info().Check(items)); err != nil {
		return err
	}
	for _, item := range items {
		m.entries[item.Key] = bytes.Clone(item.Value)
	}
	return nil
}

func (m *Map) Txn(ctx context.Context, fn func(backend.Txn) error) error {
	return backend.BufferedTxn(ctx, m, fn)
}

func (m *Map) Info() backend.Info { return backend.Info{Atomic: true, SnapshotReads: true} }

func (m *Map) Close() error {
	m.mu.Lock()
	m.entries = nil
	m.mu.Unlock()
	m.reads.Wait()
	return nil
}

func (m *Map) check() error {
	if m.entries == nil {
		return backend.ErrClosed
	}
	return nil
}

// A backend of one's own, in full. docs/backends.md says how to run the
// conformance suite on it.
func Example() {
	var cache backend.Cache = &Map{entries: make(map[backend.Key][]byte)}
	ctx := context.Background()

	key := backend.Key{1}
	err := cache.SetMany(ctx, []backend.Item{{Key: key, Value: []byte("a vector")}})
	fmt.Println("stored:", err == nil)
	err = cache.GetMany(ctx, []backend.Key{{2}, key}, func(i int, value []byte) error {
		fmt.Printf("keys[%d]: %s\n", i, value)
		return nil
	})
	fmt.Println("read:", err == nil)
	// Output:
	// stored: true
	// keys[1]: a vector
	// read: true
}

func ExampleBufferedTxn() {
	cache := &Map{entries: make(map[backend.Key][]byte)}
	ctx := context.Background()
	failure := errors.New("changed my mind")

	err := cache.Txn(ctx, func(tx backend.Txn) error {
		if err := tx.SetMany(ctx, []backend.Item{{Key: backend.Key{1}, Value: []byte("a vector")}}); err != nil {
			return err
		}
		return failure
	})
	fmt.Println(errors.Is(err, failure), len(cache.entries))
	// Output: true 0
}
