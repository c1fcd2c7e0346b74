package memory_test

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/memory"
)

func numbered(n int) (items []backend.Item, keys []backend.Key) {
	for i := range n {
		k := backend.Key{}
		binary.LittleEndian.PutUint64(k[:], uint64(i))
		items = append(items, backend.Item{Key: k, Value: []byte("0123456789")})
		keys = append(keys, k)
	}
	return items, keys
}

func TestUpkeep(t *testing.T) {
	ctx := context.Background()
	c, err := memory.New(nil)
	require.NoError(t, err)
	items, keys := numbered(1000)
	require.NoError(t, c.SetMany(ctx, items))

	stats, err := c.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, backend.Stats{Entries: 1000, Bytes: 1000 * (32 + 10)}, stats)

	seen := make(map[backend.Key]int)
	next, err := c.Scan(ctx, "", 4, func(e backend.Entry) error {
		require.Equal(t, "0123", string(e.Value))
		seen[e.Key] += e.Size
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, seen, 1000)
	_, err = c.Scan(ctx, "5", 4, func(backend.Entry) error { return nil })
	require.ErrorContains(t, err, "position")

	removed, err := c.Delete(ctx, append(keys, keys...), func(i int, _ []byte) bool { return i%1000 < 600 })
	require.NoError(t, err)
	require.Equal(t, 600, removed)
	stats, err = c.Stats(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 400, stats.Entries)

	// A panic of match leaves the cache usable.
	require.Panics(t, func() { _, _ = c.Delete(ctx, keys[900:], func(int, []byte) bool { panic("oops") }) })
	require.NoError(t, c.SetMany(ctx, items))

	ended, cancel := context.WithCancel(ctx)
	removed, err = c.Delete(ended, keys, func(int, []byte) bool { cancel(); return true })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 256, removed)

	require.NoError(t, c.Close())
	_, err = c.Stats(ctx)
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = c.Delete(ctx, keys, nil)
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = c.Scan(ctx, "", 0, nil)
	require.ErrorIs(t, err, backend.ErrClosed)
}

// TestBound: the cache holds what MaxBytes says, and not more.
func TestBound(t *testing.T) {
	const maxBytes = 1 << 20
	c, err := memory.New(&memory.Options{MaxBytes: maxBytes})
	require.NoError(t, err)
	ctx := context.Background()
	items, _ := numbered(40_000) // 42 bytes each
	for from := 0; from < len(items); from += 1000 {
		require.NoError(t, c.SetMany(ctx, items[from:from+1000]))
		stats, err := c.Stats(ctx)
		require.NoError(t, err)
		require.LessOrEqual(t, stats.Bytes, int64(maxBytes))
		require.LessOrEqual(t, stats.Entries, int64(maxBytes/42))
	}
	held := int64(0)
	_, err = c.Scan(ctx, "", 0, func(e backend.Entry) error { held += int64(e.Size) + 32; return nil })
	require.NoError(t, err)
	require.LessOrEqual(t, held, int64(maxBytes))
	require.Greater(t, held, int64(maxBytes/2))
	require.NoError(t, c.Close())
}
