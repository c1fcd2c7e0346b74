package redis

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// server is a redis-server of the tests, on a free port of the loopback, with a
// directory of its own.
type server struct {
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
	raw  *driver.Client // goes there directly
}

var (
	serversMutex sync.Mutex
	servers      []*server // that run
	shared       = make(map[string][]*server)
)

// program finds the program, or Valkey's.
func program(name string) string {
	for _, candidate := range []string{name, strings.Replace(name, "redis", "valkey", 1)} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	return ""
}

// needServer skips t where no server is installed, unless EMBEDONCE_REQUIRE names
// this backend: then it must be there.
func needServer(t testing.TB) {
	t.Helper()
	if program("redis-server") != "" {
		return
	}
	if required("redis") {
		t.Fatal("no redis-server is installed, and EMBEDONCE_REQUIRE names redis")
	}
	t.Skip("no redis-server is installed: only what miniredis can do is tested")
}

func required(name string) bool {
	for _, required := range strings.FieldsFunc(os.Getenv("EMBEDONCE_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' }) {
		if required == name {
			return true
		}
	}
	return false
}

// freePort is free at this moment.
func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startServer starts a server with settings, as --name value ..., that ends with the
// test.
func startServer(t testing.TB, settings ...string) *server {
	t.Helper()
	s := newServer(t, t.TempDir(), settings...)
	t.Cleanup(s.stop)
	return s
}

func newServer(t testing.TB, dir string, settings ...string) *server {
	t.Helper()
	port := freePort(t)
	s := &server{
		addr: fmt.Sprintf("127.0.0.1:%d", port),
		dir:  dir,
		args: append([]string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no",
			"--enable-debug-command", "yes", "--daemonize", "no", "--logfile", filepath.Join(dir, "log")}, settings...),
	}
	s.raw = driver.NewClient(&driver.Options{Addr: s.addr, MaxRetries: -1, DialerRetries: 1, PipelinePoolSize: -1})
	s.start(t, "redis-server")
	return s
}

// start starts it, also once more after it was killed, and waits until it answers.
func (s *server) start(t testing.TB, name string) {
	t.Helper()
	s.cmd = exec.Command(program(name), s.args...)
	dieWithTest(s.cmd)
	require.NoError(t, s.cmd.Start())
	serversMutex.Lock()
	servers = append(servers, s)
	serversMutex.Unlock()
	s.await(t)
}

func (s *server) await(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		// Another program may have taken the port meanwhile.
		info, err := s.raw.Info(context.Background()).Result()
		return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.cmd.Process.Pid)) && !strings.Contains(info, "loading:1") ||
			err != nil && strings.HasPrefix(err.Error(), "NOAUTH")
	}, 20*time.Second, 2*time.Millisecond, "redis-server doesn't start; its directory is %s", s.dir)
}

// kill ends it at once.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	serversMutex.Lock()
	defer serversMutex.Unlock()
	for i := range servers {
		if servers[i] == s {
			servers = append(servers[:i], servers[i+1:]...)
			break
		}
	}
}

func (s *server) stop() {
	if s.cmd.ProcessState == nil {
		// A child that rewrites the log outlives its parent, and writes on.
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			info, err := s.raw.Info(context.Background(), "persistence").Result()
			if err != nil || !strings.Contains(info, "aof_rewrite_in_progress:1") && !strings.Contains(info, "aof_rewrite_scheduled:1") {
				break
			}
		}
		s.kill()
	}
	_ = s.raw.Close()
}

// stopServers stops those that the tests of this process share.
func stopServers() {
	serversMutex.Lock()
	all := append([]*server(nil), servers...)
	serversMutex.Unlock()
	for _, s := range all {
		s.stop()
	}
	serversMutex.Lock()
	defer serversMutex.Unlock()
	for _, list := range shared {
		for _, s := range list {
			_ = s.raw.Close()
			_ = os.RemoveAll(s.dir)
		}
	}
}

// sharedServers starts what make starts, once for all tests of this process: a store
// of a test is a prefix of its own.
func sharedServers(t testing.TB, name string, make func() []*server) []*server {
	serversMutex.Lock()
	list := shared[name]
	serversMutex.Unlock()
	if list == nil {
		list = make()
		serversMutex.Lock()
		shared[name] = list
		serversMutex.Unlock()
	}
	return list
}

func sharedDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "embedonce-redis-")
	require.NoError(t, err)
	return dir
}

// sharedServer is one server that keeps nothing on the disk.
func sharedServer(t testing.TB) *server {
	return sharedServers(t, "single", func() []*server { return []*server{newServer(t, sharedDir(t))} })[0]
}

// patience is how long a shared server may be silent before the others take it for
// dead: it only waits for a processor then, and a failover in the middle of a test
// that lets all of them live would be a fault of the test.
const patience = 5 * time.Minute

// sharedCluster is three masters with a third of the slots each.
func sharedCluster(t testing.TB) []*server {
	return sharedServers(t, "cluster", func() []*server {
		return newMasters(t, 3, func() string { return sharedDir(t) }, patience)
	})
}

func newMasters(t testing.TB, n int, dir func() string, silence time.Duration) []*server {
	ctx := context.Background()
	masters := make([]*server, n)
	for i := range masters {
		masters[i] = newServer(t, dir(), "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(freePort(t)),
			"--cluster-node-timeout", fmt.Sprint(silence.Milliseconds()), "--cluster-allow-replica-migration", "no")
		const slots = 16384
		require.NoError(t, masters[i].raw.ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err())
		require.NoError(t, masters[i].raw.Do(ctx, "cluster", "set-config-epoch", i+1).Err())
	}
	meet(t, masters...)
	return masters
}

// meet makes servers know each other.
func meet(t testing.TB, all ...*server) {
	ctx := context.Background()
	for _, s := range all[1:] {
		host, port, err := net.SplitHostPort(all[0].addr)
		require.NoError(t, err)
		require.NoError(t, s.raw.Do(ctx, "cluster", "meet", host, port, argument(all[0].args, "--cluster-port")).Err())
	}
	for _, s := range all {
		require.Eventually(t, func() bool {
			info, err := s.raw.ClusterInfo(ctx).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(all)))
		}, 30*time.Second, 20*time.Millisecond, "the cluster doesn't get together")
	}
}

func argument(args []string, name string) string {
	for i := range args {
		if args[i] == name {
			return args[i+1]
		}
	}
	return ""
}

// sentinelled is a master with a replica, and a Sentinel that watches them.
type sentinelled struct {
	master, replica, sentinel *server
}

const masterName = "the-master"

func startSentinel(t testing.TB, dir func() string, silence time.Duration) sentinelled {
	ctx := context.Background()
	s := sentinelled{master: newServer(t, dir())}
	host, port, err := net.SplitHostPort(s.master.addr)
	require.NoError(t, err)
	s.replica = newServer(t, dir(), "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	require.Eventually(t, func() bool {
		info, err := s.replica.raw.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}, 30*time.Second, 10*time.Millisecond, "the replica doesn't follow")

	own := dir()
	watch := freePort(t)
	config := filepath.Join(own, "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nlogfile %s\nsentinel monitor %s %s %s 1\nsentinel down-after-milliseconds %s %d\nsentinel failover-timeout %s 5000\n",
		watch, own, filepath.Join(own, "log"), masterName, host, port, masterName, silence.Milliseconds(), masterName)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	s.sentinel = &server{addr: fmt.Sprintf("127.0.0.1:%d", watch), dir: own, args: []string{config, "--sentinel"}}
	s.sentinel.raw = driver.NewClient(&driver.Options{Addr: s.sentinel.addr, MaxRetries: -1, DialerRetries: 1, PipelinePoolSize: -1})
	s.sentinel.start(t, "redis-server")
	require.Eventually(t, func() bool { // it must know the replica before it is needed
		replicas, err := s.sentinel.raw.Do(ctx, "sentinel", "replicas", masterName).Slice()
		return err == nil && len(replicas) == 1
	}, 30*time.Second, 20*time.Millisecond, "Sentinel doesn't find the replica")
	return s
}

// sharedSentinel is one for tests that let the master live.
func sharedSentinel(t testing.TB) sentinelled {
	all := sharedServers(t, "sentinel", func() []*server {
		s := startSentinel(t, func() string { return sharedDir(t) }, patience)
		return []*server{s.master, s.replica, s.sentinel}
	})
	return sentinelled{all[0], all[1], all[2]}
}

// miniServer stands in where no server is installed.
func miniServer(t testing.TB) string {
	m := miniredis.NewMiniRedis()
	require.NoError(t, m.Start())
	t.Cleanup(m.Close)
	t.Log("no redis-server is installed: this runs on miniredis")
	return m.Addr()
}
