package embed_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/embedonce/embedonce/internal/record"
	"github.com/stretchr/testify/require"
)

// events keeps what an Observer was told.
type events struct {
	mu       sync.Mutex
	lookups  []embed.LookupEvent
	requests []embed.RequestEvent
	writes   []embed.WriteEvent
	faults   []embed.FaultEvent
}

func (e *events) observer() *embed.Observer {
	return &embed.Observer{
		Lookup:  func(_ context.Context, event embed.LookupEvent) { keep(e, &e.lookups, event) },
		Request: func(_ context.Context, event embed.RequestEvent) { keep(e, &e.requests, event) },
		Write:   func(_ context.Context, event embed.WriteEvent) { keep(e, &e.writes, event) },
		Fault:   func(_ context.Context, event embed.FaultEvent) { keep(e, &e.faults, event) },
	}
}

func keep[T any](e *events, to *[]T, event T) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*to = append(*to, event)
}

// TestObserver sees each lookup, attempt, write and fault with its numbers.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		provider := embedtest.NewProvider(&embedtest.Options{Latency: time.Second, Faults: []embedtest.Fault{embedtest.RateLimited(3 * time.Second)}})
		cache := newTestCache()
		failing := true
		cache.onSet = func(context.Context, []backend.Item) error {
			time.Sleep(10 * time.Millisecond)
			if failing {
				failing = false
				return errDisk
			}
			return nil
		}
		cache.onGet = func(context.Context, []backend.Key) error {
			time.Sleep(time.Millisecond)
			return nil
		}
		client := newClient(t, provider, &embed.Options{Cache: cache, Observer: seen.observer()})
		_, err := client.Embed(t.Context(), []string{"a b", "c", "a b", ""})
		require.Error(t, err)

		require.Equal(t, []embed.LookupEvent{{Texts: 2, Duration: time.Millisecond}}, seen.lookups)
		require.Len(t, seen.requests, 2)
		first := seen.requests[0]
		var failure *embed.ProviderError
		require.ErrorAs(t, first.Err, &failure)
		first.Err = nil
		require.Equal(t, embed.RequestEvent{Texts: 2, Duration: time.Second}, first)
		require.Equal(t, embed.RequestEvent{Texts: 2, Attempt: 1, BilledTokens: 3, Duration: time.Second}, seen.requests[1])
		size := 2 * record.Size(64)
		require.Equal(t, []embed.WriteEvent{
			{Items: 2, Bytes: size, Duration: 10 * time.Millisecond, Err: errDisk},
			{Items: 2, Bytes: size, Duration: 10 * time.Millisecond},
		}, seen.writes)
		require.Empty(t, seen.faults)

		for key := range cache.entries {
			cache.entries[key] = []byte("foreign")
			break
		}
		_, err = client.Do(t.Context(), &embed.Call{Texts: []string{"a b", "c", "d"}, NoStore: true})
		require.NoError(t, err)
		require.Equal(t, embed.LookupEvent{Texts: 3, Hits: 1, Foreign: 1, Duration: time.Millisecond}, seen.lookups[1])
		require.Equal(t, 2, seen.requests[2].Texts)
		require.Len(t, seen.writes, 2)
		require.Len(t, seen.faults, 1)

		cache.onGet = func(context.Context, []backend.Key) error { return errDisk }
		_, err = client.Embed(t.Context(), []string{"a b"})
		require.NoError(t, err)
		require.ErrorIs(t, seen.lookups[2].Err, backend.ErrUnavailable)
		require.ErrorIs(t, seen.faults[1].Err, backend.ErrUnavailable)
	})
}

// TestObserverInPart: each function may be unset.
func TestObserverInPart(t *testing.T) {
	full := new(events).observer()
	for _, observer := range []*embed.Observer{nil, {}, {Lookup: full.Lookup}, {Request: full.Request}, {Write: full.Write}, {Fault: full.Fault}} {
		cache := newTestCache()
		client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache, Observer: observer})
		_, err := client.Embed(t.Context(), []string{"a"})
		require.NoError(t, err)
		for key := range cache.entries {
			cache.entries[key] = []byte("foreign")
		}
		_, err = client.Embed(t.Context(), []string{"a"})
		require.NoError(t, err)
	}
}

// TestNothingLeaks looks for texts, keys, digests and vectors in everything that
// is logged, observed or returned as an error, over every kind of fault.
func TestNothingLeaks(t *testing.T) {
	const marker = "XyzzyMarker"
	faults := []embedtest.Fault{
		{}, {Status: 400, Message: marker, Type: "bad " + marker + "!"}, {Status: 401, Message: marker}, {Status: 404, Message: marker},
		{Status: 413, Code: marker + " with blanks"}, {Status: 422, Message: marker}, embedtest.RateLimited(time.Second), {Status: 500, Message: marker},
		embedtest.QuotaSpent(), {Hang: true}, {Reset: true}, {Cut: true}, {Malformed: true}, {Body: []byte(marker)}, {Status: 502, Body: []byte(marker)},
		{Count: 1}, {Count: -1}, {Index: embedtest.IndexTwice}, {Index: embedtest.IndexTooHigh}, {Index: embedtest.IndexNegative}, {Index: embedtest.IndexMissingAt, At: 1},
		{Vector: embedtest.VectorNaN}, {Vector: embedtest.VectorZero}, {Vector: embedtest.VectorShort}, {Usage: embedtest.UsageNone}, {Model: "other"}, {Dimensions: 8},
	}
	caches := map[string]func(cache *testCache){
		"good":      func(*testCache) {},
		"unread":    func(c *testCache) { c.onGet = func(context.Context, []backend.Key) error { return errDisk } },
		"unwritten": func(c *testCache) { c.onSet = func(context.Context, []backend.Item) error { return errDisk } },
		"small":     func(c *testCache) { c.info.MaxValueBytes = 10 },
		"dropping":  func(c *testCache) { c.store = func(map[backend.Key][]byte, []backend.Item) error { return nil } },
		"in part": func(c *testCache) {
			c.store = func(map[backend.Key][]byte, []backend.Item) error {
				return &backend.BatchError{NotStored: []int{0}, Err: errDisk}
			}
		},
		"foreign": func(c *testCache) {
			c.store = func(entries map[backend.Key][]byte, items []backend.Item) error {
				for _, item := range items {
					entries[item.Key] = bytes.Repeat([]byte(marker), 100)
				}
				return nil
			}
		},
	}
	for name, damage := range caches {
		for _, policy := range []embed.LongTexts{embed.TruncateLongTexts, embed.RefuseLongTexts, embed.SendLongTexts} {
			synctest.Test(t, func(t *testing.T) {
				var log lockedBuffer
				var seen events
				var said []string
				provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 2}, EditSpec: func(s *embed.Spec) { s.Limits.TextTokens = 20 }})
				cache := newTestCache()
				damage(cache)
				client := newClient(t, provider, &embed.Options{
					Cache: cache, Secret: []byte(marker + " secret"), MaxRetries: 1, MaxBilledTokens: 10_000, LongTexts: policy, VerifyWrites: true,
					Observer: seen.observer(), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
				})
				texts := []string{marker + " one", marker + "\xff two", ofTokens(marker, 30), strings.Repeat(" ", 30) + marker, " "}
				for _, fault := range faults {
					provider.AddFaults(embedtest.Repeat(3, fault)...)
					response, err := client.Embed(t.Context(), texts)
					said = append(said, fmt.Sprintf("%v %+v", err, errors.Unwrap(err)))
					if response != nil {
						said = append(said, fmt.Sprint(response.CacheErr))
					}
					for item, err := range client.Stream(t.Context(), pairs(texts), &embed.StreamOptions{Refresh: true}).All() {
						said = append(said, item.ID, fmt.Sprint(err))
					}
				}
				_, err := client.Do(t.Context(), &embed.Call{Texts: texts, CacheOnly: true})
				said = append(said, fmt.Sprint(err))
				_, err = client.Rank(t.Context(), marker, texts, 1)
				said = append(said, fmt.Sprint(err))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				provider.AddFaults(embedtest.Fault{Hang: true}, embedtest.Fault{Hang: true})
				_, err = client.Do(ctx, &embed.Call{Texts: texts, Refresh: true})
				said = append(said, fmt.Sprint(err))
				require.NoError(t, client.Close())

				said = append(said, log.String(), fmt.Sprintf("%+v %+v %+v %+v", seen.lookups, seen.requests, seen.writes, seen.faults))
				all := strings.Join(said, "\n")
				require.NotEmpty(t, log.String())
				require.NotContains(t, strings.ToLower(all), strings.ToLower(marker), name)
				secrets := [][]byte{[]byte(marker)}
				for key, value := range cache.snapshot() {
					secrets = append(secrets, key[:])
					if len(value) > 64 {
						secrets = append(secrets, value[24:56], value[64:72])
					}
				}
				for _, secret := range secrets {
					require.NotContains(t, all, hex.EncodeToString(secret))
					require.NotContains(t, all, strings.TrimRight(base64.StdEncoding.EncodeToString(secret), "="))
					require.NotContains(t, all, fmt.Sprint(secret))
				}
				require.NotContains(t, all, fmt.Sprint(embedtest.Vector(texts[0], 64)[:2]))
			})
		}
	}
}

// lockedBuffer is a bytes.Buffer for many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
