package embedtest

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestWords(t *testing.T) {
	require.Equal(t, "embedtest/words/1", Words.Name())
	require.True(t, Words.Exact())
	require.Equal(t, 41, Words.Count(strings.Repeat("word ", 41)))
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 3, ""},
		{"one two three", 2, "one two "},
		{"one two three", 3, "one two three"},
		{"one two three", 0, ""},
		{"  one", 0, "  "},
		{"é\u00a0日本\u3000x", 2, "é\u00a0日本\u3000"},
		{"\xff \xfe", 1, "\xff "},
	} {
		prefix, tokens := Words.Cut(test.text, test.limit)
		require.Equal(t, test.want, prefix)
		require.Equal(t, len(strings.Fields(prefix)), tokens)
	}
}

func FuzzWords(f *testing.F) {
	for _, text := range []string{"", "one two", " \t\n", "日本語\u3000テキスト", "\xff\xfe a", "a\u0085b"} {
		f.Add(text, 1)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		require.Equal(t, len(strings.Fields(text)), Words.Count(text))
		require.LessOrEqual(t, Words.Count(text), len(text))
		prefix, tokens := Words.Cut(text, limit)
		require.True(t, strings.HasPrefix(text, prefix))
		require.Equal(t, Words.Count(prefix), tokens)
		require.LessOrEqual(t, tokens, max(0, limit))
		if prefix != text {
			r, _ := utf8.DecodeRuneInString(text[len(prefix):])
			_, size := utf8.DecodeRuneInString(text[len(prefix):])
			require.Greater(t, Words.Count(text[:len(prefix)+size]), limit, "a longer prefix fits; next is %q", r)
		}
	})
}
