package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// redisServer is the server of a run.
type redisServer struct{ url string }

var redisPrograms = []string{"redis-server", "valkey-server"}

func redisProgram() string {
	for _, name := range redisPrograms {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

var versionNumber = regexp.MustCompile(`v=(\S+)`)

// redisVersion returns the version of the server that a run would start.
func (r *Run) redisVersion(ctx context.Context) string {
	program := redisProgram()
	if program == "" || r.RedisURL != "" {
		return ""
	}
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return ""
	}
	if match := versionNumber.FindSubmatch(out); match != nil {
		return string(match[1])
	}
	return ""
}

// startRedis finds or starts the server; why says that there is none. The server
// that it starts keeps everything in memory and ends with the run.
func (r *Run) startRedis(ctx context.Context) (why string, err error) {
	if r.redis.url != "" {
		return "", nil
	}
	if r.RedisURL != "" {
		r.redis.url = r.RedisURL
		return "", nil
	}
	program := redisProgram()
	if program == "" {
		return "no redis-server and no valkey-server is installed; name one that runs on this machine with -redis", nil
	}
	for range 5 { // somebody else may take the port between the question and the start
		url, err := r.tryRedis(ctx, program)
		if err == nil {
			r.redis.url = url
			return "", nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
	return "", fmt.Errorf("%s can't be started on a port of the loopback interface", program)
}

func (r *Run) tryRedis(ctx context.Context, program string) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := listener.Addr().(*net.TCPAddr)
	if err := listener.Close(); err != nil {
		return "", err
	}
	dir, err := r.TempDir()
	if err != nil {
		return "", err
	}
	server := exec.Command(program, "--bind", "127.0.0.1", "--port", strconv.Itoa(address.Port),
		"--dir", dir, "--save", "", "--appendonly", "no")
	if err := server.Start(); err != nil {
		return "", err
	}
	ended := make(chan struct{})
	go func() {
		_ = server.Wait()
		close(ended)
	}()
	stop := func() error {
		_ = server.Process.Kill() // it has ended already, or ends now
		<-ended
		return nil
	}
	deadline := time.After(10 * time.Second)
	for {
		if conn, err := net.Dial("tcp", address.String()); err == nil {
			r.Cleanup(stop)
			return "redis://" + address.String(), conn.Close()
		}
		select {
		case <-time.After(5 * time.Millisecond):
			continue
		case <-ended:
			err = errors.New("it ended at once")
		case <-deadline:
			err = errors.New("it takes no connections")
		case <-ctx.Done():
			err = ctx.Err()
		}
		return "", errors.Join(err, stop())
	}
}
