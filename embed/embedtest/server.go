package embedtest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxBody is the longest request that a Server reads, in bytes.
const maxBody = 256 << 20

// Server is an HTTP server on the loopback interface that speaks OpenAI's
// embeddings API: POST on any path that ends in "/embeddings", so also on
// Azure's.
type Server struct {
	// URL is the server's own, such as "http://127.0.0.1:41234".
	URL string
	// BaseURL is what clients of OpenAI's API take for a base URL, and
	// OPENAI_BASE_URL holds: URL with "/v1".
	BaseURL string
	// Log has the requests so far; those that are no POST to an embeddings path
	// are not in it.
	*Log

	core    *core
	server  *httptest.Server
	stop    chan struct{} // closed by Close: ends what waits
	closing sync.Once
}

// NewServer starts a Server, which the caller must Close. It panics if opts
// can't be, listing every problem, or if there is no port to listen on.
func NewServer(opts *Options) *Server {
	filled, err := opts.filledIn()
	if err != nil {
		panic(err)
	}
	s := &Server{core: newCore(filled), stop: make(chan struct{})}
	s.Log = s.core.Log
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = s.server.URL
	s.BaseURL = s.URL + "/v1"
	return s
}

// Close ends the requests that wait, stops the server and waits for its
// connections to end. It may be called more than once.
func (s *Server) Close() {
	s.closing.Do(func() {
		close(s.stop)
		s.server.Close()
	})
}

// AddFaults adds to the script that Options.Faults began. It panics if a fault
// can't be.
func (s *Server) AddFaults(faults ...Fault) { s.core.addFaults(faults) }

func (s *Server) serve(w http.ResponseWriter, hr *http.Request) {
	// net/http notices that the client has gone only once the body is read.
	body, err := io.ReadAll(http.MaxBytesReader(w, hr.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if !strings.HasSuffix(hr.URL.Path, "/embeddings") {
		unknown := refusal{http.StatusNotFound, "Unknown request URL.", "invalid_request_error", "", "unknown_url"}
		s.send(w, hr, Fault{}, unknown.status, unknown.json(), nil)
		return
	}
	if hr.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		wrong := refusal{http.StatusMethodNotAllowed, "Not allowed to " + hr.Method + " on this path.", "invalid_request_error", "", "method_not_supported"}
		s.send(w, hr, Fault{}, wrong.status, wrong.json(), nil)
		return
	}

	asked, problem := parseRequest(hr.Header, body)
	r := &Request{
		Model: asked.model, Texts: asked.texts,
		URL: hr.URL, Header: hr.Header, Body: body,
	}
	dimensions := s.core.opts.Dimensions
	if asked.dimensions != nil {
		r.Dimensions = *asked.dimensions
		dimensions = *asked.dimensions
	}
	fault, latency := s.core.arrive(r)
	// Whichever way out is taken below: if no whole answer was ready, none was
	// sent.
	defer s.core.end(r, 0)
	w.Header().Set("X-Request-Id", fmt.Sprintf("req_embedtest_%d", r.Number))

	if !wait(hr.Context(), s.stop, latency) {
		panic(http.ErrAbortHandler)
	}
	if fault.Billed {
		s.core.bill(r)
	}
	switch {
	case fault.Reset:
		s.core.end(r, 0)
		reset(w)
		return
	case fault.Hang && !fault.Cut:
		wait(hr.Context(), s.stop, -1)
		panic(http.ErrAbortHandler)
	case fault.Body != nil:
		status := fault.Status
		if !fault.refused() {
			status = http.StatusOK
		}
		s.send(w, hr, fault, status, fault.Body, r)
		return
	}

	refusal := s.refuse(r, hr, fault, asked, problem)
	if refusal != nil {
		s.send(w, hr, fault, refusal.status, refusal.json(), r)
		return
	}
	answer := s.core.answer(r, fault, asked.space, dimensions).json(asked.floats || fault.Floats)
	if fault.Malformed {
		answer = append([]byte(`{,`), answer[1:]...)
	}
	s.core.bill(r)
	s.send(w, hr, fault, http.StatusOK, answer, r)
}

// refuse returns why hr gets no vectors: a script's Status first, as a gateway
// answers before it looks, then the key, then what is asked for.
func (s *Server) refuse(r *Request, hr *http.Request, fault Fault, asked request, problem *refusal) *refusal {
	switch {
	case fault.refused():
		return fault.refusal()
	case !authorized(hr.Header, s.core.opts.APIKey):
		return Unauthorized().refusal()
	case problem != nil:
		return problem
	}
	return s.core.refuse(r, fault, asked.dimensions)
}

func authorized(header http.Header, key string) bool {
	return key == "" || header.Get("Authorization") == "Bearer "+key || header.Get("Api-Key") == key
}

// send writes the answer as fault wants it written. It completes r, if that is
// not nil, before the client can have seen the end of it.
func (s *Server) send(w http.ResponseWriter, hr *http.Request, fault Fault, status int, body []byte, r *Request) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if fault.RetryAfter > 0 && fault.refused() {
		header.Set("Retry-After", retryAfter(fault))
	}
	for name, values := range fault.Header {
		header[http.CanonicalHeaderKey(name)] = values
	}
	w.WriteHeader(status)

	pieces := 1
	if fault.Slow > 0 {
		pieces = 8
	}
	if fault.Cut {
		body = body[:len(body)/2]
	}
	control := http.NewResponseController(w)
	if fault.Cut || fault.Slow > 0 {
		control.Flush() // the header
	}
	for i := range pieces {
		if fault.Slow > 0 && !wait(hr.Context(), s.stop, fault.Slow/time.Duration(pieces)) {
			panic(http.ErrAbortHandler)
		}
		if last := i == pieces-1; last && r != nil && fault.Cut {
			s.core.end(r, 0)
		} else if last && r != nil {
			s.core.end(r, status)
		}
		if _, err := w.Write(body[i*len(body)/pieces : (i+1)*len(body)/pieces]); err != nil {
			return // the client has gone
		}
		if fault.Cut || fault.Slow > 0 {
			control.Flush()
		}
	}
	if fault.Cut {
		if fault.Hang {
			wait(hr.Context(), s.stop, -1)
		}
		panic(http.ErrAbortHandler) // closes the connection
	}
}

func retryAfter(fault Fault) string {
	if fault.RetryAfterDate {
		return time.Now().Add(fault.RetryAfter + time.Second - 1).UTC().Format(http.TimeFormat)
	}
	return strconv.Itoa(int((fault.RetryAfter + time.Second - 1) / time.Second))
}

// reset ends the connection so that the client's kernel reports a reset: closing
// a TCP connection without lingering sends RST.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}
