package redis

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// forms is what a URL may look like. What was given instead is never quoted: it may
// hold a password wherever it was mistyped.
const forms = `redis://user:password@host:6379/0 for one server, ` +
	`redis+sentinel://user:password@host:26379/0?master_name=name&addr=host2:26379 for one that Sentinel watches, ` +
	`redis+cluster://user:password@host:6379?addr=host2:6379 for a cluster, ` +
	`each with rediss instead of redis for TLS, ` +
	`and unix://user:password@/path?db=0 for a socket; ` +
	`in a user or a password write %2F, %3A, %40, %3F, %23 and %25 for / : @ ? # and %`

// Open opens the cache on the server that url names:
//
//	redis://user:password@host:6379/0
//	redis+sentinel://user:password@host:26379/0?master_name=name&addr=host2:26379
//	redis+cluster://user:password@host:6379?addr=host2:6379&addr=host3:6379
//	unix://user:password@/path/to/socket?db=0
//
// rediss, rediss+sentinel and rediss+cluster use TLS and verify the server. Further
// parameters are those of go-redis's ParseURL, ParseFailoverURL and ParseClusterURL.
// opts may be nil. Open asks the server what Info says, so the server must be there.
// Close closes the connections.
//
// # Errors
//
// A server that can't be reached, or that still loads its data, is
// backend.ErrUnavailable. Neither errors nor logs quote the URL.
func Open(url string, opts *Options) (*Cache, error) {
	o, err := opts.withDefaults()
	dial, urlErr := dialer(url, &o)
	if err := errors.Join(urlErr, err); err != nil {
		return nil, fmt.Errorf("redis.Open: %w", err)
	}
	return open(dial(), o, true)
}

var errURL = errors.New("url is none of " + forms)

// dialer returns what makes a client for a URL. That doesn't connect yet.
func dialer(text string, o *Options) (func() driver.UniversalClient, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return nil, errURL
	}
	scheme, kind, _ := strings.Cut(scheme, "+")
	if scheme == "unix" && kind != "" || scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		return nil, errURL
	}
	parsed, err := url.Parse(scheme + "://" + rest)
	if err != nil {
		return nil, errURL
	}
	if o.TLS != nil && scheme != "rediss" {
		return nil, errors.New("Options.TLS is set, and url has none of the schemes rediss, rediss+sentinel and rediss+cluster")
	}
	if strings.Contains(rest, "#") { // what is before it would be taken for a host
		return nil, errors.New("url has a #; in a user or a password write %23 for it")
	}
	plain := parsed.String()
	switch kind {
	case "":
		if parsed.Query().Has("addr") || parsed.Query().Has("master_name") {
			return nil, errors.New("url has several addresses, or a master_name, and the scheme of one server; redis+cluster or redis+sentinel is meant")
		}
		return dialServer(plain, o)
	case "sentinel":
		return dialSentinel(plain, o)
	case "cluster":
		return dialCluster(plain, o)
	}
	return nil, errURL
}

var errParameters = errors.New("the host, path or parameters of url can't be read; it must be one of " + forms)

func dialServer(plain string, o *Options) (func() driver.UniversalClient, error) {
	s, err := driver.ParseURL(plain)
	if err != nil {
		return nil, errParameters
	}
	if o.TLS != nil {
		name := s.TLSConfig.ServerName
		s.TLSConfig = o.TLS.Clone()
		setDefault(&s.TLSConfig.ServerName, name)
	}
	tune(&s.ReadTimeout, &s.WriteTimeout, &s.DialTimeout, &s.PoolTimeout, o)
	s.ContextTimeoutEnabled = true
	s.Protocol = 2
	s.MaxRetries = -1
	s.DialerRetries = 1
	s.PoolSize = o.Connections
	s.PipelinePoolSize = -1
	setDefault(&s.ReadBufferSize, bufferBytes)
	setDefault(&s.WriteBufferSize, bufferBytes)
	s.DisableIdentity = true
	s.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return func() driver.UniversalClient { return driver.NewClient(s) }, nil
}

func dialSentinel(plain string, o *Options) (func() driver.UniversalClient, error) {
	s, err := driver.ParseFailoverURL(plain)
	if err != nil || s.MasterName == "" {
		return nil, errParameters
	}
	if s.ReplicaOnly || s.RouteByLatency || s.RouteRandomly || s.UseDisconnectedReplicas {
		return nil, errReplicas
	}
	if o.TLS != nil {
		s.TLSConfig = o.TLS.Clone()
	}
	tuneSentinel(s, o)
	return func() driver.UniversalClient { return driver.NewFailoverClient(s) }, nil
}

func tuneSentinel(s *driver.FailoverOptions, o *Options) {
	tune(&s.ReadTimeout, &s.WriteTimeout, &s.DialTimeout, &s.PoolTimeout, o)
	s.ContextTimeoutEnabled = true
	s.Protocol = 2
	s.MaxRetries = -1
	s.DialerRetries = 1
	s.PoolSize = o.Connections
	s.PipelinePoolSize = -1
	setDefault(&s.ReadBufferSize, bufferBytes)
	setDefault(&s.WriteBufferSize, bufferBytes)
	s.DisableIdentity = true
}

func dialCluster(plain string, o *Options) (func() driver.UniversalClient, error) {
	s, err := driver.ParseClusterURL(plain)
	if err != nil {
		return nil, errParameters
	}
	if s.ReadOnly || s.RouteByLatency || s.RouteRandomly {
		return nil, errReplicas
	}
	if o.TLS != nil {
		s.TLSConfig = o.TLS.Clone()
	}
	tuneCluster(s, o)
	return func() driver.UniversalClient { return driver.NewClusterClient(s) }, nil
}

func tuneCluster(s *driver.ClusterOptions, o *Options) {
	tune(&s.ReadTimeout, &s.WriteTimeout, &s.DialTimeout, &s.PoolTimeout, o)
	s.ContextTimeoutEnabled = true
	s.Protocol = 2
	s.DialerRetries = 1
	s.PoolSize = o.Connections
	s.PipelinePoolSize = -1
	setDefault(&s.ReadBufferSize, bufferBytes)
	setDefault(&s.WriteBufferSize, bufferBytes)
	s.DisableIdentity = true
	s.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// bufferBytes is the size of a connection's buffers.
const bufferBytes = 64 << 10

// tune sets time-outs: the contexts of the package bound every wait, and these only
// what is left of a call that was cancelled.
func tune(read, write, dial, pool *time.Duration, o *Options) {
	*read = o.Timeout + allowance(maxBatchBytes)
	*write = *read
	*dial = min(*dial, o.Timeout)
	setDefault(dial, o.Timeout)
	*pool = *read
}

// New makes a cache over client, which stays the caller's and must stay open until
// Close has returned. client is a *redis.Client of go-redis v9, for one server or as
// NewFailoverClient makes it, or a *redis.ClusterClient. opts may be nil. New asks the
// server what Info says, so the server must be there.
//
// A call that is cancelled returns at once; with a borrowed client, its connection is
// free again when the server answers or the client's ReadTimeout is over, and Close
// waits for that. A read without a deadline ends after the client's ReadTimeout where
// that is longer than Options.Timeout. With the client's ContextTimeoutEnabled,
// deadlines end a read at once, and Options.Timeout any request.
//
// # Errors
//
// A client of another type is refused, and so is one that waits for ever (no
// ReadTimeout) or that reads from replicas, which may lack what was just written. A
// server that can't be reached is backend.ErrUnavailable.
func New(client driver.UniversalClient, opts *Options) (*Cache, error) {
	o, err := opts.withDefaults()
	var problems []error
	if err != nil {
		problems = append(problems, err)
	}
	if o.TLS != nil {
		problems = append(problems, errors.New("Options.TLS is set; a client that exists has its own TLSConfig"))
	}
	problems = append(problems, checkClient(client))
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("redis.New: %w", err)
	}
	return open(client, o, false)
}

var errReplicas = errors.New("the client reads from replicas, which may lack what was just written; ReadOnly, ReplicaOnly, RouteByLatency and RouteRandomly must be off")

func checkClient(client driver.UniversalClient) error {
	bounded := true
	switch c := client.(type) {
	case *driver.Client:
		if c == nil {
			return errors.New("client is nil")
		}
		bounded = c.Options().ReadTimeout > 0 && c.Options().WriteTimeout > 0 || c.Options().ContextTimeoutEnabled
	case *driver.ClusterClient:
		if c == nil {
			return errors.New("client is nil")
		}
		s := c.Options()
		if s.ReadOnly || s.RouteByLatency || s.RouteRandomly {
			return errReplicas
		}
		bounded = s.ReadTimeout > 0 && s.WriteTimeout > 0 || s.ContextTimeoutEnabled
	case nil:
		return errors.New("client is nil")
	default:
		return fmt.Errorf("client is a %T; *redis.Client and *redis.ClusterClient of go-redis v9 are allowed", client)
	}
	if !bounded {
		return errors.New("the client has no ReadTimeout or no WriteTimeout and could wait for ever; set them, or ContextTimeoutEnabled")
	}
	return nil
}
