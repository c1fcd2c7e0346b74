package backend

import (
	"context"
	"fmt"
)

// Position is a place in the walk through a store. "" is its beginning and its
// end; any other value comes from the store and means something to it alone. It
// stays good after Close, and in another process.
type Position string

// Entry is what a scan sees of one entry.
type Entry struct {
	Key Key
	// Value has the first bytes of the stored value, at least as many as were asked
	// for, or all of it if it is shorter. It is borrowed: valid only until visit
	// returns, and neither modified nor kept.
	Value []byte
	// Size is the length of the whole stored value in bytes, or -1 if what is stored
	// can't be read as bytes (rule G5).
	Size int
}

// WholeValue asks [Scanner.Scan] for every byte of each value.
const WholeValue = int(^uint(0) >> 1)

// Scanner is implemented by a cache that can walk through what it stores.
//
//   - N1: Scans that begin at "" and go on from each position returned until it is "" again visit every entry that is stored all the while, under the key it has; an entry that comes or goes meanwhile is visited or not.
//   - N2: An entry is visited with the value that a GetMany of that moment could see, its first bytes up to head at least, and with its size.
//   - N3: visit is called one at a time, on the goroutine that called Scan; its error stops Scan, which returns an error that wraps it.
//   - N4: One Scan visits a bounded part, so that the cache can be used between two of them; after an error the position returned is the one that the call began at.
//
// The rules X1 to X3 and C1 to C4 hold too. visit must not use the Cache. A
// store that can't avoid it visits an entry more than once.
type Scanner interface {
	Scan(ctx context.Context, from Position, head int, visit func(e Entry) error) (next Position, err error)
}

// Deleter is implemented by a cache that can remove entries.
//
//   - D1: Delete removes what is stored under keys and returns how many entries that were; a key that isn't stored is no error, and equal keys count once.
//   - D2: Where match is not nil, an entry is removed only if match returned true for the value that it has when it is removed; an entry that was written after match looked stays.
//   - D3: nil means that no GetMany or Scan begun afterwards sees what was removed: by this handle at once, by any other within Info.Reach after Info.Lag, unless Info.Copies; and that the removal is as durable as a write.
//   - D4: After an error any of the entries may be removed, and no other; removing them again is always safe.
//   - D5: match is called on the goroutine that called Delete, one at a time, with the value as GetMany gives it, and is called again for an index if the entry has changed meanwhile.
//
// The rules X1 to X3 and C1 to C4 hold too. match must not use the Cache. A nil
// match removes everything under the keys. What a deleted entry had occupied may
// stay with the store: see [Compacter]. A store that holds several values for a key
// (rule G6) asks match about each, and removes those alone for which it is true.
type Deleter interface {
	Delete(ctx context.Context, keys []Key, match func(i int, value []byte) bool) (removed int, err error)
}

// Stats says how much a store holds. -1 stands for what it can't tell.
type Stats struct {
	// Entries is how many entries can be visited.
	Entries int64
	// Bytes is how much room the store takes in all: file, log, memory.
	Bytes int64
	// FreeBytes is how much of Bytes is in no use and can be filled again, or given
	// back by [Compact].
	FreeBytes int64
}

// Statter is implemented by a cache that can say how much it holds.
//
//   - A1: Stats counts every entry that a GetMany of that moment could visit.
//
// The rules X1 to X3 and C1 to C4 hold too.
type Statter interface {
	Stats(ctx context.Context) (Stats, error)
}

// Compacter is implemented by a cache that can give space back.
//
//   - P1: Compact changes nothing that a GetMany or Scan can see, also when it ends early.
//
// The rules X1 to X3 and C1 to C4 hold too. Compact may take long, and may be
// called again to go on after its context has ended.
type Compacter interface {
	Compact(ctx context.Context) error
}

// Scan walks through a part of c: see [Scanner]. It returns an error that wraps
// [ErrUnsupported] if c is no Scanner.
//
//	for at := backend.Position(""); ; {
//		at, err = backend.Scan(ctx, cache, at, 0, visit)
//		if err != nil || at == "" {
//			break
//		}
//	}
func Scan(ctx context.Context, c Cache, from Position, head int, visit func(e Entry) error) (next Position, err error) {
	if s, ok := c.(Scanner); ok {
		return s.Scan(ctx, from, head, visit)
	}
	return from, unsupported("Scan")
}

// Delete removes entries from c: see [Deleter]. It returns an error that wraps
// [ErrUnsupported] if c is no Deleter.
func Delete(ctx context.Context, c Cache, keys []Key, match func(i int, value []byte) bool) (removed int, err error) {
	if d, ok := c.(Deleter); ok {
		return d.Delete(ctx, keys, match)
	}
	return 0, unsupported("Delete")
}

// ReadStats asks c how much it holds: see [Statter]. It returns an error that
// wraps [ErrUnsupported], and -1 for everything, if c is no Statter.
func ReadStats(ctx context.Context, c Cache) (Stats, error) {
	if s, ok := c.(Statter); ok {
		return s.Stats(ctx)
	}
	return Stats{-1, -1, -1}, unsupported("Stats")
}

// Compact lets c give space back: see [Compacter]. It returns an error that wraps
// [ErrUnsupported] if c is no Compacter.
func Compact(ctx context.Context, c Cache) error {
	if p, ok := c.(Compacter); ok {
		return p.Compact(ctx)
	}
	return unsupported("Compact")
}

func unsupported(what string) error {
	return fmt.Errorf("this cache has no %s: %w", what, ErrUnsupported)
}
