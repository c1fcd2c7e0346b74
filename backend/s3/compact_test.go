package s3

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// atOnce lets replaced segments be deleted as soon as the server's clock allows.
func atOnce(s *store) *Options {
	o := testOptions(s.proxy)
	o.Grace = 1
	return o
}

func (s *store) object(t testing.TB, name string) []byte {
	t.Helper()
	var size int64
	_, err := s.raw().list(ctxb, name, "", func(o object) { size = o.bytes })
	require.NoError(t, err)
	body, err := s.raw().readRange(ctxb, name, 0, uint64(size))
	require.NoError(t, err)
	return body
}

func (s *store) tailOf(t testing.TB, name string) *tail {
	t.Helper()
	body := s.object(t, name)
	parsed, ok := parseName(name)
	require.True(t, ok)
	tail, err := parseTail(parsed, body, int64(len(body)))
	require.NoError(t, err)
	return tail
}

func TestCompact(t *testing.T) {
	s := newStore(t, bestServer(t))
	c := s.open(t, nil) // the grace is an hour
	old := s.open(t, &Options{Endpoint: s.URL, Credentials: testCredentials, Freshness: time.Hour})
	var items []backend.Item
	for i := range 30 {
		batch := testItems(i*10, 10, 50+i, 'a')
		require.NoError(t, c.SetMany(ctxb, batch))
		items = append(items, batch...)
	}
	again := testItems(100, 50, 80, 'b')
	require.NoError(t, c.SetMany(ctxb, again))
	copy(items[100:], again)
	_, err := c.Delete(ctxb, testKeys(20), nil)
	require.NoError(t, err)
	items = items[20:]
	written := s.names(t)
	require.Len(t, written, 32)

	require.NoError(t, c.Compact(ctxb))
	names := s.names(t)
	require.Equal(t, written, names[1:], "nothing is deleted before the grace is over")
	output := s.tailOf(t, names[0])
	require.ElementsMatch(t, written, output.replaced)
	require.EqualValues(t, 280, output.frames)
	require.Len(t, output.tombs, 20)
	require.Greater(t, len(output.runs), 20, "the stamps of the runs are kept")
	for _, r := range output.runs {
		require.Contains(t, strings.Join(written, " "), fmt.Sprintf("s/%016x-%016x-", r.version.stamp, r.version.writer))
	}
	check := func(c *Cache) {
		t.Helper()
		requireStored(t, c, items)
		require.Empty(t, readAll(t, c, testKeys(20)))
	}
	check(c)
	requireStored(t, old, nil)
	fresh := s.open(t, nil)
	check(fresh)
	require.EqualValues(t, 1, fresh.Counters().Segments, "what is replaced is not read")
	require.NoError(t, c.Compact(ctxb), "there is nothing left to do")
	require.Equal(t, names, s.names(t))

	late := s.open(t, atOnce(s))
	eventuallyCompact(t, s, late, 1)
	check(late)
	check(c)
	check(fresh)
	check(s.open(t, nil))
	// A key that was deleted can be written again, also when that is compacted.
	require.NoError(t, c.SetMany(ctxb, testItems(0, 5, 50, 'n')))
	require.NoError(t, late.Compact(ctxb))
	requireStored(t, s.open(t, nil), testItems(0, 5, 50, 'n'))
	check2 := readAll(t, s.open(t, nil), testKeys(20))
	require.Len(t, check2, 5)
}

// TestInvariants of the compaction, one by one, by what is in the bucket.
func TestInvariants(t *testing.T) {
	prepare := func(t *testing.T) (*store, *Cache, []backend.Item) {
		s := newStore(t, fakeServer(t))
		c := s.open(t, atOnce(s))
		items := testItems(0, 40, 100, 'a')
		for i := range 4 {
			require.NoError(t, c.SetMany(ctxb, items[i*10:i*10+10]))
		}
		return s, c, items
	}
	t.Run("2: shadowed only beside the newer copy", func(t *testing.T) {
		s, c, items := prepare(t)
		o := atOnce(s)
		o.CompactBytes = 4000 // about two segments in an output
		require.NoError(t, c.SetMany(ctxb, testItems(0, 10, 100, 'b')))
		require.NoError(t, s.open(t, o).Compact(ctxb))
		copies := 0
		for _, name := range s.names(t) {
			if tail := s.tailOf(t, name); strings.HasPrefix(name, "c/") {
				for i := range int(tail.frames) {
					if *tail.key(i) == testKey(0) {
						copies++
					}
				}
				require.LessOrEqual(t, len(s.object(t, name)), 6000)
			}
		}
		require.GreaterOrEqual(t, copies, 1)
		requireStored(t, s.open(t, nil), append(testItems(0, 10, 100, 'b'), items[10:]...))
	})
	t.Run("3: nothing is written for a damaged input", func(t *testing.T) {
		s, c, items := prepare(t)
		name := s.names(t)[1]
		body := s.object(t, name)
		body[50] ^= 1 // a value: no reader of frames would see it
		require.NoError(t, s.raw().put(ctxb, name, body))
		require.ErrorIs(t, c.Compact(ctxb), backend.ErrCorrupt)
		require.Len(t, s.names(t), 4)
		requireStored(t, c, items[:10])
	})
	t.Run("3: nothing is written when an input has gone", func(t *testing.T) {
		s, c, items := prepare(t)
		gone := s.names(t)[2]
		s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if isGet(r) && strings.HasSuffix(r.URL.Path, gone) {
				refuse(w, 404, "NoSuchKey")
				return
			}
			pass.ServeHTTP(w, r)
		})
		require.NoError(t, c.Compact(ctxb))
		s.set(nil)
		require.Len(t, s.names(t), 4)
		requireStored(t, c, items)
	})
	t.Run("4: only what is named is hidden", func(t *testing.T) {
		s, _, items := prepare(t)
		names := s.names(t)
		w := newSegmentWriter(items[:10])
		tail := s.tailOf(t, names[0])
		w.runs, w.replaced = tail.runs, names[:1]
		body, tailBytes := w.finish()
		require.NoError(t, s.raw().put(ctxb, objectName{compacted: true, unique: [16]byte{1}, tail: uint32(tailBytes)}.String(), body))
		// One that is cut names a segment too, and hides nothing.
		w = newSegmentWriter(nil)
		w.replaced = names[1:]
		body, tailBytes = w.finish()
		require.NoError(t, s.raw().put(ctxb, objectName{compacted: true, unique: [16]byte{2}, tail: uint32(tailBytes)}.String(), body[:len(body)-1]))
		c := s.open(t, nil)
		requireStored(t, c, items)
		require.EqualValues(t, 4, c.Counters().Segments)
	})
	t.Run("5: children first, and not before the grace", func(t *testing.T) {
		s, _, items := prepare(t)
		first := s.names(t)
		keep := testOptions(s.proxy)
		require.NoError(t, s.open(t, keep).Compact(ctxb)) // the first output; the grace is an hour
		require.NoError(t, s.open(t, keep).SetMany(ctxb, testItems(40, 1, 100, 'a')))
		require.NoError(t, s.open(t, keep).Compact(ctxb)) // the second output replaces the first
		require.Len(t, s.names(t), 7)
		var outputs []string
		for _, name := range s.names(t) {
			if strings.HasPrefix(name, "c/") {
				outputs = append(outputs, name)
			}
		}
		require.Len(t, outputs, 2)
		// The deletion of one child fails: then its parent stays too.
		var tried atomic.Int64
		s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if isDelete(r) {
				tried.Add(1)
				if strings.HasSuffix(r.URL.Path, first[3]) {
					refuse(w, 403, "AccessDenied")
					return
				}
			}
			pass.ServeHTTP(w, r)
		})
		c := s.open(t, atOnce(s))
		require.Eventually(t, func() bool {
			return errors.Is(c.Compact(ctxb), backend.ErrReadOnly)
		}, 20*time.Second, 100*time.Millisecond)
		for range 3 {
			require.ErrorIs(t, c.Compact(ctxb), backend.ErrReadOnly)
			require.Subset(t, s.names(t), append(outputs, first[3]))
		}
		s.set(nil)
		eventuallyCompact(t, s, c, 1)
		requireStored(t, s.open(t, nil), items)
		require.Positive(t, tried.Load())
	})
	t.Run("6: outputs keep the versions", func(t *testing.T) {
		s, c, _ := prepare(t)
		// Written before the compaction by a slow writer, and visible only after it.
		v := version{uint64(time.Now().Add(-time.Hour).UnixNano()), 5}
		w := newSegmentWriter(testItems(0, 10, 100, 'o'))
		w.runs = []run{{v, 10}}
		body, tailBytes := w.finish()
		require.NoError(t, c.Compact(ctxb))
		require.NoError(t, s.raw().put(ctxb, objectName{version: v, tail: uint32(tailBytes), count: 10}.String(), body))
		for range 2 {
			requireStored(t, s.open(t, nil), testItems(0, 10, 100, 'a'))
			require.NoError(t, c.Compact(ctxb))
		}
	})
}

// TestTombstonesEnd when they are old and no segment has what they delete, and not
// before.
func TestTombstonesEnd(t *testing.T) {
	s := newStore(t, fakeServer(t))
	c := s.open(t, atOnce(s))
	items := testItems(0, 10, 100, 'a')
	require.NoError(t, c.SetMany(ctxb, items))
	require.NoError(t, c.SetMany(ctxb, testItems(10, 10, 100, 'a')))
	_, err := c.Delete(ctxb, testKeys(5), nil)
	require.NoError(t, err)
	eventuallyCompact(t, s, c, 1)
	require.Len(t, s.tailOf(t, s.names(t)[0]).tombs, 5)
	require.NotZero(t, s.tailOf(t, s.names(t)[0]).tombs[0].created, "by the server's clock")
	// A late output of a compactor that knew nothing of it.
	w := newSegmentWriter(items)
	w.runs = []run{{version{uint64(time.Now().Add(-time.Minute).UnixNano()), 77}, 10}}
	body, tailBytes := w.finish()
	late := objectName{compacted: true, unique: [16]byte{9}, tail: uint32(tailBytes)}
	require.NoError(t, s.raw().put(ctxb, late.String(), body))
	require.Len(t, readAll(t, s.open(t, nil), testKeys(20)), 15)

	c.retention = -time.Hour // as if they were old
	require.NoError(t, c.SetMany(ctxb, testItems(30, 1, 100, 'a')))
	eventuallyCompact(t, s, c, 1)
	require.Empty(t, s.tailOf(t, s.names(t)[0]).tombs)
	require.Len(t, readAll(t, s.open(t, nil), testKeys(20)), 15)
}

// TestMostlyOverwritten: large segments are joined with those that overwrote them.
func TestMostlyOverwritten(t *testing.T) {
	s := newStore(t, fakeServer(t))
	o := atOnce(s)
	o.CompactBytes = 120_000
	c := s.open(t, o)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 100, 1000, 'a'))) // 104 KB, which is not small
	require.NoError(t, c.SetMany(ctxb, testItems(0, 100, 1000, 'b')))
	eventuallyCompact(t, s, c, 1)
	require.Less(t, len(s.object(t, s.names(t)[0])), 120_000)
	requireStored(t, s.open(t, nil), testItems(0, 100, 1000, 'b'))
	// And those of which much was deleted, alone.
	_, err := c.Delete(ctxb, testKeys(100)[:50], nil)
	require.NoError(t, err)
	require.NoError(t, c.Compact(ctxb))
	stats, err := s.open(t, nil).Stats(ctxb)
	require.NoError(t, err)
	require.EqualValues(t, 50, stats.Entries)
}

// TestCompactEndsWithItsContext at any request, and what it leaves is whole.
func TestCompactEndsWithItsContext(t *testing.T) {
	items := testItems(0, 100, 100, 'a')
	for n := int64(1); ; n++ {
		s := newStore(t, fakeServer(t))
		c := s.open(t, atOnce(s))
		for i := range 5 {
			require.NoError(t, c.SetMany(ctxb, items[i*20:i*20+20]))
		}
		ctx, cancel := context.WithCancel(ctxb)
		var met atomic.Int64
		s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if met.Add(1) == n {
				cancel()
			}
			pass.ServeHTTP(w, r)
		})
		err := c.Compact(ctx)
		s.set(nil)
		cancel()
		requireStored(t, s.open(t, nil), items)
		requireStored(t, c, items)
		if met.Load() < n {
			require.NoError(t, err)
			return
		}
	}
}

// The child compacts until it is killed.
const childVariable = "EMBEDONCE_S3_TEST_CHILD"

func compactForEver(arguments string) {
	endpoint, location, _ := strings.Cut(arguments, " ")
	c, err := Open(location, &Options{Endpoint: endpoint, Credentials: testCredentials, Freshness: 1, Grace: 1})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for {
		if err := c.Compact(context.Background()); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
}

// TestKilledCompactor: SIGKILL at random moments, beside a writer.
func TestKilledCompactor(t *testing.T) {
	s := newStore(t, bestServer(t))
	seed := rand.Uint64()
	t.Logf("on %s, seed %d", s.name, seed)
	random := rand.New(rand.NewPCG(seed, 1))
	c := s.open(t, nil)
	truth := make(map[backend.Key][]byte)
	kills := 12
	end := time.Now().Add(soakTime() / 4)
	for k := 0; k < kills || time.Now().Before(end); k++ {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childVariable+"="+s.URL+" s3://"+testBucket+"/"+s.prefix)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		require.Equal(t, "ready", lines.Text())
		until := time.Now().Add(time.Duration(random.IntN(150)) * time.Millisecond)
		for n := 0; n < 3 || time.Now().Before(until); n++ {
			items := testItems(random.IntN(500), 1+random.IntN(30), 40, byte(random.Uint32()))
			require.NoError(t, c.SetMany(ctxb, items))
			for _, item := range items {
				truth[item.Key] = item.Value
			}
			if random.IntN(4) == 0 {
				key := testKey(random.IntN(500))
				_, err := c.Delete(ctxb, []backend.Key{key}, nil)
				require.NoError(t, err)
				delete(truth, key)
			}
		}
		_ = cmd.Process.Kill()
		rest, _ := io.ReadAll(out)
		_ = cmd.Wait()
		require.Empty(t, string(rest))
		kills = max(kills, k+1)
	}
	for _, c := range []*Cache{c, s.open(t, nil)} {
		got := readAll(t, c, testKeys(600))
		require.Len(t, got, len(truth))
		for i, value := range got {
			require.True(t, bytes.Equal(truth[testKey(i)], value), "key %d", i)
		}
	}
	t.Logf("%d kills, %d keys, 0 lost", kills, len(truth))
}
