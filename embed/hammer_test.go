package embed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// hammer runs 16 goroutines with 150 calls each over overlapping texts, and
// compares every vector with the truth. It returns how many were compared, were
// wrong, and were missing.
func hammer(t *testing.T, client *embed.Client, seed uint64) (compared, wrong, missing int64) {
	var vectors, mismatches, failed atomic.Int64
	pool := numbered(900)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			lent := make([]float32, 8*64)
			for range 150 {
				texts := make([]string, 1+r.IntN(13))
				for i := range texts {
					texts[i] = pool[r.IntN(len(pool))]
				}
				call := &embed.Call{Texts: texts, Refresh: r.IntN(20) == 0, NoStore: r.IntN(20) == 0}
				if r.IntN(2) == 0 {
					call.Into = lent
				}
				response, err := client.Do(context.Background(), call)
				if response == nil {
					t.Errorf("no response: %v", err)
					return
				}
				for i, text := range texts {
					switch vector := response.Vector(i); {
					case vector == nil:
						failed.Add(1)
					case embedtest.IsVectorOf(text, vector):
						vectors.Add(1)
						clear(vector)
					default:
						mismatches.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	return vectors.Load(), mismatches.Load(), failed.Load()
}

// TestHammer: 16 goroutines, 2,400 calls, 16,000 vectors and more, 0 mismatches.
func TestHammer(t *testing.T) {
	seed := random(t).Uint64()
	cache, err := memory.New(nil)
	require.NoError(t, err)
	defer cache.Close()
	provider := embedtest.NewProvider(&embedtest.Options{
		Limits:    embed.Limits{Items: 4},
		FaultFunc: func(number int, _ embedtest.Request) embedtest.Fault { return embedtest.Fault{Shuffle: number%2 == 0} },
		EditSpec:  func(s *embed.Spec) { s.ModelDimensions = 0 },
	})
	client := newClient(t, provider, &embed.Options{Cache: cache, ClientRequests: 8, VerifyWrites: true})
	compared, wrong, missing := hammer(t, client, seed)
	t.Logf("%d vectors compared, %d requests", compared, provider.Requests())
	require.Greater(t, compared, int64(16_000))
	require.Zero(t, wrong)
	require.Zero(t, missing)
	require.LessOrEqual(t, provider.MaxConcurrent(), 8)
	require.Equal(t, provider.BilledTokens(), client.Usage().BilledTokens)
	require.Equal(t, compared, int64(client.Usage().Texts))
	requireSum(t, client.Usage())
}

// TestHammerWithFaults: the same with a provider and a cache that fail at random.
// A vector may be missing then, with an error, but never be wrong.
func TestHammerWithFaults(t *testing.T) {
	seed := random(t).Uint64()
	synctest.Test(t, func(t *testing.T) {
		rarely := func(number int) bool { return rand.New(rand.NewPCG(seed, uint64(number)+1000)).IntN(20) == 0 }
		kinds := []embedtest.Fault{
			{Status: 429, RetryAfter: time.Second}, {Cut: true}, {Status: 500}, {Reset: true}, {Status: 503, Billed: true}, {Status: 400},
			{Count: 1}, {Count: -1}, {Index: embedtest.IndexTwice}, {Vector: embedtest.VectorNaN}, {Vector: embedtest.VectorShort}, {Hang: true},
			{Index: embedtest.IndexNone}, {Index: embedtest.IndexMissingAt}, {Usage: embedtest.UsageNone}, {Dimensions: 32},
		}
		provider := embedtest.NewProvider(&embedtest.Options{
			Limits: embed.Limits{Items: 4}, Latency: 100 * time.Millisecond,
			FaultFunc: func(number int, _ embedtest.Request) embedtest.Fault {
				if !rarely(number) {
					return embedtest.Fault{Shuffle: number%2 == 0, Delay: time.Duration(number%7) * time.Millisecond}
				}
				return kinds[number%len(kinds)]
			},
		})
		cache := newTestCache()
		var reads, writes atomic.Int64
		cache.onGet = func(context.Context, []backend.Key) error {
			if rarely(int(reads.Add(1)) + 1_000_000) {
				return errDisk
			}
			return nil
		}
		cache.store = func(entries map[backend.Key][]byte, items []backend.Item) error {
			number := int(writes.Add(1)) + 2_000_000
			for i, item := range items {
				value := append([]byte(nil), item.Value...)
				switch r := rand.New(rand.NewPCG(seed, uint64(number))); {
				case !rarely(number):
				case r.IntN(3) == 0: // the next item's record
					value = append([]byte(nil), items[(i+1)%len(items)].Value...)
				case r.IntN(2) == 0: // torn
					value = value[:r.IntN(len(value))]
				default:
					return errDisk
				}
				entries[item.Key] = value
			}
			return nil
		}
		client := newClient(t, provider, &embed.Options{Cache: cache, MaxRetries: 2})
		compared, wrong, missing := hammer(t, client, seed)
		t.Logf("%d vectors compared, %d missing, usage %+v", compared, missing, client.Usage())
		require.Zero(t, wrong)
		require.Greater(t, compared, int64(14_000))
		require.Less(t, missing, compared/10)
		require.Positive(t, client.Usage().CacheFailures)
		require.Positive(t, client.Usage().Retries)
		require.NotEmpty(t, client.Usage().Foreign)
		requireSum(t, client.Usage())
	})
}

// TestStreamsBesideCalls: streams and calls of one client at once.
func TestStreamsBesideCalls(t *testing.T) {
	provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 50}})
	client := newClient(t, provider, &embed.Options{Cache: newTestCache(), ClientRequests: 3})
	texts := numbered(1500)
	var wg sync.WaitGroup
	for range 4 {
		stream := client.Stream(t.Context(), pairs(texts), nil)
		wg.Go(func() { requireStreamed(t, stream, texts) })
		wg.Go(func() { // usage may be read meanwhile
			for stream.Usage().Texts < len(texts) {
				require.LessOrEqual(t, stream.Usage().Requests, client.Usage().Requests)
				runtime.Gosched()
			}
		})
		wg.Go(func() {
			for i := range 20 {
				response, err := client.Embed(t.Context(), texts[i*50:i*50+100])
				requireVectors(t, texts[i*50:i*50+100], response, err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, provider.BilledTokens(), client.Usage().BilledTokens)
	requireSum(t, client.Usage())
	require.Equal(t, 4*1500+4*20*100, client.Usage().Texts)
}

// BenchmarkConcurrentRequests shows the time of 40 requests of 10 ms by the number
// under way at once.
func BenchmarkConcurrentRequests(b *testing.B) {
	for _, n := range []int{1, 2, 5, 10, 20} {
		b.Run(fmt.Sprintf("requests=%d", n), func(b *testing.B) {
			provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 1}, Latency: 10 * time.Millisecond, NoLog: true})
			client := newClient(b, provider, &embed.Options{ConcurrentRequests: n})
			texts := numbered(40)
			for b.Loop() {
				if _, err := client.Embed(context.Background(), texts); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
