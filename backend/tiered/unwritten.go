package tiered

import (
	"bytes"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// unwrittenBytes bounds the batches that are kept beside a fast layer: 10,000 vectors
// of 1,536 dimensions.
const unwrittenBytes = 64 << 20

// unwritten has batches that the slow layer failed to store, where the fast layer
// may evict: it would soon show a part of one. Here a batch stays, and goes, as a
// whole; the oldest goes first. A later change of a key ends what is kept for it.
type unwritten struct {
	some atomic.Int32 // keys

	mu      sync.Mutex
	values  map[backend.Key]unwrittenValue
	batches []*unwrittenBatch // the oldest first
	bytes   int
}

type unwrittenValue struct {
	value []byte // never written to again
	batch *unwrittenBatch
}

type unwrittenBatch struct {
	began time.Time // to be written
	keys  []backend.Key
	left  int // those that nothing has changed since
}

// keep copies a batch, unless that alone is more than there is room for.
func (u *unwritten) keep(items []backend.Item, began time.Time) {
	size := 0
	for _, item := range items {
		size += len(item.Value)
	}
	if size > unwrittenBytes {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.values == nil {
		u.values = make(map[backend.Key]unwrittenValue)
	}
	batch := &unwrittenBatch{began: began}
	for _, item := range items {
		u.drop(item.Key) // of equal keys the last wins
		u.values[item.Key] = unwrittenValue{bytes.Clone(item.Value), batch}
		u.bytes += len(item.Value)
		batch.keys = append(batch.keys, item.Key)
		batch.left++
	}
	u.batches = append(u.batches, batch)
	for _, oldest := range u.batches {
		if u.bytes <= unwrittenBytes {
			break
		}
		for _, k := range oldest.keys {
			if u.values[k].batch == oldest {
				u.drop(k)
			}
		}
	}
	u.batches = slices.DeleteFunc(u.batches, func(b *unwrittenBatch) bool { return b.left == 0 })
	u.some.Store(int32(len(u.values)))
}

// drop forgets one key. The caller holds u.mu.
func (u *unwritten) drop(k backend.Key) {
	if old, ok := u.values[k]; ok {
		u.bytes -= len(old.value)
		old.batch.left--
		delete(u.values, k)
	}
}

// remove forgets keys, which the caller has a turn on.
func (u *unwritten) remove(keys iter.Seq[backend.Key]) {
	if u.some.Load() == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for k := range keys {
		u.drop(k)
	}
	if len(u.values) == 0 {
		u.batches = nil
	}
	u.some.Store(int32(len(u.values)))
}

// find returns what is kept under keys and isn't older than maxAge, which is no
// limit if it is 0; nil where nothing is.
func (u *unwritten) find(keys []backend.Key, maxAge time.Duration) [][]byte {
	found := make([][]byte, len(keys))
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range keys {
		kept, ok := u.values[keys[i]]
		if ok && (maxAge == 0 || time.Since(kept.batch.began) < maxAge) {
			found[i] = kept.value
		}
	}
	return found
}
