package consumerproof

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// redisServer starts a redis-server that ends with the test, and returns a function
// whose every call names an empty database of it. ok is false if none is installed
// and none is required.
func redisServer(t *testing.T) (nextURL func() string, ok bool) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		required := strings.FieldsFunc(os.Getenv("EMBEDONCE_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' })
		require.False(t, slices.Contains(required, "redis"), "no redis-server is installed, and EMBEDONCE_REQUIRE names redis")
		return nil, false
	}
	dir, err := os.MkdirTemp("", "r") // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	server := exec.Command(program, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, 20*time.Second, 5*time.Millisecond)
	database := -1
	return func() string {
		database++
		return fmt.Sprintf("unix://%s?db=%d", socket, database)
	}, true
}
