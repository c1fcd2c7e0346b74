package s3

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/embedonce/embedonce/backend"
)

// Cache is a backend.Cache in an S3 bucket. Open and New make one; any number of
// goroutines may use it.
type Cache struct {
	remote  *remote
	options Options
	info    backend.Info
	clock   clock
	view    *view
	index   *indexCache // nil if there is none
	idle    func()      // closes the connections that nobody uses; nil if they aren't ours

	calls   calls
	closing sync.Once
	ended   context.Context // ends with Close, for work that no call waits for any more
	end     context.CancelFunc

	fresh  freshness
	writes writes
	tails  tailCache
	// deleting is a lock of Delete that a context can end the wait for.
	deleting chan struct{}
	// retention is how long tombstones are kept: a variable for the tests.
	retention time.Duration
}

var _ backend.Cache = (*Cache)(nil)

const (
	maxValueBytes = 64 << 20
	// maxBatchItems bounds the index of a segment, which readers hold whole.
	maxBatchItems = 1 << 20
	// maxBatchBytes is held twice while it is written.
	maxBatchBytes = 1 << 30

	// BenchmarkSweep is where these come from; docs/backends.md has it.
	infoReaders = 4
)

// Open opens the cache at location, s3://BUCKET or s3://BUCKET/PREFIX, over a client
// of its own, and reads its indexes. The bucket must exist, the prefix need not.
// opts may be nil. Region, endpoint and credentials come from opts, from the
// environment, or from the shared configuration files.
//
// Open takes no context: each of its requests ends after Options.Timeout.
//
// # Errors
//
// A server that can't be reached, a bucket that doesn't exist, and credentials or
// permissions that don't suffice are backend.ErrUnavailable, and the error says
// which. No error has a key, a name of an object, or a part of a credential.
func Open(location string, opts *Options) (*Cache, error) {
	bucket, prefix, problem := parseLocation(location)
	var problems []error
	if problem != nil {
		problems = append(problems, problem)
	} else if opts != nil && opts.Prefix != "" {
		problems = append(problems, fmt.Errorf("Options.Prefix is set; Open takes it from the url, s3://BUCKET/PREFIX"))
	}
	o, err := opts.withDefaults("Open", true, problems...)
	if err != nil {
		return nil, err
	}
	o.Prefix = prefix
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	defer cancel()
	client, idle, err := ownClient(ctx, &o)
	if err != nil {
		return nil, fmt.Errorf("s3.Open: %w", err)
	}
	c, err := open(client, bucket, o)
	if err != nil {
		idle()
		return nil, err
	}
	c.idle = idle
	return c, nil
}

// New opens the cache in a bucket over a client of the caller's, which Close leaves
// as it is. The client's own retries are not used. opts may be nil.
//
// Its errors are those of Open.
func New(client *awss3.Client, bucket string, opts *Options) (*Cache, error) {
	var problems []error
	if client == nil {
		problems = append(problems, fmt.Errorf("client is nil"))
	}
	if err := checkBucket(bucket); err != nil {
		problems = append(problems, err)
	}
	o, err := opts.withDefaults("New", false, problems...)
	if err != nil {
		return nil, err
	}
	return open(client, bucket, o)
}

func ownClient(ctx context.Context, o *Options) (client *awss3.Client, idle func(), err error) {
	load := []func(*config.LoadOptions) error{config.WithHTTPClient(awshttp.NewBuildableClient())}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	if o.Credentials != nil {
		load = append(load, config.WithCredentialsProvider(o.Credentials))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		// The SDK's text may quote a configuration file.
		return nil, nil, &failure{"the configuration of the AWS SDK, in the environment or in its files, can't be read", []error{err}}
	}
	buildable, ok := cfg.HTTPClient.(*awshttp.BuildableClient) // with the CA bundle of the configuration
	if !ok {
		buildable = awshttp.NewBuildableClient()
	}
	// One that we can tell to close its connections.
	transport := buildable.GetTransport()
	transport.MaxIdleConns = 0 // no limit but the one for the host
	transport.MaxIdleConnsPerHost = 2*o.ParallelGets + 2*o.WriteLanes
	plain := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	hasRegion := true
	client = awss3.NewFromConfig(cfg, func(s *awss3.Options) {
		s.HTTPClient = plain
		s.Logger = logging.Nop{} // errors say what there is to say
		if o.Endpoint != "" {
			s.BaseEndpoint = aws.String(o.Endpoint)
		}
		if s.BaseEndpoint != nil {
			s.UsePathStyle = true
			if s.Region == "" {
				s.Region = "us-east-1"
			}
		}
		hasRegion = s.Region != ""
	})
	if !hasRegion {
		return nil, nil, fmt.Errorf("no region: set Options.Region or the environment variable AWS_REGION")
	}
	return client, transport.CloseIdleConnections, nil
}

func open(client *awss3.Client, bucket string, o Options) (*Cache, error) {
	c := &Cache{
		remote:  &remote{client: client, bucket: bucket, prefix: o.Prefix, options: o},
		options: o,
		info: backend.Info{
			Atomic:        true,
			Durability:    backend.SurvivesPowerLoss,
			Reach:         backend.ReachHosts,
			Lag:           o.Freshness,
			SnapshotReads: true,
			MaxValueBytes: maxValueBytes,
			MaxBatchItems: maxBatchItems,
			MaxBatchBytes: maxBatchBytes,
			Readers:       infoReaders,
			Writers:       o.WriteLanes,
		},
		clock:     clock{now: time.Now},
		view:      newView(),
		deleting:  make(chan struct{}, 1),
		retention: 7 * 24 * time.Hour,
	}
	if o.IndexCache != "" {
		var err error
		if c.index, err = openIndexCache(o.IndexCache, client.Options().BaseEndpoint, bucket, o.Prefix); err != nil {
			return nil, fmt.Errorf("s3.Open: Options.IndexCache: %w", err)
		}
	}
	c.ended, c.end = context.WithCancel(context.Background())
	c.writes.init(o.WriteLanes)
	if err := c.freshen(c.ended, time.Now(), true); err != nil {
		c.end()
		c.fresh.flights.Wait()
		return nil, err
	}
	return c, nil
}

// randomID returns a number that no other writer has.
func randomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:])
}

// Info implements backend.Cache.
func (c *Cache) Info() backend.Info { return c.info }

// Close implements backend.Cache. A segment that is being written for a call that
// has gone is waited for, at most as long as Options.Timeout says.
func (c *Cache) Close() error {
	c.closing.Do(func() {
		c.calls.end()
		c.writes.lanes.Wait()
		c.end()
		c.fresh.flights.Wait()
		if c.idle != nil {
			c.idle()
		}
	})
	return nil
}

// enter begins a call; leave must follow if there is no error.
func (c *Cache) enter(ctx context.Context, doing string) error {
	if ctx.Err() != nil {
		return c.remote.ended(ctx, doing)
	}
	return c.calls.enter()
}

// Txn implements backend.Cache.
func (c *Cache) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	if err := c.enter(ctx, "transaction"); err != nil {
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

// calls counts the calls that are running, so that Close can wait for them.
type calls struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// enter returns errClosed after end; otherwise leave must follow.
func (c *calls) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.running.Add(1)
	return nil
}

func (c *calls) leave() { c.running.Done() }

// end lets nobody enter any more and returns when all have left.
func (c *calls) end() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
}
