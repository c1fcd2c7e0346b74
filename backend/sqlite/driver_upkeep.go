package sqlite

import (
	"context"
	"errors"

	"zombiezen.com/go/sqlite"

	"github.com/embedonce/embedonce/backend"
)

// The calls of the driver that Scan, Delete, Stats and Compact need. The driver
// keeps the statements that it has prepared.

// scan visits the rows behind the one with id after, at most limit of them, and
// returns the id of the last. It returns visit's error apart.
func (c *conn) scan(ctx context.Context, after int64, limit, head int, visit func(backend.Entry) error) (rows int, last int64, visitErr, err error) {
	stmt, err := c.statement(sqlScan)
	if err != nil {
		return 0, after, nil, err
	}
	defer func() { err = errors.Join(err, stmt.Reset()) }() // also when visit panics
	stmt.BindInt64(1, after)
	stmt.BindInt64(2, int64(limit))
	entry := backend.Entry{}
	one := func(_ int, value []byte) error {
		entry.Value, entry.Size = value[:min(max(head, 0), len(value))], len(value)
		if value == nil {
			entry.Size = -1
		}
		return visit(entry)
	}
	for last = after; ; rows++ {
		if err := ctx.Err(); err != nil {
			return rows, last, nil, err
		}
		more, err := c.step(stmt)
		if err != nil || !more {
			return rows, last, nil, err
		}
		last = stmt.ColumnInt64(2)
		if stmt.ColumnType(1) != sqlite.TypeBlob || stmt.ColumnLen(1) != len(entry.Key) {
			continue // no key of ours: GetMany can't find it
		}
		stmt.ColumnBytes(1, entry.Key[:])
		if visitErr, err = c.visitRow(stmt, 0, one); visitErr != nil || err != nil {
			return rows, last, visitErr, err
		}
	}
}

// remove deletes an entry and says whether there was one; beginWrite came before.
func (c *conn) remove(key *backend.Key) (removed bool, err error) {
	stmt, err := c.statement(sqlDelete)
	if err != nil {
		return false, err
	}
	stmt.BindBytes(1, key[:])
	err = c.run(stmt)
	return err == nil && c.db.Changes() > 0, err
}

// count returns the number of entries. It reads the index, which takes a while
// for millions, and ends when ctx does.
func (c *conn) count(ctx context.Context) (int64, error) {
	c.db.SetInterrupt(ctx.Done())
	defer c.db.SetInterrupt(nil)
	return c.number(sqlCount)
}

// room returns how many bytes the pages of the file have, and how many of these
// are in pages that nothing is in.
func (c *conn) room() (all, free int64, err error) {
	size, err := c.number("PRAGMA page_size")
	if err != nil {
		return 0, 0, err
	}
	pages, err := c.number("PRAGMA page_count")
	if err != nil {
		return 0, 0, err
	}
	unused, err := c.number("PRAGMA freelist_count")
	return size * pages, size * unused, err
}

// shrink moves pages from the end of the file into free ones, and says whether
// there are more of them; beginWrite came before. It has no effect on a file
// that was made without incremental vacuum.
func (c *conn) shrink() (more bool, err error) {
	const pages = "256" // 4 MiB: others wait for milliseconds
	before, err := c.number("PRAGMA freelist_count")
	if err != nil || before == 0 {
		return false, err
	}
	if err := c.exec("PRAGMA incremental_vacuum(" + pages + ")"); err != nil {
		return false, err
	}
	after, err := c.number("PRAGMA freelist_count")
	return after > 0 && after < before, err
}
