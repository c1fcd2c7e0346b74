package s3

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/conformance"
)

var proxies sync.Map // by location

func proxyOf(location string) *proxy {
	p, _ := proxies.Load(location)
	return p.(*proxy)
}

// A location is http://HOST:PORT/PREFIX, of a proxy that lives as long as the case.
func conformanceSuite(server func(testing.TB) *server, freshness time.Duration) conformance.Suite {
	options := func(location string) (endpoint, prefix string) {
		at := strings.LastIndexByte(location, '/')
		return location[:at], location[at+1:]
	}
	return conformance.Suite{
		New: func(t testing.TB) string {
			p := newProxy(t, server(t))
			location := p.URL + "/" + newPrefix()
			proxies.Store(location, p)
			return location
		},
		Open: func(t testing.TB, location string) backend.Cache {
			endpoint, prefix := options(location)
			c, err := Open("s3://"+testBucket+"/"+prefix, &Options{
				Endpoint: endpoint, Region: "us-east-1", Credentials: testCredentials, Freshness: freshness, Timeout: 3 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		Want: backend.Info{
			Atomic: true, Durability: backend.SurvivesPowerLoss, Reach: backend.ReachHosts, Lag: freshness, SnapshotReads: true,
			MaxValueBytes: maxValueBytes, MaxBatchItems: maxBatchItems, MaxBatchBytes: maxBatchBytes,
		},
		Plant: func(t testing.TB, location string, k backend.Key, what conformance.Foreign) {
			if what == conformance.WrongType {
				t.Skip("everything under a key is bytes")
			}
			endpoint, prefix := options(location)
			plantEmpty(t, &store{&proxy{URL: endpoint}, prefix}, k)
		},
		Fault: func(t testing.TB, location string, f conformance.Fault) (undo func()) {
			return injectFault(t, proxyOf(location), location, f)
		},
		Consistency: freshness + 3*time.Second,
	}
}

// plantEmpty writes a segment with a frame that has no value, as this package never
// does.
func plantEmpty(t testing.TB, s *store, k backend.Key) {
	c, err := s.tryOpen(testOptions(s.proxy))
	require.NoError(t, err)
	_, err = c.Delete(ctxb, []backend.Key{k}, nil) // an older value would be offered next
	require.NoError(t, err)
	require.NoError(t, c.Close())
	v := version{uint64(time.Now().UnixNano()), randomID()}
	w := &segmentWriter{data: appendFrame(nil, &k, nil), entries: []entry{{k, 0}}, runs: []run{{v, 1}}}
	body, tail := w.finish()
	name := objectName{version: v, tail: uint32(tail), count: 1}
	require.NoError(t, s.raw().put(ctxb, name.String(), body))
}

func injectFault(t testing.TB, p *proxy, location string, f conformance.Fault) (undo func()) {
	switch f.Kind {
	case conformance.FailAtItem:
		p.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			name, _ := parseName(r.URL.Path[strings.LastIndex(r.URL.Path, "/s/")+1:])
			switch {
			case r.Method != http.MethodPut || int(name.count) <= f.Item:
				pass.ServeHTTP(w, r)
			case f.Item%3 == 0:
				refuse(w, http.StatusInternalServerError, "InternalError")
			case f.Item%3 == 1: // it is stored, and nobody hears of it
				pass.ServeHTTP(&discard{make(http.Header)}, r)
				cut()
			default:
				_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2)
				cut()
			}
		})
	case conformance.FailAtCommit: // a PUT is all there is to it
		p.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.Method == http.MethodPut {
				refuse(w, http.StatusInternalServerError, "InternalError")
				return
			}
			pass.ServeHTTP(w, r)
		})
	case conformance.Slow:
		p.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			select {
			case <-time.After(120 * time.Millisecond):
			case <-r.Context().Done():
			}
			pass.ServeHTTP(w, r)
		})
	case conformance.Full:
		var written atomic.Int64
		p.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.Method == http.MethodPut && written.Add(r.ContentLength) > 4<<20 {
				refuse(w, http.StatusInsufficientStorage, "XMinioStorageFull")
				return
			}
			pass.ServeHTTP(w, r)
		})
	case conformance.Cut:
		p.set(func(http.ResponseWriter, *http.Request, http.Handler) { cut() })
	case conformance.Damage:
		at := strings.LastIndexByte(location, '/')
		damage(t, &store{&proxy{URL: location[:at]}, location[at+1:]}, f.Item)
		return func() {}
	default:
		return nil // there are no locks
	}
	return func() { p.set(nil) }
}

// damage changes bytes of values in one segment, chosen by n.
func damage(t testing.TB, s *store, n int) {
	names := s.names(t)
	name := names[n%len(names)]
	var size int64
	_, err := s.raw().list(ctxb, name, "", func(o object) { size = o.bytes })
	require.NoError(t, err)
	body, err := s.raw().readRange(ctxb, name, 0, uint64(size))
	require.NoError(t, err)
	parsed, ok := parseName(name)
	require.True(t, ok)
	tail, err := parseTail(parsed, body, size)
	require.NoError(t, err)
	offset := 0
	for i := range int(tail.frames) {
		if i%7 == n%7 {
			body[offset+frameHead+n%int(tail.size(i))] ^= 0x55
		}
		offset += frameHead + int(tail.size(i))
	}
	require.NoError(t, s.raw().put(ctxb, name, body))
}

// TestConformance runs on a real server if there is one. Everything is fresh, so
// that each call lists the store.
func TestConformance(t *testing.T) {
	t.Logf("on %s", bestServer(t).name)
	conformanceSuite(bestServer, 1).Run(t)
}

// TestConformanceInProcess runs on another server, which is there on every machine.
func TestConformanceInProcess(t *testing.T) {
	t.Logf("on %s", fakeServer(t).name)
	conformanceSuite(fakeServer, 1).Run(t)
}

func TestSoak(t *testing.T) {
	t.Logf("on %s", bestServer(t).name)
	// Listing for each call would be most of what is done. And a PUT takes as long as
	// on a real store: processes that write without a pause into a server on the same
	// machine fill it faster than another one can read their indexes.
	suite := conformanceSuite(bestServer, 200*time.Millisecond)
	plain := suite.New
	suite.New = func(t testing.TB) string {
		location := plain(t)
		proxyOf(location).set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if isPut(r) {
				<-time.After(50 * time.Millisecond)
			}
			pass.ServeHTTP(w, r)
		})
		return location
	}
	suite.Soak(t)
}

func BenchmarkCache(b *testing.B) { conformanceSuite(bestServer, 0).Bench(b) }
