package redis

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

func openOnCluster(t testing.TB, servers []*server, o Options) *Cache {
	t.Helper()
	setDefault(&o.Prefix, t.Name()+":")
	c, err := Open(urlOfCluster(servers), &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func urlOfCluster(servers []*server) string {
	url := "redis+cluster://" + servers[0].addr
	for i, s := range servers[1:] {
		url += string("?&"[min(i, 1)]) + "addr=" + s.addr
	}
	return url
}

func TestClientMustFitTheServer(t *testing.T) {
	needServer(t)
	_, err := Open("redis://"+sharedCluster(t)[0].addr, nil)
	require.ErrorContains(t, err, "redis+cluster")
	_, err = Open("redis+cluster://"+sharedServer(t).addr, &Options{Timeout: time.Second})
	require.Error(t, err)
}

// move takes a slot with count of its keys from one master to another, as
// redis-cli --cluster reshard does; done ends it.
func move(t testing.TB, from, to *server, slot, count int) (done func()) {
	ctx := context.Background()
	source, target := from.raw.Do(ctx, "cluster", "myid").Val().(string), to.raw.Do(ctx, "cluster", "myid").Val().(string)
	require.NoError(t, to.raw.Do(ctx, "cluster", "setslot", slot, "importing", source).Err())
	require.NoError(t, from.raw.Do(ctx, "cluster", "setslot", slot, "migrating", target).Err())
	host, port, _ := strings.Cut(to.addr, ":")
	migrate := func(count int) {
		keys, err := from.raw.ClusterGetKeysInSlot(ctx, slot, count).Result()
		require.NoError(t, err)
		for _, key := range keys {
			require.NoError(t, from.raw.Migrate(ctx, host, port, key, 0, 5*time.Second).Err())
		}
	}
	migrate(count)
	return func() {
		migrate(100_000)
		for _, s := range []*server{to, from} {
			require.NoError(t, s.raw.Do(ctx, "cluster", "setslot", slot, "node", target).Err())
		}
	}
}

// masterOf finds the server that has a slot.
func masterOf(t testing.TB, servers []*server, slot int) (has, other *server) {
	shards, err := servers[0].raw.ClusterShards(context.Background()).Result()
	require.NoError(t, err)
	for _, shard := range shards {
		for _, s := range servers {
			if s.addr != fmt.Sprintf("127.0.0.1:%d", shard.Nodes[0].Port) {
				continue
			}
			other = s
			for _, part := range shard.Slots {
				if int(part.Start) <= slot && slot <= int(part.End) {
					has = s
				}
			}
		}
	}
	if other == has {
		for _, s := range servers {
			if s != has {
				other = s
			}
		}
	}
	return has, other
}

// While a slot moves, a node answers ASK or TRYAGAIN, and later MOVED.
func TestSlotsThatMove(t *testing.T) {
	needServer(t)
	servers := newMasters(t, 3, t.TempDir, patience)
	for _, s := range servers {
		t.Cleanup(s.stop)
	}
	ctx := context.Background()
	for _, prefix := range []string{"one{slot}:", "many:"} {
		t.Run(prefix, func(t *testing.T) {
			c := openOnCluster(t, servers, Options{Prefix: prefix, Timeout: 2 * time.Second})
			const n = 200
			require.NoError(t, c.SetMany(ctx, testItems(0, n, 'a')))
			name := string(c.appendKey(nil, &testKeys(1)[0]))
			slot64, err := servers[0].raw.ClusterKeySlot(ctx, name).Result()
			require.NoError(t, err)
			slot := int(slot64)
			from, to := masterOf(t, servers, slot)

			done := move(t, from, to, slot, n/2)
			require.Len(t, readAll(t, c, testKeys(n)), n, "half of the slot's keys have moved")
			err = c.SetMany(ctx, testItems(0, n, 'b'))
			now := readAll(t, c, testKeys(n))
			require.Len(t, now, n)
			news := 0
			for i, value := range now {
				if string(value) == string(testValue(i, 'b')) {
					news++
				} else {
					require.Equal(t, testValue(i, 'a'), value)
				}
			}
			switch {
			case err == nil:
				require.Equal(t, n, news)
			case c.Info().Atomic:
				require.Zero(t, news, "%v", err)
			default:
				var batch *backend.BatchError
				require.ErrorAs(t, err, &batch)
				require.GreaterOrEqual(t, len(batch.NotStored), n-news)
			}
			t.Logf("SetMany while the slot moves: %v", err)
			entries := 0
			for at := backend.Position(""); ; {
				at, err = c.Scan(ctx, at, 3, func(backend.Entry) error { entries++; return nil })
				require.NoError(t, err)
				if at == "" {
					break
				}
			}
			if !c.Info().Atomic {
				require.Equal(t, n, entries)
			}

			done()
			require.Len(t, readAll(t, c, testKeys(n)), n, "all have moved")
			require.NoError(t, c.SetMany(ctx, testItems(0, n, 'c')))
			for i, value := range readAll(t, c, testKeys(n)) {
				require.Equal(t, testValue(i, 'c'), value)
			}
			removed, err := c.Delete(ctx, testKeys(n), func(i int, value []byte) bool { return value[0] == 'c' })
			require.NoError(t, err)
			require.Equal(t, n, removed)
		})
	}
}

// A master is killed while batches are written that a replica must have, and its
// replica takes its place: nothing that was acknowledged is lost.
func TestMasterOfClusterFails(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	masters := newMasters(t, 3, t.TempDir, 2*time.Second)
	all := append([]*server(nil), masters...)
	for range masters {
		all = append(all, newServer(t, t.TempDir(), "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(freePort(t)),
			"--cluster-node-timeout", "2000", "--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", "0"))
	}
	for _, s := range all {
		t.Cleanup(s.stop)
	}
	meet(t, all...)
	for i, replica := range all[3:] {
		id := masters[i].raw.Do(ctx, "cluster", "myid").Val()
		require.Eventually(t, func() bool { return replica.raw.Do(ctx, "cluster", "replicate", id).Err() == nil }, 20*time.Second, 20*time.Millisecond)
	}
	for _, replica := range all[3:] {
		require.Eventually(t, func() bool {
			info, err := replica.raw.Info(ctx, "replication").Result()
			return err == nil && strings.Contains(info, "master_link_status:up")
		}, 30*time.Second, 20*time.Millisecond)
	}
	c := openOnCluster(t, all[1:], Options{WaitReplicas: 1, Timeout: 3 * time.Second})
	var acknowledged []int
	write := func(n int) error {
		err := c.SetMany(ctx, testItems(20*n, 20, 'a'))
		if err == nil {
			acknowledged = append(acknowledged, n)
		}
		return err
	}
	n := 0
	for ; n < 50; n++ {
		require.NoError(t, write(n))
	}
	var killing sync.WaitGroup
	killing.Go(masters[0].kill)
	for range 20 {
		_ = write(n)
		n++
	}
	killing.Wait()

	// The two that are left have their replicas; keys of the third can't be confirmed.
	var after *Cache
	require.Eventually(t, func() bool { // until then Open asks the one that is dead
		var err error
		after, err = Open(urlOfCluster(all[1:]), &Options{Prefix: c.options.Prefix, Timeout: time.Second})
		return err == nil
	}, 60*time.Second, 50*time.Millisecond, "Open finds no master for a third of the slots")
	defer func() { require.NoError(t, after.Close()) }()
	require.Eventually(t, func() bool {
		return after.SetMany(ctx, testItems(1_000_000, 200, 'z')) == nil
	}, 60*time.Second, 50*time.Millisecond, "no replica takes over")
	for _, handle := range []*Cache{c, after} {
		for _, n := range acknowledged {
			var values map[int][]byte
			require.Eventually(t, func() bool {
				values = make(map[int][]byte)
				return handle.GetMany(ctx, testKeys(20*n + 20)[20*n:], func(i int, value []byte) error { values[i] = append([]byte{}, value...); return nil }) == nil
			}, 20*time.Second, 20*time.Millisecond)
			for i := range 20 {
				require.Equal(t, testValue(20*n+i, 'a'), values[i], "batch %d", n)
			}
		}
	}
	t.Logf("%d of %d batches acknowledged, 0 lost", len(acknowledged), n)
}

// TestMasterFails is the same with Sentinel.
func TestMasterFails(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	s := startSentinel(t, t.TempDir, 2*time.Second)
	for _, each := range []*server{s.master, s.replica, s.sentinel} {
		t.Cleanup(each.stop)
	}
	url := fmt.Sprintf("redis+sentinel://%s?master_name=%s", s.sentinel.addr, masterName)
	confirmed, err := Open(url, &Options{WaitReplicas: 1, Timeout: 3 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, confirmed.Close()) }()
	c, err := Open(url, &Options{Timeout: time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()

	var acknowledged []int
	n := 0
	write := func() {
		if confirmed.SetMany(ctx, testItems(20*n, 20, 'a')) == nil {
			acknowledged = append(acknowledged, n)
		}
		n++
	}
	for range 50 {
		write()
	}
	position, err := c.Scan(ctx, "", 1, func(backend.Entry) error { return nil })
	require.NoError(t, err)
	var killing sync.WaitGroup
	killing.Go(s.master.kill)
	for range 10 {
		write()
	}
	killing.Wait()
	require.Eventually(t, func() bool { return c.SetMany(ctx, testItems(1_000_000, 20, 'z')) == nil }, 60*time.Second, 50*time.Millisecond,
		"the handle doesn't find the new master")
	require.GreaterOrEqual(t, len(acknowledged), 50)
	for _, n := range acknowledged {
		values := readAll(t, c, testKeys(20*n + 20)[20*n:])
		for i := range 20 {
			require.Equal(t, testValue(20*n+i, 'a'), values[i], "batch %d", n)
		}
	}
	if position != "" {
		_, err = c.Scan(ctx, position, 1, func(backend.Entry) error { return nil })
		require.ErrorContains(t, err, "begin at")
	}
	t.Logf("%d of %d batches acknowledged, 0 lost", len(acknowledged), n)
}

// Where the masters of a cluster change, what one of them had may be where a scan has
// been already: it must not end as if it had seen everything.
func TestScanWhileMastersChange(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	servers := sharedCluster(t)
	real := make([]driver.ClusterSlot, len(servers))
	for i, s := range servers {
		const slots = 16384
		real[i] = driver.ClusterSlot{Start: i * slots / len(servers), End: (i+1)*slots/len(servers) - 1, Nodes: []driver.ClusterNode{{Addr: s.addr}}}
	}
	slices.SortFunc(real, func(a, b driver.ClusterSlot) int { return strings.Compare(a.Nodes[0].Addr, b.Nodes[0].Addr) })
	var changed atomic.Bool
	client := driver.NewClusterClient(&driver.ClusterOptions{ClusterSlots: func(context.Context) ([]driver.ClusterSlot, error) {
		slots := slices.Clone(real)
		if changed.Load() { // "127.0.0.1:1" is before all others
			slots[2].Nodes = []driver.ClusterNode{{Addr: "127.0.0.1:1"}}
		}
		return slots, nil
	}})
	defer func() { require.NoError(t, client.Close()) }()
	c, err := New(client, &Options{Prefix: t.Name() + ":"})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	require.NoError(t, c.SetMany(ctx, testItems(0, 5000, 'a')))

	ignore := func(backend.Entry) error { return nil }
	var positions []backend.Position
	for at := backend.Position(""); ; {
		at, err = c.Scan(ctx, at, 1, ignore)
		require.NoError(t, err)
		if at == "" {
			break
		}
		positions = append(positions, at)
	}
	require.Greater(t, len(positions), 3)
	changed.Store(true)
	for _, at := range positions {
		next, err := c.Scan(ctx, at, 1, ignore)
		require.ErrorContains(t, err, "begin at", "%q", at)
		require.Equal(t, at, next)
	}
}

// What a first try has removed counts, also when another node answered only the second.
func TestDeleteCountsOverTries(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	servers := sharedCluster(t)
	round := func() {
		var refused atomic.Bool
		refused.Store(true)
		client := driver.NewClusterClient(&driver.ClusterOptions{
			Addrs: []string{servers[0].addr}, PipelinePoolSize: -1, DialerRetries: 1,
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr == servers[1].addr && !refused.Swap(true) {
					return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			},
		})
		defer func() { require.NoError(t, client.Close()) }()
		c, err := New(client, &Options{Prefix: t.Name() + ":"})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		require.NoError(t, c.SetMany(ctx, testItems(0, 100, 'a')))
		require.NoError(t, servers[1].raw.Do(ctx, "client", "kill", "type", "normal", "skipme", "yes").Err())
		refused.Store(false)
		removed, err := c.Delete(ctx, testKeys(100), nil)
		require.NoError(t, err)
		require.Equal(t, 100, removed)
	}
	for range 10 { // the order of the nodes is left to chance
		round()
	}
}

func TestBorrowedClientsThatAreRefused(t *testing.T) {
	for want, client := range map[string]driver.UniversalClient{
		"client is nil":       nil,
		"*redis.Ring":         driver.NewRing(&driver.RingOptions{Addrs: map[string]string{"a": "localhost:1"}}),
		"no ReadTimeout":      driver.NewClient(&driver.Options{Addr: "localhost:1", ReadTimeout: -1}),
		"reads from replicas": driver.NewClusterClient(&driver.ClusterOptions{Addrs: []string{"localhost:1"}, ReadOnly: true}),
	} {
		_, err := New(client, nil)
		require.ErrorContains(t, err, want)
		if client != nil {
			require.NoError(t, client.Close())
		}
	}
	var nilClient *driver.Client
	_, err := New(nilClient, nil)
	require.ErrorContains(t, err, "client is nil")
}
