package embed_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// TestBudget: a request that could overspend is not sent, smaller ones are; what
// was billed stays within the budget to the token.
func TestBudget(t *testing.T) {
	provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 1}})
	client := newClient(t, provider, &embed.Options{MaxBilledTokens: 100, ConcurrentRequests: 1, Cache: newTestCache()})
	texts := []string{ofTokens("a", 60), ofTokens("b", 41), ofTokens("c", 40), "one more"}
	response, err := client.Embed(t.Context(), texts)
	require.ErrorIs(t, err, embed.ErrBudget)
	failed := failures(t, err)
	require.Len(t, failed, 2)
	require.ErrorContains(t, failed[1], "60 of 100 tokens are spent or reserved, the request may cost 41")
	require.ErrorContains(t, failed[3], "100 of 100")
	requireVectors(t, texts, response, err)
	require.Equal(t, int64(100), provider.BilledTokens())
	require.Equal(t, 2, response.Usage.Requests)

	response, err = client.Embed(t.Context(), []string{texts[0], texts[2]})
	require.NoError(t, err, "hits cost nothing")
	require.Equal(t, 2, response.Usage.Hits)
}

// TestBudgetConcurrently: 16 goroutines together never overspend, and spend what
// they may.
func TestBudgetConcurrently(t *testing.T) {
	for _, tokenizer := range []embed.Tokenizer{embedtest.Words, nil} {
		provider := embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) { s.Tokenizer = tokenizer }})
		const budget = 1000
		client := newClient(t, provider, &embed.Options{MaxBilledTokens: budget})
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				for i := range 50 {
					texts := []string{ofTokens(fmt.Sprint("g", g, "i", i), 1+(g+i)%5)}
					response, err := client.Embed(t.Context(), texts)
					if err != nil {
						require.ErrorIs(t, err, embed.ErrBudget)
					}
					requireVectors(t, texts, response, err)
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, provider.BilledTokens(), int64(budget))
		require.Greater(t, provider.BilledTokens(), int64(budget-10))
		require.Equal(t, provider.BilledTokens(), client.Usage().BilledTokens)
	}
}

// TestBudgetAndFailures: what a failure did not cost is given back; what it may
// have cost is not.
func TestBudgetAndFailures(t *testing.T) {
	for _, test := range []struct {
		fault embedtest.Fault
		left  int
	}{
		{embedtest.Fault{Status: 400}, 100}, {embedtest.ServerError(), 100}, {embedtest.Fault{Count: 1}, 90},
		{embedtest.Fault{Reset: true}, 90}, {embedtest.Fault{Cut: true}, 90}, {embedtest.Fault{Status: 503, Billed: true}, 90},
		{embedtest.Fault{Usage: embedtest.UsageNone}, 90}, {embedtest.Fault{Usage: embedtest.UsageWrong}, 79},
	} {
		provider := embedtest.NewProvider(&embedtest.Options{Faults: []embedtest.Fault{test.fault}})
		client := newClient(t, provider, &embed.Options{MaxBilledTokens: 100, MaxRetries: -1})
		client.Embed(t.Context(), []string{ofTokens("first", 10)})
		_, err := client.Embed(t.Context(), []string{ofTokens("over", test.left+1)})
		require.ErrorIs(t, err, embed.ErrBudget, "%+v", test.fault)
		_, err = client.Embed(t.Context(), []string{ofTokens("rest", test.left)})
		require.NoError(t, err, "%+v", test.fault)
	}
}

// TestBudgetCountsTruncatedTexts: what is cut is what is reserved.
func TestBudgetCountsTruncatedTexts(t *testing.T) {
	provider := limited(50, embedtest.Words)
	client := newClient(t, provider, &embed.Options{MaxBilledTokens: 50})
	_, err := client.Embed(t.Context(), []string{ofTokens("long", 500)})
	require.NoError(t, err)
	require.Equal(t, int64(50), provider.BilledTokens())
}

// TestBudgetEndsStream: a spent budget ends a stream, after what was looked up
// already, and nothing is overspent.
func TestBudgetEndsStream(t *testing.T) {
	provider := embedtest.NewProvider(&embedtest.Options{Limits: embed.Limits{Items: 10}})
	client := newClient(t, provider, &embed.Options{MaxBilledTokens: 3000, Cache: newTestCache()})
	stream := client.Stream(t.Context(), pairs(numbered(100_000)), nil)
	good, bad, last := 0, 0, error(nil)
	for item, err := range stream.All() {
		require.NoError(t, last, "something came after the end")
		if item.Index == -1 {
			last = err
			continue
		}
		require.Equal(t, good+bad, item.Index)
		if err != nil {
			require.ErrorIs(t, err, embed.ErrBudget)
			bad++
		} else {
			good++
		}
	}
	require.ErrorIs(t, last, embed.ErrBudget)
	require.Equal(t, 1000, good)
	require.Less(t, good+bad, 100_000)
	require.Equal(t, int64(3000), provider.BilledTokens())
	require.Equal(t, int64(3000), stream.Usage().BilledTokens)
}
