package floor

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/embedonce/embedonce/backend"
)

// sqliteFile is a file of backend/sqlite under the bare driver: a connection for each
// reader, one transaction and one statement for each call.
type sqliteFile struct {
	path    string
	pragmas []string
	conn    *sqlite.Conn
	write   *sqlite.Stmt
}

// OpenSQLite opens a file that backend/sqlite has made. Each connection executes the
// pragmas, such as "journal_mode = DELETE", after those that the library sets.
func OpenSQLite(path string, pragmas ...string) (Store, error) {
	conn, err := openSQLite(path, sqlite.OpenReadWrite, pragmas)
	if err != nil {
		return nil, err
	}
	write, err := conn.Prepare("INSERT INTO entries(key, value) VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET value = excluded.value")
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &sqliteFile{path, pragmas, conn, write}, nil
}

// openSQLite sets what backend/sqlite sets and what changes the speed.
func openSQLite(path string, flags sqlite.OpenFlags, pragmas []string) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	all := append([]string{fmt.Sprintf("mmap_size = %d", math.MaxInt32), "cache_size = -16000", "synchronous = FULL"}, pragmas...)
	for _, pragma := range all {
		answer := ""
		err := sqlitex.ExecuteTransient(conn, "PRAGMA "+pragma, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			answer = stmt.ColumnText(0)
			return nil
		}})
		// SQLite says no to another journal with the name of the one that stays.
		if wanted, ok := strings.CutPrefix(pragma, "journal_mode = "); ok && err == nil && !strings.EqualFold(answer, wanted) {
			err = fmt.Errorf("the journal is %s, not %s", answer, wanted)
		}
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

func (s *sqliteFile) Close() error { return s.conn.Close() }

func (s *sqliteFile) Write(items []backend.Item) error {
	if err := sqlitex.Execute(s.conn, "BEGIN IMMEDIATE", nil); err != nil {
		return err
	}
	for i := range items {
		s.write.BindBytes(1, items[i].Key[:])
		s.write.BindBytes(2, items[i].Value)
		if _, err := s.write.Step(); err != nil {
			return err
		}
		if err := s.write.Reset(); err != nil {
			return err
		}
	}
	return sqlitex.Execute(s.conn, "COMMIT", nil)
}

func (s *sqliteFile) Reader() (Reader, error) {
	conn, err := openSQLite(s.path, sqlite.OpenReadOnly, s.pragmas)
	if err != nil {
		return nil, err
	}
	r := &sqliteReader{conn: conn}
	if r.get, err = conn.Prepare("SELECT value FROM entries WHERE key = ?1"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return r, nil
}

type sqliteReader struct {
	conn  *sqlite.Conn
	get   *sqlite.Stmt
	visit func(int, []byte)
	i     int
}

func (r *sqliteReader) Close() error { return r.conn.Close() }

// Write takes the row's own memory from the driver.
func (r *sqliteReader) Write(value []byte) (int, error) {
	r.visit(r.i, value)
	return len(value), nil
}

func (r *sqliteReader) Get(keys []backend.Key, visit func(i int, value []byte)) error {
	if err := sqlitex.Execute(r.conn, "BEGIN", nil); err != nil {
		return err
	}
	r.visit = visit
	for i := range keys {
		r.get.BindBytes(1, keys[i][:])
		found, err := r.get.Step()
		if err != nil {
			return err
		}
		if found {
			r.i = i
			if _, err := r.get.ColumnReader(0).WriteTo(r); err != nil {
				return err
			}
		}
		if err := r.get.Reset(); err != nil {
			return err
		}
	}
	return sqlitex.Execute(r.conn, "COMMIT", nil)
}
