package openai

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCutOffBody(t *testing.T) {
	// The length is announced, and half of it sent.
	e := embedErr(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"data":[`)
	})
	require.True(t, e.Transient && e.MaybeBilled)
	require.ErrorIs(t, e, io.ErrUnexpectedEOF)
	require.Zero(t, e.Status)
	// Chunks, and the connection dies between two.
	e = embedErr(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"data":[`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	require.True(t, e.Transient && e.MaybeBilled)
	// Nothing comes at all.
	e = embedErr(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	})
	require.True(t, e.Transient && e.MaybeBilled)
	require.ErrorIs(t, e, io.EOF)
	// An error's body is cut: the status counts.
	e = embedErr(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(403)
		_, _ = io.WriteString(w, `{"detail":`)
	})
	require.Equal(t, 403, e.Status)
	require.True(t, e.Fatal)
}

func TestGzip(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Contains(t, r.Header.Get("Accept-Encoding"), "gzip")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(largeAnswer(50, 100, true))
		_ = z.Close()
	}))
	defer server.Close()
	answer, err := New("m", &Options{BaseURL: server.URL}).Embed(t.Context(), []string{"x"})
	require.NoError(t, err)
	require.Len(t, answer.Vectors, 50)
}

func TestMaxAnswerBytes(t *testing.T) {
	body := `{"data":[{"embedding":[1]}]}`
	for _, chunked := range []bool{false, true} {
		handler := func(w http.ResponseWriter, r *http.Request) {
			if chunked {
				w.(http.Flusher).Flush()
			}
			_, _ = io.WriteString(w, body)
		}
		e := embedErr(t, Options{MaxAnswerBytes: int64(len(body)) - 1}, handler)
		require.False(t, e.Transient)
		require.True(t, e.MaybeBilled)
		require.ErrorContains(t, e, "longer than Options.MaxAnswerBytes")

		server := httptest.NewServer(http.HandlerFunc(handler))
		_, err := New("m", &Options{BaseURL: server.URL, MaxAnswerBytes: int64(len(body))}).Embed(t.Context(), []string{"x"})
		server.Close()
		require.NoError(t, err)
	}
	// A length that is only announced takes no memory.
	p := New("m", &Options{BaseURL: "http://localhost", MaxAnswerBytes: 1 << 40})
	b, err := p.read(&http.Response{ContentLength: 1 << 39, Body: io.NopCloser(strings.NewReader("abc"))})
	require.NoError(t, err)
	require.LessOrEqual(t, cap(b), 33<<20)
	large := strings.Repeat("x", 3<<20)
	b, err = p.read(&http.Response{ContentLength: -1, Body: io.NopCloser(strings.NewReader(large))})
	require.NoError(t, err)
	require.Equal(t, large, string(b))
}

func TestConnectionErrors(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	p := New("m", &Options{BaseURL: "http://user:hunter2@" + address + "/?k=query-secret", APIKey: secret})
	answer, err := p.Embed(t.Context(), []string{text})
	e := requireProviderError(t, answer, err)
	require.True(t, e.Transient)
	require.False(t, e.MaybeBilled, "nobody got the request")
	require.Zero(t, e.Status)
	var op *net.OpError
	require.ErrorAs(t, e, &op)

	// What a transport says is kept, unless it quotes the key.
	broken := errors.New("no token")
	for _, test := range []struct {
		err  error
		read bool
	}{{broken, false}, {broken, true}, {fmt.Errorf("key %s refused: %w", secret, broken), false}} {
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if test.read {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			_ = r.Body.Close()
			return nil, test.err
		})}
		answer, err := New("m", &Options{BaseURL: "http://localhost", APIKey: secret, HTTPClient: client}).Embed(t.Context(), []string{text})
		e := requireProviderError(t, answer, err)
		require.True(t, e.Transient)
		require.Equal(t, test.read, e.MaybeBilled)
		require.Equal(t, test.err == broken, errors.Is(e, broken))
	}
}

func TestContext(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/slow/embeddings" { // the answer begins and doesn't end
			_, _ = io.WriteString(w, `{"data":[`)
			w.(http.Flusher).Flush()
		}
		arrived <- struct{}{}
		<-release
	}))
	defer server.Close()
	defer close(release)
	for _, path := range []string{"", "/slow"} {
		p := New("m", &Options{BaseURL: server.URL + path})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-arrived
			cancel()
		}()
		answer, err := p.Embed(ctx, []string{text})
		e := requireProviderError(t, answer, err)
		require.ErrorIs(t, e, context.Canceled)
		require.False(t, e.Transient)
		require.True(t, e.MaybeBilled)

		answer, err = p.Embed(ctx, []string{text}) // it ended before
		e = requireProviderError(t, answer, err)
		require.ErrorIs(t, e, context.Canceled)
		require.False(t, e.MaybeBilled)

		expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		answer, err = p.Embed(expired, []string{text})
		cancel()
		e = requireProviderError(t, answer, err)
		require.ErrorIs(t, e, context.DeadlineExceeded)
		require.True(t, e.Transient, "a later request may be quicker")
	}
}

// Redirects are not followed: neither key nor texts go to another host.
func TestRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed with %v", r.Header)
	}))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		e := embedErr(t, Options{}, answering(status, "", "Location", other.URL))
		require.Equal(t, status, e.Status)
		require.True(t, e.Fatal)
	}
	// A client that decides for itself does.
	var got received
	target := serve(t, &got)
	server := httptest.NewServer(answering(307, "", "Location", target.URL))
	defer server.Close()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
	_, err := New("m", &Options{BaseURL: server.URL, HTTPClient: client}).Embed(t.Context(), []string{"x"})
	require.NoError(t, err)
	require.Contains(t, got.body, `"x"`)
}

// A server that doesn't speak HTTP.
func TestNoHTTP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.6\r\n")
		_ = conn.Close()
	}()
	answer, err := New("m", &Options{BaseURL: "http://" + listener.Addr().String()}).Embed(t.Context(), []string{text})
	require.True(t, requireProviderError(t, answer, err).Transient)
	require.NoError(t, listener.Close())
	<-done
}

// TestErrorsQuoteNothingOfTheAnswer: a server that is none sends the text back,
// and net/http quotes it.
func TestErrorsQuoteNothingOfTheAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	answers := []string{"TEXT\r\n\r\n", "HTTP/1.1 200 OK\r\nTEXT\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: TEXT\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: TEXT\r\n\r\n", "HTTP/1.1 TEXT\r\n\r\n"}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for _, answer := range answers {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, strings.ReplaceAll(answer, "TEXT", text))
			_ = conn.Close()
		}
	}()
	transport := &http.Transport{DisableKeepAlives: true}
	p := New("m", &Options{BaseURL: "http://" + listener.Addr().String(), APIKey: secret, HTTPClient: &http.Client{Transport: transport}})
	for _, answer := range answers {
		got, err := p.Embed(t.Context(), []string{text})
		e := requireProviderError(t, got, err)
		require.NotContains(t, e.Error(), text, answer)
	}
	<-served
}

// TestHeaderSecretsAreHidden: a key in a header of one's own is a secret too.
func TestHeaderSecretsAreHidden(t *testing.T) {
	e := embedErr(t, Options{Header: http.Header{"X-Api-Key": {"header-secret"}}}, answering(401, `{"error":{"code":"header-secret","message":"bad key header-secret"}}`))
	require.NotContains(t, e.Error(), "header-secret")
	require.NotContains(t, e.Detail(), "header-secret")
}
