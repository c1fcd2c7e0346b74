package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/embedonce/embedonce/backend"
)

// Cache is a backend.Cache on a Redis or Valkey server, or on a cluster of them.
// Open and New make one; any number of goroutines may use it.
type Cache struct {
	client  driver.UniversalClient
	single  *driver.Client        // client, if it is one for a single server
	cluster *driver.ClusterClient // client, if it is one for a cluster
	owned   bool
	tagged  bool // in a cluster, all keys are in one slot
	options Options
	info    backend.Info

	calls   calls
	jobs    sync.WaitGroup // what runs on for calls that were cancelled
	left    left           // those of them that change something
	turns   gate
	closing sync.Once
	ahead   int // how many chunks of a read are asked for at once

	markStart string // with marks, the answers of different requests never look alike
	marks     atomic.Uint64

	chunks  sync.Pool    // of *chunk
	batches sync.Pool    // of *batch
	typical atomic.Int64 // bytes of a value, as far as is known
}

var _ backend.Cache = (*Cache)(nil)

const (
	maxValueBytes = 16 << 20
	maxBatchBytes = 64 << 20
	maxBatchItems = 16 << 10
	batchKept     = 8 << 20 // the memory of a batch that is kept for the next one

	// Advice; docs/backends.md has the measurements. A GetMany asks for several chunks at
	// once by itself: to split it brings nothing.
	readers = 2
	writers = 2

	// From a server that is near, as on the same host, more at once only get into each
	// other's way; from one that is farther, two leave the line idle.
	nearTrip      = 300 * time.Microsecond
	readAheadNear = 2
	readAheadFar  = 8
)

func open(client driver.UniversalClient, o Options, owned bool) (*Cache, error) {
	c := newCache(client, o, owned)
	if err := c.ask(context.Background()); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// newCache makes a cache that knows nothing of the server yet.
func newCache(client driver.UniversalClient, o Options, owned bool) *Cache {
	c := &Cache{
		client:  client,
		owned:   owned,
		options: o,
		turns:   make(gate, o.Connections),
		ahead:   cmp.Or(o.ReadAhead, readAheadNear),
		info: backend.Info{
			Atomic:        true,
			Durability:    backend.SurvivesCrash,
			Reach:         backend.ReachHosts,
			MayEvict:      o.TTL > 0,
			MaxValueBytes: maxValueBytes,
			MaxBatchItems: maxBatchItems,
			MaxBatchBytes: maxBatchBytes,
			Readers:       readers,
			Writers:       writers,
		},
	}
	c.chunks.New = func() any { return c.newChunk() }
	c.batches.New = func() any { return &batch{limit: batchKept} }
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	c.markStart = "embedonce " + hex.EncodeToString(random[:]) + " "
	switch client := client.(type) {
	case *driver.Client:
		c.single = client
	case *driver.ClusterClient:
		c.cluster = client
		c.tagged = hasHashTag(o.Prefix)
		c.info.Atomic = c.tagged
	}
	return c
}

// ask completes info with what the servers say.
func (c *Cache) ask(ctx context.Context) error {
	var all []facts
	err := again(ctx, func(int) error {
		var mu sync.Mutex
		var seen []facts
		err := c.detach(ctx, c.options.Timeout, func(ctx context.Context) error {
			return c.eachMaster(ctx, func(ctx context.Context, node *driver.Client) error {
				f, err := askServer(ctx, node)
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, f)
				return err
			})
		})
		mu.Lock()
		defer mu.Unlock()
		all = append([]facts(nil), seen...)
		return err
	}, mayHelpAgain)
	if err != nil {
		hungUp := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
		err = fail("ask the server", err)
		if hungUp || errors.Is(err, errDriver) {
			err = fmt.Errorf("%w; where the server wants TLS and the client has none, it does so (rediss:// in place of redis://)", err)
		}
		return err
	}
	powerLoss, mayEvict, far := true, false, time.Duration(0)
	for _, f := range all {
		if f.cluster && c.cluster == nil {
			return errors.New("redis: the server is part of a cluster; a URL with redis+cluster or rediss+cluster, or a *redis.ClusterClient is needed")
		}
		powerLoss = powerLoss && f.synced
		mayEvict = mayEvict || f.mayEvict
		far = max(far, f.roundTrip)
	}
	if c.options.ReadAhead == 0 && far > nearTrip {
		c.ahead = readAheadFar
	}
	if powerLoss && len(all) > 0 {
		c.info.Durability = backend.SurvivesPowerLoss
	}
	c.info.MayEvict = c.info.MayEvict || mayEvict || len(all) == 0
	return nil
}

// facts is what matters here of a server's settings.
type facts struct {
	synced   bool // writes are on the disk before they are acknowledged
	mayEvict bool // keys without a TTL too
	cluster  bool
	// roundTrip is the shortest of some.
	roundTrip time.Duration
}

// askServer returns the facts of a server. What it may not ask counts as the least
// promise.
func askServer(ctx context.Context, node *driver.Client) (facts, error) {
	text, err := node.Info(ctx).Result()
	var answered driver.Error
	if errors.As(err, &answered) {
		if code := codeOf([]byte(answered.Error())); code != "NOPERM" {
			return facts{}, err
		}
		return facts{mayEvict: true}, nil
	}
	if err != nil {
		return facts{}, err
	}
	said := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			said[name] = value
		}
	}
	f := facts{
		cluster: said["cluster_enabled"] == "1",
		// Other policies drop only keys with a TTL; Options.TTL counts by itself.
		mayEvict: said["maxmemory"] != "0" && !isPolicyWithTTL(said["maxmemory_policy"]),
	}
	if said["loading"] == "1" {
		return f, serverError{"LOADING"}
	}
	for range 5 {
		start := time.Now()
		if err := node.Echo(ctx, "").Err(); err != nil {
			return f, err
		}
		if trip := time.Since(start); f.roundTrip == 0 || trip < f.roundTrip {
			f.roundTrip = trip
		}
	}
	if said["aof_enabled"] != "1" {
		return f, nil
	}
	settings, err := node.ConfigGet(ctx, "appendfsync").Result()
	if err != nil && !errors.As(err, &answered) {
		return f, err
	}
	f.synced = err == nil && settings["appendfsync"] == "always"
	return f, nil
}

func isPolicyWithTTL(policy string) bool {
	return policy == "noeviction" || strings.HasPrefix(policy, "volatile-")
}

// eachMaster calls f for the server, or for each master of a cluster at the same
// time.
func (c *Cache) eachMaster(ctx context.Context, f func(ctx context.Context, node *driver.Client) error) error {
	if c.single != nil {
		return f(ctx, c.single)
	}
	return c.cluster.ForEachMaster(ctx, f)
}

// Info implements backend.Cache. Atomic is false for a cluster, unless
// Options.Prefix has a hash tag. Durability is the server's as it was when the cache
// was opened: power loss if it syncs its log after each write (appendonly yes,
// appendfsync always), else the end of this process.
func (c *Cache) Info() backend.Info { return c.info }

// Close implements backend.Cache. It closes the connections if Open made them.
func (c *Cache) Close() error {
	var err error
	c.closing.Do(func() {
		c.calls.end()
		if c.owned {
			// This ends what runs on for calls that were cancelled.
			if e := c.client.Close(); e != nil && !errors.Is(e, driver.ErrClosed) {
				err = fail("close", e)
			}
		}
		c.jobs.Wait()
	})
	return err
}

// begin counts a call; c.calls.leave must follow unless it fails.
func (c *Cache) begin(ctx context.Context, doing string) error {
	if ctx.Err() != nil {
		return ended(ctx, doing)
	}
	return c.calls.enter()
}

// Txn implements backend.Cache.
func (c *Cache) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	if err := c.begin(ctx, "transaction"); err != nil {
		return err
	}
	defer c.calls.leave()
	return backend.BufferedTxn(ctx, entered{c}, fn)
}

// entered is the cache inside a call that Close waits for already: what the call
// does further must not be turned away.
type entered struct{ *Cache }

func (e entered) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	return e.getMany(ctx, keys, visit)
}

func (e entered) SetMany(ctx context.Context, items []backend.Item) error {
	return e.setMany(ctx, items)
}

// keyLength is how long a key is with its prefix.
func (c *Cache) keyLength() int { return len(c.options.Prefix) + len(backend.Key{}) }

func (c *Cache) appendKey(to []byte, key *backend.Key) []byte {
	return append(append(to, c.options.Prefix...), key[:]...)
}

// ownKey returns the key in what a server calls one, if it is one of the cache's.
func (c *Cache) ownKey(name string) (key backend.Key, ok bool) {
	if len(name) != c.keyLength() || !strings.HasPrefix(name, c.options.Prefix) {
		return key, false
	}
	copy(key[:], name[len(c.options.Prefix):])
	return key, true
}

// nodeOf returns the client for the server that a key is on.
func (c *Cache) nodeOf(ctx context.Context, key string) (*driver.Client, error) {
	if c.single != nil {
		return c.single, nil
	}
	return c.cluster.MasterForKey(ctx, key)
}

// spread says whether keys are on several servers.
func (c *Cache) spread() bool { return c.cluster != nil && !c.tagged }

// appendMark appends what the server is asked to say at the end of a request. If the
// last answer is something else, the answers are not to what was asked: the
// connection had some left of an earlier request, or a proxy repeated some.
func (c *Cache) appendMark(to []byte) []byte {
	return strconv.AppendUint(append(to, c.markStart...), c.marks.Add(1), 36)
}

// allowance is the time on top of Options.Timeout for so many bytes; an entry counts
// as 1 KiB more than its value.
func allowance(bytes int) time.Duration {
	return time.Duration(bytes) * time.Second / (4 << 20)
}

// checkEnd returns an error unless the last answer is the mark of the request.
func checkEnd(end *reply, mark []byte) error {
	switch {
	case end.code != "":
		return serverError{end.code}
	case end.kind != '$' || end.from < 0 || string(end.value()) != string(mark):
		return errStrange
	}
	return nil
}
