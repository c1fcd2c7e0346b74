package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

var none = func(int, []byte) error { return nil }

func TestServerIsDown(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	for _, scheme := range []string{"redis", "redis+cluster"} {
		_, err := Open(scheme+"://user:pa55word@"+addr, nil)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.NotContains(t, err.Error(), "pa55word")
	}
}

// A server that is killed and comes back finds its data, and the handle finds it.
func TestServerRestarts(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	c := openOn(t, s.addr, Options{})
	require.Equal(t, backend.SurvivesPowerLoss, c.Info().Durability)
	items := testItems(0, 300, 'a')
	require.NoError(t, c.SetMany(ctx, items))
	s.kill()
	require.ErrorIs(t, c.GetMany(ctx, testKeys(300), none), backend.ErrUnavailable)
	require.ErrorIs(t, c.SetMany(ctx, items), backend.ErrUnavailable)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, c.GetMany(ended, testKeys(300), none), context.Canceled)
	s.start(t, "redis-server")
	// After many dials that failed, go-redis tries only once a second.
	require.Eventually(t, func() bool { return c.GetMany(ctx, testKeys(1), none) == nil }, 10*time.Second, 5*time.Millisecond)
	require.Len(t, readAll(t, c, testKeys(300)), 300)
	require.NoError(t, c.SetMany(ctx, items))
}

// A call that is cancelled, or whose deadline passes, returns at once, while the
// server is busy or gone.
func TestCallsThatWaitEndWithTheirContext(t *testing.T) {
	needServer(t)
	s := sharedServer(t)
	p := startProxy(t, s.addr)
	owned := openOn(t, p.addr(), Options{Timeout: 20 * time.Second})
	client := driver.NewClient(&driver.Options{Addr: p.addr(), ReadTimeout: 20 * time.Second})
	lent, err := New(client, &Options{Prefix: "lent:", Timeout: 20 * time.Second})
	require.NoError(t, err)
	for name, c := range map[string]*Cache{"owned": owned, "lent": lent} {
		require.NoError(t, c.SetMany(context.Background(), testItems(0, 10, 'a')))
		calls := map[string]func(ctx context.Context) error{
			"GetMany": func(ctx context.Context) error { return c.GetMany(ctx, testKeys(10), none) },
			"SetMany": func(ctx context.Context) error { return c.SetMany(ctx, testItems(0, 10, 'b')) },
			"Scan": func(ctx context.Context) error {
				_, err := c.Scan(ctx, "", 1, func(backend.Entry) error { return nil })
				return err
			},
			"Delete": func(ctx context.Context) error { _, err := c.Delete(ctx, testKeys(10), nil); return err },
			"Stats":  func(ctx context.Context) error { _, err := c.Stats(ctx); return err },
		}
		p.holdAll()
		for what, call := range calls {
			t.Run(name+"/"+what, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				defer cancel()
				require.ErrorIs(t, call(ctx), context.DeadlineExceeded)

				ctx, cancel = context.WithCancel(context.Background())
				go func() { // as soon as the call waits, or before
					defer cancel()
					for len(c.turns) == 0 {
						runtime.Gosched()
					}
				}()
				start := time.Now()
				err := call(ctx)
				require.ErrorIs(t, err, context.Canceled)
				require.Less(t, time.Since(start), 10*time.Second) // and not 20
			})
		}
		p.restore()
		require.Eventually(t, func() bool { return c.SetMany(context.Background(), testItems(0, 10, 'c')) == nil }, 5*time.Second, time.Millisecond)
	}
	require.NoError(t, lent.Close())
	require.NoError(t, client.Close())
}

// A connection whose other end has gone without a word ends a call after Timeout.
func TestHalfOpenConnection(t *testing.T) {
	needServer(t)
	p := startProxy(t, sharedServer(t).addr)
	c := openOn(t, p.addr(), Options{Timeout: time.Second})
	ctx := context.Background()
	require.NoError(t, c.SetMany(ctx, testItems(0, 10, 'a')))
	p.holdAll()
	err := c.GetMany(ctx, testKeys(10), none)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded) // nobody's deadline
	require.ErrorIs(t, c.SetMany(ctx, testItems(0, 10, 'b')), backend.ErrUnavailable)
	p.restore()
	require.Eventually(t, func() bool { return c.GetMany(ctx, testKeys(10), none) == nil }, 5*time.Second, time.Millisecond)
}

// The server has carried out the transaction, and its answer is lost.
func TestLostAnswerOfExec(t *testing.T) {
	needServer(t)
	for _, lost := range []string{"the whole answer", "its end"} {
		t.Run(lost, func(t *testing.T) {
			p := startProxy(t, sharedServer(t).addr)
			c := openOn(t, p.addr(), Options{Timeout: 3 * time.Second})
			ctx := context.Background()
			require.NoError(t, c.SetMany(ctx, testItems(0, 1, 'a')))
			cut := func(answer []byte) []byte {
				go p.shutDown()
				if lost == "its end" {
					return answer[:len(answer)/2]
				}
				return nil
			}
			p.mangle.Store(&cut)
			err := c.SetMany(ctx, testItems(0, 100, 'b'))
			require.ErrorIs(t, err, backend.ErrUnavailable)
			p.restore()
			require.Eventually(t, func() bool { return c.GetMany(ctx, testKeys(1), none) == nil }, 5*time.Second, time.Millisecond)
			values := readAll(t, c, testKeys(100))
			require.Len(t, values, 100)
			for i, value := range values {
				require.Equal(t, testValue(i, 'b'), value)
			}
		})
	}
}

func TestLoading(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	dir := t.TempDir()
	settings := []string{"--appendonly", "no", "--key-load-delay", "150", "--loading-process-events-interval-bytes", "1024"}
	s := newServer(t, dir, settings...)
	t.Cleanup(s.stop)
	c := openOn(t, s.addr, Options{})
	require.NoError(t, c.SetMany(ctx, testItems(0, 10_000, 'a')))
	require.NoError(t, s.raw.Save(ctx).Err())
	s.kill()
	s.restartWithoutWaiting(t)
	require.Eventually(t, func() bool {
		err := s.raw.Get(ctx, "x").Err()
		return err != nil && driver.IsLoadingError(err)
	}, 10*time.Second, time.Millisecond)
	err := c.GetMany(ctx, testKeys(10), none)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "LOADING")
	require.ErrorContains(t, c.SetMany(ctx, testItems(0, 10, 'b')), "LOADING")
	_, err = Open("redis://"+s.addr, &Options{Timeout: time.Second})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "LOADING")
	require.Eventually(t, func() bool { return c.GetMany(ctx, testKeys(10), none) == nil }, 30*time.Second, 10*time.Millisecond)
	require.Len(t, readAll(t, c, testKeys(10_000)), 10_000)
}

func (s *server) restartWithoutWaiting(t testing.TB) {
	running := make(chan struct{})
	go func() { defer close(running); s.start(t, "redis-server") }()
	t.Cleanup(func() { <-running })
}

func TestReplicaTakesNoWrites(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := sharedSentinel(t)
	c := openOn(t, s.replica.addr, Options{})
	err := c.SetMany(ctx, testItems(0, 3, 'a'))
	require.ErrorIs(t, err, backend.ErrReadOnly)
	require.NoError(t, c.GetMany(ctx, testKeys(3), none))
}

// After a failover a name may point to another server, while connections to the one
// that is a replica now live on: they must not be used for ever.
func TestNameThatPointsToAnotherServer(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	old, replacement := startServer(t), startServer(t)
	var target atomic.Pointer[string]
	target.Store(&old.addr)
	for name, change := range map[string]func(c *Cache) error{
		"SetMany": func(c *Cache) error { return c.SetMany(ctx, testItems(0, 3, 'a')) },
		"Delete":  func(c *Cache) error { _, err := c.Delete(ctx, testKeys(3), nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			client := driver.NewClient(&driver.Options{Addr: "name:6379", PipelinePoolSize: -1, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, *target.Load())
			}})
			defer func() { require.NoError(t, client.Close()) }()
			c, err := New(client, &Options{Prefix: t.Name() + ":"})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			require.NoError(t, change(c))
			host, port, err := net.SplitHostPort(replacement.addr)
			require.NoError(t, err)
			require.NoError(t, old.raw.ReplicaOf(ctx, host, port).Err())
			target.Store(&replacement.addr)
			require.NoError(t, change(c))
			require.NoError(t, old.raw.ReplicaOf(ctx, "no", "one").Err())
			old, replacement = replacement, old
		})
	}
}

func TestFullServer(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := startServer(t)
	c := openOn(t, s.addr, Options{})
	require.NoError(t, c.SetMany(ctx, testItems(0, 100, 'a')))
	require.False(t, c.Info().MayEvict)
	require.NoError(t, s.raw.ConfigSet(ctx, "maxmemory", "1000000").Err())
	err := c.SetMany(ctx, testItems(0, 100, 'b'))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, testValue(7, 'a'), readAll(t, c, testKeys(100))[7])
	removed, err := c.Delete(ctx, testKeys(100), func(i int, _ []byte) bool { return i < 50 })
	require.NoError(t, err, "what makes room is not refused")
	require.Equal(t, 50, removed)
}

func TestInfoOfServerThatEvicts(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := startServer(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	mayEvict := func(o Options) bool { return openOn(t, s.addr, o).Info().MayEvict }
	require.True(t, mayEvict(Options{}))
	require.NoError(t, s.raw.ConfigSet(ctx, "maxmemory-policy", "volatile-lru").Err())
	require.False(t, mayEvict(Options{}), "an entry without a TTL is no candidate")
	require.True(t, mayEvict(Options{TTL: time.Hour}))
	require.NoError(t, s.raw.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	require.False(t, mayEvict(Options{}))
}

func TestDurabilityIsTheServers(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := startServer(t)
	claim := func() backend.Durability { return openOn(t, s.addr, Options{}).Info().Durability }
	require.Equal(t, backend.SurvivesCrash, claim())
	require.NoError(t, s.raw.ConfigSet(ctx, "appendfsync", "always").Err())
	require.Equal(t, backend.SurvivesCrash, claim(), "the log is switched off")
	require.NoError(t, s.raw.ConfigSet(ctx, "appendonly", "yes").Err())
	require.Equal(t, backend.SurvivesPowerLoss, claim())
	require.NoError(t, s.raw.ConfigSet(ctx, "appendfsync", "everysec").Err())
	require.Equal(t, backend.SurvivesCrash, claim())
	require.NoError(t, s.raw.ConfigSet(ctx, "appendfsync", "always").Err())
	require.NoError(t, s.raw.Do(ctx, "acl", "setuser", "default", "-config").Err())
	require.Equal(t, backend.SurvivesCrash, claim(), "it may not be asked")
}

func TestTTL(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := sharedServer(t)
	for _, test := range []struct {
		o           Options
		least, most time.Duration
	}{
		{Options{}, -1, -1},
		{Options{TTL: time.Hour, TTLJitter: -1}, time.Hour, time.Hour},
		{Options{TTL: time.Hour}, time.Hour, time.Hour + 6*time.Minute},
		{Options{TTL: time.Hour, TTLJitter: time.Hour}, time.Hour, 2 * time.Hour},
	} {
		c := openOn(t, s.addr, test.o)
		require.NoError(t, c.SetMany(ctx, testItems(0, 200, 'a')))
		lives := make(map[time.Duration]bool)
		for _, key := range testKeys(200) {
			left, err := s.raw.PTTL(ctx, string(c.appendKey(nil, &key))).Result()
			require.NoError(t, err)
			require.LessOrEqual(t, left, test.most)
			if test.most > 0 {
				require.Greater(t, left, test.least-time.Minute)
			}
			lives[left.Truncate(time.Second)] = true
		}
		if test.most > test.least {
			require.Greater(t, len(lives), 50)
		}
	}
}

// Entries that expire while they are read are missing, and no error.
func TestEntriesThatExpire(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := sharedServer(t)
	c := openOn(t, s.addr, Options{})
	items := testItems(0, 5000, 'a')
	require.NoError(t, c.SetMany(ctx, items))
	_, err := s.raw.Pipelined(ctx, func(p driver.Pipeliner) error {
		for i := range items {
			p.PExpire(ctx, string(c.appendKey(nil, &items[i].Key)), time.Duration(1+i%20)*time.Millisecond)
		}
		return nil
	})
	require.NoError(t, err)
	for at := backend.Position(""); ; {
		at, err = c.Scan(ctx, at, 4, func(e backend.Entry) error {
			if len(e.Value) != 4 || e.Size != 9 {
				return errors.New("an entry that has expired")
			}
			return nil
		})
		require.NoError(t, err)
		if at == "" {
			break
		}
	}
	for i, value := range readAll(t, c, testKeys(5000)) {
		require.Equal(t, testValue(i, 'a'), value)
	}
	require.Eventually(t, func() bool { return len(readAll(t, c, testKeys(5000))) == 0 }, 5*time.Second, time.Millisecond)
}

func TestWaitForReplicas(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := sharedSentinel(t)
	c := openOn(t, s.master.addr, Options{WaitReplicas: 1})
	require.NoError(t, c.SetMany(ctx, testItems(0, 100, 'a')))
	there, err := s.replica.raw.Exists(ctx, string(c.appendKey(nil, &testItems(99, 1, 'a')[0].Key))).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, there)
	removed, err := c.Delete(ctx, testKeys(50), nil)
	require.NoError(t, err)
	require.Equal(t, 50, removed)

	c = openOn(t, s.master.addr, Options{WaitReplicas: 2, Timeout: time.Second})
	err = c.SetMany(ctx, testItems(0, 100, 'b'))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "WaitReplicas")
}

// A disk that is full stops a server that has to write to it.
func TestServerThatCannotWriteItsLog(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := startServer(t)
	c := openOn(t, s.addr, Options{})
	require.NoError(t, s.raw.ConfigSet(ctx, "min-replicas-to-write", "3").Err())
	err := c.SetMany(ctx, testItems(0, 3, 'a'))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "NOREPLICAS")
	require.NoError(t, s.raw.ConfigSet(ctx, "min-replicas-to-write", "0").Err())

	// A snapshot that fails: MISCONF.
	require.NoError(t, s.raw.ConfigSet(ctx, "save", "3600 1").Err())
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "dump.rdb"), 0o700))
	require.NoError(t, c.SetMany(ctx, testItems(0, 3, 'a')))
	require.NoError(t, s.raw.BgSave(ctx).Err())
	require.Eventually(t, func() bool {
		err = c.SetMany(ctx, testItems(0, 3, 'a'))
		return err != nil
	}, 10*time.Second, 5*time.Millisecond)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "MISCONF")
	require.Len(t, readAll(t, c, testKeys(3)), 3)
}
