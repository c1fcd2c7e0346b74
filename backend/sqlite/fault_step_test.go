package sqlite

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	driver "zombiezen.com/go/sqlite"

	"github.com/embedonce/embedonce/backend"
)

// steps lets a call of SQLite fail, and others after it, as a disk does that can't be
// read. It is used by one goroutine at a time.
type steps struct {
	armed   bool
	passing int // calls that go well first
	failing int // calls that fail then; -1 is all
	hits    int
}

func (s *steps) fault() error {
	if !s.armed {
		return nil
	}
	if s.passing > 0 {
		s.passing--
		return nil
	}
	if s.failing == 0 {
		return nil
	}
	s.failing--
	s.hits++
	return fmt.Errorf("injected: %w", driver.ResultIOErr.ToError())
}

// storeWithFaults has a cache with ten entries, many free pages for Compact to give back,
// and what its calls of SQLite are to return.
func storeWithFaults(t *testing.T) (string, *Cache, *steps, map[int][]byte) {
	s := &steps{}
	path := testPath(t)
	c := openTest(t, path, &Options{fault: s.fault, PageSize: 512})
	require.NoError(t, c.SetMany(ctxb, wideItems(100, 50)))
	require.NoError(t, c.SetMany(ctxb, testItems(0, 10, 'a')))
	_, err := c.Delete(ctxb, testKeys(150)[100:], nil)
	require.NoError(t, err)
	return path, c, s, readAll(t, c, testKeys(20))
}

// TestEachCallOfSQLiteFails lets every one of the calls of SQLite that an operation makes
// fail in its turn, once or for good: the operation says so and has no effect, and with
// the disk the cache is well again.
func TestEachCallOfSQLiteFails(t *testing.T) {
	after := func(items []backend.Item) func(map[int][]byte) {
		return func(stored map[int][]byte) {
			for i, item := range items {
				stored[5+i] = item.Value
			}
		}
	}
	batch := testItems(5, 10, 'b')
	for _, op := range []struct {
		name  string
		do    func(c *Cache) error
		after func(stored map[int][]byte) // of testKeys(20); nil where nothing changes
	}{
		{"SetMany", func(c *Cache) error { return c.SetMany(ctxb, batch) }, after(batch)},
		{"Txn", func(c *Cache) error {
			return c.Txn(ctxb, func(tx backend.Txn) error {
				if err := tx.GetMany(ctxb, testKeys(20), func(int, []byte) error { return nil }); err != nil {
					return err
				}
				return tx.SetMany(ctxb, batch)
			})
		}, after(batch)},
		{"GetMany", func(c *Cache) error {
			found := 0
			err := c.GetMany(ctxb, testKeys(20), func(int, []byte) error { found++; return nil })
			if err == nil && found != 10 {
				return fmt.Errorf("%d entries were found without an error, stored are 10", found)
			}
			return err
		}, nil},
		{"Delete", func(c *Cache) error {
			n, err := c.Delete(ctxb, testKeys(20)[3:], nil)
			if err == nil && n != 7 {
				return fmt.Errorf("%d were removed without an error, stored were 7", n)
			}
			return err
		}, func(stored map[int][]byte) {
			for i := 3; i < 10; i++ {
				delete(stored, i)
			}
		}},
		{"Delete of what matches", func(c *Cache) error {
			n, err := c.Delete(ctxb, testKeys(20), func(i int, _ []byte) bool { return i%2 == 0 })
			if err == nil && n != 5 {
				return fmt.Errorf("%d were removed without an error, 5 match", n)
			}
			return err
		}, func(stored map[int][]byte) {
			for i := 0; i < 10; i += 2 {
				delete(stored, i)
			}
		}},
		{"Scan", func(c *Cache) error {
			found := 0
			_, err := c.Scan(ctxb, "", 100, func(backend.Entry) error { found++; return nil })
			if err == nil && found != 10 {
				return fmt.Errorf("%d entries were found without an error, stored are 10", found)
			}
			return err
		}, nil},
		{"Stats", func(c *Cache) error {
			stats, err := c.Stats(ctxb)
			if err != nil && stats != (backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}) {
				return fmt.Errorf("%+v beside an error", stats)
			}
			if err == nil && (stats.Entries != 10 || stats.Bytes <= 0 || stats.FreeBytes <= 0 || stats.FreeBytes >= stats.Bytes) {
				return fmt.Errorf("%+v without an error", stats)
			}
			return err
		}, nil},
		{"Compact", func(c *Cache) error { return c.Compact(ctxb) }, nil},
	} {
		for _, failing := range []int{1, -1} {
			t.Run(fmt.Sprintf("%s/%d", op.name, failing), func(t *testing.T) {
				for passing := 0; ; passing++ {
					require.Less(t, passing, 100, "no end")
					path, c, s, before := storeWithFaults(t)
					changed := maps.Clone(before)
					if op.after != nil {
						op.after(changed)
					}
					*s = steps{armed: true, passing: passing, failing: failing}
					err := op.do(c)
					s.armed = false
					if s.hits == 0 {
						require.NoError(t, err)
						require.Equal(t, changed, readAll(t, c, testKeys(20)))
						return
					}
					where := fmt.Sprintf("call %d fails: %v", passing, err)
					require.ErrorIs(t, err, backend.ErrUnavailable, where)
					require.ErrorContains(t, err, path)
					require.Equal(t, before, readAll(t, c, testKeys(20)), where)
					require.NoError(t, op.do(c), where)
					require.Equal(t, changed, readAll(t, openTest(t, path, nil), testKeys(20)), where)
				}
			})
		}
	}
}

// TestEachCallOfSQLiteFailsInOpen: the error comes out, no connection stays behind, and
// the file is as good as before.
func TestEachCallOfSQLiteFailsInOpen(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		for _, readOnly := range []bool{false, true} {
			if fresh && readOnly {
				continue
			}
			for passing := 0; ; passing++ {
				require.Less(t, passing, 100, "no end")
				path := testPath(t)
				if !fresh {
					c, err := Open(path, nil)
					require.NoError(t, err)
					require.NoError(t, c.SetMany(ctxb, testItems(0, 3, 'a')))
					require.NoError(t, c.Close())
				}
				files := openFiles(t)
				s := &steps{armed: true, passing: passing, failing: 1}
				c, err := Open(path, &Options{fault: s.fault, ReadOnly: readOnly})
				if s.hits == 0 {
					require.NoError(t, err)
					require.NoError(t, c.Close())
					break
				}
				require.ErrorIs(t, err, backend.ErrUnavailable, "call %d", passing)
				require.Nil(t, c)
				require.Equal(t, files, openFiles(t), "call %d", passing)
				again := openTest(t, path, nil)
				if !fresh {
					require.Len(t, readAll(t, again, testKeys(3)), 3)
				}
				require.NoError(t, again.SetMany(ctxb, testItems(0, 3, 'b')))
			}
		}
	}
}

// openFiles counts what the process has open, where the system can tell.
func openFiles(t *testing.T) int {
	if runtime.GOOS != "linux" {
		return 0
	}
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}
