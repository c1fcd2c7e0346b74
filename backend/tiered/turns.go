package tiered

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/embedonce/embedonce/backend"
)

// turns orders what this handle does to one key: writes and deletions one after
// the other, through both layers, and a copy from the slow layer into the fast one
// only if nothing was done to the key since the slow layer was asked.
type turns struct {
	mu   sync.Mutex
	keys map[backend.Key]turn // those that somebody changes or watches
	// freed is closed when a change has ended; nil while nobody waits for that.
	freed chan struct{}
}

type turn struct {
	changing bool
	changes  uint32 // begun and ended, since somebody watches
	watchers int32  // reads that may copy the value
}

// take waits until nobody else changes any of the keys and claims them all;
// release must follow. It holds nothing while it waits, so that no two calls can
// wait for each other.
func (t *turns) take(ctx context.Context, keys iter.Seq[backend.Key]) error {
	for {
		t.mu.Lock()
		free := true
		for k := range keys {
			if t.keys[k].changing {
				free = false
				break
			}
		}
		if free {
			for k := range keys {
				t.claim(k)
			}
			t.mu.Unlock()
			return nil
		}
		if t.freed == nil {
			t.freed = make(chan struct{})
		}
		freed := t.freed
		t.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return fmt.Errorf("tiered: wait for another write of the same key: %w", ctx.Err())
		}
	}
}

// claim makes this call the one that changes k. The caller holds t.mu.
func (t *turns) claim(k backend.Key) {
	own := t.keys[k]
	own.changing = true
	own.changes++
	t.keys[k] = own
}

// release ends the change of keys; equal ones don't matter.
func (t *turns) release(keys iter.Seq[backend.Key]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range keys {
		own := t.keys[k]
		own.changing = false
		own.changes++ // for a read that began meanwhile
		t.put(k, own)
	}
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}

func (t *turns) put(k backend.Key, own turn) {
	if own.changing || own.watchers > 0 {
		t.keys[k] = own
	} else {
		delete(t.keys, k)
	}
}

// watch notes in seen how often each key was changed; unwatch must follow.
func (t *turns) watch(keys []backend.Key, seen []uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, k := range keys {
		own := t.keys[k]
		own.watchers++
		seen[i] = own.changes
		t.keys[k] = own
	}
}

func (t *turns) unwatch(keys []backend.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		own := t.keys[k]
		own.watchers--
		t.put(k, own)
	}
}

// takeUnchanged claims those of items whose keys nobody changes and nobody changed
// since they were seen, and returns them, in place; release must follow for
// them. The caller watches them. Of equal keys it takes one, and of two reads that
// would copy the same value it lets the first.
func (t *turns) takeUnchanged(items []backend.Item, seen func(i int) uint32) []backend.Item {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := items[:0]
	for i, item := range items {
		if own := t.keys[item.Key]; own.changing || own.changes != seen(i) {
			continue
		}
		t.claim(item.Key)
		taken = append(taken, item)
	}
	return taken
}

// keysOf goes through the keys of items, in their order.
func keysOf(items []backend.Item) iter.Seq[backend.Key] {
	return func(yield func(backend.Key) bool) {
		for i := range items {
			if !yield(items[i].Key) {
				return
			}
		}
	}
}
