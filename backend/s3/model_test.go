package s3

import (
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// model is an S3 server for figures: it answers after a set time to the first byte, and
// sends all answers together at a set speed. It keeps what is not frames, and makes
// frames anew with values of zeros, so that a store of any size fits into memory.
type model struct {
	URL     string
	latency time.Duration
	speed   int64 // bytes a second, over all connections; 0 has no limit

	mu      sync.Mutex
	objects map[string]*modelObject
	counts  map[string]int64 // requests by method, "LIST" among them
	sentBy  time.Time        // when what was sent so far has gone out
}

type modelObject struct {
	size    int64
	tail    []byte
	keys    [][]byte // by frame
	offsets []uint32 // of frames, and the end
	body    []byte   // all of it, if it is no segment
}

func newModel(t testing.TB) *model {
	m := &model{objects: make(map[string]*modelObject), counts: make(map[string]int64)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m.URL = "http://" + listener.Addr().String()
	own := &http.Server{Handler: m}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = own.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = own.Close()
		<-done
	})
	return m
}

func (m *model) count(kind string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[kind]
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/"+testBucket+"/")
	kind := r.Method
	if isList(r) {
		kind = "LIST"
	}
	m.mu.Lock()
	m.counts[kind]++
	m.mu.Unlock()
	var body []byte
	if r.Method == http.MethodPut {
		body, _ = io.ReadAll(r.Body)
		m.pace(len(body))
	}
	if m.latency > 0 {
		<-time.After(m.latency)
	}
	switch kind {
	case "LIST":
		m.list(w, r)
	case http.MethodPut:
		m.store(name, body)
	case http.MethodGet:
		m.get(w, r, name)
	case http.MethodDelete:
		m.mu.Lock()
		delete(m.objects, name)
		m.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}
}

// pace waits until n more bytes have gone over the wire.
func (m *model) pace(n int) {
	if m.speed == 0 {
		return
	}
	m.mu.Lock()
	now := time.Now()
	if m.sentBy.Before(now) {
		m.sentBy = now
	}
	m.sentBy = m.sentBy.Add(time.Duration(int64(n) * int64(time.Second) / m.speed))
	wait := m.sentBy.Sub(now)
	m.mu.Unlock()
	if wait > time.Millisecond {
		<-time.After(wait)
	}
}

func (m *model) store(name string, body []byte) {
	o := &modelObject{size: int64(len(body))}
	parsed, ok := parseName(name[strings.Index(name, "/")+1:])
	if t, err := parseTail(parsed, body, o.size); ok && err == nil {
		o.tail = slices.Clone(body[t.dataBytes:])
		own, _ := parseTail(parsed, o.tail, o.size)
		offset := uint32(0)
		for i := range int(t.frames) {
			o.keys = append(o.keys, own.key(i)[:])
			o.offsets = append(o.offsets, offset)
			offset += uint32(frameHead) + t.size(i)
		}
		o.offsets = append(o.offsets, offset)
	} else {
		o.body = body
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[name] = o
}

var zeros [64 << 10]byte

// writeTo writes the bytes from to to.
func (o *modelObject) writeTo(w io.Writer, from, to int64) {
	if o.body != nil {
		_, _ = w.Write(o.body[from:to])
		return
	}
	data := int64(o.offsets[len(o.offsets)-1])
	i, _ := slices.BinarySearch(o.offsets, uint32(min(from, data)))
	if i == len(o.offsets) || int64(o.offsets[i]) > from {
		i--
	}
	buf := make([]byte, 0, 256<<10)
	emit := func(b []byte, at int64) { // the part of b, which is at an offset, that is asked for
		if lo, hi := max(from, at), min(to, at+int64(len(b))); lo < hi {
			if len(buf)+int(hi-lo) > cap(buf) {
				_, _ = w.Write(buf)
				buf = buf[:0]
			}
			buf = append(buf, b[lo-at:hi-at]...)
		}
	}
	for ; i < len(o.keys) && int64(o.offsets[i]) < to; i++ {
		at, length := int64(o.offsets[i]), int64(o.offsets[i+1]-o.offsets[i])
		head := binary.LittleEndian.AppendUint32(slices.Clone(o.keys[i]), uint32(length)-uint32(frameHead))
		emit(head, at)
		emit(zeros[:length-int64(frameHead)], at+int64(frameHead))
	}
	emit(o.tail, data)
	_, _ = w.Write(buf)
}

type pacedWriter struct {
	m *model
	w io.Writer
}

func (p pacedWriter) Write(b []byte) (int, error) {
	p.m.pace(len(b))
	return p.w.Write(b)
}

func (m *model) get(w http.ResponseWriter, r *http.Request, name string) {
	m.mu.Lock()
	o := m.objects[name]
	m.mu.Unlock()
	if o == nil {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	from, to := int64(0), o.size-1
	if asked := r.Header.Get("Range"); asked != "" {
		if _, err := fmt.Sscanf(asked, "bytes=%d-%d", &from, &to); err != nil || from >= o.size {
			refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		to = min(to, o.size-1)
		w.Header().Set("Content-Length", fmt.Sprint(to-from+1))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, o.size))
		w.WriteHeader(http.StatusPartialContent)
	}
	o.writeTo(pacedWriter{m, w}, from, to+1)
}

func (m *model) list(w http.ResponseWriter, r *http.Request) {
	type content struct {
		Key          string
		Size         int64
		LastModified string
	}
	var answer struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []content
	}
	q := r.URL.Query()
	after := max(q.Get("start-after"), q.Get("continuation-token"))
	m.mu.Lock()
	var names []string
	for name := range m.objects {
		if strings.HasPrefix(name, q.Get("prefix")) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names[:min(1000, len(names))] {
		answer.Contents = append(answer.Contents, content{name, m.objects[name].size, time.Now().UTC().Format(time.RFC3339)})
	}
	m.mu.Unlock()
	if len(names) > 1000 {
		answer.IsTruncated, answer.NextContinuationToken = true, names[999]
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(answer)
}
