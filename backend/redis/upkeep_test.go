package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// walk visits everything.
func walk(t testing.TB, c *Cache, head int) map[backend.Key]backend.Entry {
	t.Helper()
	seen := make(map[backend.Key]backend.Entry)
	for at := backend.Position(""); ; {
		var err error
		at, err = c.Scan(context.Background(), at, head, func(e backend.Entry) error {
			e.Value = append([]byte{}, e.Value...)
			seen[e.Key] = e
			return nil
		})
		require.NoError(t, err)
		if at == "" {
			return seen
		}
	}
}

// What other programs have on the server is none of the cache's.
func TestScanBesideOthers(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := startServer(t)
	c := openOn(t, s.addr, Options{})
	require.NoError(t, c.SetMany(ctx, testItems(0, 700, 'a')))
	prefix := c.options.Prefix
	for _, key := range []string{prefix, prefix + "short", prefix + strings.Repeat("x", 33), strings.ToUpper(prefix) + strings.Repeat("x", 32)} {
		require.NoError(t, s.raw.Set(ctx, key, "other", 0).Err())
	}
	for i := range 3000 {
		require.NoError(t, s.raw.Set(ctx, "other"+string(rune('a'+i%26))+strings.Repeat("y", i), "", 0).Err())
		if i > 300 {
			break
		}
	}
	list := testKey(0)
	require.NoError(t, s.raw.Del(ctx, string(c.appendKey(nil, &list))).Err())
	require.NoError(t, s.raw.RPush(ctx, string(c.appendKey(nil, &list)), "a").Err())
	empty := testKey(1)
	require.NoError(t, s.raw.Set(ctx, string(c.appendKey(nil, &empty)), "", 0).Err())

	for _, head := range []int{0, 3, 5000, backend.WholeValue} {
		seen := walk(t, c, head)
		require.Len(t, seen, 700)
		require.Equal(t, -1, seen[list].Size)
		require.Equal(t, 0, seen[empty].Size)
		e := seen[testKey(2)]
		require.Equal(t, 9, e.Size)
		require.GreaterOrEqual(t, len(e.Value), min(head, 9))
	}
	removed, err := c.Delete(ctx, []backend.Key{list, list, testKey(9999)}, func(_ int, value []byte) bool { return value == nil })
	require.NoError(t, err)
	require.Equal(t, 1, removed)
}

// A position is of one run of a server.
func TestPositions(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := startServer(t, "--appendonly", "yes")
	c := openOn(t, s.addr, Options{})
	require.NoError(t, c.SetMany(ctx, testItems(0, 5000, 'a')))
	at, err := c.Scan(ctx, "", 1, func(backend.Entry) error { return nil })
	require.NoError(t, err)
	require.NotEmpty(t, at)

	other := openOn(t, s.addr, Options{})
	rest := 0
	for next := at; ; {
		next, err = other.Scan(ctx, next, 1, func(backend.Entry) error { rest++; return nil })
		require.NoError(t, err)
		if next == "" {
			break
		}
	}
	require.Positive(t, rest)
	for _, wrong := range []backend.Position{"x", "1", "0  ", "0   ", "1 2 3", "1 2 3 4", "1 2 3 4 5", at + " "} {
		next, err := c.Scan(ctx, wrong, 1, func(backend.Entry) error { t.Error("visited"); return nil })
		require.ErrorContains(t, err, "position", "%q", wrong)
		require.Equal(t, wrong, next)
	}
	s.kill()
	s.start(t, "redis-server")
	require.Eventually(t, func() bool { return c.GetMany(ctx, testKeys(1), none) == nil }, 10*time.Second, 5*time.Millisecond)
	next, err := c.Scan(ctx, at, 1, func(backend.Entry) error { return nil })
	require.ErrorContains(t, err, "begin at")
	require.Equal(t, at, next)
	require.Len(t, walk(t, c, 1), 5000)
}

// An entry that is written between match and its removal is asked about again.
func TestDeleteOfEntriesThatChange(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := sharedServer(t)
	c := openOn(t, s.addr, Options{})
	other := openOn(t, s.addr, Options{})
	require.NoError(t, c.SetMany(ctx, testItems(0, 20, 'a')))
	asked := 0
	times := make(map[int]int)
	removed, err := c.Delete(ctx, testKeys(20), func(i int, value []byte) bool {
		times[i]++
		if asked++; asked == 1 {
			require.NoError(t, other.SetMany(ctx, testItems(5, 3, 'b')))
		}
		return value[0] == 'a' && i != 19
	})
	require.NoError(t, err)
	require.Equal(t, 16, removed)
	for i := range 20 { // none is asked about again that hasn't changed
		require.Equal(t, 1+map[bool]int{true: 1}[5 <= i && i < 8], times[i], "index %d", i)
	}
	require.Len(t, readAll(t, c, testKeys(20)), 4)

	// One that changes all the time ends the call at last.
	n := byte(0)
	_, err = c.Delete(ctx, testKeys(6), func(int, []byte) bool {
		n++
		require.NoError(t, other.SetMany(ctx, testItems(5, 1, n)))
		return true
	})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Len(t, readAll(t, c, testKeys(6)), 1)
}

// A string that is longer than any value of the cache can't be read, but removed.
func TestStringThatIsTooLong(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := startServer(t)
	c := openOn(t, s.addr, Options{})
	require.NoError(t, c.SetMany(ctx, testItems(0, 10, 'a')))
	long := testKey(3)
	require.NoError(t, s.raw.SetRange(ctx, string(c.appendKey(nil, &long)), maxValueBytes, "x").Err())
	visited := 0
	require.NoError(t, c.GetMany(ctx, testKeys(10), func(i int, value []byte) error {
		visited++
		require.Equal(t, i == 3, value == nil)
		return nil
	}))
	require.Equal(t, 10, visited)
	removed, err := c.Delete(ctx, testKeys(10), func(_ int, value []byte) bool { return value == nil })
	require.NoError(t, err)
	require.Equal(t, 1, removed)
}

// Values of very different sizes in one chunk: what the chunk has no room for is
// asked for again.
func TestLargeValuesAmongSmallOnes(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	c := openOn(t, sharedServer(t).addr, Options{})
	items := testItems(0, 128, 'a')
	for i := range items {
		if i%10 == 0 {
			items[i].Value = append(items[i].Value, make([]byte, 900<<10)...)
		}
	}
	require.NoError(t, c.SetMany(ctx, items))
	for range 2 {
		values := readAll(t, c, testKeys(130))
		require.Len(t, values, 128)
		for i, value := range values {
			require.Equal(t, items[i].Value, value)
		}
	}
}
