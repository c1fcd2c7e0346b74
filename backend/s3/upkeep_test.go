package s3

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

func TestScanPosition(t *testing.T) {
	for _, p := range []scanPlace{{}, {version: version{1, 2}}, {version: version{1, 2}, key: testKey(7), inside: true}} {
		got, err := parsePosition(p.position())
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	c := newStore(t, fakeServer(t)).open(t, nil)
	for _, wrong := range []backend.Position{"x", "00", "0000000000000000000000000000000g"} {
		_, err := c.Scan(ctxb, wrong, 0, func(backend.Entry) error { return nil })
		require.ErrorContains(t, err, "position")
	}
}

func FuzzParsePosition(f *testing.F) {
	f.Add(string(scanPlace{version: version{1, 2}}.position()))
	f.Add(string(scanPlace{version: version{1, 2}, key: testKey(7), inside: true}.position()))
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePosition(backend.Position(s))
		if err != nil {
			return
		}
		if again, err := parsePosition(p.position()); err != nil || again != p {
			t.Fatalf("%q is %+v, and then %+v, %v", s, p, again, err)
		}
	})
}

// scanAll returns the sizes of all entries.
func scanAll(t testing.TB, c *Cache, head int) map[backend.Key]int {
	t.Helper()
	sizes := make(map[backend.Key]int)
	for at := backend.Position(""); ; {
		next, err := c.Scan(ctxb, at, head, func(e backend.Entry) error {
			require.GreaterOrEqual(t, len(e.Value), min(head, max(e.Size, 0)))
			sizes[e.Key] = e.Size
			return nil
		})
		require.NoError(t, err)
		if at = next; at == "" {
			return sizes
		}
	}
}

// TestScanWhileCompacted: the walk goes on where it was, wherever the records are.
func TestScanWhileCompacted(t *testing.T) {
	s := newStore(t, fakeServer(t))
	o := testOptions(s.proxy)
	o.Grace = 1
	c := s.open(t, o)
	items := testItems(0, 3000, 20, 'a')
	require.NoError(t, c.SetMany(ctxb, items[:1500]))
	for at := 1500; at < 3000; at += 50 {
		require.NoError(t, c.SetMany(ctxb, items[at:at+50]))
	}
	scanner := s.open(t, nil)
	seen := make(map[backend.Key]int)
	rounds := 0
	for at := backend.Position(""); ; rounds++ {
		next, err := scanner.Scan(ctxb, at, 3, func(e backend.Entry) error {
			seen[e.Key]++
			require.Equal(t, 20, e.Size)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, c.Compact(ctxb))
		require.NoError(t, c.SetMany(ctxb, testItems(rounds*300, 10, 20, 'b'))) // some are overwritten
		if at = next; at == "" {
			break
		}
	}
	require.Greater(t, rounds, 1)
	require.Len(t, seen, 3000)
}

func TestStatsCountsWhatIsThere(t *testing.T) {
	s := newStore(t, fakeServer(t))
	o := testOptions(s.proxy)
	o.Grace = 1
	c := s.open(t, o)
	stats, err := c.Stats(ctxb)
	require.NoError(t, err)
	require.Zero(t, stats)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 100, 1000, 'a')))
	require.NoError(t, c.SetMany(ctxb, testItems(50, 100, 1000, 'b')))
	stats, err = c.Stats(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, 150, stats.Entries)
	require.Greater(t, stats.Bytes, int64(200_000))
	require.InDelta(t, 50*1036, stats.FreeBytes, 1)
	_, err = c.Delete(ctxb, testKeys(30), nil)
	require.NoError(t, err)
	stats, err = s.open(t, nil).Stats(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, 120, stats.Entries)
	require.InDelta(t, 80*1036, stats.FreeBytes, 1)
	eventuallyCompact(t, s, c, 1)
	stats, err = c.Stats(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, 120, stats.Entries)
	require.Zero(t, stats.FreeBytes)
}
