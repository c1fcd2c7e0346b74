package redis

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proxy stands between a cache and a server, and misbehaves as it is told to.
type proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	latency atomic.Int64 // on the way back, in ns
	// mangle changes what the server answers, if it is set.
	mangle atomic.Pointer[func(answer []byte) []byte]

	mu    sync.Mutex
	links map[*link]bool
	hold  chan struct{} // while it isn't nil, nothing passes until it is closed
	shut  bool          // connections are closed at once
	cutAt *atomic.Int64 // so many SETs pass before connections are closed
	moved int64         // connections so far
}

type link struct{ client, server net.Conn }

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func startProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{target: target, listener: l, links: make(map[*link]bool)}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	_ = p.listener.Close()
	p.restore()
	p.closeLinks()
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		shut := p.shut
		p.mu.Unlock()
		if shut {
			_ = client.Close()
			continue
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{client, server}
		p.mu.Lock()
		p.links[l] = true
		p.moved++
		p.mu.Unlock()
		p.running.Go(func() { p.forward(l) })
		p.running.Go(func() { p.back(l) })
	}
}

func (p *proxy) drop(l *link) {
	l.close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *proxy) closeLinks() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// gate waits while nothing may pass.
func (p *proxy) gate() {
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

var setCommand = []byte("\r\n$3\r\nset\r\n")

// forward passes on what the client sends.
func (p *proxy) forward(l *link) {
	defer p.drop(l)
	buffer := make([]byte, 64<<10)
	tail := []byte(nil) // the end of what passed, so that a command on the border is seen
	for {
		n, err := l.client.Read(buffer)
		part := buffer[:n]
		p.gate()
		p.mu.Lock()
		cutAt := p.cutAt
		p.mu.Unlock()
		if cutAt != nil {
			seen := append(bytes.Clone(tail), part...)
			from := 0
			for {
				at := bytes.Index(seen[from:], setCommand)
				if at < 0 {
					break
				}
				from += at + len(setCommand)
				if cutAt.Add(-1) < 0 {
					_, _ = l.server.Write(seen[len(tail):max(len(tail), from-len(setCommand))])
					return
				}
			}
			tail = bytes.Clone(seen[max(from, len(seen)-len(setCommand)+1):])
		}
		if _, writeErr := l.server.Write(part); writeErr != nil || err != nil {
			return
		}
	}
}

type delayed struct {
	bytes []byte
	due   time.Time
}

// back passes on what the server answers, later if there is a latency. The order
// stays.
func (p *proxy) back(l *link) {
	defer p.drop(l)
	queue := make(chan delayed, 1024)
	p.running.Go(func() {
		for d := range queue {
			if wait := time.Until(d.due); wait > 0 {
				time.Sleep(wait)
			}
			p.gate()
			if _, err := l.client.Write(d.bytes); err != nil {
				l.close()
			}
		}
	})
	defer close(queue)
	for {
		buffer := make([]byte, 64<<10)
		n, err := l.server.Read(buffer)
		if n > 0 {
			answer := buffer[:n]
			if mangle := p.mangle.Load(); mangle != nil {
				answer = (*mangle)(answer)
			}
			queue <- delayed{answer, time.Now().Add(time.Duration(p.latency.Load()))}
		}
		if err != nil {
			return
		}
	}
}

// holdAll lets nothing pass until restore, as if the cable were pulled.
func (p *proxy) holdAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold == nil {
		p.hold = make(chan struct{})
	}
}

// shutDown closes every connection until restore.
func (p *proxy) shutDown() {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	p.closeLinks()
}

// cutAfter closes each connection at the SET after so many more, counted over all
// proxies that share sets.
func (p *proxy) cutAfter(sets *atomic.Int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAt = sets
}

// restore lets everything pass again. Connections that were held are closed.
func (p *proxy) restore() {
	p.mu.Lock()
	held := p.hold != nil
	if held {
		close(p.hold)
		p.hold = nil
	}
	p.shut, p.cutAt = false, nil
	p.mu.Unlock()
	p.latency.Store(0)
	p.mangle.Store(nil)
	if held {
		p.closeLinks()
	}
}

func TestProxyPasses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	p := startProxy(t, l.Addr().String())
	conn, err := net.Dial("tcp", p.addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("hello"))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(conn, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
}
