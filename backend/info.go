package backend

import (
	"fmt"
	"time"
)

// Durability is what an acknowledged write outlives.
type Durability uint8

// What an acknowledged write outlives; each level includes the ones before it.
const (
	NotDurable        Durability = iota // nothing: it is gone with the handle
	SurvivesCrash                       // the end of this process, also by SIGKILL
	SurvivesPowerLoss                   // a power failure or a crash of the system
)

// String returns "none", "process crash" or "power loss".
func (d Durability) String() string {
	return name(uint8(d), "none", "process crash", "power loss")
}

// Reach is who sees an acknowledged write.
type Reach uint8

// Who sees an acknowledged write; each level includes the ones before it.
const (
	ReachHandle Reach = iota // this handle alone
	ReachHost                // every process of this machine that opens the store
	ReachHosts               // every machine that opens the store
)

// String returns "handle", "host" or "hosts".
func (r Reach) String() string {
	return name(uint8(r), "handle", "host", "hosts")
}

func name(i uint8, names ...string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown (%d)", i)
}

// Info is what a cache says of itself. The zero value of a field is the answer
// on which a caller can rely least: no promise, no parallel use. (Lag and Copies
// mean nothing where Reach is one handle, which is its zero value.)
//
// The fields down to MaxBatchBytes are facts, and the conformance suite checks
// them. The rest is advice that package embed follows unless its user overrides
// it; docs/backends.md has the measurements behind each backend's numbers.
type Info struct {
	// Atomic: SetMany and Txn store all or nothing, whatever fails (rule S1).
	Atomic bool
	// Durability is what an acknowledged write outlives.
	Durability Durability
	// Reach is who sees an acknowledged write.
	Reach Reach
	// Lag is how long another handle within Reach may take to see a write or a
	// removal; 0 is at once.
	Lag time.Duration
	// Copies: a handle may go on reading a value of which it keeps a copy, after
	// another handle has overwritten or removed the entry, for ever. That makes no
	// wrong vector, since the values of one key are interchangeable.
	Copies bool
	// SnapshotReads: a GetMany never sees a part of a batch (rule S10). It holds
	// for calls of up to SnapshotKeys keys, or of any size where that is 0.
	SnapshotReads bool
	SnapshotKeys  int
	// MayEvict: the store may drop entries that were acknowledged, once it holds
	// more than Capacity bytes of keys and values (0: it can't say when). One that
	// names a Capacity does so: it never holds twice as much for long.
	MayEvict bool
	Capacity int64

	// The longest value in bytes, and the largest batch in items and in bytes of
	// values, that SetMany takes; 0 is no limit. A caller splits what is larger.
	MaxValueBytes int
	MaxBatchItems int
	MaxBatchBytes int

	// Readers and Writers are how many GetMany and SetMany calls may usefully run
	// at once; 0 counts as 1. More are allowed, only not faster.
	Readers int
	Writers int
	// SplitKeys is how many keys make a GetMany worth splitting over several
	// readers; 0 is never.
	SplitKeys int
}

// Check returns an error that wraps ErrEmptyValue or ErrTooLarge if the batch
// breaks rule S7 or a limit of i, else nil. Every SetMany calls it first.
func (i Info) Check(items []Item) error {
	if i.MaxBatchItems > 0 && len(items) > i.MaxBatchItems {
		return fmt.Errorf("%w: %d items in a batch, at most %d are allowed", ErrTooLarge, len(items), i.MaxBatchItems)
	}
	total := 0
	for n, item := range items {
		size := len(item.Value)
		if size == 0 {
			return fmt.Errorf("%w: item %d; a value has at least 1 byte", ErrEmptyValue, n)
		}
		if i.MaxValueBytes > 0 && size > i.MaxValueBytes {
			return fmt.Errorf("%w: item %d has a value of %d bytes, at most %d are allowed", ErrTooLarge, n, size, i.MaxValueBytes)
		}
		total += size
	}
	if i.MaxBatchBytes > 0 && total > i.MaxBatchBytes {
		return fmt.Errorf("%w: %d bytes of values in a batch, at most %d are allowed", ErrTooLarge, total, i.MaxBatchBytes)
	}
	return nil
}

// Fit says how many of the first items one SetMany takes, by the limits of i on a
// batch: at least one, if there are any. It doesn't look at MaxValueBytes.
func (i Info) Fit(items []Item) int {
	n, size := 0, 0
	for n < len(items) && (i.MaxBatchItems <= 0 || n < i.MaxBatchItems) {
		size += len(items[n].Value)
		if n > 0 && i.MaxBatchBytes > 0 && size > i.MaxBatchBytes {
			break
		}
		n++
	}
	return n
}

// Layered is implemented by a cache that lies over another one, such as a fast
// layer over a slow one or a decorator.
type Layered interface {
	// Authoritative returns the cache whose answer counts when the question is
	// whether something is stored.
	Authoritative() Cache
}

// Authoritative returns the layer of c whose answer counts when the question is
// whether something is stored: c itself, unless c is Layered.
func Authoritative(c Cache) Cache {
	for {
		l, ok := c.(Layered)
		if !ok {
			return c
		}
		c = l.Authoritative()
	}
}
