package bolt

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"runtime/debug"

	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

// One Scan visits at most so many entries, and ends when it has lent so many
// bytes: a transaction that reads keeps pages from being used again.
const (
	scanEntries = 1000
	scanBytes   = 8 << 20
	lookAtCtx   = 256 // entries between two looks at the context, where nobody is called
)

// Scan implements backend.Scanner, in the order of the keys. One call visits at
// most 1,000 entries, all as they were at one moment. Entries of the file whose
// keys are not 32 bytes long are left out.
func (c *Cache) Scan(ctx context.Context, from backend.Position, head int, visit func(e backend.Entry) error) (next backend.Position, err error) {
	if ctx.Err() != nil {
		return from, c.ended(ctx, "scan")
	}
	if err := c.calls.enter(); err != nil {
		return from, err
	}
	defer c.calls.leave()
	after, err := hex.DecodeString(string(from))
	if err != nil || len(after) != 0 && len(after) != len(backend.Key{}) {
		return from, fmt.Errorf("bolt: %s: scan: the position is none that Scan of this package returned", c.path)
	}
	head = max(head, 0)
	defer debug.SetPanicOnFault(faultsPanic())
	tx, err := c.begin(ctx)
	if err != nil {
		return from, err
	}
	defer c.end(tx)
	w, err := newWalk(tx, after)
	if err != nil {
		return from, c.fail("scan", err)
	}
	entries, lent := 0, 0
	for {
		if ctx.Err() != nil {
			return from, c.ended(ctx, "scan")
		}
		more, err := w.next(head)
		if err != nil {
			return from, c.fail("scan", err)
		}
		if !more {
			return "", nil
		}
		if err := visit(w.entry); err != nil {
			return from, fmt.Errorf("bolt: visit: %w", err)
		}
		entries++
		if lent += len(w.entry.Value); entries == scanEntries || lent >= scanBytes {
			return backend.Position(hex.EncodeToString(w.entry.Key[:])), nil
		}
	}
}

// Stats implements backend.Statter. It walks through the whole file, but not
// through the values. Entries whose keys are not 32 bytes long are not counted.
func (c *Cache) Stats(ctx context.Context) (backend.Stats, error) {
	none := backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}
	if ctx.Err() != nil {
		return none, c.ended(ctx, "stats")
	}
	if err := c.calls.enter(); err != nil {
		return none, err
	}
	defer c.calls.leave()
	defer debug.SetPanicOnFault(faultsPanic())
	tx, err := c.begin(ctx)
	if err != nil {
		return none, err
	}
	defer c.end(tx)
	w, err := newWalk(tx, nil)
	if err != nil {
		return none, c.fail("stats", err)
	}
	var s backend.Stats
	for more := true; more; s.Entries++ {
		if s.Entries%lookAtCtx == 0 && ctx.Err() != nil {
			return none, c.ended(ctx, "stats")
		}
		if more, err = w.next(0); err != nil {
			return none, c.fail("stats", err)
		}
	}
	s.Entries-- // the last step found nothing
	st := c.openedStore()
	info, err := st.file.Stat()
	if err != nil {
		return none, c.fail("stats", err)
	}
	s.Bytes = info.Size()
	free := st.free
	if !c.options.ReadOnly {
		counts := st.db.Stats()
		free = int64(counts.FreePageN + counts.PendingPageN)
	}
	s.FreeBytes = min(free*st.pageSize+max(s.Bytes-tx.Size(), 0), s.Bytes)
	return s, nil
}

// openedStore returns the store that a transaction which has not ended belongs to:
// it can't be replaced before.
func (c *Cache) openedStore() *store {
	c.phase.RLock()
	defer c.phase.RUnlock()
	return c.store
}

// walk goes through the entries in the order of their keys.
type walk struct {
	reader
	key   []byte // of the entry before
	begun bool
	entry backend.Entry
}

// newWalk returns a walk that begins after the key, or at the beginning if it is
// empty.
func newWalk(tx *bbolt.Tx, after []byte) (*walk, error) {
	r, err := newReader(tx)
	if err != nil {
		return nil, err
	}
	return &walk{reader: *r, key: after}, nil
}

// next goes to the next entry and lends up to head bytes of its value.
func (w *walk) next(head int) (more bool, err error) {
	defer guard(&err)
	for {
		var k, v []byte
		switch {
		case w.begun:
			k, v = w.cursor.Next()
		case len(w.key) > 0:
			if k, v = w.cursor.Seek(w.key); bytes.Equal(k, w.key) {
				k, v = w.cursor.Next()
			}
		default:
			k, v = w.cursor.First()
		}
		if k == nil {
			return false, nil
		}
		if (w.begun || len(w.key) > 0) && bytes.Compare(k, w.key) <= 0 {
			return false, errOrder // else a loop of pages would never end
		}
		w.begun, w.key = true, k
		if len(k) != len(w.entry.Key) {
			continue // another program's: no Key reaches it
		}
		w.entry = backend.Entry{Key: backend.Key(k), Size: -1}
		if v == nil {
			return true, nil
		}
		w.entry.Size = len(v)
		w.entry.Value = v[:min(head, len(v))]
		return true, w.touch(v, len(w.entry.Value))
	}
}

var errOrder = fmt.Errorf("%w: a page is damaged: its keys are out of order", backend.ErrCorrupt)
