package s3

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	written := objectName{version: version{0x18c2f00d00000001, 0xab}, seq: 7, tail: 0x120a0, count: 2048}
	require.Equal(t, "s/18c2f00d00000001-00000000000000ab-00000007.000120a0.00000800", written.String())
	output := objectName{compacted: true, unique: [16]byte{1, 15: 0xff}, tail: 64, count: 0}
	require.Equal(t, "c/010000000000000000000000000000ff.00000040.00000000", output.String())
	for _, n := range []objectName{written, output, {}, {compacted: true}} {
		got, ok := parseName(n.String())
		require.True(t, ok, n)
		require.Equal(t, n, got)
	}
	for _, wrong := range []string{
		"", "s/", "c/", "x/1", "s", "readme.txt", "s/a/b", written.String() + "0", written.String() + "/", strings.ToUpper(written.String()),
		" " + written.String(), output.String()[:30], "s/" + output.String()[2:], "c/" + written.String()[2:], strings.Replace(written.String(), "-", "+", 1),
		"s/-18c2f00d0000001-00000000000000ab-00000007.000120a0.00000800", "c/01000000000000000000000000000g.00000040.00000000",
	} {
		_, ok := parseName(wrong)
		require.False(t, ok, "%q", wrong)
	}
}

// TestNamesSortByAge: a listing from a name on has everything that is newer.
func TestNamesSortByAge(t *testing.T) {
	stamps := []uint64{0, 1, 0xff, 1 << 32, 1 << 60, 1<<63 - 1}
	for i := 1; i < len(stamps); i++ {
		require.Less(t, objectName{version: version{stamps[i-1], ^uint64(0)}}.String(), objectName{version: version{stamps[i], 0}}.String())
	}
}

func FuzzParseName(f *testing.F) {
	f.Add(objectName{version: version{1, 2}, seq: 3, tail: 4, count: 5}.String())
	f.Add(objectName{compacted: true, unique: [16]byte{9}, tail: 4, count: 5}.String())
	f.Add("s/+000000000000001-0000000000000002-00000003.00000004.00000005")
	f.Add("c/..")
	f.Fuzz(func(t *testing.T, s string) {
		if n, ok := parseName(s); ok && n.String() != s {
			t.Fatalf("%q is %q when it is written again", s, n)
		}
	})
}

func TestClock(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	c := clock{now: func() time.Time { return now }}
	first := c.next()
	require.EqualValues(t, now.UnixNano(), first)
	require.Equal(t, first+1, c.next(), "no time has passed")
	now = now.Add(-time.Hour)
	require.Equal(t, first+2, c.next(), "the clock was set back")
	c.saw(first + 1000)
	require.Equal(t, first+1001, c.next(), "newer than what was seen")
	c.saw(5)
	require.Equal(t, first+1002, c.next())
	now = now.Add(3 * time.Hour)
	require.EqualValues(t, now.UnixNano(), c.next())
}

// TestOldestName: a writer whose clock is far ahead must not push the window behind
// what others write now, and one whose clock is behind still sees the newest.
func TestOldestName(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := func(t time.Time) string {
		return objectName{version: version{uint64(t.UnixNano()), 0}}.String()
	}
	c := clock{now: func() time.Time { return now }}
	require.Equal(t, "s/0000000000000000", c.oldest(time.Hour), "nothing was seen")
	c.saw(uint64(now.Add(24 * time.Hour).UnixNano()))
	require.Less(t, c.oldest(time.Hour), at(now.Add(-time.Hour)))
	require.Greater(t, c.oldest(time.Hour), at(now.Add(-time.Hour-1)))
	behind := clock{now: func() time.Time { return now }}
	behind.saw(uint64(now.Add(-10 * time.Hour).UnixNano()))
	require.Less(t, behind.oldest(time.Hour), at(now.Add(-11*time.Hour)))
}

func TestVersions(t *testing.T) {
	ascending := []version{{0, 0}, {0, 1}, {1, 0}, {1, 5}, {2, 0}}
	for i, v := range ascending {
		for j, w := range ascending {
			require.Equal(t, i < j, v.less(w))
		}
	}
}
