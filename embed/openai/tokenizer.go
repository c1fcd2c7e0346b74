package openai

import (
	"math"
	"sync"
	"unicode"
	"unicode/utf8"

	loader "github.com/pkoukk/tiktoken-go-loader"

	"github.com/embedonce/embedonce/embed"
)

// CL100K returns the tokenizer of OpenAI's embedding models, byte-pair encoding
// with the vocabulary cl100k_base. A Provider uses it by itself for those models;
// set it as Options.Tokenizer where a gateway has them under another name.
//
// Its counts are those of tiktoken for every text, special tokens being ordinary
// text, as they are to the embeddings API. The time grows with the text's length,
// times its logarithm for a run without a break, where tiktoken-go's grows with
// the square; ordinary text allocates nothing. The vocabulary is part of the
// program. It is read once, on first use, which takes about a tenth of a second,
// and then takes 5 MB of memory.
func CL100K() embed.Tokenizer { return cl100k{exact: true} }

// cl100k implements embed.Tokenizer. exact is false where a model is OpenAI's but
// too new to know its vocabulary.
type cl100k struct{ exact bool }

func (cl100k) Name() string  { return "cl100k_base" }
func (t cl100k) Exact() bool { return t.exact }

// vocabulary maps each token to its rank: of the pairs in a text, the one whose
// joined bytes have the lowest rank is joined first.
type vocabulary map[string]int

// loadVocabulary returns what Count needs. The loader reads what is embedded in
// the program, so it can't fail in one that passed its tests. If it did, no two
// bytes would ever be joined: a count of bytes, never too few tokens.
var loadVocabulary = sync.OnceValue(func() vocabulary {
	ranks, err := loader.NewOfflineLoader().LoadTiktokenBpe("cl100k_base.tiktoken")
	if err != nil {
		return nil
	}
	return ranks
})

// maxTokenBytes is the length of the vocabulary's longest token, 128 spaces.
const maxTokenBytes = 128

// Count implements embed.Tokenizer.
func (cl100k) Count(text string) int {
	v, tokens := loadVocabulary(), 0
	for text != "" {
		size := pieceSize(text)
		tokens += v.encode(text[:size], nil)
		text = text[size:]
	}
	return tokens
}

// Cut implements embed.Tokenizer. The borders are those of the text's first limit
// tokens. A prefix that ends within a run of white space can come apart into other
// tokens than in the whole text, so it is counted again, and shortened further if
// need be.
func (t cl100k) Cut(text string, limit int) (string, int) {
	if limit <= 0 {
		return "", 0
	}
	if limit < math.MaxInt/maxTokenBytes-1 && len(text) > (limit+1)*maxTokenBytes {
		// Whatever fits is shorter than this.
		end := (limit + 1) * maxTokenBytes
		for range utf8.UTFMax - 1 {
			if utf8.RuneStart(text[end]) {
				break
			}
			end--
		}
		text = text[:end]
	}
	v := loadVocabulary()
	var ends []int // where each token ends
	for start := 0; start < len(text) && len(ends) <= limit; {
		size := pieceSize(text[start:])
		v.encode(text[start:start+size], func(end int) { ends = append(ends, start+end) })
		start += size
	}
	if len(ends) <= limit {
		return text, len(ends)
	}
	for ends = ends[:limit]; len(ends) > 0; ends = ends[:len(ends)-1] {
		end := ends[len(ends)-1]
		if !utf8.RuneStart(text[end]) {
			continue
		}
		if tokens := t.Count(text[:end]); tokens <= limit {
			return text[:end], tokens
		}
	}
	return "", 0
}

// pieceSize returns the bytes of the piece that text begins with: tokens never
// cross the border of two pieces. It is this pattern of tiktoken's, by hand:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//	 ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func pieceSize(text string) int {
	kind, first := kindOf(text)
	if text[0] == '\'' {
		if n := contraction(text[1:]); n > 0 {
			return 1 + n
		}
	}
	switch kind {
	case letter:
		return first + runOf(text[first:], letter)
	case digit:
		size := first
		for range 2 {
			kind, n := kindOf(text[size:])
			if kind != digit {
				break
			}
			size += n
		}
		return size
	}
	// One character that is no line break goes with the letters after it.
	if text[0] != '\r' && text[0] != '\n' {
		if n := runOf(text[first:], letter); n > 0 {
			return first + n
		}
	}
	if kind == other || text[0] == ' ' {
		size := first
		if n := runOf(text[size:], other); n > 0 || kind == other {
			size += n
			for size < len(text) && (text[size] == '\r' || text[size] == '\n') {
				size++
			}
			return size
		}
	}
	// White space, up to the last line break in it, or else up to the last
	// character, which goes with what follows.
	end, last, lineEnd := 0, 0, 0
	for end < len(text) {
		kind, n := kindOf(text[end:])
		if kind != space {
			break
		}
		last = end
		end += n
		if c := text[last]; c == '\r' || c == '\n' {
			lineEnd = end
		}
	}
	switch {
	case lineEnd > 0:
		return lineEnd
	case end == len(text) || last == 0:
		return end
	}
	return last
}

// contraction returns the bytes of the ending of an English contraction, without
// its apostrophe, that text begins with, or 0.
func contraction(text string) int {
	if text == "" {
		return 0
	}
	switch text[0] | 0x20 {
	case 's', 't', 'm', 'd':
		return 1
	case 'r', 'v':
		if len(text) > 1 && text[1]|0x20 == 'e' {
			return 2
		}
	case 'l':
		if len(text) > 1 && text[1]|0x20 == 'l' {
			return 2
		}
	}
	return 0
}

// kind is what the pattern tells characters apart by.
type kind uint8

const (
	none kind = iota
	letter
	digit
	space
	other
)

// asciiKinds has the kind of each ASCII character.
var asciiKinds = func() (kinds [utf8.RuneSelf]kind) {
	for c := range kinds {
		kinds[c] = kindOfRune(rune(c))
	}
	return kinds
}()

func kindOfRune(r rune) kind {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return digit
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// kindOf returns the kind of text's first character and its bytes; none and 0 at
// the end.
func kindOf(text string) (kind, int) {
	if text == "" {
		return none, 0
	}
	if c := text[0]; c < utf8.RuneSelf {
		return asciiKinds[c], 1
	}
	r, size := utf8.DecodeRuneInString(text)
	return kindOfRune(r), size
}

// runOf returns the bytes of the characters of one kind that text begins with.
func runOf(text string, want kind) int {
	size := 0
	for {
		kind, n := kindOf(text[size:])
		if kind != want {
			return size
		}
		size += n
	}
}
