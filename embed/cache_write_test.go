package embed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/embedonce/embedonce/internal/record"
	"github.com/stretchr/testify/require"
)

// countFaults returns an Observer that counts the faults it is told of.
func countFaults(n *atomic.Int64) *embed.Observer {
	return &embed.Observer{Fault: func(context.Context, embed.FaultEvent) { n.Add(1) }}
}

var errDisk = fmt.Errorf("disk: %w", backend.ErrUnavailable)

// TestNoCache: without a cache a client still dedupes and batches, and pays each
// time.
func TestNoCache(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, nil)
	texts := append(numbered(3), numbered(3)...)
	for range 2 {
		response, err := client.Embed(t.Context(), texts)
		requireVectors(t, texts, response, err)
		require.NoError(t, response.CacheErr)
		require.Equal(t, 3, response.Usage.Misses)
		require.Equal(t, 3, response.Usage.Deduplicated)
	}
	require.Equal(t, 6, provider.Texts())
	_, err := client.Do(t.Context(), &embed.Call{Texts: texts, CacheOnly: true})
	require.ErrorIs(t, err, embed.ErrNotCached)
	requireStreamed(t, client.Stream(t.Context(), pairs(texts), nil), texts)
}

// TestTooLargeForCache: vectors that the cache can't hold are served and
// counted; the fault is told once.
func TestTooLargeForCache(t *testing.T) {
	var faults atomic.Int64
	cache := newTestCache()
	cache.info.MaxValueBytes = 100
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, &embed.Options{Cache: cache, Observer: countFaults(&faults)})
	texts := numbered(50)
	for round := range 3 {
		response, err := client.Embed(t.Context(), texts)
		require.NoError(t, err)
		requireVectors(t, texts, response, err)
		require.ErrorIs(t, response.CacheErr, backend.ErrTooLarge)
		require.Equal(t, 1, response.Usage.CacheFailures)
		require.Equal(t, round+1, client.Usage().CacheFailures)
	}
	require.Equal(t, int64(1), faults.Load())
	require.Less(t, len(cache.writes()), 20)
}

// TestMemoryTooSmall: the real memory cache, too small for a batch, and for a
// vector.
func TestMemoryTooSmall(t *testing.T) {
	for _, maxBytes := range []int64{5000, 200} {
		cache, err := memory.New(&memory.Options{MaxBytes: maxBytes})
		require.NoError(t, err)
		client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
		texts := numbered(100)
		response, err := client.Embed(t.Context(), texts)
		require.NoError(t, err)
		requireVectors(t, texts, response, err)
		require.Equal(t, maxBytes == 200, errors.Is(response.CacheErr, backend.ErrTooLarge), "%v", response.CacheErr)
		require.NoError(t, cache.Close())
	}
}

// TestUndeclaredBatchLimit: a batch that the store doesn't take at once is
// written in parts.
func TestUndeclaredBatchLimit(t *testing.T) {
	cache := newTestCache()
	cache.onSet = func(_ context.Context, items []backend.Item) error {
		if len(items) > 3 {
			return fmt.Errorf("batch: %w", backend.ErrTooLarge)
		}
		return nil
	}
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
	response, err := client.Embed(t.Context(), numbered(50))
	require.NoError(t, err)
	require.NoError(t, response.CacheErr)
	require.Equal(t, 50, cache.len())
}

// TestBatchLimits: declared limits are kept.
func TestBatchLimits(t *testing.T) {
	size := record.Size(embedtest.DefaultDimensions)
	for name, info := range map[string]backend.Info{
		"items":                   {MaxBatchItems: 7},
		"bytes":                   {MaxBatchBytes: 7*size + size/2},
		"both":                    {MaxBatchItems: 9, MaxBatchBytes: 7 * size, Writers: 4},
		"exactly one":             {MaxBatchItems: 1, MaxBatchBytes: size, MaxValueBytes: size, Writers: 2},
		"less than one":           {MaxBatchBytes: size - 1},
		"no limit, eight writers": {Writers: 8},
	} {
		t.Run(name, func(t *testing.T) {
			cache := newTestCache()
			cache.info = info
			client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
			texts := numbered(50)
			response, err := client.Embed(t.Context(), texts)
			requireVectors(t, texts, response, err)
			if name == "less than one" {
				require.ErrorIs(t, response.CacheErr, backend.ErrTooLarge)
				return
			}
			require.NoError(t, response.CacheErr)
			require.Equal(t, 50, cache.len())
			for _, items := range cache.writes() {
				if info.MaxBatchItems > 0 {
					require.LessOrEqual(t, items, info.MaxBatchItems)
				}
			}
			if name == "bytes" || name == "both" {
				require.Len(t, cache.writes(), 8)
			}
		})
	}
}

// TestWriteIsRetried: a write that fails for a while costs nothing; one that
// fails for good is in CacheErr, counted, and an error in strict mode.
func TestWriteIsRetried(t *testing.T) {
	for _, test := range []struct {
		failures int
		err      error
		attempts int
		stored   bool
	}{
		{3, errDisk, 4, true}, {4, errDisk, 4, false},
		{1, backend.ErrReadOnly, 1, false}, {1, backend.ErrClosed, 1, false}, {1, backend.ErrUnsupported, 1, false},
		{1, backend.ErrCorrupt, 1, false},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d times %v, strict %v", test.failures, test.err, strict), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var faults atomic.Int64
					cache := newTestCache()
					left := test.failures
					cache.onSet = func(context.Context, []backend.Item) error {
						if left--; left >= 0 {
							return test.err
						}
						return nil
					}
					client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache, Strict: strict, Observer: countFaults(&faults)})
					response, err := client.Embed(t.Context(), []string{"a"})
					requireVectors(t, []string{"a"}, response, nil)
					require.Len(t, cache.writes(), test.attempts)
					if test.stored {
						require.NoError(t, err)
						require.NoError(t, response.CacheErr)
						require.Equal(t, 1, cache.len())
						require.Zero(t, response.Usage.CacheFailures)
						require.Zero(t, faults.Load())
						return
					}
					require.ErrorIs(t, response.CacheErr, test.err)
					require.Equal(t, 1, response.Usage.CacheFailures)
					require.Equal(t, int64(1), faults.Load())
					if strict {
						require.ErrorIs(t, err, test.err)
					} else {
						require.NoError(t, err)
					}
				})
			})
		}
	}
}

// TestStrictJoinsErrors: a strict client reports texts without a vector and a
// cache that failed in one error.
func TestStrictJoinsErrors(t *testing.T) {
	cache := newTestCache()
	cache.onSet = func(context.Context, []backend.Item) error { return backend.ErrReadOnly }
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache, Strict: true})
	response, err := client.Embed(t.Context(), []string{"a", ""})
	require.ErrorIs(t, err, embed.ErrBlankText)
	require.ErrorIs(t, err, backend.ErrReadOnly)
	requireVectors(t, []string{"a", ""}, response, err)
}

// TestBatchError: of a batch that was stored in part, only the rest is written
// again.
func TestBatchError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newTestCache()
		cache.store = func(entries map[backend.Key][]byte, items []backend.Item) error {
			failed := &backend.BatchError{Err: errDisk}
			for i, item := range items {
				if i%2 == 1 {
					failed.NotStored = append(failed.NotStored, i)
					continue
				}
				entries[item.Key] = bytes.Clone(item.Value)
			}
			if failed.NotStored != nil {
				return fmt.Errorf("set: %w", failed)
			}
			return nil
		}
		client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
		texts := numbered(7)
		response, err := client.Embed(t.Context(), texts)
		requireVectors(t, texts, response, err)
		require.NoError(t, response.CacheErr)
		require.Equal(t, []int{7, 3, 1}, cache.writes())
		require.Equal(t, 7, cache.len())
	})
}

// TestOddBatchError: indexes that can't be are no reason to lose or to panic.
func TestOddBatchError(t *testing.T) {
	for _, notStored := range [][]int{nil, {}, {-1}, {100}, {0, 7}} {
		synctest.Test(t, func(t *testing.T) {
			cache := newTestCache()
			cache.store = func(entries map[backend.Key][]byte, items []backend.Item) error {
				cache.store = nil
				return &backend.BatchError{NotStored: notStored, Err: errDisk}
			}
			client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
			response, err := client.Embed(t.Context(), numbered(7))
			require.NoError(t, err)
			require.NoError(t, response.CacheErr)
			require.Equal(t, 7, cache.len())
		})
	}
}

// TestCacheDrops: a cache that acknowledges and drops is found at the first
// call; with VerifyWrites also later.
func TestCacheDrops(t *testing.T) {
	drop := func(map[backend.Key][]byte, []backend.Item) error { return nil }
	dropOne := func(entries map[backend.Key][]byte, items []backend.Item) error {
		for _, item := range items[1:] {
			entries[item.Key] = bytes.Clone(item.Value)
		}
		return nil
	}
	damage := func(entries map[backend.Key][]byte, items []backend.Item) error {
		for _, item := range items {
			entries[item.Key] = item.Value[:len(item.Value)-1]
		}
		return nil
	}
	for name, store := range map[string]func(map[backend.Key][]byte, []backend.Item) error{"all": drop, "one": dropOne, "damaged": damage} {
		t.Run(name, func(t *testing.T) {
			cache := newTestCache()
			cache.store = store
			client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
			response, err := client.Embed(t.Context(), numbered(5))
			requireVectors(t, numbered(5), response, err)
			require.ErrorIs(t, response.CacheErr, embed.ErrWriteLost)
			require.Equal(t, 1, response.Usage.CacheFailures)

			for _, verify := range []bool{false, true} {
				cache := newTestCache()
				client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache, VerifyWrites: verify, Strict: true})
				_, err := client.Embed(t.Context(), numbered(1))
				require.NoError(t, err)
				cache.store = store
				response, err := client.Embed(t.Context(), []string{"later", "text"})
				require.Equal(t, verify, errors.Is(response.CacheErr, embed.ErrWriteLost))
				require.Equal(t, verify, errors.Is(err, embed.ErrWriteLost))
			}
		})
	}
}

// TestCacheThatKeepsNothing: once it was caught, it is trusted no more. Each call
// says that it must be paid for again, and a stream stops paying.
func TestCacheThatKeepsNothing(t *testing.T) {
	var faults atomic.Int64
	cache := newTestCache()
	cache.store = func(map[backend.Key][]byte, []backend.Item) error { return nil }
	provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 1}})
	client := newClient(t, provider, &embed.Options{Cache: cache, ConcurrentRequests: 1, Observer: countFaults(&faults)})
	for range 3 {
		response, err := client.Embed(t.Context(), numbered(2))
		require.NoError(t, err)
		require.ErrorIs(t, response.CacheErr, embed.ErrWriteLost)
		require.Equal(t, 2, response.Usage.CacheFailures)
	}
	require.Equal(t, int64(1), faults.Load(), "it is told once")
	require.Equal(t, 6, provider.Requests())

	var last error
	stream := client.Stream(t.Context(), pairs(numbered(1000)), nil)
	for _, err := range stream.All() {
		last = err
	}
	require.ErrorIs(t, last, embed.ErrWriteLost)
	require.ErrorIs(t, stream.CacheErr(), embed.ErrWriteLost)
	// While the last is being read back, the next may be sent.
	require.LessOrEqual(t, provider.Requests(), 6+3+2)
}

// TestCacheThatEvicts may lose a batch that it acknowledged, but not change it.
func TestCacheThatEvicts(t *testing.T) {
	cache := newTestCache()
	cache.info.MayEvict = true
	cache.store = func(map[backend.Key][]byte, []backend.Item) error { return nil }
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache, VerifyWrites: true})
	response, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.NoError(t, response.CacheErr)
	cache.store = func(entries map[backend.Key][]byte, items []backend.Item) error {
		entries[items[0].Key] = []byte("changed")
		return nil
	}
	response, err = client.Embed(t.Context(), []string{"b"})
	require.NoError(t, err)
	require.ErrorIs(t, response.CacheErr, embed.ErrWriteLost)
}

// layered answers verifying reads from another cache.
type layered struct {
	*testCache
	below *testCache
}

func (l layered) Authoritative() backend.Cache { return l.below }

// TestVerifyAsksTheAuthoritativeLayer: what only the upper layer has is lost.
func TestVerifyAsksTheAuthoritativeLayer(t *testing.T) {
	cache := layered{newTestCache(), newTestCache()}
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
	response, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.ErrorIs(t, response.CacheErr, embed.ErrWriteLost)
}

// TestVerifyAcceptsAnotherProcess: a second process may have stored its own
// vector of the same text between write and reading back.
func TestVerifyAcceptsAnotherProcess(t *testing.T) {
	cache := newTestCache()
	cache.store = func(entries map[backend.Key][]byte, items []backend.Item) error {
		for _, item := range items {
			entries[item.Key] = edit(func(b []byte) { b[12]++; b[len(b)-1] ^= 1 }, true)(item.Value, nil)
		}
		return nil
	}
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
	response, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.NoError(t, response.CacheErr)
}

// TestVerifyThatFails: a reading back that fails proves nothing; the next batch
// is read back instead.
func TestVerifyThatFails(t *testing.T) {
	cache := newTestCache()
	failing := true
	cache.onGet = func(context.Context, []backend.Key) error {
		if failing {
			return errDisk
		}
		return nil
	}
	cache.store = func(map[backend.Key][]byte, []backend.Item) error { return nil }
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
	response, err := client.Do(t.Context(), &embed.Call{Texts: []string{"a"}, Refresh: true})
	require.NoError(t, err)
	require.NoError(t, response.CacheErr)
	failing = false
	response, err = client.Embed(t.Context(), []string{"b"})
	require.NoError(t, err)
	require.ErrorIs(t, response.CacheErr, embed.ErrWriteLost)
}
