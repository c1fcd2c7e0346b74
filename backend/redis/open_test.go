package redis

import (
	"context"
	"math"
	"os"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

func TestOptionsThatAreWrong(t *testing.T) {
	_, err := Open("redis://localhost:1", &Options{
		Prefix: string(make([]byte, 129)), TTL: time.Millisecond, Timeout: time.Millisecond, Connections: -1, ReadAhead: 2000, ChunkKeys: 5000, WaitReplicas: -1,
	})
	for _, name := range []string{"Prefix", "TTL", "Timeout", "Connections", "ReadAhead", "ChunkKeys", "WaitReplicas"} {
		require.ErrorContains(t, err, "Options."+name+" ")
	}
	_, err = Open("redis://localhost:1", &Options{Timeout: math.MaxInt64})
	require.ErrorContains(t, err, "Options.Timeout ")
	_, err = Open("", &Options{TTLJitter: time.Second})
	require.ErrorContains(t, err, "TTLJitter")
	require.ErrorContains(t, err, "url is none of", "all that is wrong in one error")
}

func TestHashTag(t *testing.T) {
	for prefix, want := range map[string]bool{"embedonce:": false, "{a}:": true, "x{a}": true, "{}:": false, "{": false, "}{": false, "{}{a}": false, "{{a}}": true} {
		require.Equal(t, want, hasHashTag(prefix), "%q", prefix)
	}
}

// Two caches with prefixes that are patterns, or that begin with each other's, see
// only their own.
func TestPrefixes(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := startServer(t)
	prefixes := []string{"a", "a*", "a?", "[a]", `a\`, "*", "^", "a{b}", "ab", "\x00\xff"}
	var all []*Cache
	for i, prefix := range prefixes {
		c := openOn(t, s.addr, Options{Prefix: prefix})
		require.NoError(t, c.SetMany(ctx, testItems(0, i+1, byte(i))))
		all = append(all, c)
	}
	for i, c := range all {
		stats, err := c.Stats(ctx)
		require.NoError(t, err)
		require.EqualValues(t, i+1, stats.Entries, "%q", prefixes[i])
		for j, value := range readAll(t, c, testKeys(20)) {
			require.Equal(t, testValue(j, byte(i)), value)
		}
	}
}

func TestBorrowedClientStaysOpen(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	client := driver.NewClient(&driver.Options{Addr: sharedServer(t).addr})
	c, err := New(client, &Options{Prefix: t.Name()})
	require.NoError(t, err)
	require.NoError(t, c.SetMany(ctx, testItems(0, 1, 'a')))
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.GetMany(ctx, nil, none), backend.ErrClosed)
	require.NoError(t, client.Ping(ctx).Err())
	require.NoError(t, client.Close())
}

// A client that its owner closes too early is an error, and nothing hangs.
func TestBorrowedClientIsClosedTooEarly(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	client := driver.NewClient(&driver.Options{Addr: sharedServer(t).addr})
	c, err := New(client, nil)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.ErrorIs(t, c.GetMany(ctx, testKeys(1), none), backend.ErrUnavailable)
	require.ErrorIs(t, c.SetMany(ctx, testItems(0, 1, 'a')), backend.ErrUnavailable)
	require.NoError(t, c.Close())
}

// Hooks of a borrowed client see each request, and no value in what they print.
func TestHooksOfBorrowedClient(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	client := driver.NewClient(&driver.Options{Addr: sharedServer(t).addr})
	defer client.Close()
	seen := &printer{}
	client.AddHook(seen)
	c, err := New(client, &Options{Prefix: t.Name()})
	require.NoError(t, err)
	require.NoError(t, c.SetMany(ctx, []backend.Item{{Key: testKey(1), Value: []byte("a value")}}))
	require.NoError(t, c.GetMany(ctx, testKeys(2), none))
	require.Contains(t, seen.text, "multi")
	require.Contains(t, seen.text, "get")
	require.NotContains(t, seen.text, "a value")
	require.NoError(t, c.Close())
}

type printer struct{ text string }

func (p *printer) DialHook(next driver.DialHook) driver.DialHook          { return next }
func (p *printer) ProcessHook(next driver.ProcessHook) driver.ProcessHook { return next }
func (p *printer) ProcessPipelineHook(next driver.ProcessPipelineHook) driver.ProcessPipelineHook {
	return func(ctx context.Context, cmds []driver.Cmder) error {
		for _, cmd := range cmds {
			p.text += cmd.String()
		}
		return next(ctx, cmds)
	}
}

// TestWithoutServer is what can be tested without one. It runs where none is
// installed; EMBEDONCE_REDIS_MINI=1 runs it elsewhere.
func TestWithoutServer(t *testing.T) {
	if program("redis-server") != "" && os.Getenv("EMBEDONCE_REDIS_MINI") == "" {
		t.Log("redis-server is installed: the other tests use it, and miniredis isn't needed")
		return
	}
	if required("redis") {
		t.Fatal("no redis-server is installed, and EMBEDONCE_REQUIRE names redis")
	}
	ctx := context.Background()
	c := openOn(t, miniServer(t), Options{})
	items := testItems(0, 1000, 'a')
	require.NoError(t, c.SetMany(ctx, items))
	require.Len(t, readAll(t, c, testKeys(2000)), 1000)
	require.NoError(t, c.Txn(ctx, func(tx backend.Txn) error { return tx.SetMany(ctx, testItems(0, 10, 'b')) }))
	require.Equal(t, testValue(3, 'b'), readAll(t, c, testKeys(10))[3])
	removed, err := c.Delete(ctx, testKeys(1000), func(i int, value []byte) bool { return value[0] == 'b' })
	require.NoError(t, err)
	require.Equal(t, 10, removed)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, c.SetMany(ended, items), context.Canceled)
}
