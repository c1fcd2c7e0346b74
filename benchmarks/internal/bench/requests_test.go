package bench

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
)

func TestAskSendsEachTextOnceAndSoManyRequestsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		texts, items, atOnce int
		most                 int // at once
		requests, rounds     int
	}{
		"some at a time": {41, 4, 3, 3, 11, 4},
		"one at a time":  {8, 4, 1, 1, 2, 2},
		"all at once":    {41, 4, 50, 11, 11, 1},
		"nothing to ask": {0, 4, 3, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				provider := embedtest.NewProvider(&embedtest.Options{Latency: time.Second})
				texts := Texts(1, 0, c.texts)
				begun := time.Now()
				require.NoError(t, Ask(t.Context(), provider, texts, c.items, c.atOnce))
				require.Equal(t, time.Duration(c.rounds)*time.Second, time.Since(begun))
				require.Equal(t, c.requests, provider.Requests())
				require.Equal(t, c.most, provider.MaxConcurrent())
				require.Equal(t, c.texts, provider.Texts())
				require.Len(t, provider.TimesBilled(), c.texts)
			})
		})
	}
}

func TestAskReportsWhatWentWrong(t *testing.T) {
	provider := embedtest.NewProvider(&embedtest.Options{Faults: []embedtest.Fault{{Count: -1}}})
	require.ErrorContains(t, Ask(t.Context(), provider, Texts(1, 0, 4), 4, 1), "3 vectors for 4 texts")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Ask(ctx, provider, Texts(1, 0, 4), 2, 2), context.Canceled)
}

func TestCheck(t *testing.T) {
	client, err := embed.New(embedtest.NewProvider(nil), nil)
	require.NoError(t, err)
	defer client.Close()
	response, err := client.Embed(t.Context(), []string{"a text"})
	require.NoError(t, Check(response, err, 0))
	require.ErrorContains(t, Check(response, nil, 1), "0 hits in a call of 1 texts, not 1")
	mistake := errors.New("mistake")
	require.ErrorIs(t, Check(nil, mistake, 0), mistake)
	response.CacheErr = mistake
	require.ErrorIs(t, Check(response, nil, 0), mistake)
}
