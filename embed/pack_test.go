package embed_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// inOrder embeds texts with one request at a time and returns the log.
func inOrder(t *testing.T, limits embed.Limits, texts []string) ([]embedtest.Request, embed.Usage) {
	// The fake has no limits of its own: an oversized text is the provider's to
	// judge.
	provider := embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) { s.Limits = limits }})
	client := newClient(t, provider, &embed.Options{ConcurrentRequests: 1})
	response, err := client.Embed(t.Context(), texts)
	requireVectors(t, texts, response, err)
	require.NoError(t, err)
	require.Equal(t, provider.Requests(), response.Usage.Requests)
	return provider.History(), response.Usage
}

func sizes(log []embedtest.Request) []int {
	var sizes []int
	for _, request := range log {
		sizes = append(sizes, len(request.Texts))
	}
	return sizes
}

func tenOf(tokens int) []string {
	var texts []string
	for i := range 10 {
		texts = append(texts, ofTokens(fmt.Sprint("text", i), tokens))
	}
	return texts
}

func TestPackByTokens(t *testing.T) {
	log, usage := inOrder(t, embed.Limits{Tokens: 100}, tenOf(41))
	require.Equal(t, []int{2, 2, 2, 2, 2}, sizes(log))
	for _, request := range log {
		require.LessOrEqual(t, request.Tokens, 100)
	}
	require.Equal(t, 5, usage.Requests)
	require.Equal(t, 5, usage.LeastRequests)
}

func TestPackByItems(t *testing.T) {
	log, usage := inOrder(t, embed.Limits{Items: 3}, numbered(10))
	require.Equal(t, []int{3, 3, 3, 1}, sizes(log))
	require.Equal(t, 4, usage.LeastRequests)
}

func TestPackByBytes(t *testing.T) {
	texts := tenOf(41)
	log, usage := inOrder(t, embed.Limits{Bytes: 3*len(texts[0]) + 1}, texts)
	require.Equal(t, []int{3, 3, 3, 1}, sizes(log))
	require.Equal(t, 4, usage.LeastRequests)
}

// TestOversizedTextGoesAlone: its neighbours travel as if it were not there, and
// the number of requests is not below the least possible one.
func TestOversizedTextGoesAlone(t *testing.T) {
	texts := tenOf(41)
	texts[3] = ofTokens("oversized", 1000)
	log, usage := inOrder(t, embed.Limits{Tokens: 100}, texts)
	for _, request := range log {
		if strings.HasPrefix(request.Texts[0], "oversized") {
			require.Len(t, request.Texts, 1)
		} else {
			require.LessOrEqual(t, request.Tokens, 100)
		}
	}
	require.LessOrEqual(t, usage.LeastRequests, usage.Requests)
	require.Equal(t, 5, usage.LeastRequests)

	_, usage = inOrder(t, embed.Limits{Bytes: 10}, []string{strings.Repeat("x", 1000)})
	require.Equal(t, 1, usage.Requests)
	require.Equal(t, 1, usage.LeastRequests)
}

// TestCountingIsSkipped: where the bytes of all texts fit into the tokens of one
// request, nobody counts.
func TestCountingIsSkipped(t *testing.T) {
	counter := &countingTokenizer{Tokenizer: embedtest.Words}
	provider := embedtest.NewProvider(&embedtest.Options{
		Limits: embed.Limits{Tokens: 1000}, EditSpec: func(s *embed.Spec) { s.Tokenizer = counter },
	})
	client := newClient(t, provider, nil)
	_, err := client.Embed(t.Context(), numbered(10))
	require.NoError(t, err)
	require.Zero(t, counter.counted.Load())
	_, err = client.Embed(t.Context(), numbered(100))
	require.NoError(t, err)
	require.Equal(t, int64(100), counter.counted.Load())
}

// TestPackProperty: for random limits and texts, no request is over a limit
// unless one text alone is, no text is sent twice or reordered within a request,
// a text never starts a request while it fits into the one before, and the least
// number of requests is a true lower bound.
func TestPackProperty(t *testing.T) {
	r := random(t)
	for range 300 {
		pick := func(n int) int {
			if r.IntN(3) == 0 {
				return 0
			}
			return 1 + r.IntN(n)
		}
		limits := embed.Limits{Items: pick(10), Tokens: pick(120), Bytes: pick(900)}
		texts := make([]string, 1+r.IntN(40))
		for i := range texts {
			texts[i] = ofTokens(fmt.Sprint("w", i), 1+r.IntN(1+r.IntN(60)))
		}
		log, usage := inOrder(t, limits, texts)
		var sent []string
		for i, request := range log {
			sent = append(sent, request.Texts...)
			over := func(value, limit int) bool { return limit > 0 && value > limit }
			if len(request.Texts) > 1 {
				require.False(t, over(len(request.Texts), limits.Items), "%+v", limits)
				require.False(t, over(request.Tokens, limits.Tokens), "%+v", limits)
				require.False(t, over(request.Bytes, limits.Bytes), "%+v", limits)
			}
			if i > 0 {
				first, before := request.Texts[0], log[i-1]
				tokens := embedtest.Words.Count(first)
				require.True(t, over(len(before.Texts)+1, limits.Items) || over(before.Tokens+tokens, limits.Tokens) ||
					over(before.Bytes+len(first), limits.Bytes), "a text went into a new request that fitted into the one before: %+v", limits)
			}
		}
		require.Equal(t, texts, sent)
		require.LessOrEqual(t, usage.LeastRequests, usage.Requests, "%+v", limits)
		require.GreaterOrEqual(t, usage.LeastRequests, 1)
	}
}

// TestEstimatedTokensKeepAMargin: with a tokenizer that estimates, requests stay
// at 85 % of the limit, and even the smallest limit stays one.
func TestEstimatedTokensKeepAMargin(t *testing.T) {
	provider := embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) {
		s.Limits, s.Tokenizer = embed.Limits{Tokens: 100}, nil
	}})
	client := newClient(t, provider, &embed.Options{ConcurrentRequests: 1})
	_, err := client.Embed(t.Context(), tenOf(41))
	require.NoError(t, err)
	for _, request := range provider.History() {
		total := 0
		for _, text := range request.Texts {
			total += embed.Estimate.Count(text)
		}
		require.LessOrEqual(t, total, 85)
	}

	provider = embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) {
		s.Limits, s.Tokenizer = embed.Limits{Tokens: 1}, nil
	}})
	_, err = newClient(t, provider, nil).Embed(t.Context(), []string{"one", "two", "three"})
	require.NoError(t, err)
	require.Equal(t, 3, provider.Requests(), "a limit of 1 token became none")
}

// TestOrder: order is kept through dedupe, batching and concurrency, with
// requests that end in any order.
func TestOrder(t *testing.T) {
	r := random(t)
	delays := r.Perm(100)
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{
			Limits: embed.Limits{Items: 7},
			FaultFunc: func(number int, _ embedtest.Request) embedtest.Fault {
				return embedtest.Fault{Delay: time.Duration(delays[number]) * time.Millisecond, Shuffle: number%2 == 0}
			},
		})
		client := newClient(t, provider, nil)
		var texts []string
		for range 500 {
			texts = append(texts, fmt.Sprint("text ", r.IntN(200)))
		}
		response, err := client.Embed(t.Context(), texts)
		require.NoError(t, err)
		embedtest.CheckVectors(t, texts, response)
		slices.Sort(texts)
		distinct := len(slices.Compact(texts))
		require.Equal(t, distinct, provider.Texts())
		require.Equal(t, 500-distinct, response.Usage.Deduplicated)
	})
}

// TestConcurrency: so many requests of a call are under way at once as the
// options say, 5 by default, and the time of a call follows from it.
func TestConcurrency(t *testing.T) {
	for _, test := range []struct {
		option, most int
		takes        time.Duration // 40 requests of a second each
	}{{1, 1, 40}, {2, 2, 20}, {5, 5, 8}, {10, 10, 4}, {20, 20, 2}, {0, 5, 8}} {
		synctest.Test(t, func(t *testing.T) {
			provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 1}, Latency: time.Second})
			client := newClient(t, provider, &embed.Options{ConcurrentRequests: test.option})
			begun := time.Now()
			texts := numbered(40)
			response, err := client.Embed(t.Context(), texts)
			requireVectors(t, texts, response, err)
			require.Equal(t, test.most, provider.MaxConcurrent())
			require.Equal(t, test.takes*time.Second, time.Since(begun))
		})
	}
}

// TestClientRequests: the bound of the client holds over all calls, also where
// each call alone may have more.
func TestClientRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 1}, Latency: time.Second})
		client := newClient(t, provider, &embed.Options{ConcurrentRequests: 10, ClientRequests: 4})
		begun := time.Now()
		var wg sync.WaitGroup
		for call := range 4 {
			wg.Go(func() {
				texts := numbered(40)[10*call : 10*call+10]
				response, err := client.Embed(t.Context(), texts)
				requireVectors(t, texts, response, err)
			})
		}
		wg.Wait()
		require.Equal(t, 4, provider.MaxConcurrent())
		require.Equal(t, 10*time.Second, time.Since(begun))
	})
}

// TestRetryHoldsNoClientPlace: a request that waits for its retry leaves its
// place among the client's requests to others.
func TestRetryHoldsNoClientPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{Faults: []embedtest.Fault{embedtest.RateLimited(30 * time.Second)}})
		client := newClient(t, provider, &embed.Options{ClientRequests: 1})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := client.Embed(t.Context(), []string{"slow"})
			require.NoError(t, err)
		})
		synctest.Wait()
		begun := time.Now()
		_, err := client.Embed(t.Context(), []string{"fast"})
		require.NoError(t, err)
		require.Zero(t, time.Since(begun))
		wg.Wait()
	})
}
