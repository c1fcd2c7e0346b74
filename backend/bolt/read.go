package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"unsafe"

	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

// GetMany implements backend.Cache: all of one call is read in one transaction.
// value is a part of the memory map.
func (c *Cache) GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if ctx.Err() != nil {
		return c.ended(ctx, "read")
	}
	if err := c.calls.enter(); err != nil {
		return err
	}
	defer c.calls.leave()
	return c.getMany(ctx, keys, visit)
}

func (c *Cache) getMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if ctx.Err() != nil {
		return c.ended(ctx, "read")
	}
	if len(keys) == 0 {
		return nil
	}
	defer debug.SetPanicOnFault(faultsPanic())
	tx, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer c.end(tx) // also when visit panics
	r, err := newReader(tx)
	if err != nil {
		return c.fail("read", err)
	}
	// A damaged page makes its own entries unreadable, not those beside it: what is
	// not read counts as missing, and is paid for again.
	damaged, damage := 0, error(nil)
	for i := range keys {
		if ctx.Err() != nil {
			return c.ended(ctx, "read")
		}
		value, found, err := r.lookup(&keys[i])
		if err != nil {
			if damaged++; damage == nil {
				damage = err
			}
			continue
		}
		if !found {
			continue
		}
		if err := visit(i, value); err != nil && !errors.Is(err, backend.ErrForeign) {
			return fmt.Errorf("bolt: visit: %w", err)
		}
	}
	if damage != nil {
		return c.fail(fmt.Sprintf("read %d of %d keys", damaged, len(keys)), damage)
	}
	return nil
}

// reader looks keys up in one transaction.
type reader struct {
	cursor *bbolt.Cursor
	first  uintptr // of the memory map
	length uintptr // of what is stored in it
	inline bool    // the bucket is so small that bbolt may read it from a copy
	last   byte    // that was read, so that the compiler lets it be
}

func newReader(tx *bbolt.Tx) (r *reader, err error) {
	defer guard(&err)
	entries := tx.Bucket(entriesBucket)
	if entries == nil {
		return nil, errNoEntries
	}
	if entries.Root() == 0 {
		// bbolt may read it from a copy, and touch can't tell then where a value should be.
		if _, err := newTree(tx, entries); err != nil {
			return nil, err
		}
	}
	return &reader{
		cursor: entries.Cursor(),
		first:  tx.DB().Info().Data,
		length: uintptr(tx.Size()),
		inline: entries.Root() == 0,
	}, nil
}

// lookup returns the value under key: nil if it is a bucket, which somebody else
// has put there. An error is that of a damaged page; another lookup may follow.
func (r *reader) lookup(key *backend.Key) (value []byte, found bool, err error) {
	defer guard(&err)
	k, v := r.cursor.Seek(key[:])
	if !bytes.Equal(k, key[:]) {
		return nil, false, nil
	}
	if v == nil {
		return nil, true, nil
	}
	return v, true, r.touch(v, len(v))
}

// pageStep is at most the page size of the system.
const pageStep = 4096

// touch reads a byte of each page of the first n bytes of value, so that what
// can't be read shows here and not in visit. It refuses a value that a damaged
// page has placed outside of the file, where anything of this process could be.
func (r *reader) touch(value []byte, n int) error {
	if len(value) == 0 {
		return nil
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(value)))
	if at := start - r.first; start < r.first || at >= r.length || uintptr(len(value)) > r.length-at {
		if r.inline {
			return nil
		}
		return errOutside
	}
	for i := 0; i < n; i += pageStep {
		r.last = value[i]
	}
	if n > 0 {
		r.last = value[n-1]
	}
	return nil
}

var errOutside = fmt.Errorf("%w: a page is damaged: it places a value outside of the file", backend.ErrCorrupt)
