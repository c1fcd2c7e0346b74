package backend_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/embedonce/embedonce/backend"
)

// scanMap is a Map that can be scanned, in the order of keys, and made to fail.
type scanMap struct {
	*Map
	info          backend.Info
	part          int // entries in a part of a scan
	hiddenLimit   int // SetMany takes no more bytes, and Info doesn't say so
	onGet, onSet  func() error
	gets, largest int // GetMany calls with keys; the most bytes in one SetMany
	values        int // lent by GetMany
	sets, refused int // SetMany calls within what Info says, and others
}

func newScanMap() *scanMap {
	return &scanMap{Map: &Map{entries: make(map[backend.Key][]byte)}, info: backend.Info{Atomic: true}, part: 10}
}

func (m *scanMap) Info() backend.Info { return m.info }

func (m *scanMap) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	if m.onGet != nil && len(keys) > 0 {
		if err := m.onGet(); err != nil {
			return err
		}
	}
	m.gets++
	return m.Map.GetMany(ctx, keys, func(i int, value []byte) error {
		m.values++
		lent := bytes.Clone(value)
		defer func() {
			for at := range lent {
				lent[at] = 0xff
			}
		}()
		return visit(i, lent)
	})
}

func (m *scanMap) SetMany(ctx context.Context, items []backend.Item) error {
	if err := m.info.Check(items); err != nil {
		m.refused++
		return err
	}
	m.sets++
	size := 0
	for _, item := range items {
		size += len(item.Value)
	}
	if m.hiddenLimit > 0 && size > m.hiddenLimit {
		return fmt.Errorf("hidden: %w", backend.ErrTooLarge)
	}
	if m.onSet != nil {
		if err := m.onSet(); err != nil {
			return err
		}
	}
	m.largest = max(m.largest, size)
	return m.Map.SetMany(ctx, items)
}

var errPosition = errors.New("no position of this store")

func (m *scanMap) Scan(ctx context.Context, from backend.Position, head int, visit func(e backend.Entry) error) (backend.Position, error) {
	if err := ctx.Err(); err != nil {
		return from, err
	}
	after, err := hex.DecodeString(string(from))
	if err != nil || from != "" && len(after) != len(backend.Key{}) {
		return from, errPosition
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	keys := slices.SortedFunc(maps.Keys(m.entries), func(a, b backend.Key) int { return bytes.Compare(a[:], b[:]) })
	seen, last := 0, backend.Key{}
	for _, key := range keys {
		if from != "" && bytes.Compare(key[:], after) <= 0 {
			continue
		}
		if seen == m.part {
			return backend.Position(hex.EncodeToString(last[:])), nil
		}
		seen++
		last = key
		e := backend.Entry{Key: key, Size: -1}
		if value := m.entries[key]; value != nil {
			e.Value, e.Size = bytes.Clone(value[:min(head, len(value))]), len(value)
		}
		if err := visit(e); err != nil {
			return from, fmt.Errorf("visit: %w", err)
		}
	}
	return "", nil
}

// fill puts n entries of random sizes up to most bytes in m.
func (m *scanMap) fill(r *rand.Rand, n, most int) {
	for range n {
		var key backend.Key
		for i := range key {
			key[i] = byte(r.Uint32())
		}
		value := make([]byte, 1+r.IntN(most))
		for i := range value {
			value[i] = byte(r.Uint32())
		}
		m.entries[key] = value
	}
}
