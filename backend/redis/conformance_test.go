package redis

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/conformance"
)

// place is a store of the conformance suite: a prefix on servers that all tests
// share, behind proxies of its own. Its text tells another process all of it.
type place struct {
	kind   string // of setups
	prefix string
	via    map[string]string // the proxy of each server
}

func (p place) String() string {
	pairs := make([]string, 0, len(p.via))
	for server, proxy := range p.via {
		pairs = append(pairs, server+">"+proxy)
	}
	return fmt.Sprintf("%s %s %s", p.kind, hex.EncodeToString([]byte(p.prefix)), strings.Join(pairs, ","))
}

func placeOf(t testing.TB, location string) place {
	words := strings.Fields(location)
	require.Len(t, words, 3, "location %q", location)
	prefix, err := hex.DecodeString(words[1])
	require.NoError(t, err)
	p := place{kind: words[0], prefix: string(prefix), via: make(map[string]string)}
	for _, pair := range strings.Split(words[2], ",") {
		server, proxy, _ := strings.Cut(pair, ">")
		p.via[server] = proxy
	}
	return p
}

// clear removes what is left, so that the next store doesn't have to scan it.
func (p place) clear(t testing.TB, servers []*server) {
	ctx := context.Background()
	for _, s := range servers {
		for cursor := uint64(0); ; {
			keys, next, err := s.raw.Scan(ctx, cursor, escaped(p.prefix)+"*", 10_000).Result()
			require.NoError(t, err)
			_, err = s.raw.Pipelined(ctx, func(pipe driver.Pipeliner) error {
				for _, key := range keys {
					pipe.Unlink(ctx, key)
				}
				return nil
			})
			require.NoError(t, err)
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
}

// dial goes to a server through its proxy.
func (p place) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if via, known := p.via[addr]; known {
		addr = via
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// setup is one way to run the servers and to open a cache on them.
type setup struct {
	prefix  string
	servers func(t testing.TB) []*server
	open    func(t testing.TB, p place, o *Options) backend.Cache
}

var setups = map[string]setup{
	"single": {"test %s:", oneServer, func(t testing.TB, p place, o *Options) backend.Cache {
		for _, proxy := range p.via {
			return opened(t)(Open("redis://"+proxy+"/0", o))
		}
		return nil
	}},
	"borrowed": {"te*st %s:", oneServer, func(t testing.TB, p place, o *Options) backend.Cache {
		for _, proxy := range p.via {
			client := driver.NewClient(&driver.Options{Addr: proxy, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout})
			c, err := New(client, o)
			require.NoError(t, err)
			return &borrowed{c, client, sync.Once{}}
		}
		return nil
	}},
	"sentinel": {"test %s:", func(t testing.TB) []*server { return []*server{sharedSentinel(t).master} }, func(t testing.TB, p place, o *Options) backend.Cache {
		s := &driver.FailoverOptions{MasterName: masterName, SentinelAddrs: []string{p.via["sentinel"]}, Dialer: p.dial}
		full, err := o.withDefaults()
		require.NoError(t, err)
		tuneSentinel(s, &full)
		return opened(t)(open(driver.NewFailoverClient(s), full, true))
	}},
	"cluster": {"test %s:", sharedCluster, openCluster},
	"tagged":  {"te{st %s}:", sharedCluster, openCluster},
}

func oneServer(t testing.TB) []*server { return []*server{sharedServer(t)} }

func openCluster(t testing.TB, p place, o *Options) backend.Cache {
	s := &driver.ClusterOptions{Dialer: p.dial}
	for server := range p.via {
		s.Addrs = append(s.Addrs, server)
	}
	full, err := o.withDefaults()
	require.NoError(t, err)
	tuneCluster(s, &full)
	return opened(t)(open(driver.NewClusterClient(s), full, true))
}

func opened(t testing.TB) func(c *Cache, err error) backend.Cache {
	return func(c *Cache, err error) backend.Cache {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// borrowed closes the client after the cache.
type borrowed struct {
	*Cache
	client *driver.Client
	once   sync.Once
}

func (b *borrowed) Close() error {
	err := b.Cache.Close()
	b.once.Do(func() { _ = b.client.Close() })
	return err
}

// proxies has those of this process by location, for faults.
var proxies sync.Map // of []*proxy

func conformanceSuite(kind string) conformance.Suite {
	how := setups[kind]
	return conformance.Suite{
		New: func(t testing.TB) string {
			p := place{kind: kind, prefix: fmt.Sprintf(how.prefix, fmt.Sprint(rand.Uint64())), via: make(map[string]string)}
			var all []*proxy
			for _, s := range how.servers(t) {
				proxy := startProxy(t, s.addr)
				p.via[s.addr] = proxy.addr()
				all = append(all, proxy)
			}
			if kind == "sentinel" {
				p.via["sentinel"] = sharedSentinel(t).sentinel.addr
			}
			location := p.String()
			proxies.Store(location, all)
			t.Cleanup(func() {
				proxies.Delete(location)
				p.clear(t, how.servers(t))
			})
			return location
		},
		Open: func(t testing.TB, location string) backend.Cache {
			p := placeOf(t, location)
			return how.open(t, p, &Options{Prefix: p.prefix, Timeout: 2 * time.Second})
		},
		Want: backend.Info{
			Atomic:        kind != "cluster",
			Durability:    backend.SurvivesCrash,
			Reach:         backend.ReachHosts,
			MaxValueBytes: maxValueBytes,
			MaxBatchItems: maxBatchItems,
			MaxBatchBytes: maxBatchBytes,
		},
		Plant: func(t testing.TB, location string, k backend.Key, what conformance.Foreign) {
			plant(t, how.servers(t), placeOf(t, location), k, what)
		},
		Fault: func(t testing.TB, location string, f conformance.Fault) (undo func()) {
			all, _ := proxies.Load(location)
			return injectFault(t, how.servers(t), placeOf(t, location), all.([]*proxy), f)
		},
	}
}

// rawClient goes to the servers directly.
func rawClient(t testing.TB, servers []*server) driver.UniversalClient {
	if len(servers) == 1 {
		return servers[0].raw
	}
	o := &driver.ClusterOptions{PipelinePoolSize: -1}
	for _, s := range servers {
		o.Addrs = append(o.Addrs, s.addr)
	}
	c := driver.NewClusterClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// plant leaves what another program could.
func plant(t testing.TB, servers []*server, p place, k backend.Key, what conformance.Foreign) {
	ctx, c := context.Background(), rawClient(t, servers)
	key := p.prefix + string(k[:])
	require.NoError(t, c.Del(ctx, key).Err())
	if what == conformance.Empty {
		require.NoError(t, c.Set(ctx, key, "", 0).Err())
		return
	}
	var err error
	switch k[0] % 5 {
	case 0:
		err = c.RPush(ctx, key, "a", "b").Err()
	case 1:
		err = c.SAdd(ctx, key, "a").Err()
	case 2:
		err = c.HSet(ctx, key, "a", "b").Err()
	case 3:
		err = c.ZAdd(ctx, key, driver.Z{Score: 1, Member: "a"}).Err()
	case 4:
		err = c.XAdd(ctx, &driver.XAddArgs{Stream: key, Values: []string{"a", "b"}}).Err()
	}
	require.NoError(t, err)
}

var cuts atomic.Int64

func injectFault(t testing.TB, servers []*server, p place, proxies []*proxy, f conformance.Fault) (undo func()) {
	ctx := context.Background()
	each := func(do func(p *proxy)) func() {
		for _, p := range proxies {
			do(p)
		}
		return func() {
			for _, p := range proxies {
				p.restore()
			}
		}
	}
	everywhere := func(args ...any) {
		for _, s := range servers {
			require.NoError(t, s.raw.Do(ctx, args...).Err())
		}
	}
	switch f.Kind {
	case conformance.FailAtItem:
		sets := new(atomic.Int64)
		sets.Store(int64(f.Item))
		return each(func(p *proxy) { p.cutAfter(sets) })
	case conformance.Slow:
		return each(func(p *proxy) { p.latency.Store(int64(120 * time.Millisecond)) })
	case conformance.Cut:
		if cuts.Add(1)%2 == 0 {
			return each((*proxy).shutDown)
		}
		return each((*proxy).holdAll)
	case conformance.Locked:
		everywhere("client", "pause", 60_000, "write")
		return func() { everywhere("client", "unpause") }
	case conformance.Full:
		for _, s := range servers {
			used, err := s.raw.InfoMap(ctx, "memory").Result()
			require.NoError(t, err)
			var bytes int64
			_, err = fmt.Sscan(used["Memory"]["used_memory"], &bytes)
			require.NoError(t, err)
			require.NoError(t, s.raw.ConfigSet(ctx, "maxmemory", fmt.Sprint(bytes+1<<20)).Err())
		}
		return func() { everywhere("config", "set", "maxmemory", "0") }
	case conformance.Damage:
		damage(t, servers, p, f.Item)
		return func() {}
	}
	return nil
}

// damage changes a byte of a value.
func damage(t testing.TB, servers []*server, p place, place int) {
	ctx := context.Background()
	var keys []string
	var at []*server
	for _, s := range servers {
		iterator := s.raw.Scan(ctx, 0, escaped(p.prefix)+"*", 1000).Iterator()
		for iterator.Next(ctx) {
			keys, at = append(keys, iterator.Val()), append(at, s)
		}
		require.NoError(t, iterator.Err())
	}
	n := place * 7 % len(keys)
	value, err := at[n].raw.Get(ctx, keys[n]).Bytes()
	require.NoError(t, err)
	offset := place * 31 % len(value)
	require.NoError(t, at[n].raw.SetRange(ctx, keys[n], int64(offset), string(value[offset]^0x40)).Err())
}

func runSuite(t *testing.T, kind string) {
	needServer(t)
	conformanceSuite(kind).Run(t)
}

func TestConformance(t *testing.T)           { runSuite(t, "single") }
func TestConformanceOfBorrowed(t *testing.T) { runSuite(t, "borrowed") }
func TestConformanceOfCluster(t *testing.T)  { runSuite(t, "cluster") }
func TestConformanceOfOneSlot(t *testing.T)  { runSuite(t, "tagged") }

func TestConformanceOfSentinel(t *testing.T) { runSuite(t, "sentinel") }

func TestSoak(t *testing.T) {
	needServer(t)
	conformanceSuite("single").Soak(t)
}

func TestSoakOfCluster(t *testing.T)  { soakShortly(t, "cluster") }
func TestSoakOfSentinel(t *testing.T) { soakShortly(t, "sentinel") }

// soakShortly leaves the time that a soak takes to that of one server, unless
// somebody asks for a longer one.
func soakShortly(t *testing.T, kind string) {
	needServer(t)
	if os.Getenv("EMBEDONCE_SOAK") == "" {
		t.Setenv("EMBEDONCE_SOAK", "6s")
	}
	conformanceSuite(kind).Soak(t)
}

func BenchmarkCache(b *testing.B) {
	needServer(b)
	conformanceSuite("single").Bench(b)
}
