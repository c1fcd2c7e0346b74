package embed_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// pairs yields texts, each with its index as the id.
func pairs(texts []string) iter.Seq2[string, string] {
	return func(yield func(id, text string) bool) {
		for i, text := range texts {
			if !yield(strconv.Itoa(i), text) {
				return
			}
		}
	}
}

// requireStreamed fails unless stream, over pairs(texts), yields the right vector
// for each of texts, in order, and no error.
func requireStreamed(t testing.TB, stream *embed.Stream, texts []string) {
	t.Helper()
	n := 0
	for item, err := range stream.All() {
		require.NoError(t, err)
		if item.Index != n || item.ID != strconv.Itoa(n) || !embedtest.IsVectorOf(texts[n], item.Vector) {
			t.Fatalf("item %d is wrong: index %d, id %s", n, item.Index, item.ID)
		}
		n++
	}
	require.Equal(t, len(texts), n)
	require.Equal(t, len(texts), stream.Usage().Texts)
	requireSum(t, stream.Usage())
}

// TestStream: any number of texts, in order, with their ids, and the same vectors
// as from a call, bit for bit; the client's usage is the stream's.
func TestStream(t *testing.T) {
	for _, n := range []int{0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 5000} {
		for _, known := range []int{64, 0} {
			synctest.Test(t, func(t *testing.T) { // or else a slow machine makes the source pause
				provider := embedtest.NewProvider(&embedtest.Options{
					Limits:   embed.Limits{Items: 100},
					EditSpec: func(s *embed.Spec) { s.ModelDimensions = known },
				})
				client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
				texts := numbered(n)
				stream := client.Stream(t.Context(), pairs(texts), nil)
				requireStreamed(t, stream, texts)
				usage := stream.Usage()
				require.Equal(t, n, usage.Misses)
				if known > 0 || n <= 4*512 { // beyond its window a stream sends what it has
					require.Equal(t, (n+99)/100, provider.Requests(), "requests don't fill across chunks")
				}
				require.Equal(t, (n+99)/100, usage.LeastRequests)
				require.Equal(t, provider.BilledTokens(), usage.BilledTokens)
				require.Equal(t, usage, client.Usage())

				stream = client.Stream(t.Context(), pairs(texts), nil)
				requireStreamed(t, stream, texts)
				require.Equal(t, n, stream.Usage().Hits)
			})
		}
	}
}

// TestStreamPaysOnce: repeats within a chunk and across chunks, in flight or
// landed, are paid for once.
func TestStreamPaysOnce(t *testing.T) {
	for name, latency := range map[string]time.Duration{"in flight": time.Hour / 60, "landed": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 300}, Latency: latency})
				client := newClient(t, provider, &embed.Options{Cache: newTestCache(), RequestTimeout: time.Hour})
				var texts []string
				for i := range 3000 {
					texts = append(texts, fmt.Sprint("text ", i%700))
				}
				stream := client.Stream(t.Context(), pairs(texts), nil)
				requireStreamed(t, stream, texts)
				usage := stream.Usage()
				require.Equal(t, 700, provider.Texts())
				require.Equal(t, 700, usage.Misses)
				require.Equal(t, 2300, usage.Hits+usage.Deduplicated+usage.Joined)
				if name == "in flight" {
					require.Positive(t, usage.Joined)
					// All would have been paid for without dedupe.
					require.InEpsilon(t, 6000, usage.LogicalTokens, 0.05)
				}
			})
		})
	}
}

// TestStreamJoinedVectorsAreOwn: a text that waited for the same text's vector
// has a vector of its own.
func TestStreamJoinedVectorsAreOwn(t *testing.T) {
	client := newClient(t, embedtest.NewProvider(&embedtest.Options{Latency: time.Millisecond}), nil)
	texts := make([]string, 2000)
	for i := range texts {
		texts[i] = fmt.Sprint("text ", i%3)
	}
	for item, err := range client.Stream(t.Context(), pairs(texts), nil).All() {
		require.NoError(t, err)
		require.True(t, embedtest.IsVectorOf(texts[item.Index], item.Vector))
		_ = append(item.Vector, 1, 2, 3)
		clear(item.Vector)
	}
}

// TestStreamWindow: the source is not read ahead of a consumer that stands still
// by more than the window.
func TestStreamWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dimensions = 3072 // 4 chunks of 512
		provider := embedtest.NewProvider(&embedtest.Options{Dimensions: dimensions, NoLog: true})
		client := newClient(t, provider, nil)
		var given atomic.Int64
		source := func(yield func(id, text string) bool) {
			for i := 0; ; i++ {
				given.Add(1)
				if !yield("", fmt.Sprint("text ", i)) {
					return
				}
			}
		}
		taken := 0
		for _, err := range client.Stream(t.Context(), source, nil).All() {
			require.NoError(t, err)
			if taken++; taken == 1 || taken == 1500 {
				time.Sleep(time.Hour)
				// The window, the chunk in the planner's hand and the source's queue.
				require.LessOrEqual(t, given.Load(), int64(taken+(4+1+1)*512+2))
			}
			if taken == 2000 {
				break
			}
		}
	})
}

// TestStreamMemory: what was yielded is let go. 30,000 vectors of 4 KB would be
// seen.
func TestStreamMemory(t *testing.T) {
	// embedtest's vectors would take most of the time.
	provider := &oddProvider{
		spec: embed.Spec{Identity: "odd", ModelDimensions: 1024, Limits: embed.Limits{Items: 100}},
		embed: func(_ context.Context, texts []string) (*embed.Answer, error) {
			answer := &embed.Answer{}
			for range texts {
				answer.Vectors = append(answer.Vectors, make([]float32, 1024))
				answer.Vectors[len(answer.Vectors)-1][0] = 1
			}
			return answer, nil
		},
	}
	client := newClient(t, provider, nil)
	live := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	early := int64(0)
	for item, err := range client.Stream(t.Context(), pairs(numbered(30_000)), nil).All() {
		require.NoError(t, err)
		switch item.Index {
		case 10_000:
			early = live()
		case 29_999:
			require.Less(t, live()-early, int64(40<<20))
		}
	}
}

// TestStreamLinger: when the source pauses, what it gave goes out after Linger,
// and not before.
func TestStreamLinger(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			want := linger
			if want == 0 {
				want = embed.DefaultLinger
			}
			provider := embedtest.NewProvider(nil)
			client := newClient(t, provider, nil)
			begun := time.Now()
			source := func(yield func(id, text string) bool) {
				for i := range 3 {
					for range 2 {
						if !yield(strconv.Itoa(i), fmt.Sprint("text ", i)) {
							return
						}
					}
					time.Sleep(time.Hour)
				}
			}
			n := 0
			for item, err := range client.Stream(t.Context(), source, &embed.StreamOptions{Linger: linger}).All() {
				require.NoError(t, err)
				require.Equal(t, strconv.Itoa(n/2), item.ID)
				require.Equal(t, time.Duration(n/2)*time.Hour+want, time.Since(begun))
				n++
			}
			require.Equal(t, 6, n)
			require.Equal(t, 3, provider.Requests())
		})
	}
}

// TestStreamTrickle: a text doesn't wait longer than Linger for a source that
// never pauses that long.
func TestStreamTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(nil)
		client := newClient(t, provider, nil)
		given := make([]time.Time, 100)
		source := func(yield func(id, text string) bool) {
			for i := range 100 {
				given[i] = time.Now()
				if !yield(strconv.Itoa(i), fmt.Sprint("text ", i)) {
					return
				}
				time.Sleep(15 * time.Millisecond)
			}
		}
		for item, err := range client.Stream(t.Context(), source, nil).All() {
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(given[item.Index]), embed.DefaultLinger)
		}
		require.LessOrEqual(t, provider.Requests(), 51, "texts travel alone")
	})
}

// TestStreamModes: refresh pays again and replaces, no-store keeps nothing,
// cache-only sends nothing.
func TestStreamModes(t *testing.T) {
	provider := embedtest.NewProvider(nil)
	cache := newTestCache()
	client := newClient(t, provider, &embed.Options{Cache: cache})
	texts := numbered(1000)
	requireStreamed(t, client.Stream(t.Context(), pairs(texts), &embed.StreamOptions{NoStore: true}), texts)
	require.Zero(t, cache.len())
	for _, err := range client.Stream(t.Context(), pairs(texts), &embed.StreamOptions{CacheOnly: true}).All() {
		require.ErrorIs(t, err, embed.ErrNotCached)
	}
	require.Equal(t, 1000, provider.Texts())
	requireStreamed(t, client.Stream(t.Context(), pairs(texts), nil), texts)
	require.Equal(t, 1000, cache.len())
	stream := client.Stream(t.Context(), pairs(texts), &embed.StreamOptions{Refresh: true})
	requireStreamed(t, stream, texts)
	require.Zero(t, stream.Usage().Hits)
	require.Equal(t, 3000, provider.Texts())
	requireStreamed(t, client.Stream(t.Context(), pairs(texts), &embed.StreamOptions{CacheOnly: true}), texts)
	require.Equal(t, 3000, provider.Texts())
}

// TestStreamArguments: wrong options and a second range are errors, and leave
// nothing behind.
func TestStreamArguments(t *testing.T) {
	client := newClient(t, embedtest.NewProvider(nil), nil)
	only := func(stream *embed.Stream, part string) {
		t.Helper()
		n := 0
		for item, err := range stream.All() {
			require.ErrorContains(t, err, part)
			require.Equal(t, -1, item.Index)
			n++
		}
		require.Equal(t, 1, n)
	}
	only(client.Stream(t.Context(), pairs(nil), &embed.StreamOptions{Linger: -1}), "StreamOptions.Linger is -1ns")
	only(client.Stream(t.Context(), pairs(nil), &embed.StreamOptions{CacheOnly: true, Refresh: true}), "StreamOptions.CacheOnly and StreamOptions.Refresh")
	stream := client.Stream(t.Context(), pairs(numbered(1)), nil)
	requireStreamed(t, stream, numbered(1))
	only(stream, "only once")
	require.Equal(t, 1, stream.Usage().Texts)
	require.NoError(t, client.Close())
	only(client.Stream(t.Context(), pairs(numbered(1)), nil), "closed")
}
