package sqlite

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/embedonce/embedonce/backend"
)

// This file has every call of the driver. The rest of the package knows conn,
// its methods, and what failureOf says of an error.

const (
	// pageCacheKiB is how much memory a connection may use for pages that the
	// memory map doesn't cover: those in the log, and all of them without mmap.
	pageCacheKiB = 16_000
	// logBytes is what the log is cut to after it has been moved into the file; a
	// longer one is cut by shortenLog if SQLite can't do it.
	logBytes = 64 << 20

	sqlGet = "SELECT value FROM entries WHERE key = ?1"
	// Rows whose key is no key are not entries. A new row gets the largest id.
	sqlScan   = "SELECT value, key, id FROM entries WHERE id > ?1 ORDER BY id LIMIT ?2"
	sqlDelete = "DELETE FROM entries WHERE key = ?1"
	sqlCount  = "SELECT count(*) FROM entries WHERE typeof(key) = 'blob' AND length(key) = 32"

	sqlSet = "INSERT INTO entries(key, value) VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET value = excluded.value"
)

// conn is one connection; one goroutine at a time may use it.
type conn struct {
	db        *sqlite.Conn
	get, set  *sqlite.Stmt // set is nil for a reader
	begin     *sqlite.Stmt
	immediate *sqlite.Stmt
	snapshot  *sqlite.Stmt
	commit    *sqlite.Stmt
	lend      lender
	isReady   bool
	fault     func() error // Options.fault
}

// openConn opens the file, which must exist; it neither locks nor reads it.
// ready must follow.
func openConn(path string, o *Options, readOnly bool) (*conn, error) {
	flags := sqlite.OpenReadWrite
	if readOnly {
		flags = sqlite.OpenReadOnly
	}
	if o.Immutable {
		slashed := filepath.ToSlash(path)
		if !strings.HasPrefix(slashed, "/") {
			slashed = "/" + slashed // C:/x is file:///C:/x
		}
		path = (&url.URL{Scheme: "file", Path: slashed, RawQuery: "immutable=1"}).String()
		flags |= sqlite.OpenURI
	}
	db, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	// A lock that is taken is reported at once; untilFree does the waiting, under
	// the caller's context.
	db.SetBusyTimeout(0)
	return &conn{db: db, fault: o.fault}, nil
}

// ready sets the connection up and makes its statements, once. It reads the
// file, and may be called again if a lock was taken.
func (c *conn) ready(o *Options, readOnly bool) error {
	if c.isReady {
		return nil
	}
	if err := c.setUp(o); err != nil {
		return err
	}
	if err := c.prepare(readOnly); err != nil {
		return err
	}
	c.isReady = true
	return nil
}

func (c *conn) setUp(o *Options) error {
	settings := []string{
		fmt.Sprintf("PRAGMA mmap_size = %d", o.MmapBytes),
		fmt.Sprintf("PRAGMA cache_size = -%d", pageCacheKiB),
		fmt.Sprintf("PRAGMA synchronous = %s", o.Synchronous),
		fmt.Sprintf("PRAGMA journal_size_limit = %d", logBytes),
		"PRAGMA trusted_schema = OFF",
	}
	if runtime.GOOS == "darwin" {
		// fsync alone leaves the data in the disk's own cache there.
		if o.Synchronous == Full {
			settings = append(settings, "PRAGMA fullfsync = ON")
		}
		settings = append(settings, "PRAGMA checkpoint_fullfsync = ON")
	}
	for _, s := range settings {
		if err := c.exec(s); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) prepare(readOnly bool) (err error) {
	prepare := func(to **sqlite.Stmt, query string) {
		if err == nil && *to == nil {
			*to, err = c.statement(query)
		}
	}
	prepare(&c.begin, "BEGIN")
	prepare(&c.snapshot, "SELECT 1 FROM sqlite_schema LIMIT 1")
	prepare(&c.commit, "COMMIT")
	prepare(&c.get, sqlGet)
	if !readOnly {
		prepare(&c.immediate, "BEGIN IMMEDIATE")
		prepare(&c.set, sqlSet)
	}
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultError {
		return fmt.Errorf("%w: the table of entries is missing or has another form: %w", backend.ErrCorrupt, err)
	}
	return err
}

func (c *conn) close() error { return c.db.Close() }

// exec runs a statement that is needed once.
func (c *conn) exec(query string) error { return c.once(query, nil) }

// once runs a statement and calls row for each row of its result.
func (c *conn) once(query string, row func(stmt *sqlite.Stmt)) error {
	if err := c.failing(); err != nil {
		return err
	}
	return sqlitex.ExecuteTransient(c.db, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		if row != nil {
			row(stmt)
		}
		return nil
	}})
}

// statement returns a statement that the driver keeps.
func (c *conn) statement(query string) (*sqlite.Stmt, error) {
	if err := c.failing(); err != nil {
		return nil, err
	}
	return c.db.Prepare(query)
}

// step goes to the next row.
func (c *conn) step(stmt *sqlite.Stmt) (row bool, err error) {
	if err := c.failing(); err != nil {
		return false, err
	}
	return stmt.Step()
}

// failing is what a test lets the next call of SQLite return.
func (c *conn) failing() error {
	if c.fault == nil {
		return nil
	}
	return c.fault()
}

// text and number return the first column of the first row.
func (c *conn) text(query string) (s string, err error) {
	err = c.once(query, func(stmt *sqlite.Stmt) { s = stmt.ColumnText(0) })
	return s, err
}

func (c *conn) number(query string) (n int64, err error) {
	err = c.once(query, func(stmt *sqlite.Stmt) { n = stmt.ColumnInt64(0) })
	return n, err
}

func (c *conn) run(stmt *sqlite.Stmt) error {
	_, err := c.step(stmt)
	return errors.Join(err, stmt.Reset())
}

// beginRead begins a read transaction and fixes what it sees.
func (c *conn) beginRead() error {
	if err := c.run(c.begin); err != nil {
		return err
	}
	// BEGIN alone defers the lock, and so the moment of the snapshot, to the
	// first read. A lock that is taken must come up here, before any visit.
	if err := c.run(c.snapshot); err != nil {
		return errors.Join(err, c.end())
	}
	return nil
}

// beginWrite begins a transaction and takes the write lock.
func (c *conn) beginWrite() error { return c.run(c.immediate) }

// commitWrite ends the transaction of beginWrite. After an error it may be
// stored or not; end must follow.
func (c *conn) commitWrite() error { return c.run(c.commit) }

// checkpoint moves the log into the file and leaves it empty. While somebody
// reads from the log it moves what it can and reports a lock that is taken.
func (c *conn) checkpoint() error {
	blocked, err := c.number("PRAGMA wal_checkpoint(TRUNCATE)")
	if err == nil && blocked != 0 {
		return sqlite.ResultBusy.ToError()
	}
	return err
}

// end leaves no statement and no transaction open, whatever state the
// connection is in. After an error of it the connection must not be used again.
func (c *conn) end() error {
	if c.get != nil {
		// The result repeats the error that the last step returned.
		_ = c.get.Reset()
	}
	if !c.inTransaction() {
		return nil
	}
	return c.exec("ROLLBACK")
}

// inTransaction is false if SQLite has ended the transaction after an error.
func (c *conn) inTransaction() bool { return !c.db.AutocommitEnabled() }

// endRead is end for a read transaction that went well, over a statement that is
// prepared already.
func (c *conn) endRead() error { return c.run(c.commit) }

// lookup calls visit if the key is stored. It returns visit's error apart. After
// an error, too, another lookup may follow in the same transaction.
func (c *conn) lookup(key *backend.Key, i int, visit func(int, []byte) error) (visitErr, err error) {
	c.get.BindBytes(1, key[:])
	found, err := c.step(c.get)
	if err != nil {
		return nil, err
	}
	if found {
		visitErr, err = c.visitRow(c.get, i, visit)
	}
	return visitErr, errors.Join(err, c.get.Reset())
}

// visitRow calls visit with the first column of the row at which stmt stands.
func (c *conn) visitRow(stmt *sqlite.Stmt, i int, visit func(int, []byte) error) (visitErr, err error) {
	if stmt.ColumnType(0) != sqlite.TypeBlob {
		return visit(i, nil), nil
	}
	size := stmt.ColumnLen(0)
	if size == 0 {
		return visit(i, []byte{}), nil
	}
	// The reader has the row's own memory and hands it, in one piece, to Write:
	// nothing is copied, and the memory is lent until visit returns.
	c.lend = lender{visit: visit, i: i}
	n, err := stmt.ColumnReader(0).WriteTo(&c.lend)
	visitErr = c.lend.err
	c.lend = lender{}
	if err == nil && n != int64(size) {
		err = fmt.Errorf("out of memory for a value of %d bytes", size)
	}
	return visitErr, err
}

// lender gives the bytes that are written to it to visit.
type lender struct {
	visit func(int, []byte) error
	i     int
	err   error
}

func (l *lender) Write(value []byte) (int, error) {
	l.err = l.visit(l.i, value)
	return len(value), nil
}

// store writes one entry; beginWrite came before.
func (c *conn) store(item *backend.Item) error {
	c.set.BindBytes(1, item.Key[:])
	c.set.BindBytes(2, item.Value)
	err := c.run(c.set)
	return errors.Join(err, c.set.ClearBindings()) // frees the copy of the value
}
