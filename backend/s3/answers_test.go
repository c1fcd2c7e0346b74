package s3

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// TestLostAnswers: the object is stored, the answer is lost; the second try finds it
// there. With and without a server that knows the condition.
func TestLostAnswers(t *testing.T) {
	for _, conditional := range []bool{true, false} {
		for _, code := range []int{400, 501} {
			s := newStore(t, bestServer(t))
			c := s.open(t, nil)
			lost := false
			s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
				switch {
				case isPut(r) && !lost:
					lost = true
					pass.ServeHTTP(&discard{make(http.Header)}, r)
					cut()
				case isPut(r) && r.Header.Get("If-None-Match") != "" && !conditional:
					_, _ = io.Copy(io.Discard, r.Body)
					refuse(w, code, "NotImplemented")
				default:
					pass.ServeHTTP(w, r)
				}
			})
			require.NoError(t, c.SetMany(ctxb, testItems(0, 20, 100, 'a')))
			s.set(nil)
			require.Len(t, s.names(t), 1)
			requireStored(t, c, testItems(0, 20, 100, 'a'))
			absorbed := int64(0)
			if conditional {
				absorbed = 1
			}
			require.Equal(t, absorbed, c.Counters().Absorbed)
		}
	}
}

// TestAnotherObjectOfTheName is no success.
func TestAnotherObjectOfTheName(t *testing.T) {
	s := newStore(t, bestServer(t))
	c := s.open(t, nil)
	lost := false
	s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if isPut(r) && !lost {
			lost = true
			name := r.URL.Path[strings.LastIndex(r.URL.Path, "/s/")+1:]
			_, body := testSegment(testItems(7, 1, int(r.ContentLength)/2, 'z'))
			body = append(body, make([]byte, int(r.ContentLength))...)[:r.ContentLength]
			raw := s.raw()
			raw.client = rawClient(newProxy(t, s.server).URL)
			if err := raw.put(ctxb, name, body); err != nil {
				t.Error(err)
			}
			cut()
		}
		pass.ServeHTTP(w, r)
	})
	require.ErrorIs(t, c.SetMany(ctxb, testItems(0, 20, 100, 'a')), backend.ErrUnavailable)
	require.Empty(t, readAll(t, c, testKeys(20)))
}

// TestBodiesThatBreak: what came is visited once, and only the rest is asked for
// again.
func TestBodiesThatBreak(t *testing.T) {
	s := newStore(t, fakeServer(t))
	c := s.open(t, nil)
	items := testItems(0, 600, 6208, 'b')
	require.NoError(t, c.SetMany(ctxb, items))
	var broken, bytesSent atomic.Int64
	s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if !isGet(r) {
			pass.ServeHTTP(w, r)
			return
		}
		// A third of what is asked for, then the connection is reset.
		answer := &recorded{header: make(http.Header)}
		pass.ServeHTTP(answer, r)
		for k, v := range answer.header {
			w.Header()[k] = v
		}
		w.WriteHeader(answer.status)
		n := answer.body.Len()
		if n > 20_000 {
			n /= 3
			broken.Add(1)
		}
		bytesSent.Add(int64(n))
		_, _ = w.Write(answer.body.Bytes()[:n])
		if n < answer.body.Len() {
			w.(http.Flusher).Flush()
			cut()
		}
	})
	requireStored(t, c, items)
	require.Greater(t, broken.Load(), int64(4), "progress counts, more failures than tries are got over")
	require.Less(t, bytesSent.Load(), int64(2*600*6244), "nothing is read twice but the frame that was cut")
}

type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(status int)      { r.status = status }
func (r *recorded) Write(p []byte) (int, error) { return r.body.Write(p) }

// TestWrongAnswers to reads: shorter, longer, shifted. None is taken for a value.
func TestWrongAnswers(t *testing.T) {
	for name, spoil := range map[string]func(b []byte) []byte{
		"short":   func(b []byte) []byte { return b[:len(b)/2] },
		"empty":   func([]byte) []byte { return nil },
		"longer":  func(b []byte) []byte { return append(b, b...) },
		"shifted": func(b []byte) []byte { return append(bytes.Clone(b[10:]), b[:10]...) },
		"zeros":   func(b []byte) []byte { return make([]byte, len(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, fakeServer(t))
			o := testOptions(s.proxy)
			o.Timeout = time.Second
			c := s.open(t, o)
			require.NoError(t, c.SetMany(ctxb, testItems(0, 20, 300, 'b')))
			s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
				if !isGet(r) {
					pass.ServeHTTP(w, r)
					return
				}
				answer := &recorded{header: make(http.Header)}
				pass.ServeHTTP(answer, r)
				body := spoil(answer.body.Bytes())
				w.Header().Set("Content-Length", strconv.Itoa(len(body)))
				w.WriteHeader(answer.status)
				_, _ = w.Write(body)
			})
			unreadable := 0
			err := c.GetMany(ctxb, testKeys(20), func(i int, value []byte) error {
				if value == nil {
					unreadable++
					return backend.ErrForeign
				}
				t.Errorf("%d bytes are taken for a value", len(value))
				return nil
			})
			if err == nil {
				require.Equal(t, 20, unreadable)
			} else {
				require.ErrorIs(t, err, backend.ErrUnavailable)
			}
		})
	}
}

// TestDamagedFrame: the older value is offered, else the key is visited with nil.
func TestDamagedFrame(t *testing.T) {
	s := newStore(t, fakeServer(t))
	c := s.open(t, nil)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 5, 100, 'a')))
	first := s.names(t)[0]
	require.NoError(t, c.SetMany(ctxb, testItems(3, 5, 100, 'b')))
	for _, name := range s.names(t) {
		if name == first {
			continue
		}
		var size int64
		_, err := s.raw().list(ctxb, name, "", func(o object) { size = o.bytes })
		require.NoError(t, err)
		body, err := s.raw().readRange(ctxb, name, 0, uint64(size))
		require.NoError(t, err)
		for i := range 5 {
			body[i*136+i*8] ^= 1 // a key, or the length
		}
		require.NoError(t, s.raw().put(ctxb, name, body))
	}
	for _, c := range []*Cache{c, s.open(t, nil)} {
		got := make(map[int]string)
		require.NoError(t, c.GetMany(ctxb, testKeys(8), func(i int, value []byte) error {
			if value == nil {
				got[i] = "unreadable"
				return backend.ErrForeign
			}
			got[i] = string(value[5])
			return nil
		}))
		require.Equal(t, map[int]string{0: "a", 1: "a", 2: "a", 3: "a", 4: "a", 5: "unreadable", 6: "unreadable", 7: "unreadable"}, got)
		require.EqualValues(t, 5, c.Counters().Mismatched)
	}
	require.ErrorIs(t, c.Compact(ctxb), backend.ErrCorrupt)
	require.Len(t, s.names(t), 2, "nothing was written")
}

// TestForeignObjects are left alone and counted.
func TestForeignObjects(t *testing.T) {
	s := newStore(t, bestServer(t))
	c := s.open(t, nil)
	items := testItems(0, 30, 100, 'a')
	require.NoError(t, c.SetMany(ctxb, items))
	good := s.names(t)[0]
	parsed, _ := parseName(good)
	var size int64
	_, err := s.raw().list(ctxb, good, "", func(o object) { size = o.bytes })
	require.NoError(t, err)
	body, err := s.raw().readRange(ctxb, good, 0, uint64(size))
	require.NoError(t, err)
	named := func(change func(n *objectName)) string {
		n := parsed
		n.version.stamp++
		n.seq++
		change(&n)
		return n.String()
	}
	future := bytes.Clone(body)
	future[len(future)-20]++
	reseal(future, int(parsed.tail))
	for name, content := range map[string][]byte{
		"readme.txt":   []byte("hello"),
		"s/readme.txt": []byte("hello"),
		"c/":           nil,
		"s/a/b/c":      nil,
		good + ".bak":  body,
		named(func(n *objectName) { n.seq = 100 }):      nil,       // empty
		named(func(n *objectName) { n.seq = 101 }):      body[:63], // shorter than a footer
		named(func(n *objectName) { n.seq = 102 }):      body[:len(body)-1],
		named(func(n *objectName) { n.seq = 103 }):      body[1:],
		named(func(n *objectName) { n.seq = 104 }):      body, // a copy under another name
		named(func(n *objectName) { n.tail = 1 << 31 }): bytes.Repeat([]byte{7}, 200_000),
		objectName{compacted: true, tail: 64}.String():  bytes.Repeat([]byte("garbage"), 1000),
		named(func(n *objectName) { n.seq = 105 }):      future,
	} {
		if strings.HasSuffix(name, "/") && strings.HasPrefix(s.name, "versitygw") {
			continue // a folder there
		}
		require.NoError(t, s.raw().put(ctxb, name, content), name)
	}
	// Wrong hints in a name cost a request, and nothing else.
	w := newSegmentWriter(testItems(50, 3, 100, 'h'))
	v := version{uint64(time.Now().UnixNano()), 9}
	w.runs = []run{{v, 3}}
	content, _ := w.finish()
	require.NoError(t, s.raw().put(ctxb, objectName{version: v, tail: 1, count: 1 << 30}.String(), content))

	o := testOptions(s.proxy)
	o.Grace = 1
	c = s.open(t, o)
	for range 2 {
		requireStored(t, c, items)
		requireStored(t, c, testItems(50, 3, 100, 'h'))
		require.GreaterOrEqual(t, c.Counters().Foreign, int64(10))
		require.EqualValues(t, 1, c.Counters().Future)
	}
	gets := c.Counters().Gets
	require.NoError(t, c.freshen(ctxb, time.Now(), true))
	require.Equal(t, gets, c.Counters().Gets, "what is no segment is not read again")
	before := len(s.names(t))
	eventuallyCompact(t, s, c, before-1) // two became one, the rest is as it was
	requireStored(t, s.open(t, nil), items)
}
