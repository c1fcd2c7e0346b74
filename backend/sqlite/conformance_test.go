package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	driver "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/conformance"
)

const lockTimeout = 500 * time.Millisecond

func conformanceSuite(options Options) conformance.Suite {
	options.BusyTimeout = lockTimeout
	want := backend.Info{
		Atomic:        true,
		Durability:    backend.SurvivesPowerLoss,
		Reach:         backend.ReachHost,
		SnapshotReads: true,
		MaxValueBytes: maxValueBytes,
	}
	if options.Synchronous == Normal {
		want.Durability = backend.SurvivesCrash
	}
	return conformance.Suite{
		New: func(t testing.TB) string { return filepath.Join(t.TempDir(), "vectors.db") },
		Open: func(t testing.TB, location string) backend.Cache {
			c, err := Open(location, &options)
			if err != nil {
				t.Fatal(err)
			}
			opened.add(t, location, c)
			return c
		},
		Want:  want,
		Plant: plant,
		Fault: injectFault,
	}
}

func TestConformance(t *testing.T) { conformanceSuite(Options{}).Run(t) }

func TestConformanceWithoutMmap(t *testing.T) {
	conformanceSuite(Options{DisableMmap: true, Synchronous: Normal, PageSize: 512, Readers: 1}).Run(t)
}

func TestSoak(t *testing.T) { conformanceSuite(Options{}).Soak(t) }

func BenchmarkCache(b *testing.B) { conformanceSuite(Options{}).Bench(b) }

// handles has the caches that this process has open, for faults that are a
// setting of a connection.
type handles struct {
	mu     sync.Mutex
	byPath map[string][]*Cache
}

var opened = handles{byPath: make(map[string][]*Cache)}

func (h *handles) add(t testing.TB, path string, c *Cache) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byPath[path] = append(h.byPath[path], c)
	t.Cleanup(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.byPath, path)
	})
}

// each calls do with every open handle in its turn to write.
func (h *handles) each(t testing.TB, path string, do func(c *Cache)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.byPath[path] {
		require.NoError(t, c.writing.pass(context.Background()))
		do(c)
		c.writing.leave()
	}
}

// writers runs queries on the writing connection of every open handle.
func (h *handles) writers(t testing.TB, path string, queries ...string) {
	h.each(t, path, func(c *Cache) {
		if c.writer == nil {
			return
		}
		for _, q := range queries {
			require.NoError(t, c.writer.exec(q))
		}
	})
}

// slow lets every open handle wait before it stores or removes an entry, once or
// twice in a batch of a case. The trigger is one of the connection: no other one has the
// function.
func (h *handles) slow(t testing.TB, path string) (undo func()) {
	h.each(t, path, func(c *Cache) {
		if c.writer == nil {
			return
		}
		require.NoError(t, c.writer.db.CreateFunction("wait", &driver.FunctionImpl{Scalar: func(driver.Context, []driver.Value) (driver.Value, error) {
			time.Sleep(5 * time.Millisecond)
			return driver.IntegerValue(0), nil
		}}))
	})
	h.writers(t, path, `CREATE TEMP TRIGGER slow BEFORE INSERT ON main.entries
		WHEN (SELECT count(*) FROM entries) % 30 = 0 OR EXISTS (SELECT 1 FROM entries WHERE key = NEW.key AND id % 30 = 0)
		BEGIN SELECT wait(); END`,
		`CREATE TEMP TRIGGER slowly BEFORE DELETE ON main.entries WHEN OLD.id % 30 = 0 BEGIN SELECT wait(); END`)
	return func() {
		h.writers(t, path, "DROP TRIGGER IF EXISTS temp.slow", "DROP TRIGGER IF EXISTS temp.slowly")
	}
}

// impatient lets every open handle wait a short time for a lock. No call may be
// running: reads look at the time-out without a turn.
func (h *handles) impatient(t testing.TB, path string) (undo func()) {
	set := func(timeout time.Duration) {
		h.each(t, path, func(c *Cache) { c.options.BusyTimeout = timeout })
	}
	set(100 * time.Millisecond)
	return func() { set(lockTimeout) }
}

// plant leaves what another program could: a TEXT, a number, a NULL, no bytes.
func plant(t testing.TB, location string, k backend.Key, what conformance.Foreign) {
	conn := rawConn(t, location)
	defer func() { require.NoError(t, conn.Close()) }()
	value := []string{"'a text'", "42", "2.5", "NULL", "''"}[int(k[0])%5]
	if what == conformance.Empty {
		value = "zeroblob(0)"
	}
	rawExec(t, conn, "INSERT OR REPLACE INTO entries(key, value) VALUES(?1, "+value+")", k[:])
}

func injectFault(t testing.TB, location string, f conformance.Fault) (undo func()) {
	switch f.Kind {
	case conformance.FailAtItem:
		// FAIL leaves the transaction open with what came before in it; ROLLBACK ends
		// it behind the writer's back.
		how := []string{"FAIL", "ROLLBACK", "ABORT"}[f.Item%3]
		return withTrigger(t, location, fmt.Sprintf(
			`WHEN (SELECT count(*) FROM entries) >= %d BEGIN SELECT RAISE(%s, 'injected'); END`, count(t, location)+int64(f.Item), how))
	case conformance.Slow:
		return opened.slow(t, location)
	case conformance.FailAtCommit:
		// What breaks a deferred foreign key is found at COMMIT, which leaves the
		// transaction open.
		fail := " ON main.entries BEGIN INSERT INTO child VALUES(1); END"
		opened.writers(t, location, "PRAGMA foreign_keys = ON", "CREATE TEMP TABLE parent(id INTEGER PRIMARY KEY)",
			"CREATE TEMP TABLE child(id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
			"CREATE TEMP TRIGGER fail_insert AFTER INSERT"+fail, "CREATE TEMP TRIGGER fail_delete AFTER DELETE"+fail)
		return func() {
			opened.writers(t, location, "DROP TRIGGER IF EXISTS temp.fail_insert", "DROP TRIGGER IF EXISTS temp.fail_delete",
				"DROP TABLE IF EXISTS temp.child", "DROP TABLE IF EXISTS temp.parent", "PRAGMA foreign_keys = OFF")
		}
	case conformance.Full:
		opened.writers(t, location, "PRAGMA max_page_count = 1") // SQLite raises it to the size the file has
		return func() { opened.writers(t, location, "PRAGMA max_page_count = 4294967294") }
	case conformance.Cut:
		away := location + ".away"
		require.NoError(t, os.Rename(location, away))
		return func() { require.NoError(t, os.Rename(away, location)) }
	case conformance.Locked:
		conn := rawConn(t, location)
		rawExec(t, conn, "BEGIN IMMEDIATE")
		patientAgain := opened.impatient(t, location)
		return func() {
			defer patientAgain()
			rawExec(t, conn, "ROLLBACK")
			require.NoError(t, conn.Close())
		}
	case conformance.Damage:
		damageValue(t, location, f.Item)
		return func() {}
	}
	return nil
}

// damageValue changes a bit of a stored value in the file itself, past SQLite.
func damageValue(t testing.TB, location string, place int) {
	conn := rawConn(t, location)
	defer func() { require.NoError(t, conn.Close()) }()
	rawExec(t, conn, "PRAGMA wal_checkpoint(TRUNCATE)") // into the file with all of them
	var value []byte
	require.NoError(t, sqlitex.ExecuteTransient(conn, "SELECT value FROM entries ORDER BY key LIMIT 1 OFFSET ?1 % (SELECT count(*) FROM entries)", &sqlitex.ExecOptions{
		Args: []any{place * 31},
		ResultFunc: func(stmt *driver.Stmt) error {
			value = make([]byte, stmt.ColumnLen(0))
			stmt.ColumnBytes(0, value)
			return nil
		},
	}))
	require.GreaterOrEqual(t, len(value), 64, "long enough to be found")
	// A long value may go on elsewhere. Closing the file here takes away what locks
	// this process has on it (see creating); nobody else has it open in these cases.
	file, err := os.OpenFile(location, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	data, err := io.ReadAll(file)
	require.NoError(t, err)
	begin := value[:64]
	offset := place * 7 % len(begin)
	damaged := []byte{begin[offset] ^ 1<<(place%8)}
	found := 0
	for at := 0; ; at++ { // a page that was split may have it too, where nothing looks
		next := bytes.Index(data[at:], begin)
		if next < 0 {
			break
		}
		found++
		at += next
		_, err = file.WriteAt(damaged, int64(at+offset))
		require.NoError(t, err)
	}
	require.Positive(t, found, "the value is in the file")
}

func withTrigger(t testing.TB, location, body string) (undo func()) {
	rawRun(t, location, "CREATE TRIGGER injected BEFORE INSERT ON entries "+body)
	return func() { rawRun(t, location, "DROP TRIGGER injected") }
}

func count(t testing.TB, location string) (n int64) {
	conn := rawConn(t, location)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, sqlitex.ExecuteTransient(conn, "SELECT count(*) FROM entries", &sqlitex.ExecOptions{
		ResultFunc: func(stmt *driver.Stmt) error { n = stmt.ColumnInt64(0); return nil },
	}))
	return n
}
