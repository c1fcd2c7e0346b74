package embed_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// endless yields texts that differ, for ever, and counts them.
func endless(given *atomic.Int64) func(yield func(id, text string) bool) {
	return func(yield func(id, text string) bool) {
		for i := 0; yield(fmt.Sprint(i), fmt.Sprintf("text number %d", i)); i++ {
			given.Add(1)
		}
	}
}

// drain ranges over the whole stream and returns how many items had a vector,
// how many an error, and the error that ended it.
func drain(t *testing.T, stream *embed.Stream) (good, bad int, end error) {
	t.Helper()
	for item, err := range stream.All() {
		require.NoError(t, end, "something came after the end")
		switch {
		case item.Index == -1:
			require.Error(t, err)
			require.Empty(t, item.ID)
			require.Nil(t, item.Vector)
			end = err
			continue
		case err != nil:
			require.Nil(t, item.Vector)
			bad++
		default:
			require.True(t, embedtest.IsVectorOf(fmt.Sprintf("text number %d", item.Index), item.Vector))
			good++
		}
		require.Equal(t, good+bad-1, item.Index)
		require.Equal(t, fmt.Sprint(item.Index), item.ID)
	}
	requireSum(t, stream.Usage())
	require.Equal(t, good+bad, stream.Usage().Texts)
	return good, bad, end
}

// TestStreamConsumerLeaves: what was sent is stored and on the client's bill.
func TestStreamConsumerLeaves(t *testing.T) {
	for _, leaveAt := range []int{1, 700, 1500} {
		synctest.Test(t, func(t *testing.T) {
			provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 100}, Latency: time.Second})
			cache := newTestCache()
			client := newClient(t, provider, &embed.Options{Cache: cache})
			var given atomic.Int64
			n := 0
			for _, err := range client.Stream(t.Context(), endless(&given), nil).All() {
				require.NoError(t, err)
				if n++; n == leaveAt {
					break
				}
			}
			stopped := given.Load()
			require.NoError(t, client.Close())
			require.Equal(t, stopped, given.Load(), "the source was read on")
			require.Equal(t, provider.Texts(), cache.len())
			require.Equal(t, provider.BilledTokens(), client.Usage().BilledTokens)
			require.Equal(t, provider.Requests(), client.Usage().Requests)
		})
	}
}

// TestStreamSourcePanics: the panic comes to the consumer; the client lives on.
func TestStreamSourcePanics(t *testing.T) {
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: newTestCache()})
	source := func(yield func(id, text string) bool) {
		yield("0", "text number 0")
		panic("source")
	}
	yielded := 0
	require.PanicsWithValue(t, "source", func() {
		for _, err := range client.Stream(t.Context(), source, nil).All() {
			require.NoError(t, err)
			yielded++
		}
	})
	require.LessOrEqual(t, yielded, 1)
	_, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.NoError(t, client.Close())
}

// TestStreamConsumerPanics: source and planner have ended when the panic is out,
// so that Close waits for all that can still send.
func TestStreamConsumerPanics(t *testing.T) {
	for range 20 {
		for _, how := range []func(){func() { panic("consumer") }, runtime.Goexit} {
			provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 2}})
			cache := newTestCache()
			client := newClient(t, provider, &embed.Options{Cache: cache})
			var given atomic.Int64
			var atPanic int64
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() {
					recover()
					atPanic = given.Load()
				}()
				for range client.Stream(t.Context(), endless(&given), nil).All() {
					how()
				}
			}()
			<-ended
			require.NoError(t, client.Close())
			require.Equal(t, provider.Texts(), cache.len())
			require.Equal(t, provider.BilledTokens(), client.Usage().BilledTokens)
			require.Equal(t, atPanic, given.Load())
		}
	}
}

// TestStreamContextEnds: the end comes at once, as the last item.
func TestStreamContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 100}, Latency: time.Second})
		cache := newTestCache()
		client := newClient(t, provider, &embed.Options{Cache: cache})
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		begun := time.Now()
		good, bad, end := drain(t, client.Stream(ctx, endless(new(atomic.Int64)), nil))
		require.Equal(t, 3500*time.Millisecond, time.Since(begun))
		require.ErrorIs(t, end, context.DeadlineExceeded)
		require.Equal(t, 2*512, good) // 1,500 are there: two whole chunks
		require.Zero(t, bad)
		require.NoError(t, client.Close())
		require.Equal(t, 20, provider.Requests())
		require.Equal(t, 2000, cache.len())
		require.Equal(t, provider.BilledTokens(), client.Usage().BilledTokens)

		// Before the first text.
		_, _, end = drain(t, newClient(t, provider, nil).Stream(ended(t), endless(new(atomic.Int64)), nil))
		require.ErrorIs(t, end, context.Canceled)
	})
}

// TestStreamSourceWatchesContext: a source that waits for something ends with
// the context, and so does the stream.
func TestStreamSourceWatchesContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, embedtest.NewProvider(nil), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		source := func(yield func(id, text string) bool) {
			if yield("0", "text number 0") {
				<-ctx.Done()
			}
		}
		good, _, end := drain(t, client.Stream(ctx, source, nil))
		require.Equal(t, 1, good)
		require.ErrorIs(t, end, context.DeadlineExceeded)
	})
}

// TestStreamFatalFailure ends the stream after what was looked up already; what
// was paid for before is yielded and stored.
func TestStreamFatalFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{
			Limits: embed.Limits{Items: 100}, Latency: time.Second,
			FaultFunc: func(number int, _ embedtest.Request) embedtest.Fault {
				if number >= 8 {
					return embedtest.QuotaSpent()
				}
				return embedtest.Fault{}
			},
		})
		cache := newTestCache()
		client := newClient(t, provider, &embed.Options{Cache: cache})
		var given atomic.Int64
		stream := client.Stream(t.Context(), endless(&given), nil)
		good, bad, end := drain(t, stream)
		var failure *embed.ProviderError
		require.ErrorAs(t, end, &failure)
		require.Equal(t, "insufficient_quota", failure.Code)
		require.Equal(t, 700, good)
		require.Positive(t, bad)
		require.Less(t, given.Load(), int64(200_000))
		require.Equal(t, 700, cache.len())
		require.LessOrEqual(t, provider.Requests(), 12)
		require.Equal(t, provider.BilledTokens(), stream.Usage().BilledTokens)
	})
}

// TestStreamItemErrors don't end it: blank and refused texts, requests that fail
// by themselves, vectors that are none.
func TestStreamItemErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{
			Limits:   embed.Limits{Items: 10},
			Faults:   []embedtest.Fault{{Status: 400}, {Vector: embedtest.VectorNaN, At: 3}, {Count: -1}, embedtest.RateLimited(time.Hour), {Status: 500}},
			EditSpec: func(s *embed.Spec) { s.Limits.TextTokens = 50 },
		})
		client := newClient(t, provider, &embed.Options{ConcurrentRequests: 1, LongTexts: embed.RefuseLongTexts, Cache: newTestCache()})
		texts := numbered(2000)
		texts[100], texts[1900], texts[200] = " ", "", ofTokens("long", 51)
		counts := make(map[error]int)
		n := 0
		stream := client.Stream(t.Context(), pairs(texts), nil)
		for item, err := range stream.All() {
			require.Equal(t, n, item.Index)
			n++
			var failure *embed.ProviderError
			switch {
			case err == nil:
				require.True(t, embedtest.IsVectorOf(texts[item.Index], item.Vector))
			case errors.As(err, &failure):
				counts[nil]++
			default:
				for _, sentinel := range []error{embed.ErrBlankText, embed.ErrTextTooLong, embed.ErrBadAnswer} {
					if errors.Is(err, sentinel) {
						counts[sentinel]++
					}
				}
			}
		}
		require.Equal(t, 2000, n)
		require.Equal(t, map[error]int{nil: 20, embed.ErrBlankText: 2, embed.ErrTextTooLong: 1, embed.ErrBadAnswer: 11}, counts)
		require.Equal(t, 3, stream.Usage().Refused)
		requireSum(t, stream.Usage())
	})
}

// TestStreamUnstored: three answers in a row that could not be stored end it, two
// don't, whatever the answers say they bill.
func TestStreamUnstored(t *testing.T) {
	for name, usage := range map[string]embedtest.UsageFault{"billed": embedtest.UsageRight, "free": embedtest.UsageZero} {
		for _, inRow := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s, %d in a row", name, inRow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					provider := embedtest.NewProvider(&embedtest.Options{
						Limits:    embed.Limits{Items: 10},
						FaultFunc: func(int, embedtest.Request) embedtest.Fault { return embedtest.Fault{Usage: usage} },
					})
					cache := newTestCache()
					position := make(map[[32]byte]int) // of a text, by the digest in its record
					for i, text := range numbered(5000) {
						position[sha256.Sum256([]byte(text))] = i
					}
					cache.onSet = func(_ context.Context, items []backend.Item) error {
						request := position[[32]byte(items[0].Value[24:56])] / 10
						if request%10 < inRow {
							return backend.ErrReadOnly
						}
						return nil
					}
					client := newClient(t, provider, &embed.Options{Cache: cache, ConcurrentRequests: 1})
					stream := client.Stream(t.Context(), pairs(numbered(5000)), nil)
					if inRow == 2 {
						requireStreamed(t, stream, numbered(5000))
						require.Equal(t, 100, stream.Usage().CacheFailures)
						return
					}
					good, bad, end := drain(t, stream)
					require.ErrorIs(t, end, backend.ErrReadOnly)
					require.ErrorContains(t, end, "3 answers in a row could not be stored")
					require.Less(t, provider.Requests(), 500)
					require.Equal(t, good, provider.Texts(), "what was paid for was not yielded")
					require.LessOrEqual(t, good+bad, 5000)
				})
			})
		}
	}
}

// TestStreamStrict: any failure of the cache ends the stream.
func TestStreamStrict(t *testing.T) {
	for name, break_ := range map[string]func(cache *testCache){
		"read": func(cache *testCache) { cache.onGet = func(context.Context, []backend.Key) error { return errDisk } },
		"write": func(cache *testCache) {
			cache.onSet = func(context.Context, []backend.Item) error { return backend.ErrReadOnly }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 10}, Latency: time.Second})
				cache := newTestCache()
				break_(cache)
				client := newClient(t, provider, &embed.Options{Cache: cache, Strict: true})
				stream := client.Stream(t.Context(), endless(new(atomic.Int64)), nil)
				_, _, end := drain(t, stream)
				require.Error(t, end)
				require.Less(t, provider.Requests(), 200)
				require.Positive(t, stream.Usage().CacheFailures)
			})
		})
	}
}

// TestStreamReadsFailOpen: texts that can't be looked up are paid for.
func TestStreamReadsFailOpen(t *testing.T) {
	cache := newTestCache()
	cache.onGet = func(context.Context, []backend.Key) error { return errDisk }
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
	stream := client.Stream(t.Context(), pairs(numbered(2000)), nil)
	requireStreamed(t, stream, numbered(2000))
	require.GreaterOrEqual(t, stream.Usage().CacheFailures, 2)
	require.ErrorIs(t, stream.CacheErr(), errDisk)
	require.Equal(t, stream.Usage().CacheFailures, client.Usage().CacheFailures)
}

// TestCloseWaitsForStream: a stream that runs goes on to its end.
func TestCloseWaitsForStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, embedtest.NewProvider(&embedtest.Options{Latency: time.Second}), nil)
		closed := make(chan struct{})
		n := 0
		for _, err := range client.Stream(t.Context(), pairs(numbered(2000)), nil).All() {
			require.NoError(t, err)
			if n++; n == 1 {
				go func() {
					require.NoError(t, client.Close())
					close(closed)
				}()
				synctest.Wait()
			}
			select {
			case <-closed:
				t.Fatal("Close did not wait")
			default:
			}
		}
		require.Equal(t, 2000, n)
		<-closed
	})
}
