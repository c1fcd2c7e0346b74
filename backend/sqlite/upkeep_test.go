package sqlite

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// scanAll returns the sizes of all entries, and how many calls of Scan it took.
func scanAll(t testing.TB, c *Cache, head int) (sizes map[backend.Key]int, calls int) {
	t.Helper()
	sizes = make(map[backend.Key]int)
	for at := backend.Position(""); ; {
		calls++
		next, err := c.Scan(ctxb, at, head, func(e backend.Entry) error {
			require.Len(t, e.Value, min(max(head, 0), max(e.Size, 0)))
			require.NotContains(t, sizes, e.Key)
			sizes[e.Key] = e.Size
			return nil
		})
		require.NoError(t, err)
		if next == "" {
			return sizes, calls
		}
		at = next
	}
}

func TestScanGoesThroughPages(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	_, calls := scanAll(t, c, 0)
	require.Equal(t, 1, calls)
	for _, n := range []int{scanRows - 1, scanRows, 2*scanRows + 1} {
		require.NoError(t, c.SetMany(ctxb, testItems(0, n, 'a')))
		for _, head := range []int{-1, 0, 3, backend.WholeValue} {
			sizes, calls := scanAll(t, c, head)
			require.Len(t, sizes, n)
			require.Equal(t, n/scanRows+1, calls)
		}
	}
}

// TestScanOfForeignRows: a row whose key is no key is none of ours; a value that is
// no BLOB is visited, without bytes.
func TestScanOfForeignRows(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	rawRun(t, path, "INSERT INTO entries(key, value) VALUES('a text', zeroblob(3)), (7, zeroblob(3)), (zeroblob(31), zeroblob(3)), (zeroblob(32), 'text'), (x'"+
		"01"+"00000000000000000000000000000000000000000000000000000000000000', zeroblob(0))")
	sizes, _ := scanAll(t, c, 10)
	require.Equal(t, map[backend.Key]int{{}: -1, {1}: 0}, sizes)
	stats, err := c.Stats(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, 2, stats.Entries)
}

func TestScanRefusesAForeignPosition(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	for _, from := range []backend.Position{"x", "-1", "0", "1 ", "99999999999999999999"} {
		next, err := c.Scan(ctxb, from, 0, func(backend.Entry) error { return nil })
		require.ErrorContains(t, err, "position")
		require.Equal(t, from, next)
	}
}

func TestDeleteInSeveralTransactions(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	n := 2*deleteRows + 3
	require.NoError(t, c.SetMany(ctxb, testItems(0, n, 'a')))
	keys := testKeys(n)
	removed, err := c.Delete(ctxb, append(keys, keys[0]), func(i int, value []byte) bool { return i%2 == 0 })
	require.NoError(t, err)
	require.Equal(t, (n+1)/2, removed)
	sizes, _ := scanAll(t, c, 0)
	require.Len(t, sizes, n/2)
	for i, k := range keys {
		require.Equal(t, i%2 == 1, contains(sizes, k))
	}

	// What was removed before the context ended is gone, and counted.
	ctx, cancel := context.WithCancel(ctxb)
	removed, err = c.Delete(ctx, keys, func(i int, _ []byte) bool {
		if i > deleteRows {
			cancel()
		}
		return true
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, deleteRows/2, removed)
	sizes, _ = scanAll(t, c, 0)
	require.Len(t, sizes, n/2-removed)
}

func contains(m map[backend.Key]int, k backend.Key) bool { _, ok := m[k]; return ok }

// TestPanicInMatch: the transaction ends with it, and the writer is usable.
func TestPanicInMatch(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 5, 'a')))
	require.PanicsWithValue(t, "oops", func() {
		_, _ = c.Delete(ctxb, testKeys(5), func(i int, _ []byte) bool {
			if i == 3 {
				panic("oops")
			}
			return true
		})
	})
	sizes, _ := scanAll(t, c, 0)
	require.Len(t, sizes, 5)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 6, 'b')))
}

func TestUpkeepOfAReadOnlyFile(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 5, 'a')))
	r := openTest(t, path, &Options{ReadOnly: true})
	_, err := r.Delete(ctxb, testKeys(1), nil)
	require.ErrorIs(t, err, backend.ErrReadOnly)
	require.ErrorIs(t, r.Compact(ctxb), backend.ErrReadOnly)
	stats, err := r.Stats(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, 5, stats.Entries)
}

// TestCompactGivesSpaceBack: also while somebody reads; the file itself is cut when
// that reader has ended.
func TestCompactGivesSpaceBack(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, nil)
	c.log.wait = 0
	const n = 3000
	items := testItems(0, n, 'a')
	for i := range items {
		items[i].Value = make([]byte, 6000)
	}
	require.NoError(t, c.SetMany(ctxb, items))
	keys := testKeys(n)
	_, err := c.Delete(ctxb, keys[:n*9/10], nil)
	require.NoError(t, err)
	full, err := c.Stats(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, n/10, full.Entries)
	require.Greater(t, full.FreeBytes, int64(n*6000*8/10))

	require.NoError(t, c.GetMany(ctxb, keys[n-1:], func(int, []byte) error { return c.Compact(ctxb) }), "a reader is in no way")
	require.NoError(t, c.Compact(ctxb))
	after, err := c.Stats(ctxb)
	require.NoError(t, err)
	require.Zero(t, after.FreeBytes)
	require.EqualValues(t, n/10, after.Entries)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), full.Bytes/5)
	require.NoError(t, c.Compact(ctxb), "nothing to do")
	sizes, _ := scanAll(t, c, 0)
	require.Len(t, sizes, n/10)
}

func TestUpkeepErrors(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 5, 'a')))
	boom := errors.New("boom")
	next, err := c.Scan(ctxb, "", 0, func(backend.Entry) error { return boom })
	require.ErrorIs(t, err, boom)
	require.Empty(t, next)

	ctx, cancel := context.WithCancel(ctxb)
	cancel()
	_, err = c.Scan(ctx, "", 0, func(backend.Entry) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
	stats, err := c.Stats(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}, stats)
	require.ErrorIs(t, c.Compact(ctx), context.Canceled)

	require.NoError(t, c.Close())
	_, err = c.Scan(ctxb, "", 0, func(backend.Entry) error { return nil })
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = c.Delete(ctxb, nil, nil)
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = c.Stats(ctxb)
	require.ErrorIs(t, err, backend.ErrClosed)
	require.ErrorIs(t, c.Compact(ctxb), backend.ErrClosed)
}

// TestCountEndsWithItsContext: and the reader counts again afterwards.
func TestCountEndsWithItsContext(t *testing.T) {
	c := openTest(t, testPath(t), nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 5000, 'a')))
	r, err := c.beginRead(ctxb)
	require.NoError(t, err)
	defer func() {
		require.NoError(t, r.end())
		c.putReader(r, true)
	}()
	ctx, cancel := context.WithCancel(ctxb)
	cancel()
	_, err = r.count(ctx)
	require.Error(t, err)
	n, err := r.count(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, 5000, n)
}
