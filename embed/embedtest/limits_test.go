package embedtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/embed"
)

func TestLimits(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits embed.Limits
		texts  []string
		want   string // of the message; "" is accepted
		code   string
	}{
		{"items, just", embed.Limits{Items: 3}, []string{"a", "b", "c"}, "", ""},
		{"items", embed.Limits{Items: 3}, []string{"a", "b", "c", "d"}, "array length must be 3 or less", ""},
		{"tokens, just", embed.Limits{Tokens: 4}, []string{"a b", "c d"}, "", ""},
		{"tokens", embed.Limits{Tokens: 4}, []string{"a b", "c d e"}, "Requested 5 tokens, max 4 tokens per request", "max_tokens_per_request"},
		{"bytes, just", embed.Limits{Bytes: 5}, []string{"日", "ab"}, "", ""},
		{"bytes", embed.Limits{Bytes: 5}, []string{"日", "abc"}, "Requested 6 bytes of text, max 5 bytes per request", "request_too_large"},
		{"tokens of a text, just", embed.Limits{TextTokens: 2}, []string{"a b", "c d"}, "", ""},
		{"tokens of a text", embed.Limits{TextTokens: 2}, []string{"a b", "c d e"}, "maximum context length is 2 tokens, however you requested 3 tokens (3 in your prompt; 0 for the completion)", ""},
		{"no limit", embed.Limits{}, slices.Repeat([]string{strings.Repeat("word ", 9000)}, 20), "", ""},
		{"no text", embed.Limits{}, []string{}, "'$.input' is invalid", ""},
		{"empty text", embed.Limits{}, []string{"a", ""}, "'$.input' is invalid", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			bothWays(t, Options{Limits: test.limits, Dimensions: 4}, test.texts, func(t *testing.T, s seen) {
				if test.want == "" {
					require.Equal(t, 200, s.status)
					return
				}
				require.Equal(t, 400, s.status)
				require.Equal(t, test.code, s.code)
				require.Contains(t, s.message, test.want)
			})
		})
	}
	bothWays(t, Options{Limits: embed.Limits{Items: 1}, LimitStatus: 413}, []string{"a", "b"}, func(t *testing.T, s seen) {
		require.Equal(t, 413, s.status)
	})
}

// letters counts bytes.
type letters struct{ embed.Tokenizer }

func (letters) Count(text string) int { return len(text) }

func TestTokenizer(t *testing.T) {
	bothWays(t, Options{Tokenizer: letters{Words}}, fiveTexts, func(t *testing.T, s seen) {
		require.Equal(t, 23, s.usage)
	})
}

func TestModelAndDimensions(t *testing.T) {
	opts := Options{Model: "m", AnswerModel: "m-v2", Dimensions: 16}
	t.Run("default", func(t *testing.T) {
		want := Space{Model: "m"}.Vector("text", 16)
		s := throughProvider(t, opts, "text")
		require.Equal(t, want, s.vectors[0])
		require.Equal(t, "m-v2", s.model)
		s = throughServer(t, opts, map[string]any{"model": "m", "dimensions": nil}, "text")
		require.Equal(t, want, s.vectors[0])
		require.Equal(t, "m-v2", s.model)
	})
	t.Run("asked", func(t *testing.T) {
		want := Space{Model: "m"}.Vector("text", 5)
		five := 5
		opts := opts
		opts.EditSpec = func(s *embed.Spec) { s.Dimensions = &five }
		require.Equal(t, want, throughProvider(t, opts, "text").vectors[0])
		for _, name := range []string{"dimensions", "output_dimension"} {
			s := throughServer(t, opts, map[string]any{"model": "m", name: 5}, "text")
			require.Equal(t, want, s.vectors[0])
		}
	})
	for _, wrong := range []int{-1, 0, 17} {
		opts := opts
		opts.EditSpec = func(s *embed.Spec) { s.Dimensions = &wrong }
		require.Equal(t, 400, throughProvider(t, opts, "text").status)
		s := throughServer(t, opts, map[string]any{"model": "m", "dimensions": wrong}, "text")
		require.Equal(t, 400, s.status)
		require.Contains(t, s.message, "Must be from 1 to 16")
	}
	t.Run("fixed", func(t *testing.T) {
		opts := opts
		opts.FixedDimensions = true
		require.Equal(t, 200, throughProvider(t, opts, "text").status)
		sixteen := 16
		opts.EditSpec = func(s *embed.Spec) { s.Dimensions = &sixteen }
		require.Equal(t, 400, throughProvider(t, opts, "text").status)
		require.Equal(t, 400, throughServer(t, opts, map[string]any{"model": "m", "dimensions": 16}, "text").status)
	})
	t.Run("other model", func(t *testing.T) {
		s := throughServer(t, opts, map[string]any{"model": "other"}, "text")
		require.Equal(t, 404, s.status)
		require.Equal(t, "model_not_found", s.code)
		opts := opts
		opts.EditSpec = func(s *embed.Spec) { s.Model = "other" }
		require.Equal(t, 404, throughProvider(t, opts, "text").status)
		require.Equal(t, 200, throughServer(t, Options{}, map[string]any{"model": "any"}, "text").status)
	})
}

// A Provider and a Server give the same vectors to the same request.
func TestRoleParamsAndPrefix(t *testing.T) {
	p := NewProvider(&Options{EditSpec: func(s *embed.Spec) {
		s.Model, s.Role, s.Prefix = "m", "query", "query: "
		s.Params = map[string]any{"task": "find", "n": 1.0}
	}})
	answer, err := p.Embed(t.Context(), []string{"query: text"}) // as a Client sends it
	require.NoError(t, err)
	p.Space().CheckVectors(t, []string{"text"}, vectors(answer.Vectors))
	require.Equal(t, []string{"query: text"}, p.History()[0].Texts)
	require.Equal(t, 2, answer.Tokens, "the prefix is billed")

	s := throughServer(t, Options{}, map[string]any{
		"model": "m", "input_type": "query", "task": "find", "n": 1, "user": "nobody", "nothing": nil,
	}, "query: text")
	require.Equal(t, answer.Vectors, s.vectors)
}

func TestOptionsAreChecked(t *testing.T) {
	bad := &Options{
		Dimensions: -1, Limits: embed.Limits{Items: -2, Tokens: -3, Bytes: -4, TextTokens: -5},
		Latency: -6, LatencyPerText: -7, LimitStatus: 500,
		Faults: []Fault{{}, {Status: 99, At: -1, Index: 77}},
	}
	_, err := NewProvider(bad).Spec()
	for _, want := range []string{
		"embedtest.Options: ",
		"Dimensions is -1, must not be negative", "Limits.Items is -2", "Limits.Tokens is -3", "Limits.Bytes is -4",
		"Limits.TextTokens is -5", "Latency is -6", "LatencyPerText is -7", "LimitStatus is 500, must be 0 or from 400 to 499",
		"Faults[1]: Status is 99, must be 0 or from 200 to 599", "At is -1, must not be negative", "Index is 77, the last constant is 5",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = NewProvider(bad).Embed(t.Context(), []string{"text"})
	require.Error(t, err)
	require.PanicsWithError(t, err.Error(), func() { NewServer(bad) })

	_, err = NewProvider(&Options{EditSpec: func(s *embed.Spec) { s.Params = map[string]any{"f": func() {}} }}).Spec()
	require.ErrorContains(t, err, "Params")
}

func TestSpec(t *testing.T) {
	spec, err := NewProvider(nil).Spec()
	require.NoError(t, err)
	require.Equal(t, embed.Spec{Identity: "embedtest", Model: DefaultModel, ModelDimensions: DefaultDimensions, Tokenizer: Words}, spec)

	limits := embed.Limits{Items: 1, Tokens: 2, Bytes: 3, TextTokens: 4}
	spec, err = NewProvider(&Options{Model: "m", Dimensions: 5, Limits: limits, EditSpec: func(s *embed.Spec) {
		require.Equal(t, limits, s.Limits)
		s.Limits, s.Identity = embed.Limits{}, "me"
	}}).Spec()
	require.NoError(t, err)
	require.Equal(t, embed.Spec{Identity: "me", Model: "m", ModelDimensions: 5, Tokenizer: Words}, spec)
}
