package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// server is a redis-server that this program started.
type server struct {
	program, url, dir string
	cmd               *exec.Cmd
	ended             chan struct{}
}

var errNoServer = errors.New(`no redis-server is installed, nor a valkey-server. Install one:
  Debian, Ubuntu   apt-get install redis-server
  Fedora           dnf install valkey
  macOS            brew install redis
or name a server that runs: -url redis://user:password@host:6379/0`)

// startServer starts one on a socket in a directory of its own, which nobody else can
// open, and waits until it takes connections.
func startServer(ctx context.Context) (*server, error) {
	s := &server{ended: make(chan struct{})}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			s.program = path
			break
		}
	}
	if s.program == "" {
		return nil, errNoServer
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "embedonce-"); err != nil {
		return nil, err
	}
	socket := filepath.Join(s.dir, "s")
	s.url = "unix://" + socket
	s.cmd = exec.Command(s.program, "--port", "0", "--unixsocket", socket, "--unixsocketperm", "700", "--dir", s.dir, "--save", "", "--appendonly", "no")
	if err := s.cmd.Start(); err != nil {
		_ = os.RemoveAll(s.dir)
		return nil, err
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if conn, err := net.Dial("unix", socket); err == nil {
			return s, conn.Close()
		}
		select {
		case <-s.ended:
			s.stop()
			return nil, fmt.Errorf("%s ended at once", s.program)
		case <-ctx.Done():
			s.stop()
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.stop()
			return nil, fmt.Errorf("%s takes no connections", s.program)
		}
	}
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill() // it has ended already, or ends now
	<-s.ended
	_ = os.RemoveAll(s.dir)
}
