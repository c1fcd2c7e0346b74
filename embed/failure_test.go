package embed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// failSecond makes the request that has "text number 1" fail in the middle of
// ten requests of one text, two at a time and a second each, and returns what
// came of it.
func failSecond(t *testing.T, fault embedtest.Fault, retries int) (p *embedtest.Provider, c *embed.Client, cache *testCache, response *embed.Response, err error) {
	p = embedtest.NewProvider(&embedtest.Options{
		Limits: embed.Limits{Items: 1}, Latency: time.Second,
		FaultFunc: func(_ int, r embedtest.Request) embedtest.Fault {
			if r.Texts[0] == "text number 1" {
				return fault
			}
			return embedtest.Fault{}
		},
	})
	cache = newTestCache()
	c = newClient(t, p, &embed.Options{Cache: cache, ConcurrentRequests: 2, MaxRetries: retries})
	response, err = c.Embed(t.Context(), numbered(10))
	return p, c, cache, response, err
}

// TestFatalFailureStopsSiblings: a wrong key, a missing model and an empty
// account stop the requests that were not sent. Those that were go on, and what
// they brought is kept.
func TestFatalFailureStopsSiblings(t *testing.T) {
	for name, fault := range map[string]embedtest.Fault{
		"401": embedtest.Unauthorized(), "403": {Status: 403}, "404": {Status: 404}, "insufficient_quota": embedtest.QuotaSpent(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fault.Delay = 1500 * time.Millisecond // the siblings are at their third request then
				p, client, cache, response, err := failSecond(t, fault, 0)
				require.Equal(t, 4, p.Requests())
				var failure *embed.ProviderError
				require.ErrorAs(t, err, &failure)
				require.True(t, failure.Fatal)
				require.ErrorIs(t, err, embed.ErrSiblingFailed)
				failed := failures(t, err)
				require.Len(t, failed, 7)
				require.NotErrorIs(t, failed[1], embed.ErrSiblingFailed)
				for i := 4; i < 10; i++ {
					require.ErrorIs(t, failed[i], embed.ErrSiblingFailed)
					var cause *embed.ProviderError
					require.ErrorAs(t, failed[i], &cause, "the cause is not in the sibling's error")
					require.Equal(t, failure.Status, cause.Status)
				}
				requireVectors(t, numbered(10), response, err)
				require.Equal(t, 3, cache.len())
				require.Equal(t, p.BilledTokens(), response.Usage.BilledTokens)
				require.Zero(t, response.Usage.Retries)
				require.Equal(t, 4, response.Usage.Requests)
				requireSum(t, response.Usage)

				// The next call is free to try.
				response, err = client.Embed(t.Context(), []string{"text number 9"})
				requireVectors(t, []string{"text number 9"}, response, err)
			})
		})
	}
}

// TestFatalFailureWakesRetries: a sibling that waits for its retry is not sent
// again.
func TestFatalFailureWakesRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{
			Limits: embed.Limits{Items: 1},
			FaultFunc: func(_ int, r embedtest.Request) embedtest.Fault {
				if r.Texts[0] == "text number 0" {
					return embedtest.RateLimited(50 * time.Second)
				}
				fault := embedtest.Unauthorized()
				fault.Delay = time.Second
				return fault
			},
		})
		client := newClient(t, provider, nil)
		begun := time.Now()
		_, err := client.Embed(t.Context(), numbered(2))
		require.Len(t, failures(t, err), 2)
		require.Equal(t, time.Second, time.Since(begun))
		require.Equal(t, 2, provider.Requests())
	})
}

// TestOtherFailuresFailAlone: any other failure fails its own request's texts
// only. Transient ones are retried as often as the options say, permanent ones
// never.
func TestOtherFailuresFailAlone(t *testing.T) {
	for _, test := range []struct {
		name      string
		fault     embedtest.Fault
		transient bool
		is        error
	}{
		{"400", embedtest.Fault{Status: 400}, false, nil},
		{"413", embedtest.Fault{Status: 413}, false, nil},
		{"422", embedtest.Fault{Status: 422}, false, nil},
		{"bad answer", embedtest.Fault{Count: 1}, false, embed.ErrBadAnswer},
		{"malformed", embedtest.Fault{Malformed: true}, false, embed.ErrBadAnswer},
		{"408", embedtest.Fault{Status: 408}, true, nil},
		{"409", embedtest.Fault{Status: 409}, true, nil},
		{"429", embedtest.RateLimited(0), true, nil},
		{"500", embedtest.ServerError(), true, nil},
		{"502", embedtest.Fault{Status: 502}, true, nil},
		{"503, billed", embedtest.Fault{Status: 503, Billed: true}, true, nil},
		{"529", embedtest.Fault{Status: 529}, true, nil},
		{"reset", embedtest.Fault{Reset: true}, true, syscall.ECONNRESET},
		{"cut", embedtest.Fault{Cut: true}, true, io.ErrUnexpectedEOF},
		{"hangs", embedtest.Fault{Hang: true}, true, context.DeadlineExceeded},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, retries := range []int{0, 3, -1} {
				synctest.Test(t, func(t *testing.T) {
					p, _, cache, response, err := failSecond(t, test.fault, retries)
					want := 0
					if test.transient {
						want = map[int]int{0: embed.DefaultMaxRetries, 3: 3, -1: 0}[retries]
					}
					require.Len(t, failures(t, err), 1)
					require.Contains(t, failures(t, err), 1)
					if test.is != nil {
						require.ErrorIs(t, err, test.is)
					} else {
						var failure *embed.ProviderError
						require.ErrorAs(t, err, &failure)
						require.Equal(t, test.fault.Status, failure.Status)
					}
					requireVectors(t, numbered(10), response, err)
					require.Equal(t, 10+want, p.Requests())
					require.Equal(t, want, response.Usage.Retries)
					require.Equal(t, 10+want, response.Usage.Requests)
					require.Equal(t, 9, cache.len())
					requireSum(t, response.Usage)
				})
			}
		})
	}
}

// TestRetriesSucceed: a failure that passes costs nothing but time.
func TestRetriesSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{Faults: []embedtest.Fault{
			embedtest.RateLimited(0), embedtest.ServerError(), {Reset: true}, {Status: 503}, {Hang: true},
		}})
		client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
		texts := numbered(3)
		response, err := client.Embed(t.Context(), texts)
		requireVectors(t, texts, response, err)
		require.NoError(t, err)
		require.Equal(t, 5, response.Usage.Retries)
		require.Equal(t, provider.BilledTokens(), response.Usage.BilledTokens)
	})
}

// TestRequestTimeout: an answer that doesn't come is not waited for longer than
// the option says, and the error names it.
func TestRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{Faults: []embedtest.Fault{{Hang: true}}})
		client := newClient(t, provider, &embed.Options{RequestTimeout: 7 * time.Second, MaxRetries: -1})
		begun := time.Now()
		_, err := client.Embed(t.Context(), []string{"a"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "Options.RequestTimeout, 7s")
		require.Equal(t, 7*time.Second, time.Since(begun))
	})
}

// TestRefusalAtTheTimeout: what the provider did answer counts, though the time
// is over.
func TestRefusalAtTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := &oddProvider{spec: embed.Spec{Identity: "odd"}, embed: func(ctx context.Context, _ []string) (*embed.Answer, error) {
			<-ctx.Done()
			return nil, &embed.ProviderError{Status: http.StatusUnauthorized, Fatal: true}
		}}
		client := newClient(t, provider, nil)
		begun := time.Now()
		_, err := client.Embed(t.Context(), []string{"a"})
		var failure *embed.ProviderError
		require.ErrorAs(t, err, &failure)
		require.True(t, failure.Fatal)
		require.Equal(t, embed.DefaultRequestTimeout, time.Since(begun))
	})
}

// TestRetryAfter: a retry comes no sooner than the provider asks for, at most a
// tenth later, and never after more than MaxRetryWait; one that would have to is
// not sent.
func TestRetryAfter(t *testing.T) {
	for _, test := range []struct {
		after, most time.Duration
		retried     bool
	}{
		{time.Millisecond, time.Minute, true},
		{2 * time.Second, time.Minute, true},
		{59 * time.Second, time.Minute, true},
		{time.Minute, time.Minute, true},
		{time.Minute + 1, time.Minute, false},
		{24 * time.Hour, time.Minute, false},
		{3 * time.Hour, 3 * time.Hour, true},
	} {
		t.Run(test.after.String(), func(t *testing.T) {
			for range 20 {
				synctest.Test(t, func(t *testing.T) {
					provider := embedtest.NewProvider(&embedtest.Options{Faults: []embedtest.Fault{embedtest.RateLimited(test.after)}})
					client := newClient(t, provider, &embed.Options{MaxRetryWait: test.most})
					_, err := client.Embed(t.Context(), []string{"a"})
					if !test.retried {
						var failure *embed.ProviderError
						require.ErrorAs(t, err, &failure)
						require.Equal(t, test.after, failure.RetryAfter)
						require.Equal(t, 1, provider.Requests())
						return
					}
					require.NoError(t, err)
					log := provider.History()
					waited := log[1].Start.Sub(log[0].End)
					require.GreaterOrEqual(t, waited, test.after)
					require.LessOrEqual(t, waited, min(test.after+test.after/10, test.most))
				})
			}
		})
	}
}

// TestBackoff: without Retry-After, pauses double from half a second to
// MaxRetryWait, of which the second half is random.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := embedtest.NewProvider(&embedtest.Options{FaultFunc: func(int, embedtest.Request) embedtest.Fault { return embedtest.ServerError() }})
		client := newClient(t, provider, &embed.Options{MaxRetries: 20, MaxRetryWait: 10 * time.Second})
		_, err := client.Embed(t.Context(), []string{"a"})
		require.Error(t, err)
		log := provider.History()
		require.Len(t, log, 21)
		for i := range 20 {
			pause, ceiling := log[i+1].Start.Sub(log[i].End), min(500*time.Millisecond<<i, 10*time.Second)
			require.GreaterOrEqual(t, pause, ceiling/2)
			require.LessOrEqual(t, pause, ceiling)
		}
	})
}

// TestEveryDistinctFailureIsReported: one message has each reason once, with the
// number of its texts, and errors.Is finds all of them.
func TestEveryDistinctFailureIsReported(t *testing.T) {
	provider := embedtest.NewProvider(&embedtest.Options{
		Limits: embed.Limits{Items: 2},
		Faults: []embedtest.Fault{{Status: 400}, {Status: 422}, {Count: -1}, {}, {Status: 413, Code: "too_large"}},
	})
	client := newClient(t, provider, &embed.Options{ConcurrentRequests: 1, Cache: newTestCache()})
	texts := append(numbered(9), " ", "")
	response, err := client.Embed(t.Context(), texts)
	requireVectors(t, texts, response, err)
	var partial *embed.PartialError
	require.ErrorAs(t, err, &partial)
	require.Equal(t, 11, partial.Texts)
	require.Len(t, partial.Failures, 9)
	require.Len(t, partial.Reasons(), 5)
	require.Equal(t, 1, partial.Reasons()[4].Texts)
	require.ErrorIs(t, err, embed.ErrBlankText)
	require.ErrorIs(t, err, embed.ErrBadAnswer)
	for _, part := range []string{"9 of 11 texts got no vector", "2 x provider answered status 400", "2 x provider answered status 422", "1 x provider answered status 413, code too_large", "2 x text is blank", "1 vectors for 2 texts"} {
		require.ErrorContains(t, err, part)
	}
	for i, failure := range partial.Failures[:len(partial.Failures)-1] {
		require.Less(t, failure.Index, partial.Failures[i+1].Index)
	}
}

// TestForeignErrorOfProvider: an error that is no ProviderError is not retried
// and stays whole.
func TestForeignErrorOfProvider(t *testing.T) {
	cause := errors.New("cause")
	calls := 0
	provider := &oddProvider{spec: embed.Spec{Identity: "odd"}, embed: func(context.Context, []string) (*embed.Answer, error) {
		calls++
		return nil, fmt.Errorf("wrapped: %w", cause)
	}}
	_, err := newClient(t, provider, nil).Embed(t.Context(), []string{"a"})
	require.ErrorIs(t, err, cause)
	require.Equal(t, 1, calls)
}
