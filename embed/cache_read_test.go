package embed_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// TestReadsFailOpen: what can't be read is paid for; an outage is told once, and
// a second one again.
func TestReadsFailOpen(t *testing.T) {
	var faults atomic.Int64
	cache := newTestCache()
	var down atomic.Bool
	cache.onGet = func(context.Context, []backend.Key) error {
		if down.Load() {
			return errDisk
		}
		return nil
	}
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, &embed.Options{Cache: cache, Observer: countFaults(&faults)})
	texts := numbered(5)
	_, err := client.Embed(t.Context(), texts)
	require.NoError(t, err)
	for outage := range 2 {
		down.Store(true)
		for range 3 {
			response, err := client.Embed(t.Context(), texts)
			require.NoError(t, err)
			requireVectors(t, texts, response, err)
			require.ErrorIs(t, response.CacheErr, backend.ErrUnavailable)
			require.Equal(t, 5, response.Usage.Misses)
			require.Equal(t, 1, response.Usage.CacheFailures)
			require.Empty(t, response.Usage.Foreign)
		}
		_, err = client.Plan(t.Context(), texts)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.Equal(t, 4*(outage+1), client.Usage().CacheFailures)
		require.Equal(t, int64(outage+1), faults.Load())
		down.Store(false)
		response, err := client.Embed(t.Context(), texts)
		require.NoError(t, err)
		require.Equal(t, 5, response.Usage.Hits)
	}
}

// TestReadsFailStrict: a strict client doesn't pay for what it can't look up.
func TestReadsFailStrict(t *testing.T) {
	cache := newTestCache()
	cache.onGet = func(context.Context, []backend.Key) error { return errDisk }
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, &embed.Options{Cache: cache, Strict: true})
	response, err := client.Embed(t.Context(), []string{"a"})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Nil(t, response)
	require.Zero(t, provider.Requests())
}

// TestReadFailsHalfway: what was visited before the error counts.
func TestReadFailsHalfway(t *testing.T) {
	cache := &halfway{testCache: newTestCache()}
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, &embed.Options{Cache: cache})
	texts := numbered(10)
	_, err := client.Embed(t.Context(), texts)
	require.NoError(t, err)
	cache.failing = true
	response, err := client.Embed(t.Context(), texts)
	requireVectors(t, texts, response, err)
	require.NoError(t, err)
	require.Equal(t, 5, response.Usage.Hits)
	require.Equal(t, texts[5:], provider.History()[1].Texts)
	require.ErrorIs(t, response.CacheErr, backend.ErrUnavailable)
}

// halfway fails after half of the keys.
type halfway struct {
	*testCache
	failing bool
}

func (h *halfway) GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if !h.failing {
		return h.testCache.GetMany(ctx, keys, visit)
	}
	if err := h.testCache.GetMany(ctx, keys[:len(keys)/2], visit); err != nil {
		return err
	}
	return errDisk
}

// TestSplitReads: a large lookup is split over the readers that the cache
// advises, or the options say, and finds all.
func TestSplitReads(t *testing.T) {
	for _, test := range []struct{ advice, option, most int }{{3, 0, 3}, {3, 1, 1}, {1, 4, 4}, {0, 0, 1}} {
		synctest.Test(t, func(t *testing.T) {
			cache := newTestCache()
			cache.info.Readers, cache.info.SplitKeys = test.advice, 100
			client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache, CacheReaders: test.option})
			texts := numbered(2000)
			_, err := client.Embed(t.Context(), texts)
			require.NoError(t, err)
			var mu sync.Mutex
			calls, running, most, keysRead := 0, 0, 0, 0
			cache.onGet = func(_ context.Context, keys []backend.Key) error {
				mu.Lock()
				calls++
				running++
				most = max(most, running)
				keysRead += len(keys)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
				return nil
			}
			response, err := client.Embed(t.Context(), texts)
			requireVectors(t, texts, response, err)
			require.Equal(t, 2000, response.Usage.Hits)
			require.Equal(t, test.most, most)
			require.Equal(t, 2000, keysRead)
			if most == 1 { // nothing is gained by more
				require.Equal(t, 1, calls)
			}
		})
	}
}
