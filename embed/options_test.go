package embed_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// TestNewListsEveryProblem of options and provider in one error, and sends and
// reads nothing.
func TestNewListsEveryProblem(t *testing.T) {
	cache := newTestCache()
	cache.info.Reach = backend.ReachHosts
	provider := embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) {
		s.Identity, s.IdentityIsLocal = "", true
		s.Dimensions, s.ModelDimensions = number(-3), -4
		s.Limits = embed.Limits{Items: -5, Tokens: -6, Bytes: -7, TextTokens: -8}
		s.DollarsPerMillion = math.NaN()
	}})
	client, err := embed.New(provider, &embed.Options{
		Cache: cache, ConcurrentRequests: -1, ClientRequests: -2, MaxRetries: -2, RequestTimeout: -1, MaxRetryWait: -1,
		MaxBilledTokens: -1, CacheReaders: -1, LongTexts: 9,
	})
	require.Nil(t, client)
	for _, part := range []string{
		"Options.ConcurrentRequests is -1", "Options.ClientRequests is -2", "Options.MaxRetries is -2", "Options.RequestTimeout is -1",
		"Options.MaxRetryWait is -1", "Options.MaxBilledTokens is -1", "Options.CacheReaders is -1", "Options.LongTexts is 9",
		"Spec.Identity is empty", "give the provider a name", "Dimensions is -3", "ModelDimensions is -4",
		"Limits.Items is -5", "Limits.Tokens is -6", "Limits.Bytes is -7", "Limits.TextTokens is -8", "DollarsPerMillion is NaN",
	} {
		require.ErrorContains(t, err, part)
	}
	require.Zero(t, cache.gets)
	require.Zero(t, provider.Requests())
}

// TestNewChecksTheProvider: its own error, its prefix, its parameters, and that
// there is one.
func TestNewChecksTheProvider(t *testing.T) {
	_, err := embed.New(nil, nil)
	require.ErrorContains(t, err, "provider is nil")

	_, err = embed.New(embedtest.NewProvider(&embedtest.Options{Dimensions: -1}), &embed.Options{MaxRetries: -9})
	require.ErrorContains(t, err, "Dimensions is -1")
	require.ErrorContains(t, err, "Options.MaxRetries is -9")

	_, err = embed.New(&oddProvider{spec: embed.Spec{Identity: "x", Prefix: "long prefix", Limits: embed.Limits{TextTokens: 5}}}, nil)
	require.ErrorContains(t, err, "Prefix has 11 bytes")

	_, err = embed.New(&oddProvider{spec: embed.Spec{Identity: "x", Params: map[string]any{"f": math.Inf(1)}}}, nil)
	require.ErrorContains(t, err, "Params")

	_, err = embed.New((*embedtest.Provider)(nil), nil)
	require.ErrorContains(t, err, "provider is nil")
	_, err = embed.New(embedtest.NewProvider(nil), &embed.Options{Cache: (*testCache)(nil), MaxRetries: -9})
	require.ErrorContains(t, err, "Options.Cache is a nil *embed_test.testCache")
	require.ErrorContains(t, err, "Options.MaxRetries is -9")

	specErr := errors.New("spec")
	_, err = embed.New(failingSpec{specErr}, nil)
	require.ErrorIs(t, err, specErr)
}

type failingSpec struct{ err error }

func (f failingSpec) Spec() (embed.Spec, error) { return embed.Spec{}, f.err }

func (failingSpec) Embed(context.Context, []string) (*embed.Answer, error) { panic("not reached") }

// TestLocalIdentity: an address that means something else on each machine is
// refused only where machines share the cache.
func TestLocalIdentity(t *testing.T) {
	local := func(s *embed.Spec) { s.IdentityIsLocal = true }
	for reach, refused := range map[backend.Reach]bool{backend.ReachHandle: false, backend.ReachHost: false, backend.ReachHosts: true} {
		cache := newTestCache()
		cache.info.Reach = reach
		_, err := embed.New(embedtest.NewProvider(&embedtest.Options{EditSpec: local}), &embed.Options{Cache: cache})
		require.Equal(t, refused, err != nil, "%v", reach)
	}
	_, err := embed.New(embedtest.NewProvider(&embedtest.Options{EditSpec: local}), nil)
	require.NoError(t, err)
}

// TestOptionsAreCopied: changing them after New changes nothing.
func TestOptionsAreCopied(t *testing.T) {
	opts := &embed.Options{Cache: newTestCache()}
	client := newClient(t, embedtest.NewProvider(nil), opts)
	opts.Cache, opts.MaxBilledTokens, opts.ConcurrentRequests = nil, 1, -1
	for hits := range 2 {
		response, err := client.Embed(t.Context(), []string{"several words here"})
		require.NoError(t, err)
		require.Equal(t, hits, response.Usage.Hits)
	}
}
