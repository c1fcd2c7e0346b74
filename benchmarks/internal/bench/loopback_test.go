package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckLoopback(t *testing.T) {
	for _, url := range []string{
		"redis://127.0.0.1:6379", "redis://user:secret@localhost/0", "redis://LOCALHOST:1", "redis://[::1]:6379/1", "rediss://127.9.9.9",
		"redis://[::ffff:127.0.0.1]:1", "unix:///run/redis.sock", "http://127.0.0.1:9000",
		"redis+cluster://127.0.0.1:1?addr=127.0.0.1:2&addr=[::1]:3",
	} {
		require.NoError(t, CheckLoopback(url), url)
	}
	for _, url := range []string{
		"redis://192.168.0.1:6379", "redis://user:secret@example.com", "redis://localhost.example.com", "redis://10.0.0.1", "redis://[fe80::1]:1",
		"redis://0.0.0.0:6379", "redis://", "", "redis:", "redis://127.0.0.1.example.com:1", "redis+cluster://127.0.0.1:1?addr=192.0.2.1:2",
		"http://s3.amazonaws.com", "redis://127.0.0.1:1?addr=http://192.0.2.1:2",
	} {
		err := CheckLoopback(url)
		require.ErrorIs(t, err, ErrNotLoopback, url)
		require.NotContains(t, err.Error(), "secret")
	}
	err := CheckLoopback("redis://user:secret@ho st:1%zz")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}
