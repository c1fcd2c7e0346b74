package embed

import (
	"unicode"
	"unicode/utf8"
)

// Tokenizer counts the tokens of a text as a model does, or as nearly as it can.
// Any number of goroutines may use it at the same time.
type Tokenizer interface {
	// Name tells this tokenizer from others. It is part of the key of texts so
	// long that they could have been cut: change it when cuts change.
	Name() string
	// Exact says whether Count is the provider's own count.
	Exact() bool
	// Count returns the tokens of text: never more than its bytes, so that a
	// short text needs no counting to be known to fit.
	Count(text string) int
	// Cut returns a prefix of text, as long as possible, that ends on a border of
	// tokens and of characters and counts at most limit tokens, with its count: all
	// of text exactly if that has no more. The count is measured on the prefix
	// itself. Cut reads no more of text than it needs.
	Cut(text string, limit int) (prefix string, tokens int)
}

// Estimate is the Tokenizer for models whose vocabulary isn't at hand. It looks
// at classes of characters only, which costs nanoseconds; docs/design.md
// has its error against a real vocabulary. The Client cuts at 85 % of a limit
// that is measured with it.
var Estimate Tokenizer = estimate{}

type estimate struct{}

func (estimate) Name() string { return "estimate/1" }
func (estimate) Exact() bool  { return false }

func (estimate) Count(text string) int {
	tokens := 0
	for len(text) > 0 {
		size, cost := nextPiece(text)
		tokens += cost
		text = text[size:]
	}
	return tokens
}

func (estimate) Cut(text string, limit int) (string, int) {
	tokens, end := 0, 0
	for end < len(text) {
		size, cost := nextPiece(text[end:])
		if tokens+cost > limit {
			break
		}
		tokens += cost
		end += size
	}
	return text[:end], tokens
}

// nextPiece returns the bytes of the piece that text begins with, at least 1,
// and the tokens it costs, at most its bytes. A piece is up to five ASCII
// letters with the space before them, up to three digits, or one character.
func nextPiece(text string) (size, cost int) {
	start := 0
	if text[0] == ' ' && len(text) > 1 && isASCIILetter(text[1]) {
		start = 1
	}
	end := start
	switch c := text[start]; {
	case isASCIILetter(c):
		for end < len(text) && end-start < 5 && isASCIILetter(text[end]) {
			end++
		}
		return end, 1
	case '0' <= c && c <= '9':
		for end < len(text) && end < 3 && '0' <= text[end] && text[end] <= '9' {
			end++
		}
		return end, 1
	case c < utf8.RuneSelf:
		return 1, 1
	}
	r, size := utf8.DecodeRuneInString(text)
	if unicode.IsLetter(r) || r == utf8.RuneError && size == 1 {
		return size, 1
	}
	// Symbols and emoji come apart into bytes in most vocabularies.
	return size, size
}

func isASCIILetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
