package tiered

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

const (
	// maxDoubted bounds what is remembered of writes that the fast layer missed:
	// about 8 MiB. Beyond it, nothing that it says can be relied on.
	maxDoubted = 1 << 17
	// maxYoung bounds the keys remembered for each half of Options.MaxAge. One that
	// isn't remembered counts as old, which is slower and not wrong.
	maxYoung = 1 << 18
)

// trust knows for which keys the fast layer may answer: not for those that it may
// hold an older value of than this handle wrote, and, with a maximum age, only
// for those that it got of late.
type trust struct {
	maxAge time.Duration
	some   atomic.Int32 // doubted keys
	off    atomic.Bool  // too many were doubted

	mu      sync.Mutex
	doubted map[backend.Key]struct{}

	// Two generations, each of half the maximum age: what is in one of them is
	// younger than that.
	young, older map[backend.Key]struct{}
	generation   uint64 // since began
	began        time.Time
}

// whole says that no key needs a second look.
func (t *trust) whole() bool { return t.maxAge == 0 && t.some.Load() == 0 }

// choose appends those of keys that aren't done and for which the fast layer may
// answer, and their positions.
func (t *trust) choose(keys []backend.Key, done []bool, chosen []backend.Key, where []int32) ([]backend.Key, []int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn()
	for i := range keys {
		if done[i] || t.doubts(keys[i]) || t.maxAge > 0 && !t.isYoung(keys[i]) {
			continue
		}
		chosen, where = append(chosen, keys[i]), append(where, int32(i))
	}
	return chosen, where
}

// chooseOld is choose for keys that are only too old: when the slow layer can't be
// asked, an old value is better than to pay again.
func (t *trust) chooseOld(keys []backend.Key, done []bool, chosen []backend.Key, where []int32) ([]backend.Key, []int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range keys {
		if !done[i] && !t.doubts(keys[i]) {
			chosen, where = append(chosen, keys[i]), append(where, int32(i))
		}
	}
	return chosen, where
}

func (t *trust) doubts(k backend.Key) bool { _, ok := t.doubted[k]; return ok }

func (t *trust) isYoung(k backend.Key) bool {
	if _, ok := t.young[k]; ok {
		return true
	}
	_, ok := t.older[k]
	return ok
}

// now returns the generation to which an answer of the slow layer belongs that is
// asked for after the call.
func (t *trust) now() uint64 {
	if t.maxAge == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn()
	return t.generation
}

// turn begins a generation if it is due. The caller holds t.mu.
func (t *trust) turn() {
	if t.maxAge == 0 {
		return
	}
	// On a fixed grid: a key is old at the latest two generations after its own
	// began, however late somebody looks.
	now := uint64(time.Since(t.began) / max(1, t.maxAge/2))
	switch now - t.generation {
	case 0:
		return
	case 1:
		t.older = t.young
	default:
		t.older = nil
	}
	t.young = make(map[backend.Key]struct{})
	t.generation = now
}

// confirm says that the fast layer has, under keys, what the slow one was told, or
// said, in a generation. The caller has a turn on the keys.
func (t *trust) confirm(keys iter.Seq[backend.Key], generation uint64) {
	if t.whole() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.doubted) > 0 {
		for k := range keys {
			delete(t.doubted, k)
		}
		t.some.Store(int32(len(t.doubted)))
	}
	if t.maxAge == 0 {
		return
	}
	t.turn()
	var into map[backend.Key]struct{}
	switch generation {
	case t.generation:
		if t.young == nil {
			t.young = make(map[backend.Key]struct{})
		}
		into = t.young
	case t.generation - 1:
		into = t.older
	}
	for k := range keys {
		if into != nil && len(into) < maxYoung {
			into[k] = struct{}{}
		}
	}
}

// doubt says that the fast layer may hold something else under keys than what
// this handle did last. It returns true if that is the end of all trust. The caller
// has a turn on the keys.
func (t *trust) doubt(keys iter.Seq[backend.Key]) (end bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.doubted == nil {
		t.doubted = make(map[backend.Key]struct{})
	}
	for k := range keys {
		t.doubted[k] = struct{}{}
	}
	t.some.Store(int32(len(t.doubted)))
	return len(t.doubted) > maxDoubted && t.off.CompareAndSwap(false, true)
}
