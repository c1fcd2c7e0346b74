// Package floor has the steps of a hit and the access to each store written by hand,
// with nothing around them: no checks of arguments, no limits, no waiting for locks,
// no answer to damage. It is what the library can't be faster than by much, and is
// measured beside it.
package floor

import (
	"context"

	"github.com/embedonce/embedonce/backend"
)

// Store is a store that is accessed by hand.
type Store interface {
	// Reader returns a reader for one goroutine.
	Reader() (Reader, error)
	// Write stores a batch in one transaction that is as durable as the library's.
	Write(items []backend.Item) error
	Close() error
}

// Reader reads for one goroutine.
type Reader interface {
	// Get calls visit for each key that is stored. The value is lent until visit
	// returns.
	Get(keys []backend.Key, visit func(i int, value []byte)) error
	Close() error
}

// Keys returns every key of a cache.
func Keys(ctx context.Context, c backend.Cache) ([]backend.Key, error) {
	var keys []backend.Key
	for at := backend.Position(""); ; {
		next, err := backend.Scan(ctx, c, at, 0, func(e backend.Entry) error {
			keys = append(keys, e.Key)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if next == "" {
			return keys, nil
		}
		at = next
	}
}

// Map is a Go map behind no lock at all: it must not be written while it is read.
type Map map[backend.Key][]byte

// OpenMap returns a Map with copies of what a cache has.
func OpenMap(ctx context.Context, from backend.Cache) (Map, error) {
	keys, err := Keys(ctx, from)
	if err != nil {
		return nil, err
	}
	m := make(Map, len(keys))
	return m, from.GetMany(ctx, keys, func(i int, value []byte) error {
		m[keys[i]] = append([]byte(nil), value...)
		return nil
	})
}

// Reader implements Store.
func (m Map) Reader() (Reader, error) { return m, nil }

// Get implements Reader.
func (m Map) Get(keys []backend.Key, visit func(i int, value []byte)) error {
	for i, key := range keys {
		if value, ok := m[key]; ok {
			visit(i, value)
		}
	}
	return nil
}

// Write implements Store.
func (m Map) Write(items []backend.Item) error {
	for _, item := range items {
		m[item.Key] = append([]byte(nil), item.Value...)
	}
	return nil
}

// Close implements Store and Reader.
func (m Map) Close() error { return nil }
