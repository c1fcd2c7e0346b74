package embed_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var errGone = context.Canceled

// ended returns a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestContextEndedBefore: nothing is read or sent.
func TestContextEndedBefore(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	cache := newTestCache()
	client := newClient(t, provider, &embed.Options{Cache: cache})
	response, err := client.Embed(ended(t), []string{"a"})
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, response)
	require.Zero(t, cache.gets)
	require.Zero(t, provider.Requests())
}

// TestNilArguments have errors that name them.
func TestNilArguments(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
	var none context.Context
	lastOf := func(stream *embed.Stream) (last error) {
		for _, err := range stream.All() {
			last = err
		}
		return last
	}
	_, embedErr := client.Embed(none, []string{"a"})
	_, planErr := client.Plan(none, []string{"a"})
	_, rankErr := client.Rank(none, "a", []string{"b"}, 1)
	_, forgetErr := client.Forget(none, []string{"a"})
	for _, err := range []error{embedErr, planErr, rankErr, forgetErr, lastOf(client.Stream(none, pairs(numbered(3)), nil))} {
		require.ErrorContains(t, err, "ctx is nil")
	}
	require.ErrorContains(t, lastOf(client.Stream(t.Context(), nil, nil)), "pairs are nil")
	require.Zero(t, provider.Requests())
	require.NoError(t, client.Close())
}

// TestCallerLeaves: the caller is back at once with what there is. What was sent
// runs on, is stored, and is on the client's bill; what was not sent never is.
func TestCallerLeaves(t *testing.T) {
	for _, deadline := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 2}, Latency: time.Second})
			cache := newTestCache()
			client := newClient(t, provider, &embed.Options{Cache: cache, ConcurrentRequests: 3})
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			want := context.DeadlineExceeded
			if !deadline {
				want = context.Canceled
				time.AfterFunc(1499*time.Millisecond, cancel)
			}
			lent := make([]float32, 20*64)
			texts := numbered(20)
			begun := time.Now()
			response, err := client.Do(ctx, &embed.Call{Texts: texts, Into: lent})
			require.LessOrEqual(t, time.Since(begun), 1500*time.Millisecond)
			require.ErrorIs(t, err, want)
			require.Len(t, failures(t, err), 14)
			requireVectors(t, texts, response, err)
			requireSum(t, response.Usage)
			require.Equal(t, int64(18), response.Usage.BilledTokens)

			// The memory is the caller's again.
			for i := range lent {
				lent[i] = 1
			}
			require.NoError(t, client.Close()) // waits for what was sent
			require.Equal(t, 2*time.Second, time.Since(begun))
			for _, number := range lent {
				require.Equal(t, float32(1), number)
			}
			require.Equal(t, 6, provider.Requests())
			require.Equal(t, 12, cache.len())
			usage := client.Usage()
			require.Equal(t, provider.BilledTokens(), usage.BilledTokens)
			require.Equal(t, 6, usage.Requests)
			requireSum(t, usage)

			again := newClient(t, provider, &embed.Options{Cache: cache})
			response, err = again.Embed(t.Context(), texts[:12])
			requireVectors(t, texts[:12], response, err)
			require.Equal(t, 12, response.Usage.Hits)
		})
	}
}

// TestCallerLeavesDuringRetries: nothing is sent again for nobody.
func TestCallerLeavesDuringRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{FaultFunc: func(int, embedtest.Request) embedtest.Fault {
			return embedtest.Fault{Status: 429, RetryAfter: 30 * time.Second, Delay: time.Second}
		}})
		client := newClient(t, provider, nil)
		for _, after := range []time.Duration{500 * time.Millisecond, 5 * time.Second} { // under way, and waiting
			ctx, cancel := context.WithTimeout(t.Context(), after)
			begun, before := time.Now(), provider.Requests()
			_, err := client.Embed(ctx, []string{"a"})
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, after, time.Since(begun))
			time.Sleep(time.Hour)
			require.Equal(t, before+1, provider.Requests())
		}
	})
}

// TestCallerLeavesDuringWrite: the write goes on.
func TestCallerLeavesDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newTestCache()
		cache.onSet = func(context.Context, []backend.Item) error {
			time.Sleep(time.Second)
			return nil
		}
		client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err := client.Embed(ctx, []string{"a"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 500*time.Millisecond, time.Since(begun))
		require.NoError(t, client.Close())
		require.Equal(t, 1, cache.len())
	})
}

// TestCallerLeavesDuringLookup: a cache that heeds the context ends the call, and
// nothing is sent or counted as the cache's failure.
func TestCallerLeavesDuringLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newTestCache()
		cache.onGet = func(ctx context.Context, _ []backend.Key) error {
			<-ctx.Done()
			return ctx.Err()
		}
		provider := embedtest.NewProvider(nil)
		client := newClient(t, provider, &embed.Options{Cache: cache, Strict: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Embed(ctx, numbered(3))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, provider.Requests())
		require.Zero(t, client.Usage().CacheFailures)
	})
}

// TestCallerLeavesWaitingForAPlace: a request that waits for one of the client's
// places is not sent any more.
func TestCallerLeavesWaitingForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{Latency: time.Minute})
		client := newClient(t, provider, &embed.Options{ClientRequests: 1})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := client.Embed(t.Context(), []string{"a"})
			require.NoError(t, err)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Embed(ctx, []string{"b"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		wg.Wait()
		synctest.Wait()
		require.Equal(t, 1, provider.Requests())
		_, err = client.Embed(t.Context(), []string{"c"})
		require.NoError(t, err, "the place was not given back")
	})
}

// TestClose refuses new calls, waits for running ones, and may be called again,
// by many.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{Latency: time.Second})
		cache := newTestCache()
		client := newClient(t, provider, &embed.Options{Cache: cache})
		begun := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			response, err := client.Embed(t.Context(), numbered(3))
			requireVectors(t, numbered(3), response, err)
		})
		synctest.Wait()
		for range 5 {
			wg.Go(func() {
				require.NoError(t, client.Close())
				require.Equal(t, time.Second, time.Since(begun))
			})
		}
		synctest.Wait()
		_, err := client.Embed(t.Context(), []string{"late"})
		require.ErrorIs(t, err, embed.ErrClosed)
		wg.Wait()
		require.Equal(t, 3, cache.len())
		for range 2 {
			require.NoError(t, client.Close())
		}
		_, err = client.Rank(t.Context(), "q", []string{"a"}, 1)
		require.ErrorIs(t, err, embed.ErrClosed)
		require.Equal(t, 3, client.Usage().Texts)
	})
}

// TestCloseRacesWithCalls: each call either is refused or gets its vectors.
func TestCloseRacesWithCalls(t *testing.T) {
	for range 50 {
		client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: newTestCache()})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					response, err := client.Embed(t.Context(), []string{"a", "b"})
					if errors.Is(err, embed.ErrClosed) {
						return
					}
					requireVectors(t, []string{"a", "b"}, response, err)
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				runtime.Gosched()
				require.NoError(t, client.Close())
			})
		}
		wg.Wait()
	}
}

// TestDroppedClients: 200 clients that were used and not closed leave no
// goroutine.
func TestDroppedClients(t *testing.T) {
	cache := newTestCache()
	before := goleak.IgnoreCurrent()
	for range 200 {
		client, err := embed.New(embedtest.NewProvider(nil), &embed.Options{Cache: cache, ClientRequests: 3})
		require.NoError(t, err)
		response, err := client.Embed(t.Context(), numbered(20))
		requireVectors(t, numbered(20), response, err)
		for range client.Stream(t.Context(), pairs(numbered(20)), nil).All() {
			break
		}
	}
	goleak.VerifyNone(t, before)
}
