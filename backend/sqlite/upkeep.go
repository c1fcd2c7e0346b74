package sqlite

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/embedonce/embedonce/backend"
)

var (
	_ backend.Scanner   = (*Cache)(nil)
	_ backend.Deleter   = (*Cache)(nil)
	_ backend.Statter   = (*Cache)(nil)
	_ backend.Compacter = (*Cache)(nil)
)

const (
	// scanRows bounds a Scan: while it reads, the log can't be emptied.
	scanRows = 1024
	// deleteRows bounds a transaction of Delete, during which no other handle
	// writes.
	deleteRows = 512
)

// Scan implements backend.Scanner: 1,024 entries a call, in one read
// transaction, in the order in which their keys were first written. A damaged page
// ends it with backend.ErrCorrupt.
func (c *Cache) Scan(ctx context.Context, from backend.Position, head int, visit func(e backend.Entry) error) (next backend.Position, err error) {
	if ctx.Err() != nil {
		return from, c.ended(ctx, "scan", nil)
	}
	after := int64(0)
	if from != "" {
		if after, err = strconv.ParseInt(string(from), 10, 64); err != nil || after <= 0 {
			return from, fmt.Errorf("sqlite: %s: scan: the position is not one that Scan returned: it must be \"\" or a number above 0", c.path)
		}
	}
	rows, last := 0, after
	err = c.read(ctx, "scan", func(r *conn) (visitErr, err error) {
		rows, last, visitErr, err = r.scan(ctx, after, scanRows, head, visit)
		return visitErr, err
	})
	switch {
	case err != nil:
		return from, err
	case rows < scanRows:
		return "", nil
	}
	return backend.Position(strconv.FormatInt(last, 10)), nil
}

// read runs work in a read transaction. work returns an error of the caller's own
// code apart from one of SQLite.
func (c *Cache) read(ctx context.Context, doing string, work func(r *conn) (callerErr, err error)) error {
	if err := c.calls.enter(); err != nil {
		return err
	}
	defer c.calls.leave()
	return c.inRead(ctx, func(r *conn) error {
		callerErr, err := work(r)
		switch {
		case callerErr != nil:
			return fmt.Errorf("sqlite: visit: %w", callerErr)
		case err != nil:
			return c.failOrEnded(ctx, doing, err)
		}
		return nil
	})
}

// Delete implements backend.Deleter: 512 keys a transaction. Other writers wait
// while match looks at the entries of one.
func (c *Cache) Delete(ctx context.Context, keys []backend.Key, match func(i int, value []byte) bool) (removed int, err error) {
	if ctx.Err() != nil {
		return 0, c.ended(ctx, "delete", nil)
	}
	if err := c.calls.enter(); err != nil {
		return 0, err
	}
	defer c.calls.leave()
	for from := 0; from < len(keys); from += deleteRows {
		to := min(from+deleteRows, len(keys))
		some := 0
		err := c.write(ctx, "delete", func(w *conn) error {
			some = 0
			for i := from; i < to; i++ {
				if err := ctx.Err(); err != nil {
					return err
				}
				gone, err := w.removeIf(&keys[i], i, match)
				if err != nil {
					return err
				}
				if gone {
					some++
				}
			}
			return nil
		})
		if err != nil {
			return removed, err
		}
		removed += some
	}
	return removed, nil
}

func (c *conn) removeIf(key *backend.Key, i int, match func(i int, value []byte) bool) (removed bool, err error) {
	if match != nil {
		matched := false
		_, err := c.lookup(key, i, func(i int, value []byte) error {
			matched = match(i, value)
			return nil
		})
		if err != nil || !matched {
			return false, err
		}
	}
	return c.remove(key)
}

// Stats implements backend.Statter: Bytes has the file and its log. Counting reads
// the index of the keys, about 40 bytes an entry.
func (c *Cache) Stats(ctx context.Context) (stats backend.Stats, err error) {
	unknown := backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}
	if ctx.Err() != nil {
		return unknown, c.ended(ctx, "stats", nil)
	}
	err = c.read(ctx, "stats", func(r *conn) (_, err error) {
		if stats.Entries, err = r.count(ctx); err != nil {
			return nil, err
		}
		stats.Bytes, stats.FreeBytes, err = r.room()
		return nil, err
	})
	if err != nil {
		return unknown, err
	}
	if log, err := os.Stat(c.log.path); err == nil {
		stats.Bytes += log.Size()
	}
	return stats, nil
}

// Compact implements backend.Compacter: it moves entries from the end of the file
// into pages that are free and cuts the file off behind them, 256 pages in a
// transaction. The file gets shorter when no reader needs what was there.
func (c *Cache) Compact(ctx context.Context) error {
	if ctx.Err() != nil {
		return c.ended(ctx, "compact", nil)
	}
	if err := c.calls.enter(); err != nil {
		return err
	}
	defer c.calls.leave()
	for more := true; more; {
		err := c.write(ctx, "compact", func(w *conn) (err error) {
			more, err = w.shrink()
			return err
		})
		if err != nil {
			return err
		}
	}
	return c.cutLog(ctx)
}
