package bolt

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

func TestOptionsListEveryProblem(t *testing.T) {
	_, err := Open(":memory:", &Options{
		LockTimeout: -1, StallTimeout: -1, Readers: -1, PageSize: 1000, MaxBytes: 5, MapBytes: -1,
	})
	require.Error(t, err)
	for _, part := range []string{"backend/memory", "LockTimeout", "StallTimeout", "Readers is -1", "PageSize is 1000", "MaxBytes is 5", "MapBytes is -1"} {
		require.ErrorContains(t, err, part)
	}
	for _, path := range []string{"", "file:x.db?mode=ro", "a\x00b"} {
		_, err := Open(path, nil)
		require.ErrorContains(t, err, "path")
	}
	for _, size := range []int{2048, 131072, 12 << 10} {
		_, err := Open("x.db", &Options{PageSize: size})
		require.ErrorContains(t, err, "PageSize")
	}
	require.NoFileExists(t, "x.db")
}

func TestNewFile(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	}
	left, err := filepath.Glob(path + "?*")
	require.NoError(t, err)
	require.Empty(t, left, "nothing beside it")
	require.Equal(t, 4096, c.openedStore().db.Info().PageSize)
	require.NoError(t, c.Close())

	require.Equal(t, 65536, openTest(t, testPath(t), &Options{PageSize: 65536}).openedStore().db.Info().PageSize)
	require.Equal(t, 4096, openTest(t, path, &Options{PageSize: 65536}).openedStore().db.Info().PageSize, "a file keeps its own")
}

func TestEmptyFileBecomesOurs(t *testing.T) {
	path := testPath(t)
	require.NoError(t, os.WriteFile(path, nil, 0o640))
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o640), info.Mode().Perm(), "the mode of a file that exists is its owner's affair")
	}
	// A database without buckets.
	path = testPath(t)
	rawDB(t, path, func(*bbolt.DB) {})
	_, err := Open(path, &Options{ReadOnly: true})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	c = openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))

	// A link that leads nowhere yet.
	target := testPath(t)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(target, link); err == nil {
		c = openTest(t, link, nil)
		require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
		require.FileExists(t, target)
	} else if runtime.GOOS != "windows" { // they need a privilege there
		t.Error(err)
	}
}

// ours makes a file with entries.
func ours(t *testing.T) string {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, wideItems(0, 20)))
	require.NoError(t, c.SetMany(ctxb, wideItems(0, 20))) // so that pages are free
	require.NoError(t, c.Close())
	return path
}

// overwrite puts data at an offset of the file.
func overwrite(t testing.TB, path string, at int64, data []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(data, at)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

// headerOf returns what the header of the file says.
func headerOf(t testing.TB, path string) header {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	h, err := checkFile(file)
	require.NoError(t, err)
	return h
}

func TestFilesThatAreNotOursAreRefused(t *testing.T) {
	garbage := []byte(strings.Repeat("\xa5", 100))
	cases := map[string]struct {
		make func(t *testing.T) string
		says string
	}{
		"text": {func(t *testing.T) string {
			path := testPath(t)
			require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("no database. ", 3000)), 0o600))
			return path
		}, "invalid database"},
		"short": {func(t *testing.T) string {
			path := testPath(t)
			require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
			return path
		}, "invalid database"},
		"directory": {func(t *testing.T) string { return t.TempDir() }, "is a directory"},
		"another program": {func(t *testing.T) string {
			path := testPath(t)
			rawUpdate(t, path, func(tx *bbolt.Tx) error {
				_, err := tx.CreateBucket(entriesBucket)
				return err
			})
			return path
		}, "bbolt database of another program"},
		"newer layout": {func(t *testing.T) string {
			path := ours(t)
			rawUpdate(t, path, func(tx *bbolt.Tx) error { return tx.Bucket(markBucket).Put(layoutKey, []byte("2")) })
			return path
		}, `layout version "2", this program reads version "1"`},
		"no layout": {func(t *testing.T) string {
			path := ours(t)
			rawUpdate(t, path, func(tx *bbolt.Tx) error { return tx.Bucket(markBucket).Delete(layoutKey) })
			return path
		}, "no layout version"},
		"layout is a bucket": {func(t *testing.T) string {
			path := ours(t)
			rawUpdate(t, path, func(tx *bbolt.Tx) error {
				require.NoError(t, tx.Bucket(markBucket).Delete(layoutKey))
				_, err := tx.Bucket(markBucket).CreateBucket(layoutKey)
				return err
			})
			return path
		}, "no layout version"},
		"no entries": {func(t *testing.T) string {
			path := ours(t)
			rawUpdate(t, path, func(tx *bbolt.Tx) error { return tx.DeleteBucket(entriesBucket) })
			return path
		}, `bucket "entries" is missing`},
		"truncated": {func(t *testing.T) string {
			path := ours(t)
			h := headerOf(t, path)
			require.NoError(t, os.Truncate(path, h.bytes()-1))
			return path
		}, "truncated"},
		"truncated to its header": {func(t *testing.T) string {
			path := ours(t)
			require.NoError(t, os.Truncate(path, 8192))
			return path
		}, "truncated"},
		"both meta pages damaged": {func(t *testing.T) string {
			path := ours(t)
			overwrite(t, path, 16, garbage)
			overwrite(t, path, 4096+16, garbage)
			return path
		}, "invalid database"},
		"free list damaged": {func(t *testing.T) string {
			path := ours(t)
			overwrite(t, path, int64(headerOf(t, path).freelist)*4096+pageBytes, garbage[:8])
			return path
		}, "list of free pages is damaged"},
		"free list is another page": {func(t *testing.T) string {
			path := ours(t)
			overwrite(t, path, int64(headerOf(t, path).freelist)*4096+8, []byte{2})
			return path
		}, "list of free pages is damaged"},
		"no free list": {func(t *testing.T) string {
			path := ours(t)
			db, err := bbolt.Open(path, 0, &bbolt.Options{NoFreelistSync: true})
			require.NoError(t, err)
			require.NoError(t, db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(markBucket).Put([]byte("x"), []byte("y")) }))
			require.NoError(t, db.Close())
			return path
		}, "NoFreelistSync"},
		"root damaged": {func(t *testing.T) string {
			path := ours(t)
			overwrite(t, path, int64(headerOf(t, path).root)*4096, garbage)
			return path
		}, "page is damaged"},
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
			// No lock is left behind.
			if info, err := os.Stat(path); err == nil && !info.IsDir() {
				file, err := os.OpenFile(path, os.O_RDWR, 0)
				require.NoError(t, err)
				require.NoError(t, file.Truncate(0))
				require.NoError(t, file.Close())
				openTest(t, path, &Options{LockTimeout: time.Nanosecond})
			}
		})
	}
}

// A crash in the middle of writing a meta page leaves the other one.
func TestOneMetaPageIsEnough(t *testing.T) {
	for page := range int64(2) {
		path := testPath(t)
		c := openTest(t, path, &Options{PageSize: 16 << 10})
		require.NoError(t, c.SetMany(ctxb, testItems(0, 20, 'a')))
		require.NoError(t, c.SetMany(ctxb, testItems(0, 20, 'a')))
		require.NoError(t, c.Close())
		overwrite(t, path, page*(16<<10)+20, []byte("damage"))
		c = openTest(t, path, nil)
		require.Len(t, readAll(t, c, testKeys(30)), 20)
		require.NoError(t, c.SetMany(ctxb, testItems(20, 10, 'b')))
		require.NoError(t, c.Close())
		checkWhole(t, path)
	}
}

func TestPathsThatCanNotBeOpened(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "no", "vectors.db"), nil)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "directory must exist")
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Open(filepath.Join(file, "vectors.db"), nil)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	_, err = Open(filepath.Join(dir, "none.db"), &Options{ReadOnly: true})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Open(file, &Options{ReadOnly: true})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "is empty")
}

func TestReadOnly(t *testing.T) {
	path := ours(t)
	r, other := openTest(t, path, &Options{ReadOnly: true}), openTest(t, path, &Options{ReadOnly: true})
	require.Len(t, readAll(t, r, testKeys(30)), 20)
	require.Len(t, readAll(t, other, testKeys(30)), 20)
	require.ErrorIs(t, r.SetMany(ctxb, testItems(3, 1, 'a')), backend.ErrReadOnly)
	require.NoError(t, r.SetMany(ctxb, nil))
	require.ErrorIs(t, r.Txn(ctxb, func(tx backend.Txn) error { return tx.SetMany(ctxb, testItems(3, 1, 'a')) }), backend.ErrReadOnly)
	_, err := r.Delete(ctxb, testKeys(1), nil)
	require.ErrorIs(t, err, backend.ErrReadOnly)
	s, err := r.Stats(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, 20, s.Entries)
	require.Positive(t, s.FreeBytes)

	_, err = Open(path, &Options{LockTimeout: time.Nanosecond})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.NoError(t, r.Close())
	require.NoError(t, other.Close())
	c := openTest(t, path, nil)
	w, err := c.Stats(ctxb)
	require.NoError(t, err)
	require.Equal(t, w, s)
}

func TestSecondHandleIsRefused(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	for _, o := range []*Options{{LockTimeout: time.Nanosecond}, {LockTimeout: 60 * time.Millisecond, ReadOnly: true}} {
		_, err := Open(path, o)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "has it open")
	}
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	require.NoError(t, c.Close())
	require.Len(t, readAll(t, openTest(t, path, nil), testKeys(2)), 1)
}

func TestManyOpenANewFileAtOnce(t *testing.T) {
	for range 5 {
		path := testPath(t)
		const n = 8
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				<-start
				c, err := Open(path, &Options{LockTimeout: time.Minute})
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
	}
}

func TestWorkingDirectoryMayChange(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c := openTest(t, "vectors.db", nil)
	t.Chdir(t.TempDir())
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	require.Len(t, readAll(t, c, testKeys(1)), 1)
	require.FileExists(t, filepath.Join(dir, "vectors.db"))
	t.Chdir(dir) // so that the temporary directory can be removed
}
