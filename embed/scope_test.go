package embed_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

func number(n int) *int { return &n }

// TestScopesNeverShare embeds the same texts through clients that differ in one
// setting each, over one cache: each pays for all of them, gets its own vectors,
// and later finds these again.
func TestScopesNeverShare(t *testing.T) {
	var scopes []embed.Spec
	add := func(edit func(s *embed.Spec)) {
		spec := embed.Spec{Identity: "api", Model: "model"}
		edit(&spec)
		scopes = append(scopes, spec)
	}
	add(func(*embed.Spec) {})
	add(func(s *embed.Spec) { s.Identity = "another api" })
	add(func(s *embed.Spec) { s.Identity, s.Model = "apim", "odel" })
	add(func(s *embed.Spec) { s.Model = "" })
	add(func(s *embed.Spec) { s.Model = "unknown" })
	add(func(s *embed.Spec) { s.Model = "null" })
	add(func(s *embed.Spec) { s.Dimensions = number(64) })
	add(func(s *embed.Spec) { s.Dimensions = number(32) })
	add(func(s *embed.Spec) { s.Role = "query" })
	add(func(s *embed.Spec) { s.Role = "document" })
	add(func(s *embed.Spec) { s.Prefix = "query" })
	add(func(s *embed.Spec) { s.Prefix = "query: " })
	for _, params := range []map[string]any{
		{"a": 1}, {"a": 2}, {"a": "1"}, {"a": true}, {"a": []any{1}}, {"b": 1}, {"a": 1, "b": 1},
		{"seed": json.Number("9007199254740993")}, {"seed": json.Number("9007199254740992")}, {"seed": uint64(9007199254740994)},
	} {
		add(func(s *embed.Spec) { s.Params = params })
	}

	cache, err := memory.New(nil)
	require.NoError(t, err)
	defer cache.Close()
	texts := numbered(20)
	type embedder struct {
		client   *embed.Client
		provider *embedtest.Provider
	}
	var all []embedder
	for i, spec := range scopes {
		provider := embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) {
			s.Identity, s.Model, s.Dimensions, s.Role, s.Prefix, s.Params = spec.Identity, spec.Model, spec.Dimensions, spec.Role, spec.Prefix, spec.Params
		}})
		all = append(all, embedder{newClient(t, provider, &embed.Options{Cache: cache}), provider})
		response, err := all[i].client.Embed(t.Context(), texts)
		require.NoError(t, err)
		require.Zero(t, response.Usage.Hits, "scope %d", i)
		require.Equal(t, len(texts), response.Usage.Misses, "scope %d", i)
		require.Empty(t, response.Usage.Foreign)
	}
	for i, e := range all {
		response, err := e.client.Embed(t.Context(), texts)
		require.NoError(t, err)
		require.Equal(t, len(texts), response.Usage.Hits, "scope %d", i)
		e.provider.Space().CheckVectors(t, texts, response)
	}
}

// TestScopesShare embeds through clients whose settings mean the same: only the
// first one pays.
func TestScopesShare(t *testing.T) {
	same := []map[string]any{
		{"a": 1, "b": map[string]any{"c": 0.5, "d": nil}},
		{"b": map[string]any{"d": nil, "c": json.Number("5e-1")}, "a": 1.0},
		{"a": json.Number("10e-1"), "b": map[string]any{"c": json.Number("0.500"), "d": nil}},
	}
	cache := newTestCache()
	texts := numbered(5)
	for i, params := range same {
		provider := embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) { s.Params = params }})
		client := newClient(t, provider, &embed.Options{Cache: cache})
		_, err := client.Embed(t.Context(), texts)
		require.NoError(t, err)
		require.Equal(t, i == 0, provider.Requests() == 1)
	}
}

// TestGenerationAndSecret: another generation, and another secret, is another
// cache.
func TestGenerationAndSecret(t *testing.T) {
	cache := newTestCache()
	texts := numbered(5)
	for i, opts := range []embed.Options{
		{}, {Generation: 1}, {Generation: 2}, {Secret: []byte("one")}, {Secret: []byte("two")}, {Secret: []byte("one"), Generation: 1},
	} {
		opts.Cache = cache
		provider := embedtest.NewProvider(nil)
		client := newClient(t, provider, &opts)
		for range 2 {
			response, err := client.Embed(t.Context(), texts)
			requireVectors(t, texts, response, err)
		}
		require.Equal(t, 1, provider.Requests())
		require.Equal(t, (i+1)*len(texts), cache.len())
	}
}

// TestSecretIsCopied: a caller may wipe the secret after New.
func TestSecretIsCopied(t *testing.T) {
	cache := newTestCache()
	secret := []byte("secret")
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache, Secret: secret})
	_, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	clear(secret)
	response, err := client.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.Equal(t, 1, response.Usage.Hits)
}

// TestInvalidUTF8 wants each invalid byte to be one U+FFFD, in the key and for
// the provider, as JSON would make it.
func TestInvalidUTF8(t *testing.T) {
	for _, test := range []struct{ text, sent string }{
		{"a\xffb", "a\ufffdb"},
		{"a\xff\xfeb", "a\ufffd\ufffdb"},
		{"\xe2\x82", "\ufffd\ufffd"},                       // a character cut short
		{"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},             // a surrogate
		{"\xf4\x90\x80\x80!", "\ufffd\ufffd\ufffd\ufffd!"}, // beyond U+10FFFF
		{"\xc0\x80", "\ufffd\ufffd"},                       // overlong
	} {
		t.Run(fmt.Sprintf("%q", test.text), func(t *testing.T) {
			provider := embedtest.NewProvider(nil)
			client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
			texts := []string{"before", test.text, test.sent, "after"}
			response, err := client.Embed(t.Context(), texts)
			requireVectors(t, []string{"before", test.sent, test.sent, "after"}, response, err)
			require.Equal(t, 1, response.Usage.Deduplicated)
			require.Equal(t, []string{"before", test.sent, "after"}, provider.History()[0].Texts)
			require.Equal(t, test.text, texts[1], "the caller's slice was changed")

			encoded, err := json.Marshal(test.text)
			require.NoError(t, err)
			var decoded string
			require.NoError(t, json.Unmarshal(encoded, &decoded))
			require.Equal(t, decoded, test.sent)

			response, err = client.Embed(t.Context(), []string{test.text})
			require.NoError(t, err)
			require.Equal(t, 1, response.Usage.Hits)
		})
	}
}
