package embed_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// TestForget removes what a lookup of the texts would find, and nothing else.
func TestForget(t *testing.T) {
	cache := newScanCache()
	client := newClient(t, limited(100, embedtest.Words), &embed.Options{Cache: cache})
	long := ofTokens("long", 90)
	texts := append(numbered(600), long, "not \xff UTF-8")
	_, err := client.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, 602, cache.len())

	removed, err := client.Forget(t.Context(), []string{"never stored", " ", "", "\t\n"})
	require.NoError(t, err)
	require.Zero(t, removed)
	removed, err = client.Forget(t.Context(), []string{texts[3], long, texts[3], "", "not \ufffd UTF-8", long})
	require.NoError(t, err)
	require.Equal(t, 3, removed)
	require.Equal(t, 599, cache.len())
	plan, err := client.Plan(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, 3, plan.Misses)
	require.Equal(t, 599, plan.Hits)

	cache.deletes = 0
	cache.onDelete = func(int) error { // another call in the midst of it
		_, err := client.Plan(t.Context(), numbered(1000)[700:])
		return err
	}
	removed, err = client.Forget(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, 599, removed)
	cache.onDelete = nil
	require.Zero(t, cache.len())
	require.Equal(t, 2, cache.deletes)
	removed, err = client.Forget(t.Context(), texts)
	require.NoError(t, err)
	require.Zero(t, removed)

	response, err := client.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, 602, response.Usage.Misses)
}

// TestForgetOtherSettings: what other settings stored has other keys and stays,
// but for texts that were too short to be cut and no longer are.
func TestForgetOtherSettings(t *testing.T) {
	cache := newScanCache()
	text := ofTokens("text", 30) // 154 bytes
	clientOf := func(limit int, opts embed.Options) *embed.Client {
		opts.Cache = cache
		client := newClient(t, limited(limit, embedtest.Words), &opts)
		_, err := client.Embed(t.Context(), []string{text})
		require.NoError(t, err)
		return client
	}
	clientOf(200, embed.Options{})
	clientOf(0, embed.Options{})
	require.Equal(t, 1, cache.len())
	other := clientOf(50, embed.Options{})
	client := clientOf(100, embed.Options{})
	secret := clientOf(100, embed.Options{Secret: []byte("secret")})
	generation := clientOf(100, embed.Options{Generation: 1})
	require.Equal(t, 5, cache.len())

	removed, err := client.Forget(t.Context(), []string{text})
	require.NoError(t, err)
	require.Equal(t, 2, removed, "its own, and that of the time without a limit")
	for i, one := range []*embed.Client{other, secret, generation} {
		require.Equal(t, 3-i, cache.len())
		removed, err := one.Forget(t.Context(), []string{text})
		require.NoError(t, err)
		require.Equal(t, 1, removed)
	}
}

// TestForgetWhateverIsThere: privacy doesn't depend on what state a record is in.
func TestForgetWhateverIsThere(t *testing.T) {
	for _, kind := range foreignEntries {
		cache, client := filled(t, 2)
		for key, good := range cache.snapshot() {
			cache.entries[key] = kind.make(good, good)
		}
		removed, err := client.Forget(t.Context(), numbered(1))
		require.NoError(t, err)
		require.Equal(t, 1, removed, kind.name)
		require.Equal(t, 1, cache.len())
	}
}

func TestForgetErrors(t *testing.T) {
	cache, client := filled(t, 600)
	_, err := client.Forget(t.Context(), nil)
	require.ErrorContains(t, err, "texts is empty")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Forget(ended, numbered(1))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 600, cache.len())

	cache.onDelete = func(n int) error {
		if n == 1 {
			return errDisk
		}
		return nil
	}
	removed, err := client.Forget(t.Context(), numbered(600))
	require.ErrorIs(t, err, errDisk)
	require.Equal(t, 512, removed)
	require.Equal(t, 88, cache.len())

	require.NoError(t, client.Close())
	_, err = client.Forget(t.Context(), numbered(1))
	require.ErrorIs(t, err, embed.ErrClosed)
	_, err = client.Forget(ended, numbered(1))
	require.ErrorIs(t, err, embed.ErrClosed)

	nowhere := newClient(t, embedtest.NewProvider(nil), nil)
	removed, err = nowhere.Forget(t.Context(), numbered(1))
	require.NoError(t, err)
	require.Zero(t, removed)
}

// TestForgetCostsNothing: nothing is sent, counted or billed, and texts aren't
// changed.
func TestForgetCostsNothing(t *testing.T) {
	cache, client := filled(t, 3)
	before := client.Usage()
	reads := cache.gets
	_, err := client.Forget(t.Context(), []string{"a", "b \xff", strings.Repeat("c", 10_000)})
	require.NoError(t, err)
	require.Equal(t, before, client.Usage())
	require.Equal(t, reads, cache.gets)
}

// TestForgetDuringACall: a request under way stores its text after Forget; one
// more Forget after Close's wait, from another Client, removes it for good.
func TestForgetDuringACall(t *testing.T) {
	cache := newScanCache()
	sent, answer := make(chan struct{}), make(chan struct{})
	provider := embedtest.NewProvider(&embedtest.Options{FaultFunc: func(int, embedtest.Request) embedtest.Fault {
		close(sent)
		<-answer
		return embedtest.Fault{}
	}})
	client := newClient(t, provider, &embed.Options{Cache: cache})
	ctx, leave := context.WithCancel(t.Context())
	over := make(chan error)
	go func() {
		_, err := client.Embed(ctx, []string{"a"})
		over <- err
	}()
	<-sent
	leave()
	require.ErrorIs(t, <-over, context.Canceled)
	removed, err := client.Forget(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.Zero(t, removed)
	close(answer)
	require.NoError(t, client.Close())
	require.Equal(t, 1, cache.len(), "what was paid for is stored")
	again := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
	removed, err = again.Forget(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.Equal(t, 1, removed)
}

// TestForgetKeepsNeighbours: forgetting some texts leaves the others byte for byte.
func TestForgetKeepsNeighbours(t *testing.T) {
	r := random(t)
	texts := numbered(200)
	cache, client := filled(t, len(texts))
	keys := keysOf(t, embedtest.NewProvider(nil), embed.Options{}, texts)
	want := maps.Clone(cache.snapshot())
	for range 20 {
		var some []string
		gone := make(map[backend.Key]bool)
		for range r.IntN(20) + 1 {
			i := r.IntN(len(texts))
			some = append(some, texts[i])
			if _, there := want[keys[i]]; there {
				gone[keys[i]] = true
				delete(want, keys[i])
			}
		}
		removed, err := client.Forget(t.Context(), some)
		require.NoError(t, err)
		require.Equal(t, len(gone), removed)
		require.Equal(t, want, cache.snapshot())
	}
}
