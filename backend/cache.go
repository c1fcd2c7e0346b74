package backend

import "context"

// Key names one entry. Keys are digests made by package embed; a backend
// compares and stores them and reads nothing into them.
type Key [32]byte

// Item is one entry to store. Value has at least one byte; it stays the
// caller's (rule S5).
type Item struct {
	Key   Key
	Value []byte
}

// Cache keeps values under keys. Any number of goroutines may use one Cache at
// the same time.
//
// # Reading: GetMany
//
//   - G1: GetMany calls visit once for each index i whose keys[i] is stored, in any order; equal keys are visited for each index.
//   - G2: A missing key is not visited and is no error; a call without keys visits nothing and returns nil.
//   - G3: visit is called one at a time, on the goroutine that called GetMany.
//   - G4: The value given to visit is the stored one, byte for byte.
//   - G5: An entry that somebody else left under the key is visited too: with a nil value if it can't be read as bytes, with an empty or nil value if it has none.
//   - G6: When visit returns ErrForeign the value does not count: a backend that holds another value for the key offers that one next, else the key counts as missing; GetMany goes on.
//   - G7: Any other error of visit stops GetMany, which returns an error that wraps it and visits nothing more.
//   - G8: What was visited before an error is valid: no index is visited again after visit returned nil for it.
//   - G9: GetMany neither changes nor keeps the caller's keys.
//
// The value is borrowed: it is valid only until visit returns, and visit must
// neither modify nor keep it. visit must not use the Cache. It may take its time:
// hold no lock meanwhile that a writer needs. Where a store can't do without one, the
// writer waits no longer than rules X2 and X3 allow.
//
// # Writing: SetMany
//
//   - S1: SetMany stores all items or none; where Info.Atomic is false, it may store some, and then returns a *BatchError that names every item not stored.
//   - S2: A key that is stored already is overwritten; of equal keys in one call the last wins.
//   - S3: nil means that every item is stored as durably as Info.Durability says, and that each GetMany begun afterwards sees it: by this handle at once, by any other within Info.Reach after Info.Lag, unless it keeps a copy of an older value as Info.Copies allows.
//   - S4: After an error the caller can't know whether the items are stored; storing them again is always safe. What a call that failed still does, it does before any later write or removal by this handle.
//   - S5: SetMany neither changes nor keeps the items or their values.
//   - S6: A call without items stores nothing and returns nil.
//   - S7: An item with an empty value is refused with ErrEmptyValue, and nothing of the call is stored.
//   - S8: A value or a batch over a limit that Info declares is refused with ErrTooLarge, and nothing of the call is stored.
//   - S9: What was acknowledged stays readable until it is overwritten; only a store that says Info.MayEvict drops entries, and only beyond Info.Capacity.
//   - S10: Where Info.SnapshotReads is true, a GetMany sees all of a batch or nothing of it.
//
// # Several writes as one: Txn
//
//   - T1: Txn runs fn once, on the caller's goroutine, unless it fails before.
//   - T2: tx.GetMany sees what tx.SetMany collected and, behind it, what is stored.
//   - T3: When fn returns nil, all that it wrote becomes visible at once, under the rules of SetMany; nobody sees it before.
//   - T4: When fn returns an error, Txn stores nothing and returns an error that wraps it.
//   - T5: When fn panics or ends its goroutine, nothing is stored, a panic reaches the caller, and the Cache stays usable.
//   - T6: tx ends with fn: afterwards each of its methods returns an error that wraps ErrClosed.
//
// fn must use only tx. Transactions are atomic, but two of them may read the
// same old value: they are not isolated from each other's reads.
//
// # Contexts
//
//   - X1: A call, even an empty one, whose context has ended before it begins visits nothing, stores nothing, does not run fn, and returns an error that wraps ctx.Err().
//   - X2: A context that ends during a call ends the call soon, with an error that wraps ctx.Err() whatever the driver below says; a call that was done already may return nil instead.
//   - X3: A call without a deadline ends all the same: the backend bounds every wait for a lock, a disk or a network.
//
// # Closing
//
//   - C1: Close may be called any number of times, by several goroutines; the later calls return nil.
//   - C2: Close waits for the calls that are running; a Txn whose function has not returned may end with ErrClosed and store nothing instead.
//   - C3: After Close every call returns an error that wraps ErrClosed; Info goes on answering.
//   - C4: Close leaves no goroutine, file handle or connection of the backend's own behind.
//
// # Info
//
//   - I1: Info answers at once, without a context, and what it says is true for the life of the handle.
//
// # Errors
//
// An error wraps one of the sentinels of this package where one fits, keeps the
// driver's own error behind it (%w), and holds no key, value or credential.
type Cache interface {
	// GetMany reads entries: rules G1 to G9, X1 to X3, C3.
	GetMany(ctx context.Context, keys []Key, visit func(i int, value []byte) error) error

	// SetMany writes a batch: rules S1 to S10, X1 to X3, C3.
	SetMany(ctx context.Context, items []Item) error

	// Txn makes several reads and writes one: rules T1 to T6, X1 to X3, C3.
	// BufferedTxn implements it over SetMany in one line.
	Txn(ctx context.Context, fn func(tx Txn) error) error

	// Info says what this handle promises and how it likes to be used. A zero
	// Info is a legal answer that promises nothing beyond the rules.
	Info() Info

	// Close releases what the backend owns: rules C1 to C4.
	Close() error
}

// Txn is the view of a Cache inside one transaction. It is valid only inside
// the function it was given to, and only on that goroutine.
type Txn interface {
	// GetMany reads as Cache.GetMany does, the transaction's own writes first.
	GetMany(ctx context.Context, keys []Key, visit func(i int, value []byte) error) error

	// SetMany collects items; it keeps no slice of the caller's.
	SetMany(ctx context.Context, items []Item) error
}
