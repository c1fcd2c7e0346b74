package embedtest

import (
	"unicode"
	"unicode/utf8"

	"github.com/embedonce/embedonce/embed"
)

// Words is the Tokenizer of a fake that is given none: each run of characters
// that are not white space, as strings.Fields finds them, is one token. So
// strings.Repeat("word ", 41) has 41.
var Words embed.Tokenizer = words{}

type words struct{}

func (words) Name() string { return "embedtest/words/1" }
func (words) Exact() bool  { return true }

func (words) Count(text string) int {
	_, tokens := cutWords(text, len(text))
	return tokens
}

// Cut ends before the first character of the first word that is too many: white
// space costs nothing.
func (words) Cut(text string, limit int) (string, int) {
	end, tokens := cutWords(text, limit)
	return text[:end], tokens
}

// cutWords returns where the word after limit words begins, or the end, and the
// number of words before it.
func cutWords(text string, limit int) (end, tokens int) {
	inWord := false
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(text[i:])
		}
		switch {
		case unicode.IsSpace(r):
			inWord = false
		case !inWord:
			if tokens >= limit {
				return i, tokens
			}
			tokens++
			inWord = true
		}
		i += size
	}
	return len(text), tokens
}
