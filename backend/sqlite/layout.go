package sqlite

import (
	"errors"
	"fmt"
	"strings"

	"github.com/embedonce/embedonce/backend"
)

const (
	// applicationID marks the file as this package's ("emb1"); user_version tells
	// the layout of what is in it.
	applicationID = 0x656d6231
	layoutVersion = 1
)

const (
	createTable = "CREATE TABLE entries(id INTEGER PRIMARY KEY, key BLOB NOT NULL, value)"
	createIndex = "CREATE UNIQUE INDEX entries_key ON entries(key)"
)

// create is what makes an empty database ours; it runs in one transaction.
var create = []string{
	createTable,
	createIndex,
	fmt.Sprintf("PRAGMA application_id = %d", applicationID),
	fmt.Sprintf("PRAGMA user_version = %d", layoutVersion),
}

// checkLayout reports whether the database is one of ours, with the layout that
// this version reads. An empty database is not ours and no error. The connection
// is in a transaction: the three answers belong together.
func (c *conn) checkLayout() (ours bool, err error) {
	application, err := c.number("PRAGMA application_id")
	if err != nil {
		return false, err
	}
	version, err := c.number("PRAGMA user_version")
	if err != nil {
		return false, err
	}
	objects, err := c.number("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return false, err
	}
	switch {
	case application == 0 && version == 0 && objects == 0:
		return false, nil
	case application != applicationID:
		return false, fmt.Errorf("%w: it is a SQLite database of another application: application_id %#x, a cache has %#x", backend.ErrCorrupt, uint32(application), applicationID)
	case version != layoutVersion:
		return false, fmt.Errorf("%w: it has layout version %d (PRAGMA user_version), this program reads version %d", backend.ErrCorrupt, version, layoutVersion)
	}
	return true, c.checkObjects()
}

// checkObjects refuses a file with anything that SQLite would run inside our
// statements: a trigger, a view in the place of the table, an index over an
// expression can each keep a call busy for ever, whatever its context says.
// SQLite goes by the text of a definition, and so does this.
func (c *conn) checkObjects() error {
	ours, err := c.number("SELECT count(*) FROM sqlite_schema WHERE sql = '" + createTable + "' AND type = 'table' AND name = 'entries'" +
		" OR sql = '" + createIndex + "' AND type = 'index' AND name = 'entries_key'")
	if err != nil {
		return err
	}
	if ours != 2 {
		return fmt.Errorf("%w: the table of entries is missing or has another form", backend.ErrCorrupt)
	}
	// An index that SQLite makes for a table has no definition of its own; the
	// other two are what ANALYZE leaves.
	foreign, err := c.text("SELECT CASE WHEN type IN ('table', 'index', 'view', 'trigger') THEN type ELSE 'row' END FROM sqlite_schema WHERE sql NOT IN ('" + createTable + "', '" + createIndex + "'," +
		" 'CREATE TABLE sqlite_stat1(tbl,idx,stat)', 'CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)') LIMIT 1")
	if err != nil {
		return err
	}
	if foreign != "" {
		return fmt.Errorf("%w: a cache has one table and one index, and this file also has: %s", backend.ErrCorrupt, foreign)
	}
	return nil
}

// readLayout is checkLayout in a transaction of its own.
func (c *conn) readLayout() (ours bool, err error) {
	if err := c.exec("BEGIN"); err != nil {
		return false, err
	}
	ours, err = c.checkLayout()
	return ours, errors.Join(err, c.end())
}

// initialize makes an empty database ours and leaves one that is ours alone. It
// may be called again after a lock was taken, and any number of processes may
// call it for one file at the same moment: the first does the work.
func (c *conn) initialize(pageSize int) error {
	ours, err := c.readLayout()
	if err != nil {
		return err
	}
	if !ours {
		if err := c.create(pageSize); err != nil {
			return err
		}
	}
	// Not possible in the transaction of create. A process that dies before it
	// leaves the rest to the next one: this changes nothing if it was done.
	mode, err := c.text("PRAGMA journal_mode = WAL")
	if err != nil {
		return err
	}
	if !strings.EqualFold(mode, "wal") {
		return fmt.Errorf("%w: SQLite can't keep a write-ahead log on this file system, journal_mode is %q", backend.ErrUnsupported, mode)
	}
	return c.checkWritable()
}

// checkWritable returns SQLite's error for a file without write permission: it
// opens such a file all the same, for reading, and even begins a transaction.
func (c *conn) checkWritable() error {
	err := c.exec("BEGIN IMMEDIATE")
	if failureOf(err) == busyFailure {
		return nil // somebody writes
	}
	if err == nil {
		err = c.exec(fmt.Sprintf("PRAGMA user_version = %d", layoutVersion))
	}
	return errors.Join(err, c.end())
}

func (c *conn) create(pageSize int) (err error) {
	// The two settings take effect before anything is written, or never. In an empty
	// file the second writes the first page, for which it takes the lock; BEGIN
	// IMMEDIATE would write that itself, too early. In a file that has pages and no
	// tables it takes none, and of two processes one finds it busy and begins again.
	defer func() { err = errors.Join(err, c.end()) }()
	for _, s := range []string{
		fmt.Sprintf("PRAGMA page_size = %d", pageSize),
		"BEGIN",
		"PRAGMA auto_vacuum = INCREMENTAL",
	} {
		if err := c.exec(s); err != nil {
			return err
		}
	}
	ours, err := c.checkLayout()
	if err != nil || ours {
		return err
	}
	for _, s := range create {
		if err := c.exec(s); err != nil {
			return err
		}
	}
	return c.exec("COMMIT")
}
