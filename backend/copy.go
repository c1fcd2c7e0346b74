package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Bounds on what Copy holds and writes at once: large enough that the cost of a
// commit or a round trip counts little.
const (
	copyBytes = 8 << 20 // of values
	copyKeys  = 4096
)

// CopyOptions configure [Copy]. The zero value copies what the other store doesn't
// have.
type CopyOptions struct {
	// Overwrite writes every entry, without asking whether it is there already: it
	// replaces what is there, and is the cheaper way into an empty store.
	Overwrite bool
	// Position is where to begin: "", or the CopyReport.Position of an earlier Copy
	// from the same store, which was interrupted.
	Position Position
	// Progress, if set, is called now and then with the report so far, on the
	// goroutine that called Copy. It must not use the caches.
	Progress func(CopyReport)
}

// CopyReport is what [Copy] did. Entries = Copied + Skipped + Unreadable + TooLarge +
// Gone, but after an error, when the last ones seen are not settled. A store
// that visits an entry twice makes it count twice.
type CopyReport struct {
	Entries    int // seen
	Copied     int
	Skipped    int   // stored in the other cache already
	Unreadable int   // no bytes, or none that the store could read
	TooLarge   int   // larger than the other cache takes
	Gone       int   // removed before they were read
	Bytes      int64 // of the keys and values that were copied

	// Position is how far the copy has got: what lies before it is settled, and
	// an interrupted copy goes on there. After a whole copy it is "".
	Position Position
}

// Copy copies the entries of one cache, which must be a [Scanner], to another, in
// batches that the other takes. It may be called again at any time, and what is there
// already is not written again: an interrupted copy, or one that failed, is repeated,
// from CopyReport.Position to be quicker. What changes in from during the copy is
// copied or not.
//
// Whether an entry is there is asked with GetMany. That costs next to nothing where
// it is missing; where it is there, it costs what to reads of a value to
// lend it, which is a transfer on a store behind a network. What is in to is
// not read from from. An entry in to without bytes counts as missing.
//
// Copy knows nothing of what values mean. It copies what is damaged as it is, which
// makes a miss of it in to as it did in from; to leave it behind, verify from
// first. A value that somebody writes to to between the question and the write,
// mostly milliseconds, is replaced, and with Overwrite anything is: values of one key
// are interchangeable, unless from holds a damaged one.
//
// Copy holds at most 8 MiB of values, or one larger value, and the keys of 4,096
// entries and of one part of a scan.
//
// # Errors
//
// from and to are one store, as far as that can be told: the same handle, or with the
// same authoritative layer. Two handles on one file can't be told apart; Copy then
// writes nothing, but with Overwrite it may write without end. An error that wraps [ErrUnsupported] if from has no Scan.
// What one of the caches fails with, and the end of ctx; nothing is tried again.
//
// Where from fails to read some entries with [ErrCorrupt], these count as
// Unreadable; where to refuses one with [ErrTooLarge], as TooLarge. Copy goes on in
// both cases, and returns the error at the end. Where from fails to scan, Copy ends
// with what was seen before.
func Copy(ctx context.Context, from, to Cache, opts *CopyOptions) (CopyReport, error) {
	c := &copier{from: from, to: to}
	if opts != nil {
		c.opts = *opts
	}
	c.report.Position = c.opts.Position
	switch {
	case from == nil || to == nil:
		return c.report, errors.New("copy: a cache is nil; both from and to are needed")
	case sameStore(from, to):
		return c.report, errors.New("copy: from and to are the same store")
	}
	c.limits = to.Info()
	if err := c.run(ctx); err != nil {
		return c.report, fmt.Errorf("copy: %w", err)
	}
	return c.report, nil
}

// sameStore says whether a and b are known to be one store.
func sameStore(a, b Cache) bool {
	a, b = Authoritative(a), Authoritative(b)
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// copier is one call of Copy.
type copier struct {
	from, to Cache
	opts     CopyOptions
	limits   Info // of to
	report   CopyReport

	seen   []sized // since the position of the report
	size   int     // of their values
	values []byte  // of a batch

	corrupt, tooLarge error // the first of each
}

// sized is an entry that was seen, and the size of its value.
type sized struct {
	key  Key
	size int
}

func (c *copier) run(ctx context.Context) error {
	for at := c.opts.Position; ; {
		next, err := Scan(ctx, c.from, at, 0, func(e Entry) error {
			c.seen = append(c.seen, sized{e.Key, e.Size})
			c.size += max(e.Size, 0)
			return nil
		})
		if err != nil {
			where := ""
			if at != "" && at == c.opts.Position {
				where = " from CopyOptions.Position, which must be of the same store"
			}
			err = fmt.Errorf("scanning%s: %w", where, err)
			// What was seen before can be saved, also of a store that is damaged there.
			return errors.Join(err, c.copySeen(ctx))
		}
		// Small parts of a scan are gathered, to be asked for and written as one.
		if next == "" || c.size >= copyBytes || len(c.seen) >= copyKeys {
			if err := c.copySeen(ctx); err != nil {
				return err
			}
			c.report.Position = next
		}
		c.tell()
		if next == "" {
			return errors.Join(c.corrupt, c.tooLarge)
		}
		at = next
	}
}

// copySeen copies those of the seen entries that have to be, and forgets all.
func (c *copier) copySeen(ctx context.Context) error {
	c.report.Entries += len(c.seen)
	copyable := c.seen[:0]
	for _, e := range c.seen {
		switch {
		case e.size <= 0:
			c.report.Unreadable++
		case c.limits.MaxValueBytes > 0 && e.size > c.limits.MaxValueBytes:
			c.refused(fmt.Errorf("%w: a value of %d bytes, at most %d are allowed", ErrTooLarge, e.size, c.limits.MaxValueBytes))
		default:
			copyable = append(copyable, e)
		}
	}
	for chunk := range slices.Chunk(copyable, 2*copyKeys) {
		missing, err := c.missing(ctx, chunk)
		if err != nil {
			return err
		}
		if err := c.copyMissing(ctx, missing); err != nil {
			return err
		}
	}
	c.seen, c.size = c.seen[:0], 0
	return nil
}

// missing returns which of the entries have to be copied.
func (c *copier) missing(ctx context.Context, entries []sized) ([]sized, error) {
	if c.opts.Overwrite {
		return entries, nil
	}
	stored := make([]bool, len(entries))
	// What only a layer over the store has isn't stored.
	err := Authoritative(c.to).GetMany(ctx, keysOf(entries), func(i int, value []byte) error {
		if len(value) == 0 {
			return ErrForeign
		}
		stored[i] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("asking what is there already: %w", err)
	}
	missing := make([]sized, 0, len(entries))
	for i, e := range entries {
		if stored[i] {
			c.report.Skipped++
		} else {
			missing = append(missing, e)
		}
	}
	return missing, nil
}

// refused counts an entry that to doesn't take.
func (c *copier) refused(err error) {
	c.report.TooLarge++
	if c.tooLarge == nil {
		c.tooLarge = fmt.Errorf("writing: %w", err)
	}
}

// copyMissing reads and writes entries, so many at once as are bounded in bytes.
func (c *copier) copyMissing(ctx context.Context, missing []sized) error {
	for len(missing) > 0 {
		n, size := 1, missing[0].size
		for n < len(missing) && size+missing[n].size <= copyBytes {
			size += missing[n].size
			n++
		}
		items, err := c.read(ctx, missing[:n], size)
		if err != nil {
			return err
		}
		if err := c.write(ctx, items); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		if missing = missing[n:]; len(missing) > 0 {
			c.tell()
		}
	}
	return nil
}

// read reads entries whose values have so many bytes together, unless they changed.
func (c *copier) read(ctx context.Context, entries []sized, size int) ([]Item, error) {
	if cap(c.values) < size {
		c.values = make([]byte, 0, size)
	}
	c.values = c.values[:0]
	items := make([]Item, 0, len(entries))
	read, empty := make([]bool, len(entries)), make([]bool, len(entries))
	err := c.from.GetMany(ctx, keysOf(entries), func(i int, value []byte) error {
		if len(value) == 0 {
			empty[i] = true
			return ErrForeign // there may be another one
		}
		read[i] = true
		item := Item{Key: entries[i].key}
		if start := len(c.values); cap(c.values)-start >= len(value) {
			c.values = append(c.values, value...)
			item.Value = c.values[start:len(c.values):len(c.values)]
		} else { // it has grown
			item.Value = bytes.Clone(value)
		}
		items = append(items, item)
		return nil
	})
	switch {
	case err == nil:
	case errors.Is(err, ErrCorrupt) && ctx.Err() == nil:
		if c.corrupt == nil {
			c.corrupt = fmt.Errorf("reading: %w", err)
		}
	default:
		return nil, fmt.Errorf("reading: %w", err)
	}
	for i := range entries {
		switch {
		case read[i]:
		case empty[i] || err != nil:
			c.report.Unreadable++
		default:
			c.report.Gone++
		}
	}
	return items, nil
}

// write writes items in batches that to takes.
func (c *copier) write(ctx context.Context, items []Item) error {
	for len(items) > 0 {
		n := c.limits.Fit(items)
		if err := c.store(ctx, items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

// store writes one batch, in halves if it is too large: to may have a limit that
// it doesn't declare.
func (c *copier) store(ctx context.Context, items []Item) error {
	err := c.to.SetMany(ctx, items)
	switch {
	case err == nil:
		c.report.Copied += len(items)
		for _, item := range items {
			c.report.Bytes += int64(len(item.Key) + len(item.Value))
		}
		return nil
	case !errors.Is(err, ErrTooLarge):
		return err
	case len(items) == 1:
		c.refused(err)
		return nil
	}
	half := len(items) / 2
	if err := c.store(ctx, items[:half]); err != nil {
		return err
	}
	return c.store(ctx, items[half:])
}

// tell calls Progress.
func (c *copier) tell() {
	if c.opts.Progress != nil {
		c.opts.Progress(c.report)
	}
}

func keysOf(entries []sized) []Key {
	keys := make([]Key, len(entries))
	for i, e := range entries {
		keys[i] = e.key
	}
	return keys
}
