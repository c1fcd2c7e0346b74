package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// times lets the first n requests that want chooses be answered by f.
func times(n int64, want func(r *http.Request) bool, f http.HandlerFunc) func(http.ResponseWriter, *http.Request, http.Handler) {
	var met atomic.Int64
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if want(r) && met.Add(1) <= n {
			f(w, r)
			return
		}
		pass.ServeHTTP(w, r)
	}
}

func isPut(r *http.Request) bool { return r.Method == http.MethodPut }
func isList(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Query().Has("list-type")
}
func isGet(r *http.Request) bool    { return r.Method == http.MethodGet && !isList(r) }
func isDelete(r *http.Request) bool { return r.Method == http.MethodDelete }
func every(*http.Request) bool      { return true }

// silent answers nothing until the client gives up. A server notices that only when it
// has read the body.
func silent(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// operations does everything once, and returns the first error.
func operations(s *store, o *Options) (err error) {
	c, err := s.tryOpen(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	items := testItems(0, 50, 6208, 'o')
	if err := c.SetMany(ctxb, items); err != nil {
		return err
	}
	found := 0
	err = c.GetMany(ctxb, testKeys(50), func(i int, value []byte) error {
		if found++; !bytes.Equal(value, items[i].Value) {
			return errors.New("a wrong value")
		}
		return nil
	})
	if err == nil && found != 50 {
		err = errors.New("a key is missing")
	}
	if err != nil {
		return err
	}
	if _, err := c.Delete(ctxb, testKeys(2), nil); err != nil {
		return err
	}
	return c.Compact(ctxb)
}

// TestPassingFaults are got over without a word.
func TestPassingFaults(t *testing.T) {
	half := func(w http.ResponseWriter, r *http.Request) { // the body is cut in the middle
		w.Header().Set("Content-Length", "100000")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(make([]byte, 1000))
		w.(http.Flusher).Flush()
		cut()
	}
	for name, f := range map[string]http.HandlerFunc{
		"SlowDown":                   func(w http.ResponseWriter, _ *http.Request) { refuse(w, 503, "SlowDown") },
		"InternalError":              func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "InternalError") },
		"an empty 502":               func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
		"ConditionalRequestConflict": func(w http.ResponseWriter, _ *http.Request) { refuse(w, 409, "ConditionalRequestConflict") },
		"RequestTimeout":             func(w http.ResponseWriter, _ *http.Request) { refuse(w, 400, "RequestTimeout") },
		"RequestTimeTooSkewed":       func(w http.ResponseWriter, _ *http.Request) { refuse(w, 403, "RequestTimeTooSkewed") },
		"a connection that is cut":   func(http.ResponseWriter, *http.Request) { cut() },
		"no answer":                  func(_ http.ResponseWriter, r *http.Request) { silent(r) },
		"a body that is cut":         half,
	} {
		t.Run(name, func(t *testing.T) {
			for what, want := range map[string]func(*http.Request) bool{"list": isList, "get": isGet, "put": isPut} {
				s := newStore(t, fakeServer(t))
				o := testOptions(s.proxy)
				o.Grace, o.Timeout = 1, 2*time.Second
				s.set(times(2, want, f))
				require.NoError(t, operations(s, o), what)
				s.set(nil)
				requireStored(t, s.open(t, nil), testItems(2, 48, 6208, 'o'))
			}
		})
	}
}

// TestLastingFaults come out as errors that say what is wrong, and show nothing that
// the server or the SDK says.
func TestLastingFaults(t *testing.T) {
	for _, fault := range []struct {
		name   string
		on     func(*http.Request) bool
		status int // 0: the connection is cut; -1: there is no answer
		code   string
		is     error
		says   []string
	}{
		{"SlowDown", every, 503, "SlowDown", backend.ErrUnavailable, []string{"SlowDown", "HTTP 503"}},
		{"InternalError", every, 500, "InternalError", backend.ErrUnavailable, []string{"InternalError", "REQUEST-1"}},
		{"no such bucket", every, 404, "NoSuchBucket", backend.ErrUnavailable, []string{"there is no such bucket"}},
		{"no such bucket for reads", isGet, 404, "NoSuchBucket", backend.ErrUnavailable, []string{"there is no such bucket"}},
		{"clock", every, 403, "RequestTimeTooSkewed", backend.ErrUnavailable, []string{"clock"}},
		{"wrong key", every, 403, "InvalidAccessKeyId", backend.ErrUnavailable, []string{"doesn't accept the credentials"}},
		{"wrong secret", every, 403, "SignatureDoesNotMatch", backend.ErrUnavailable, []string{"doesn't accept the credentials"}},
		{"region", every, 301, "PermanentRedirect", backend.ErrUnavailable, []string{"region"}},
		{"no list", isList, 403, "AccessDenied", backend.ErrUnavailable, []string{"s3:ListBucket"}},
		{"no get", isGet, 403, "AccessDenied", backend.ErrUnavailable, []string{"s3:GetObject"}},
		{"no put", isPut, 403, "AccessDenied", backend.ErrReadOnly, []string{"s3:PutObject"}},
		{"no delete", isDelete, 403, "AccessDenied", backend.ErrReadOnly, []string{"s3:DeleteObject"}},
		{"quota", isPut, 403, "QuotaExceeded", backend.ErrUnavailable, []string{"full"}},
		{"full", isPut, 507, "XMinioStorageFull", backend.ErrUnavailable, []string{"full"}},
		{"refused", isPut, 400, "InvalidRequest", nil, []string{"InvalidRequest"}},
		{"prose in place of a code", every, 500, "a sentence with " + testSecret, backend.ErrUnavailable, []string{"HTTP 500"}},
		{"cut", every, 0, "", backend.ErrUnavailable, []string{"can't be reached"}},
		{"silent", every, -1, "", backend.ErrUnavailable, []string{"no answer in time"}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			s := newStore(t, fakeServer(t))
			require.NoError(t, s.open(t, nil).SetMany(ctxb, testItems(100, 5, 10, 'x')))
			o := testOptions(s.proxy)
			o.Timeout = 400 * time.Millisecond
			s.set(times(1<<60, fault.on, func(w http.ResponseWriter, r *http.Request) {
				switch fault.status {
				case 0:
					cut()
				case -1:
					silent(r)
				default:
					refuse(w, fault.status, fault.code)
				}
			}))
			if fault.name == "no delete" {
				o.Grace = 1
				require.Eventually(t, func() bool { return operations(s, o) != nil }, 20*time.Second, 100*time.Millisecond)
			}
			err := operations(s, o)
			require.Error(t, err)
			if fault.is != nil {
				require.ErrorIs(t, err, fault.is)
			}
			for _, part := range append(fault.says, "s3://"+testBucket+"/"+s.prefix) {
				require.ErrorContains(t, err, part)
			}
			requireNoSecrets(t, err.Error())
			require.NotErrorIs(t, err, context.Canceled, "nobody has cancelled anything")
			require.NotErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

func requireNoSecrets(t testing.TB, text string) {
	t.Helper()
	for _, secret := range []string{testSecret, testAccess, "Signature=", "Credential=", "AWS4", "Prose", "/s/", "/c/", "X-Amz"} {
		require.NotContains(t, text, secret)
	}
	key := testKey(100)
	require.NotContains(t, text, string(key[:]))
}

func TestServerThatIsNotThere(t *testing.T) {
	_, err := Open("s3://bucket/x", &Options{Endpoint: "http://127.0.0.1:1", Credentials: testCredentials, Timeout: 300 * time.Millisecond})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "refused")
	requireNoSecrets(t, err.Error())
}

func TestMissingBucket(t *testing.T) {
	p := newProxy(t, bestServer(t))
	_, err := Open("s3://no-such-bucket/x", testOptions(p))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "there is no such bucket")
}

func TestWrongCredentials(t *testing.T) {
	s := newStore(t, bestServer(t))
	if strings.HasPrefix(s.name, "gofakes3") { // it checks none
		s.set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { refuse(w, 403, "SignatureDoesNotMatch") })
	}
	o := testOptions(s.proxy)
	o.Credentials = credentialsOf(testAccess, "another-secret")
	_, err := s.tryOpen(o)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "credentials")
	requireNoSecrets(t, err.Error())
}

// TestSkewedClock: the SDK learns the server's time from its answer, and signs the
// next try with it.
func TestSkewedClock(t *testing.T) {
	s := newStore(t, bestServer(t))
	var refused atomic.Int64
	s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil || time.Until(signed).Abs() < 15*time.Minute {
			// The server's clock is an hour ahead of ours.
			w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
			refused.Add(1)
			refuse(w, 403, "RequestTimeTooSkewed")
			return
		}
		w.WriteHeader(http.StatusTeapot) // signed with the server's time
	})
	_, err := s.tryOpen(testOptions(s.proxy))
	require.ErrorContains(t, err, "418", "the second try was signed with the server's time")
	require.EqualValues(t, 1, refused.Load())
}

// TestDelayedListing: the handle knows what it wrote, others find it later.
func TestDelayedListing(t *testing.T) {
	s := newStore(t, fakeServer(t))
	c, other := s.open(t, nil), s.open(t, nil)
	s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if isList(r) {
			q := r.URL.Query()
			q.Set("prefix", q.Get("prefix")+"nothing-of-it")
			r.URL.RawQuery = q.Encode()
		}
		pass.ServeHTTP(w, r)
	})
	items := testItems(0, 10, 100, 'a')
	require.NoError(t, c.SetMany(ctxb, items))
	require.NoError(t, c.freshen(ctxb, time.Now(), true))
	requireStored(t, c, items)
	require.Empty(t, readAll(t, other, testKeys(10)))
	require.NoError(t, c.Compact(ctxb))
	s.set(nil)
	requireStored(t, c, items)
	requireStored(t, other, items)
}

// TestReadersWithAnOldView: the segments that they know are gone. They look again.
func TestReadersWithAnOldView(t *testing.T) {
	s := newStore(t, fakeServer(t))
	o := testOptions(s.proxy)
	o.Freshness = time.Hour
	w := s.open(t, nil)
	items := testItems(0, 400, 100, 'a')
	for i := range 20 {
		require.NoError(t, w.SetMany(ctxb, items[i*20:i*20+20]))
	}
	old := s.open(t, o)
	scanner := s.open(t, o)
	compactor := testOptions(s.proxy)
	compactor.Grace = 1
	eventuallyCompact(t, s, s.open(t, compactor), 1)
	requireStored(t, old, items)
	require.Len(t, scanAll(t, scanner, 10), 400)
}

// TestObjectsThatAreDeleted by somebody else: an error says so, once; afterwards the
// keys are missing, and can be written again.
func TestObjectsThatAreDeleted(t *testing.T) {
	s := newStore(t, bestServer(t))
	c := s.open(t, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 10, 100, 'a')))
	first := s.names(t)[0]
	require.NoError(t, c.SetMany(ctxb, testItems(5, 10, 100, 'b')))
	require.NoError(t, s.raw().remove(ctxb, first))
	found := 0
	err := c.GetMany(ctxb, testKeys(15), func(i int, value []byte) error { found++; return nil })
	require.ErrorIs(t, err, backend.ErrCorrupt)
	require.Equal(t, 10, found)
	require.EqualValues(t, 5, len(readAll(t, c, testKeys(10))))
	require.GreaterOrEqual(t, c.Counters().Lost, int64(1))
	require.NoError(t, c.SetMany(ctxb, testItems(0, 10, 100, 'c')))
	requireStored(t, c, testItems(0, 10, 100, 'c'))
}

// TestStoreThatCantBeListed: what is known is visited, and the error says that more
// may be there.
func TestStoreThatCantBeListed(t *testing.T) {
	s := newStore(t, fakeServer(t))
	o := testOptions(s.proxy)
	o.Timeout = 200 * time.Millisecond
	c := s.open(t, o)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 10, 100, 'a')))
	s.set(times(1<<60, isList, func(w http.ResponseWriter, _ *http.Request) { refuse(w, 503, "SlowDown") }))
	found := 0
	err := c.GetMany(ctxb, testKeys(20), func(int, []byte) error { found++; return nil })
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Equal(t, 10, found)
}

// TestSlowVisitor: a visit that takes longer than a request may go without an answer
// is no fault of the server.
func TestSlowVisitor(t *testing.T) {
	s := newStore(t, fakeServer(t))
	o := testOptions(s.proxy)
	o.Timeout = 400 * time.Millisecond
	c := s.open(t, o)
	items := testItems(0, 500, 6208, 'a')
	require.NoError(t, c.SetMany(ctxb, items))
	visits := 0
	require.NoError(t, c.GetMany(ctxb, testKeys(500), func(i int, value []byte) error {
		if visits++; visits%100 == 0 {
			<-time.After(250 * time.Millisecond)
		}
		require.True(t, bytes.Equal(items[i].Value, value))
		return nil
	}))
	require.Equal(t, 500, visits)
	require.Zero(t, c.Counters().Retries)
}

// TestListedAndGone: somebody deletes segments between a listing and the reading of
// their indexes, again and again. What replaces them was not listed, so that a view
// without them can't tell what is missing.
func TestListedAndGone(t *testing.T) {
	s := newStore(t, fakeServer(t))
	require.NoError(t, s.open(t, nil).SetMany(ctxb, testItems(0, 10, 100, 'a')))
	empty := newStore(t, fakeServer(t)).open(t, nil)
	gone := func(n int64) {
		s.set(times(n, isGet, func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, "NoSuchKey") }))
	}
	gone(1 << 60)
	_, err := s.tryOpen(nil)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "faster than they can be read")
	gone(relists)
	requireStored(t, s.open(t, nil), testItems(0, 10, 100, 'a'))
	require.Empty(t, readAll(t, empty, testKeys(10)))
}
