package conformance

// A rule is one promise of a cache, word for word as the documentation of
// backend.Cache has it, or that of an optional interface; a test compares the two.
type rule struct{ id, sentence string }

var rules = []rule{
	{"G1", "GetMany calls visit once for each index i whose keys[i] is stored, in any order; equal keys are visited for each index."},
	{"G2", "A missing key is not visited and is no error; a call without keys visits nothing and returns nil."},
	{"G3", "visit is called one at a time, on the goroutine that called GetMany."},
	{"G4", "The value given to visit is the stored one, byte for byte."},
	{"G5", "An entry that somebody else left under the key is visited too: with a nil value if it can't be read as bytes, with an empty or nil value if it has none."},
	{"G6", "When visit returns ErrForeign the value does not count: a backend that holds another value for the key offers that one next, else the key counts as missing; GetMany goes on."},
	{"G7", "Any other error of visit stops GetMany, which returns an error that wraps it and visits nothing more."},
	{"G8", "What was visited before an error is valid: no index is visited again after visit returned nil for it."},
	{"G9", "GetMany neither changes nor keeps the caller's keys."},
	{"S1", "SetMany stores all items or none; where Info.Atomic is false, it may store some, and then returns a *BatchError that names every item not stored."},
	{"S2", "A key that is stored already is overwritten; of equal keys in one call the last wins."},
	{"S3", "nil means that every item is stored as durably as Info.Durability says, and that each GetMany begun afterwards sees it: by this handle at once, by any other within Info.Reach after Info.Lag, unless it keeps a copy of an older value as Info.Copies allows."},
	{"S4", "After an error the caller can't know whether the items are stored; storing them again is always safe. What a call that failed still does, it does before any later write or removal by this handle."},
	{"S5", "SetMany neither changes nor keeps the items or their values."},
	{"S6", "A call without items stores nothing and returns nil."},
	{"S7", "An item with an empty value is refused with ErrEmptyValue, and nothing of the call is stored."},
	{"S8", "A value or a batch over a limit that Info declares is refused with ErrTooLarge, and nothing of the call is stored."},
	{"S9", "What was acknowledged stays readable until it is overwritten; only a store that says Info.MayEvict drops entries, and only beyond Info.Capacity."},
	{"S10", "Where Info.SnapshotReads is true, a GetMany sees all of a batch or nothing of it."},
	{"T1", "Txn runs fn once, on the caller's goroutine, unless it fails before."},
	{"T2", "tx.GetMany sees what tx.SetMany collected and, behind it, what is stored."},
	{"T3", "When fn returns nil, all that it wrote becomes visible at once, under the rules of SetMany; nobody sees it before."},
	{"T4", "When fn returns an error, Txn stores nothing and returns an error that wraps it."},
	{"T5", "When fn panics or ends its goroutine, nothing is stored, a panic reaches the caller, and the Cache stays usable."},
	{"T6", "tx ends with fn: afterwards each of its methods returns an error that wraps ErrClosed."},
	{"X1", "A call, even an empty one, whose context has ended before it begins visits nothing, stores nothing, does not run fn, and returns an error that wraps ctx.Err()."},
	{"X2", "A context that ends during a call ends the call soon, with an error that wraps ctx.Err() whatever the driver below says; a call that was done already may return nil instead."},
	{"X3", "A call without a deadline ends all the same: the backend bounds every wait for a lock, a disk or a network."},
	{"C1", "Close may be called any number of times, by several goroutines; the later calls return nil."},
	{"C2", "Close waits for the calls that are running; a Txn whose function has not returned may end with ErrClosed and store nothing instead."},
	{"C3", "After Close every call returns an error that wraps ErrClosed; Info goes on answering."},
	{"C4", "Close leaves no goroutine, file handle or connection of the backend's own behind."},
	{"I1", "Info answers at once, without a context, and what it says is true for the life of the handle."},
	{"N1", `Scans that begin at "" and go on from each position returned until it is "" again visit every entry that is stored all the while, under the key it has; an entry that comes or goes meanwhile is visited or not.`},
	{"N2", "An entry is visited with the value that a GetMany of that moment could see, its first bytes up to head at least, and with its size."},
	{"N3", "visit is called one at a time, on the goroutine that called Scan; its error stops Scan, which returns an error that wraps it."},
	{"N4", "One Scan visits a bounded part, so that the cache can be used between two of them; after an error the position returned is the one that the call began at."},
	{"D1", "Delete removes what is stored under keys and returns how many entries that were; a key that isn't stored is no error, and equal keys count once."},
	{"D2", "Where match is not nil, an entry is removed only if match returned true for the value that it has when it is removed; an entry that was written after match looked stays."},
	{"D3", "nil means that no GetMany or Scan begun afterwards sees what was removed: by this handle at once, by any other within Info.Reach after Info.Lag, unless Info.Copies; and that the removal is as durable as a write."},
	{"D4", "After an error any of the entries may be removed, and no other; removing them again is always safe."},
	{"D5", "match is called on the goroutine that called Delete, one at a time, with the value as GetMany gives it, and is called again for an index if the entry has changed meanwhile."},
	{"A1", "Stats counts every entry that a GetMany of that moment could visit."},
	{"P1", "Compact changes nothing that a GetMany or Scan can see, also when it ends early."},
}

// ruleText returns "G1: GetMany calls ..." for "G1".
func ruleText(id string) string {
	for _, r := range rules {
		if r.id == id {
			return r.id + ": " + r.sentence
		}
	}
	panic("conformance: no rule " + id)
}
