package conformance

import (
	"testing"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// Suite says how to reach the stores of one backend. New, Open and Want are
// required.
type Suite struct {
	// New makes a fresh, empty place for a store and returns where it is: a path,
	// a URL, a prefix. What it starts or makes is released with t.Cleanup.
	New func(t testing.TB) (location string)

	// Open opens the store at location; the suite closes it. It may be called
	// several times for one location, at the same time, and by another process
	// that knows nothing but the location. Failing is t.Fatal. A time-out of the
	// store's own, such as for a lock, should be set between 0.5 and 3 seconds
	// here, so that the cases that wait for it are quick.
	Open func(t testing.TB, location string) backend.Cache

	// Want is what Info must answer. Its facts must be equal; advice is compared
	// where Want has it. Cases that a fact makes pointless are skipped by name.
	// Where MayEvict is set with a small Capacity, so are those that need more
	// room: run such a store beside one with at least 64 MiB.
	Want backend.Info

	// Plant puts an entry that SetMany would never write under k, by means of the
	// store's own. t.Skip says that the store can't hold such a thing. nil skips
	// every case that needs it.
	Plant func(t testing.TB, location string, k backend.Key, what Foreign)

	// Fault makes the store at location misbehave, for handles that are open as
	// well as for new ones, until undo is called (but see Damage). A nil undo says that the store
	// can't be made to fail in this way; nil for Fault, in no way. What can't be
	// done is skipped by name.
	Fault func(t testing.TB, location string, f Fault) (undo func())

	// Consistency is how long a case may poll until another handle sees what was
	// acknowledged, where that is longer than Want.Lag: what a busy machine needs.
	Consistency time.Duration

	// Skip has the cases that the backend is known to fail, with the reason. An
	// entry that names no case is a failure, and so is one whose case passes.
	Skip map[string]string
}

// Foreign is a kind of entry that a cache never writes itself.
type Foreign int

const (
	// WrongType is a value that is no byte string for the store: a row with a
	// TEXT or INTEGER in place of the BLOB, a Redis list, a nested bucket.
	WrongType Foreign = iota + 1
	// Empty is a value of no bytes.
	Empty
)

// String returns the kind's name.
func (f Foreign) String() string {
	switch f {
	case WrongType:
		return "WrongType"
	case Empty:
		return "Empty"
	}
	return "unknown kind of entry"
}

// Fault is a way for a store to misbehave.
type Fault struct {
	Kind FaultKind
	// Item is, for FailAtItem, the index in the batch at which writing fails. The
	// batch has only keys that are not stored, no two of them equal, so that a
	// store may count what it writes. For Damage it chooses the place: any number
	// from 0 on.
	Item int
}

// FaultKind names a Fault.
type FaultKind int

const (
	// FailAtItem: the next batch fails when its item Fault.Item is written, and so
	// does every batch that reaches as many items.
	FailAtItem FaultKind = iota + 1
	// Full: the store has no room for another 4 MiB.
	Full
	// Slow: a call takes at least some 100 ms more than otherwise, up to 1 s.
	Slow
	// Cut: the store can't be reached or doesn't answer.
	Cut
	// Locked: somebody else holds whatever lock a write needs.
	Locked
	// Damage: bytes of at least one stored value are changed where they lie, such as
	// in the file, by other means than the store's own; their number stays, and so do
	// keys and whatever else the store needs to find its way. They stay changed until
	// they are written over, so that undo has nothing to do. A handle that is open
	// may still have the value as it was; one that is opened afterwards may not.
	//
	// A GetMany of such a store visits every key that is stored, with the value as it
	// is now, or with nil where the store finds out that it isn't what was written
	// (rule G5: it can't be read); or it returns an error, as Open may too: one that
	// wraps [backend.ErrCorrupt]. A SetMany that returns nil heals what it overwrites.
	Damage
	// FailAtCommit: all that a call stores or removes is accepted, and then it can't be
	// made to last: its commit fails, or its sync.
	FailAtCommit
)

// String returns the kind's name.
func (k FaultKind) String() string {
	switch k {
	case FailAtItem:
		return "FailAtItem"
	case Full:
		return "Full"
	case Slow:
		return "Slow"
	case Cut:
		return "Cut"
	case Locked:
		return "Locked"
	case Damage:
		return "Damage"
	case FailAtCommit:
		return "FailAtCommit"
	}
	return "unknown kind of fault"
}

// lag is how long another handle may take to see what was acknowledged.
func (s *Suite) lag() time.Duration { return max(s.Consistency, s.Want.Lag) }

// validate fails t if the suite can't be run.
func (s *Suite) validate(t testing.TB) {
	t.Helper()
	if s.New == nil || s.Open == nil {
		t.Fatal("conformance: Suite.New and Suite.Open are required")
	}
	for name, reason := range s.Skip {
		if findCase(name) == nil {
			t.Errorf("conformance: Suite.Skip[%q] names no case of the suite: remove it", name)
		}
		if reason == "" {
			t.Errorf("conformance: Suite.Skip[%q] needs a reason", name)
		}
	}
}
