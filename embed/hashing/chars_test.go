package hashing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestClassRangesAreInOrder(t *testing.T) {
	last := rune(utf8.RuneSelf - 1)
	for _, c := range classRanges {
		require.Greater(t, c.lo, last, "%04x", c.lo)
		require.GreaterOrEqual(t, c.hi, c.lo)
		last = c.hi
	}
}

// The package's own tables agree with Unicode's about the characters that texts
// are made of.
func TestClassesAgreeWithUnicode(t *testing.T) {
	inScripts := func(r rune) bool {
		return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Yi, unicode.Bopomofo)
	}
	var wrong []string
	for r := rune(0); r <= utf8.MaxRune; r++ {
		_, size, class := next(string(r))
		right := size == len(string(r)) && isSpace(r) == unicode.IsSpace(r)
		switch {
		case unicode.IsSpace(r):
			right = right && class == separator
		case unicode.IsLetter(r) && inScripts(r) && (r < 0x10000 || r >= 0x20000):
			right = right && class == dense
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			right = right && class != separator
		case (r < 0x250 || 0x2000 <= r && r < 0x2070 || 0x3000 <= r && r < 0x3040 && r != 0x3030) && unicode.IsPunct(r):
			right = right && class == separator
		}
		if !right {
			wrong = append(wrong, fmt.Sprintf("%04x", r))
		}
	}
	require.Empty(t, wrong)
}

func TestFoldAgreesWithUnicode(t *testing.T) {
	own := map[rune]rune{0x130: 'i', 0x17f: 's', 0x3c2: 0x3c3, 0x1e9e: 0x1e9e}
	for r := range rune(0x2000) {
		// Scripts and historic letters whose case is not folded.
		switch {
		case 0x180 <= r && r < 0x386, 0x3ac <= r && r < 0x400 && r != 0x3c2, 0x10a0 <= r && r < 0x1e00, 0x1f00 <= r:
			require.Equal(t, r, fold(r), "%04x", r)
			continue
		case r == 0x1e9e:
			continue // capital sharp s: Unicode's lower case is out of the block
		}
		want := unicode.ToLower(r)
		if special, found := own[r]; found {
			want = special
		}
		require.Equal(t, string(want), string(fold(r)), "%04x", r)
		require.Equal(t, fold(r), fold(fold(r)), "%04x", r)
	}
	require.Equal(t, 'a', fold('Ａ'))
	require.Equal(t, 'z', fold('ｚ'))
	require.Equal(t, '7', fold('７'))
	require.Equal(t, 'Ａ'-1, fold('Ａ'-1)+0xfee0, "what is no letter is in no word")
}

func TestCamelCaseParts(t *testing.T) {
	for text, want := range map[string][]string{
		"word":        {"word"},
		"ReadFile":    {"read", "file"},
		"readFile":    {"read", "file"},
		"JSONDecoder": {"json", "decoder"},
		"utf8Decode":  {"utf8", "decode"},
		"HTTP2Server": {"http2", "server"},
		"JSON":        {"json"},
		"A":           {"a"},
		"aB":          {"a", "b"},
		"ABc":         {"a", "bc"},
		"Éa":          {"éa"},
	} {
		h := newHasher(8, 3, 4)
		require.Equal(t, len(text), h.readWord(text))
		var parts []string
		for i, start := range h.starts {
			end := len(h.word) - 1
			if i+1 < len(h.starts) {
				end = h.starts[i+1]
			}
			parts = append(parts, string(h.word[start:end]))
		}
		require.Equal(t, want, parts)
	}
}

func TestFunctionWords(t *testing.T) {
	listed := strings.Fields(functionWordList)
	require.Len(t, functionWords, len(listed), "two are equal, or have the same hash")
	require.True(t, slices.IsSorted(listed))
	for _, word := range listed {
		require.LessOrEqual(t, len(word), longestFunctionWord)
		h := newHasher(8, 3, 4)
		require.True(t, h.addWhole([]rune(word)))
	}
	require.False(t, newHasher(8, 3, 4).addWhole([]rune("file")))
}

func TestWords(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
		count int // of the whole text
	}{
		{"", 1, "", 0},
		{"one, two; three", 2, "one, two; ", 3},
		{"one", 0, "", 1},
		{"日本go語", 3, "日本go", 4},
		{"!!!", 0, "!!!", 0},
		{"don't", 1, "don'", 2},
		{"a\xffb", 1, "a\xff", 2},
	} {
		prefix, count := words{}.Cut(test.text, test.limit)
		require.Equal(t, test.want, prefix)
		require.Equal(t, words{}.Count(prefix), count)
		require.Equal(t, test.count, words{}.Count(test.text))
		require.LessOrEqual(t, test.count, len(test.text))
	}
	require.True(t, words{}.Exact())
	require.Equal(t, identity, words{}.Name())
}

func FuzzWords(f *testing.F) {
	for _, text := range []string{"", "one two", "日本go語", "!!!", "a\xffb", "é\u0301 👍"} {
		f.Add(text, 1)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		prefix, count := words{}.Cut(text, limit)
		require.True(t, strings.HasPrefix(text, prefix))
		require.Equal(t, words{}.Count(prefix), count)
		require.LessOrEqual(t, count, max(0, limit))
		require.LessOrEqual(t, words{}.Count(text), len(text))
		if prefix != text {
			_, size := utf8.DecodeRuneInString(text[len(prefix):])
			require.Greater(t, words{}.Count(text[:len(prefix)+size]), limit, "a longer prefix fits")
		}
	})
}
