package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// readAll returns what is stored under keys, by index.
func readAll(t testing.TB, c *Cache, keys []backend.Key) map[int][]byte {
	t.Helper()
	got := make(map[int][]byte)
	require.NoError(t, c.GetMany(ctxb, keys, func(i int, value []byte) error {
		require.NotContains(t, got, i)
		got[i] = bytes.Clone(value)
		return nil
	}))
	return got
}

func requireStored(t testing.TB, c *Cache, items []backend.Item) {
	t.Helper()
	keys := make([]backend.Key, len(items))
	for i := range items {
		keys[i] = items[i].Key
	}
	got := readAll(t, c, keys)
	require.Len(t, got, len(items))
	for i := range items {
		require.True(t, bytes.Equal(items[i].Value, got[i]), "item %d", i)
	}
}

func TestOpenRefusesBadArguments(t *testing.T) {
	_, err := Open("vectors", &Options{Freshness: -1, Timeout: -1, Grace: -1, ParallelGets: -1, GapBytes: -2, WriteLanes: 65, MultipartBytes: 5, Encryption: "rot13",
		CompactBytes: -1, Prefix: "x", Endpoint: "http://user:" + testSecret + "@localhost"})
	for _, part := range []string{"s3.Open", "url must be", "Freshness", "Timeout", "Grace", "ParallelGets", "GapBytes", "WriteLanes", "MultipartBytes", "Encryption", "CompactBytes", "Endpoint"} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), testSecret)
	for _, location := range []string{"", "s3://", "s3:///x", "s3://user:" + testSecret + "@bucket/x", "http://bucket/x", "s3://bucket/x?key=" + testSecret} {
		_, err := Open(location, nil)
		require.Error(t, err, location)
		require.NotContains(t, err.Error(), testSecret)
	}
	_, err = Open("s3://bucket/x", &Options{Prefix: "y"})
	require.ErrorContains(t, err, "Prefix")
	_, err = Open("s3://bucket/x", &Options{Encryption: "AES256", KMSKeyID: "k"})
	require.ErrorContains(t, err, "KMSKeyID")
	_, err = New(nil, "a/b", &Options{Region: "x"})
	for _, part := range []string{"s3.New", "client is nil", "bucket", "Region"} {
		require.ErrorContains(t, err, part)
	}
}

func TestOpenNeedsARegion(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	_, err := Open("s3://bucket", &Options{Credentials: testCredentials})
	require.ErrorContains(t, err, "AWS_REGION")
}

// TestOpenFromTheEnvironment: nothing in Options.
func TestOpenFromTheEnvironment(t *testing.T) {
	s := newStore(t, bestServer(t))
	t.Setenv("AWS_ENDPOINT_URL_S3", s.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", testAccess)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testSecret)
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	c := s.open(t, &Options{})
	require.NoError(t, c.SetMany(ctxb, testItems(0, 3, 10, 'a')))
	requireStored(t, c, testItems(0, 3, 10, 'a'))
}

func TestNewBorrowsItsClient(t *testing.T) {
	s := newStore(t, bestServer(t))
	client := rawClient(s.URL)
	one, err := New(client, testBucket, &Options{Prefix: "/" + s.prefix + "/", Freshness: 1})
	require.NoError(t, err)
	items := testItems(0, 3, 10, 'a')
	require.NoError(t, one.SetMany(ctxb, items))
	require.NoError(t, one.Close())
	two, err := New(client, testBucket, &Options{Prefix: s.prefix, Freshness: 1})
	require.NoError(t, err)
	requireStored(t, two, items)
	require.NoError(t, two.Close())
	requireStored(t, s.open(t, nil), items)
}

func TestReadOnly(t *testing.T) {
	s := newStore(t, fakeServer(t))
	items := testItems(0, 3, 10, 'a')
	require.NoError(t, s.open(t, nil).SetMany(ctxb, items))
	o := testOptions(s.proxy)
	o.ReadOnly = true
	c := s.open(t, o)
	requireStored(t, c, items)
	require.ErrorIs(t, c.SetMany(ctxb, items), backend.ErrReadOnly)
	require.NoError(t, c.SetMany(ctxb, nil))
	_, err := c.Delete(ctxb, testKeys(1), nil)
	require.ErrorIs(t, err, backend.ErrReadOnly)
	require.ErrorIs(t, c.Compact(ctxb), backend.ErrReadOnly)
}

// TestOlderValuesAreOffered, the newest first, once each.
func TestOlderValuesAreOffered(t *testing.T) {
	s := newStore(t, bestServer(t))
	c := s.open(t, nil)
	for _, mark := range "abc" {
		require.NoError(t, c.SetMany(ctxb, testItems(0, 4, 10, byte(mark))))
	}
	for _, c := range []*Cache{c, s.open(t, nil)} {
		for accept := range 4 { // how many are declined
			var offered [4]string
			keys := append(testKeys(4), testKey(9), testKey(2))
			require.NoError(t, c.GetMany(ctxb, keys, func(i int, value []byte) error {
				if i == 5 { // the same key again, which takes what it gets
					require.EqualValues(t, 'c', value[5])
					return nil
				}
				if offered[i] += string(value[5]); len(offered[i]) <= accept {
					return backend.ErrForeign
				}
				return nil
			}))
			for _, got := range offered {
				require.Equal(t, "cba"[:min(3, accept+1)], got)
			}
		}
	}
}

// TestLargeValues among small ones, over several chunks, and in any order.
func TestLargeValues(t *testing.T) {
	s := newStore(t, bestServer(t))
	c := s.open(t, nil)
	random := rand.New(rand.NewPCG(1, 2))
	var items []backend.Item
	for i, size := range []int{10, chunkBytes, chunkBytes - frameHead, chunkBytes - frameHead + 1, 6208, 3 << 20, 1, 1 << 20, 1<<20 + 1, 100, 7 << 20, 50, 50, 300_000} {
		value := make([]byte, size)
		for j := range value {
			value[j] = byte(random.Uint32())
		}
		items = append(items, backend.Item{Key: testKey(i), Value: value})
	}
	require.NoError(t, c.SetMany(ctxb, items))
	for range 10 {
		random.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		requireStored(t, c, items[:1+random.IntN(len(items))])
	}
	requireStored(t, s.open(t, nil), items)
}

// TestMultipart needs a server whose multipart works: gofakes3 stores other bytes.
func TestMultipart(t *testing.T) {
	s := newStore(t, bestServer(t))
	o := testOptions(s.proxy)
	o.MultipartBytes = minMultipartBytes
	o.Timeout = 20 * time.Second
	var kinds sync.Map
	lose := true
	var mu sync.Mutex
	s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		query := r.URL.Query()
		switch {
		case query.Has("uploads"):
			kinds.Store("create", true)
		case query.Has("partNumber"):
			kinds.Store("part "+query.Get("partNumber"), true)
		case query.Has("uploadId") && r.Method == http.MethodPost:
			kinds.Store("complete", true)
			mu.Lock()
			now := lose
			lose = false
			mu.Unlock()
			if now { // it is completed, and the answer is lost
				pass.ServeHTTP(&discard{make(http.Header)}, r)
				cut()
			}
		}
		pass.ServeHTTP(w, r)
	})
	c := s.open(t, o)
	random := rand.New(rand.NewPCG(1, 2))
	var items []backend.Item
	for i := range 10 {
		value := make([]byte, 4<<20)
		for j := 0; j < len(value); j += 8 {
			value[j] = byte(random.Uint32())
		}
		items = append(items, backend.Item{Key: testKey(i), Value: value})
	}
	if strings.HasPrefix(s.name, "gofakes3") {
		// It answers, and what it stores is found to be wrong.
		_ = c.SetMany(ctxb, items)
	} else {
		require.NoError(t, c.SetMany(ctxb, items))
		requireStored(t, c, items)
		requireStored(t, s.open(t, nil), items)
	}
	for _, kind := range []string{"create", "part 1", "part 2", "part 3", "complete"} {
		_, seen := kinds.Load(kind)
		require.True(t, seen, kind)
	}
}

// TestFreshness: others' writes are seen after the interval, with one listing in it.
func TestFreshness(t *testing.T) {
	s := newStore(t, fakeServer(t))
	o := testOptions(s.proxy)
	o.Freshness = time.Hour
	c := s.open(t, o)
	other := s.open(t, nil)
	require.NoError(t, other.SetMany(ctxb, testItems(0, 3, 10, 'a')))
	lists := c.Counters().Lists
	for range 20 {
		require.Empty(t, readAll(t, c, testKeys(3)))
	}
	require.Equal(t, lists, c.Counters().Lists, "a miss lists nothing")
	require.NoError(t, c.SetMany(ctxb, testItems(5, 1, 10, 'c')))
	requireStored(t, c, testItems(5, 1, 10, 'c'))
	c.fresh.mu.Lock()
	c.fresh.good = c.fresh.good.Add(-2 * time.Hour)
	c.fresh.mu.Unlock()
	for range 20 {
		require.Len(t, readAll(t, c, testKeys(3)), 3)
	}
	require.Equal(t, lists+1, c.Counters().Lists)
}

// TestDifferenceNotWatermark: a segment that becomes visible after later-named ones is
// found all the same, by full and by short listings; and beyond the window by the next
// full one.
func TestDifferenceNotWatermark(t *testing.T) {
	s := newStore(t, fakeServer(t))
	c := s.open(t, nil)
	late := func(ago time.Duration, key int) {
		items := testItems(key, 1, 10, 'l')
		v := version{uint64(time.Now().Add(-ago).UnixNano()), randomID()}
		w := newSegmentWriter(items)
		w.runs = []run{{v, 1}}
		body, tail := w.finish()
		require.NoError(t, s.raw().put(ctxb, objectName{version: v, tail: uint32(tail), count: 1}.String(), body))
	}
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 10, 'a')))
	late(time.Hour, 1)
	require.Len(t, readAll(t, c, testKeys(2)), 2)
	// Now with so many names that listings are short.
	c.fresh.mu.Lock()
	c.fresh.names = onePage + 1
	c.fresh.mu.Unlock()
	short := func() {
		// The real number would make the next listing a full one.
		require.NoError(t, c.freshen(ctxb, time.Now(), false))
		c.fresh.mu.Lock()
		c.fresh.names = onePage + 1
		c.fresh.mu.Unlock()
	}
	late(window-time.Minute, 2)
	short()
	require.NotNil(t, c.view.candidates(testKeys(3))[2])
	require.Len(t, c.view.candidates(testKeys(3))[2], 1)
	late(window+time.Minute, 3)
	short()
	require.Empty(t, c.view.candidates(testKeys(4))[3], "it is before the window")
	c.fresh.mu.Lock()
	c.fresh.full = c.fresh.full.Add(-2 * fullEvery)
	c.fresh.mu.Unlock()
	short()
	require.Len(t, c.view.candidates(testKeys(4))[3], 1, "a full listing finds it")
}

// TestListingsInPages has more objects than a page.
func TestListingsInPages(t *testing.T) {
	s := newStore(t, fakeServer(t))
	c := s.open(t, nil)
	const n = 2100
	items := testItems(0, n, 10, 'p')
	require.NoError(t, inParallel(ctxb, 16, n, func(ctx context.Context, i int) error {
		v := version{uint64(1000 + i), 1}
		w := newSegmentWriter(items[i : i+1])
		w.runs = []run{{v, 1}}
		body, tail := w.finish()
		return c.remote.put(ctx, objectName{version: v, tail: uint32(tail), count: 1}.String(), body)
	}))
	fresh := s.open(t, nil)
	require.EqualValues(t, 3, fresh.Counters().Lists)
	requireStored(t, fresh, items)
	require.Greater(t, fresh.fresh.names, onePage)
	require.NoError(t, fresh.SetMany(ctxb, testItems(n, 1, 10, 'q')))
	require.NoError(t, c.SetMany(ctxb, testItems(n+1, 1, 10, 'q')))
	lists := fresh.Counters().Lists
	require.Len(t, readAll(t, fresh, testKeys(n + 2)[n:]), 2)
	require.Equal(t, lists+2, fresh.Counters().Lists, "one of c/, one of the end of s/")
	require.NoError(t, fresh.Compact(ctxb))
	requireStored(t, s.open(t, nil), items)
}

// TestForeignRecords: a visit that declines a value that has nothing older behind it
// finds a miss, and writing heals it.
func TestForeignRecords(t *testing.T) {
	s := newStore(t, bestServer(t))
	c := s.open(t, nil)
	items := testItems(0, 64, 100, 'a')
	require.NoError(t, c.SetMany(ctxb, items))
	visits := 0
	decline := func(i int, value []byte) error {
		visits++
		if i%3 == 0 {
			return fmt.Errorf("not mine: %w", backend.ErrForeign)
		}
		return nil
	}
	require.NoError(t, c.GetMany(ctxb, testKeys(64), decline))
	require.Equal(t, 64, visits)
	healed := testItems(0, 64, 100, 'b')
	require.NoError(t, c.SetMany(ctxb, healed))
	requireStored(t, c, healed)
	requireStored(t, s.open(t, nil), healed)
}

// TestVisitEndsItsGoroutine: nothing is left running, and the cache is usable.
func TestVisitThatPanics(t *testing.T) {
	s := newStore(t, fakeServer(t))
	c := s.open(t, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 3000, 6208, 'a')))
	require.PanicsWithValue(t, "oops", func() {
		_ = c.GetMany(ctxb, testKeys(3000), func(i int, _ []byte) error { panic("oops") })
	})
	stop := errors.New("stop")
	require.ErrorIs(t, c.GetMany(ctxb, testKeys(3000), func(int, []byte) error { return stop }), stop)
	requireStored(t, c, testItems(0, 3000, 6208, 'a'))
}
