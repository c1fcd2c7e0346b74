package sqlite

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

func TestOptionsListEveryProblem(t *testing.T) {
	_, err := Open(":memory:", &Options{
		Synchronous: 7, BusyTimeout: -1, Readers: -1, PageSize: 1000, MmapBytes: -1, DisableMmap: true,
	})
	require.Error(t, err)
	for _, part := range []string{"backend/memory", "Synchronous is 7", "BusyTimeout", "Readers is -1", "PageSize is 1000", "MmapBytes is -1", "DisableMmap"} {
		require.ErrorContains(t, err, part)
	}
	for _, path := range []string{"", "file:x.db?mode=ro", "a\x00b"} {
		_, err := Open(path, nil)
		require.ErrorContains(t, err, "path")
	}
	for _, size := range []int{256, 131072, 3 << 10} {
		_, err := Open("x.db", &Options{PageSize: size})
		require.ErrorContains(t, err, "PageSize")
	}
	require.NoFileExists(t, "x.db")
	require.Equal(t, "full normal unknown (9)", strings.Join([]string{Full.String(), Normal.String(), Synchronous(9).String()}, " "))
}

func TestNewFile(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	if runtime.GOOS != "windows" {
		for _, name := range []string{path, path + "-wal", path + "-shm"} {
			info, err := os.Stat(name)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), name)
		}
	}
	for pragma, want := range map[string]string{
		"page_size": "16384", "auto_vacuum": "2", "journal_mode": "wal", "user_version": "1", "application_id": "1701667377",
		"foreign_keys": "0", "integrity_check": "ok",
	} {
		require.Equal(t, want, rawText(t, path, "PRAGMA "+pragma), pragma)
	}
	require.Equal(t, strconv.FormatInt(defaultMmapBytes(), 10), settingOf(t, c, "mmap_size"))

	c = openTest(t, testPath(t), &Options{PageSize: 4096, DisableMmap: true})
	require.Equal(t, "4096", settingOf(t, c, "page_size"))
	require.Equal(t, "0", settingOf(t, c, "mmap_size"))
	c = openTest(t, testPath(t), &Options{MmapBytes: 1 << 20})
	require.Equal(t, "1048576", settingOf(t, c, "mmap_size"))
}

func TestEmptyFileBecomesOurs(t *testing.T) {
	path := testPath(t)
	require.NoError(t, os.WriteFile(path, nil, 0o640))
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	require.Equal(t, "2", rawText(t, path, "PRAGMA auto_vacuum"))
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o640), info.Mode().Perm(), "the mode of a file that exists is its owner's affair")
	}

	// What a process leaves that dies between the first two steps of creating.
	path = testPath(t)
	rawRun(t, path, "PRAGMA page_size = 16384", "PRAGMA auto_vacuum = INCREMENTAL")
	c = openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))

	// And one that dies before the last: the log is switched on later.
	path = testPath(t)
	require.NoError(t, openTest(t, path, nil).Close())
	rawRun(t, path, "PRAGMA journal_mode = DELETE")
	openTest(t, path, nil)
	require.Equal(t, "wal", rawText(t, path, "PRAGMA journal_mode"))
}

func TestFilesThatAreNotOursAreRefused(t *testing.T) {
	ours := func(t *testing.T) string {
		path := testPath(t)
		require.NoError(t, openTest(t, path, nil).Close())
		return path
	}
	cases := map[string]struct {
		make func(t *testing.T) string
		says string
	}{
		"text": {func(t *testing.T) string {
			path := testPath(t)
			require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("no database. ", 1000)), 0o600))
			return path
		}, "not a database"},
		"short": {func(t *testing.T) string {
			path := testPath(t)
			require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
			return path
		}, "not a database"},
		"directory": {func(t *testing.T) string { return t.TempDir() }, "is a directory"},
		"another application": {func(t *testing.T) string {
			path := testPath(t)
			rawRun(t, path, "CREATE TABLE entries(id INTEGER PRIMARY KEY, key BLOB, value)", "PRAGMA application_id = 77")
			return path
		}, "another application: application_id 0x4d"},
		"no mark": {func(t *testing.T) string {
			path := testPath(t)
			rawRun(t, path, "CREATE TABLE notes(x)")
			return path
		}, "another application: application_id 0x0"},
		"newer layout": {func(t *testing.T) string {
			path := ours(t)
			rawRun(t, path, "PRAGMA user_version = 2")
			return path
		}, "layout version 2 (PRAGMA user_version), this program reads version 1"},
		"table is missing": {func(t *testing.T) string {
			path := ours(t)
			rawRun(t, path, "DROP TABLE entries")
			return path
		}, "table of entries is missing"},
		"index is missing": {func(t *testing.T) string {
			path := ours(t)
			rawRun(t, path, "DROP INDEX entries_key")
			return path
		}, "table of entries is missing or has another form"},
		"other index": {func(t *testing.T) string {
			path := ours(t)
			rawRun(t, path, "DROP INDEX entries_key", "CREATE INDEX entries_key ON entries(key)")
			return path
		}, "table of entries is missing or has another form"},
		"view": {func(t *testing.T) string {
			path := ours(t)
			rawRun(t, path, "DROP TABLE entries", "CREATE VIEW entries(key, value) AS "+endless)
			return path
		}, "table of entries is missing or has another form"},
		"trigger": {func(t *testing.T) string {
			path := ours(t)
			rawRun(t, path, "CREATE TRIGGER t AFTER INSERT ON entries BEGIN SELECT count(*) FROM ("+endless+"); END")
			return path
		}, "also has: trigger"},
		"expression index": {func(t *testing.T) string {
			path := ours(t)
			rawRun(t, path, "CREATE INDEX more ON entries(hex(value))")
			return path
		}, "also has: index"},
		"another view": {func(t *testing.T) string {
			path := ours(t)
			rawRun(t, path, "CREATE VIEW more AS SELECT 1")
			return path
		}, "also has: view"},
		"another table": {func(t *testing.T) string {
			path := ours(t)
			rawRun(t, path, "CREATE TABLE more(x)")
			return path
		}, "also has: table"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := tc.make(t)
			before, _ := os.ReadFile(path)
			for _, o := range []*Options{nil, {ReadOnly: true}} {
				_, err := Open(path, o)
				require.ErrorIs(t, err, backend.ErrCorrupt)
				require.ErrorContains(t, err, tc.says)
				require.ErrorContains(t, err, path)
			}
			after, _ := os.ReadFile(path)
			require.Equal(t, before, after, "a file that is not ours is left as it is")
		})
	}
}

// endless would keep SQLite busy for ever.
const endless = "SELECT CAST(x AS BLOB), x FROM (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x FROM c)"

func TestWhatMayBeInOurFile(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 3, 'a')))
	r := openTest(t, path, &Options{ReadOnly: true})

	// A handle that is open goes on when somebody adds to the file.
	rawRun(t, path, "CREATE TRIGGER t AFTER INSERT ON entries BEGIN SELECT 1; END")
	require.NoError(t, c.SetMany(ctxb, testItems(3, 1, 'a')))
	require.Len(t, readAll(t, c, testKeys(5)), 4)
	require.Len(t, readAll(t, r, testKeys(5)), 4)
	_, err := Open(path, nil)
	require.ErrorIs(t, err, backend.ErrCorrupt)
	rawRun(t, path, "DROP TRIGGER t")

	// The tools of SQLite leave the file ours.
	rawRun(t, path, "ANALYZE")
	require.Equal(t, "1", rawText(t, path, "SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_stat1'"))
	copied := testPath(t)
	rawRun(t, path, "VACUUM INTO '"+copied+"'", "VACUUM")
	for _, p := range []string{path, copied} {
		require.Len(t, readAll(t, openTest(t, p, nil), testKeys(5)), 4)
		require.Len(t, readAll(t, openTest(t, p, &Options{ReadOnly: true}), testKeys(5)), 4)
	}
}

func TestMissingFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no", "such", "vectors.db")
	_, err := Open(path, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "directory must exist")
	require.ErrorContains(t, err, path)

	path = testPath(t)
	for _, o := range []*Options{{ReadOnly: true}, {Immutable: true}} {
		_, err = Open(path, o)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NoFileExists(t, path)
	}
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = Open(path, &Options{ReadOnly: true})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "empty")
}

func TestReadOnly(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 3, 'a')))
	r := openTest(t, path, &Options{ReadOnly: true})
	require.Len(t, readAll(t, r, testKeys(5)), 3)
	require.ErrorIs(t, r.SetMany(ctxb, testItems(3, 1, 'a')), backend.ErrReadOnly)
	require.NoError(t, r.SetMany(ctxb, nil))
	require.ErrorIs(t, r.Txn(ctxb, func(tx backend.Txn) error { return tx.SetMany(ctxb, testItems(3, 1, 'a')) }), backend.ErrReadOnly)

	require.NoError(t, c.SetMany(ctxb, testItems(3, 1, 'b')))
	require.Len(t, readAll(t, r, testKeys(5)), 4, "a read-only handle sees what others write")

	_, err := Open(path, &Options{Immutable: true})
	require.ErrorContains(t, err, "-wal")
	require.ErrorIs(t, err, backend.ErrUnavailable)
}

// TestReadOnlyLeavesNothing: a second reader is opened beside the first, and neither
// stays open.
func TestReadOnlyLeavesNothing(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 3, 'a')))
	require.NoError(t, c.Close())
	before := openFiles(t)
	for range 3 {
		r, err := Open(path, &Options{ReadOnly: true, Readers: 2})
		require.NoError(t, err)
		require.NoError(t, r.GetMany(ctxb, testKeys(1), func(int, []byte) error {
			second := make(chan error)
			go func() { second <- r.GetMany(ctxb, testKeys(5), func(int, []byte) error { return nil }) }()
			return <-second
		}))
		require.NoError(t, r.Close())
	}
	require.LessOrEqual(t, openFiles(t), before)
}

func TestImmutable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd name%20?#.db")
	if runtime.GOOS == "windows" {
		path = filepath.Join(t.TempDir(), "odd name%20#.db")
	}
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 3, 'a')))
	require.NoError(t, c.Close())
	r := openTest(t, path, &Options{Immutable: true})
	require.Len(t, readAll(t, r, testKeys(5)), 3)
	require.ErrorIs(t, r.SetMany(ctxb, testItems(3, 1, 'a')), backend.ErrReadOnly)
	require.NoFileExists(t, path+"-shm")
}

func TestManyOpenANewFileAtOnce(t *testing.T) {
	for range 5 {
		path := testPath(t)
		const n = 12
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				<-start
				c, err := Open(path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if err := c.SetMany(ctxb, testItems(i, 1, 'a')); err != nil {
					t.Error(err)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		require.Len(t, readAll(t, openTest(t, path, nil), testKeys(n)), n)
		require.Equal(t, "16384", rawText(t, path, "PRAGMA page_size"))
		require.Equal(t, "2", rawText(t, path, "PRAGMA auto_vacuum"))
	}
}

func TestOpenWhileSomebodyWrites(t *testing.T) {
	path := testPath(t)
	require.NoError(t, openTest(t, path, nil).SetMany(ctxb, testItems(0, 1, 'a')))
	raw := rawConn(t, path)
	rawExec(t, raw, "BEGIN IMMEDIATE")
	defer func() { require.NoError(t, raw.Close()) }()
	c := openTest(t, path, &Options{BusyTimeout: time.Nanosecond})
	require.Len(t, readAll(t, c, testKeys(1)), 1, "reading and opening wait for no writer")
	rawExec(t, raw, "ROLLBACK")

	// A file that nobody can even look at.
	locked := testPath(t)
	other := rawConn(t, locked)
	defer func() { require.NoError(t, other.Close()) }()
	rawExec(t, other, "BEGIN EXCLUSIVE")
	_, err := Open(locked, &Options{BusyTimeout: 20 * time.Millisecond})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, locked)
}

func TestWorkingDirectoryMayChange(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c := openTest(t, "vectors.db", &Options{Readers: 2})
	t.Chdir(t.TempDir())
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	require.Len(t, readAll(t, c, testKeys(1)), 1)
	require.FileExists(t, filepath.Join(dir, "vectors.db"))
	t.Chdir(dir) // so that the temporary directory can be removed
}
