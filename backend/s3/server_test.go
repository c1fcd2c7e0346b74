package s3

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
)

var ctxb = context.Background()

const (
	testBucket = "vectors"
	testAccess = "test-access"
	testSecret = "test-secret-that-no-error-may-show"
)

var testCredentials = credentials.NewStaticCredentialsProvider(testAccess, testSecret, "")

// A server is an S3 server that all tests of this process share.
type server struct {
	name    string
	handler http.Handler // what a proxy passes requests to
	stop    func()
}

var servers struct {
	sync.Mutex
	fake, real *server
}

func stopServers() {
	servers.Lock()
	defer servers.Unlock()
	for _, s := range []*server{servers.fake, servers.real} {
		if s != nil {
			s.stop()
		}
	}
}

// fakeServer is gofakes3, in this process.
func fakeServer(t testing.TB) *server {
	servers.Lock()
	defer servers.Unlock()
	if servers.fake == nil {
		store := s3mem.New()
		require.NoError(t, store.CreateBucket(testBucket))
		servers.fake = &server{name: "gofakes3, in process", handler: gofakes3.New(store).Server(), stop: func() {}}
	}
	return servers.fake
}

// bestServer is versitygw if it is installed, or required; else gofakes3.
func bestServer(t testing.TB) *server {
	binary, err := exec.LookPath("versitygw")
	if err != nil {
		require.False(t, slices.Contains(strings.FieldsFunc(os.Getenv("EMBEDONCE_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' }), "s3"),
			"EMBEDONCE_REQUIRE asks for s3, and there is no versitygw on the PATH")
		return fakeServer(t)
	}
	servers.Lock()
	defer servers.Unlock()
	if servers.real == nil {
		servers.real = startGateway(t, binary)
	}
	return servers.real
}

func startGateway(t testing.TB, binary string) *server {
	dir, err := os.MkdirTemp("", "embedonce-s3-")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, testBucket), 0o755))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	cmd := exec.Command(binary, "--port", address, "--access", testAccess, "--secret", testSecret, "--keep-alive", "--quiet", "posix", dir)
	var output lockedBuilder
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start())
	target, err := url.Parse("http://" + address)
	require.NoError(t, err)
	// Connections of the proxies' own go away soon, and so are none that a cache left.
	transport := &http.Transport{MaxIdleConnsPerHost: 128, IdleConnTimeout: 500 * time.Millisecond, DisableCompression: true}
	s := &server{
		name: "versitygw, " + binary,
		handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host }, // the signature has the host
			Transport: transport, FlushInterval: -1,
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) },
		},
		stop: func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			transport.CloseIdleConnections()
			_ = os.RemoveAll(dir)
		},
	}
	require.Eventually(t, func() bool {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, 20*time.Second, 20*time.Millisecond, "versitygw doesn't start: %s", &output)
	return s
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// proxy is the way of one test to a server. It can be told to misbehave.
type proxy struct {
	*server
	URL      string
	requests atomic.Int64
	mu       sync.Mutex
	meddle   func(w http.ResponseWriter, r *http.Request, pass http.Handler)
}

func newProxy(t testing.TB, s *server) *proxy {
	p := &proxy{server: s}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.URL = "http://" + listener.Addr().String()
	own := &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = own.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = own.Close()
		<-done
	})
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.requests.Add(1)
	p.mu.Lock()
	meddle := p.meddle
	p.mu.Unlock()
	if meddle == nil {
		p.handler.ServeHTTP(w, r)
		return
	}
	meddle(w, r, p.handler)
}

// set lets f answer the requests, until it is called again; nil passes them on.
func (p *proxy) set(f func(w http.ResponseWriter, r *http.Request, pass http.Handler)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.meddle = f
}

// cut closes the connection of a request without an answer.
func cut() { panic(http.ErrAbortHandler) }

// refuse answers as S3 does.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("x-amz-request-id", "REQUEST-1")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>Prose with %s and %s</Message></Error>`, code, testAccess, testSecret)
}

// discard is a ResponseWriter for an answer that gets lost.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

var prefixes atomic.Int64

// newPrefix returns a prefix that nobody has used.
func newPrefix() string { return fmt.Sprintf("p%d-%d-%016x", os.Getpid(), prefixes.Add(1), randomID()) }

// testOptions are for a store on this machine: everything is fresh.
func testOptions(p *proxy) *Options {
	return &Options{Endpoint: p.URL, Region: "us-east-1", Credentials: testCredentials, Freshness: 1, Timeout: 4 * time.Second}
}

// rawClient is a client that goes to the server without the package.
func rawClient(endpoint string) *awss3.Client {
	return awss3.New(awss3.Options{
		BaseEndpoint: aws.String(endpoint), Region: "us-east-1", Credentials: testCredentials, UsePathStyle: true,
		HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	})
}

// store is a fresh store behind a proxy of its own.
type store struct {
	*proxy
	prefix string
}

func newStore(t testing.TB, s *server) *store { return &store{newProxy(t, s), newPrefix()} }

func (s *store) open(t testing.TB, opts *Options) *Cache {
	t.Helper()
	c, err := s.tryOpen(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func (s *store) tryOpen(opts *Options) (*Cache, error) {
	if opts == nil {
		opts = testOptions(s.proxy)
	}
	return Open("s3://"+testBucket+"/"+s.prefix, opts)
}

// raw has the requests that a test makes itself.
func (s *store) raw() *remote {
	return &remote{client: rawClient(s.URL), bucket: testBucket, prefix: s.prefix + "/", options: Options{Timeout: 10 * time.Second, MultipartBytes: 1 << 40}}
}

func (s *store) names(t testing.TB) (names []string) {
	t.Helper()
	_, err := s.raw().list(ctxb, "", "", func(o object) { names = append(names, o.name) })
	require.NoError(t, err)
	slices.Sort(names)
	return names
}

func credentialsOf(access, secret string) aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(access, secret, "")
}
