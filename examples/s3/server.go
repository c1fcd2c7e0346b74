package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// server is an S3 server that this program started, on a directory of its own.
type server struct {
	program, url, dir string
	env               []string // where the AWS SDK of a worker finds it
	cmd               *exec.Cmd
	ended             chan struct{}
}

// startServer starts one on this machine alone and waits until it takes connections.
// Its credentials are new each time, and go through the environment: other users of
// the machine can read command lines.
func startServer(ctx context.Context) (*server, error) {
	s := &server{ended: make(chan struct{})}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "embedonce-"); err != nil {
		return nil, err
	}
	access, secret := "example", rand.Text()
	switch gateway, minio := lookPath("versitygw"), lookPath("minio"); {
	case gateway != "":
		s.program = gateway
		s.cmd = exec.Command(gateway, "--port", address, "--quiet", "posix", s.dir)
		s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+access, "ROOT_SECRET_ACCESS_KEY="+secret)
	case minio != "":
		s.program = minio
		s.cmd = exec.Command(minio, "server", "--quiet", "--address", address, s.dir)
		s.cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+access, "MINIO_ROOT_PASSWORD="+secret)
	default:
		_ = os.RemoveAll(s.dir)
		return nil, errors.New(installHint)
	}
	// For both, a folder is a bucket.
	if err := os.Mkdir(filepath.Join(s.dir, "vectors"), 0o755); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	s.url = "s3://vectors/example"
	s.env = []string{"AWS_ENDPOINT_URL_S3=http://" + address, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=" + access, "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_SESSION_TOKEN="}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if conn, err := net.Dial("tcp", address); err == nil {
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

func lookPath(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

// freeAddress is one of this machine that nobody listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill() // it has ended already, or ends now
	<-s.ended
	_ = os.RemoveAll(s.dir)
}
