package hashing

import (
	"math"
	"unicode/utf8"
)

// Weights are integers, so that sums are exact and the order of features doesn't
// matter. docs/design.md has how they were found.
const (
	wordWeight     = 1 << 12
	functionWeight = wordWeight / 32 // of an English function word
	pairWeight     = wordWeight / 2  // of two neighbours in a script without spaces
	singleWeight   = wordWeight / 8  // of one character of such a script
)

// What a hash begins with keeps the kinds of features apart.
const (
	wordSeed  = 0x243f6a8885a308d3 // digits of pi: nothing up the sleeve
	gramSeed  = 0x13198a2e03707344
	denseSeed = 0xa4093822299f31d0
	textSeed  = 0x082efa98ec4e6c89
)

// Marks before and after a word are no characters.
const (
	wordBegin = utf8.MaxRune + 1
	wordEnd   = utf8.MaxRune + 2
)

// hasher makes vectors, one at a time.
type hasher struct {
	minGram, maxGram int
	sums             []int64
	word             []rune // the current word, folded, between its marks
	starts           []int  // where in word its camel-case parts begin
}

func newHasher(dimensions, minGram, maxGram int) *hasher {
	return &hasher{minGram: minGram, maxGram: maxGram, sums: make([]int64, dimensions)}
}

// embed writes the vector of text to dst and returns the number of its words.
func (h *hasher) embed(text string, dst []float32) (words int) {
	clear(h.sums)
	words = h.addWords(text)
	if words == 0 {
		h.addPunctuation(text)
	}
	var total int64
	for _, sum := range h.sums {
		total += max(sum, -sum)
	}
	if total == 0 {
		// Nothing but white space, or features that cancel each other out.
		digest := uint64(textSeed)
		for _, r := range text {
			digest = step(digest, r)
		}
		h.add(digest, 1)
		total = 1
	}
	// The squares of the roots of the sums add up to total.
	scale := 1 / math.Sqrt(float64(total))
	for i, sum := range h.sums {
		root := math.Sqrt(float64(max(sum, -sum))) * scale
		if sum < 0 {
			root = -root
		}
		dst[i] = float32(root)
	}
	return words
}

// addWords adds the features of all words of text, and returns their number.
func (h *hasher) addWords(text string) (words int) {
	var before rune // the character before, if it is of a script without spaces
	for i := 0; i < len(text); {
		r, size, class := next(text[i:])
		switch class {
		case separator:
			before = 0
			i += size
		case dense:
			h.addDense(before, r)
			before = r
			words++
			i += size
		case letter:
			i += h.readWord(text[i:])
			h.addWord()
			before = 0
			words++
		}
	}
	return words
}

// addDense adds r and the pair of before, if it isn't 0, and r.
func (h *hasher) addDense(before, r rune) {
	h.add(step(denseSeed, r), singleWeight)
	if before != 0 {
		h.add(step(step(denseSeed, before), r), pairWeight)
	}
}

// addPunctuation adds the characters of a text that has no words.
func (h *hasher) addPunctuation(text string) {
	var before rune
	for _, r := range text {
		if isSpace(r) {
			before = 0
			continue
		}
		h.addDense(before, r)
		before = r
	}
}

// readWord reads the word at the beginning of text into h.word and h.starts, and
// returns its length in bytes.
func (h *hasher) readWord(text string) int {
	h.word = append(h.word[:0], wordBegin)
	h.starts = append(h.starts[:0], 1)
	end := 0
	upper, upperBefore := false, false // of the last character, and of the one before
	for end < len(text) {
		var isUpper, isLower bool
		r, size := rune(0), 1
		if c := text[end]; c < utf8.RuneSelf {
			r = rune(asciiLetters[c])
			if r == 0 {
				break
			}
			isUpper, isLower = r != rune(c), r == rune(c) && c >= 'a'
		} else {
			var class charClass
			r, size, class = next(text[end:])
			if class != letter {
				break
			}
			r = fold(r)
		}
		at := len(h.word)
		switch {
		case isUpper && !upper && end > 0: // read|File
			h.starts = append(h.starts, at)
		case isLower && upper && upperBefore: // JSON|Decoder
			h.starts = append(h.starts, at-1)
		}
		upper, upperBefore = isUpper, upper
		h.word = append(h.word, r)
		end += size
	}
	h.word = append(h.word, wordEnd)
	return end
}

// addWord adds the features of h.word: itself, its parts and its n-grams.
func (h *hasher) addWord() {
	end := len(h.word) - 1
	if !h.addWhole(h.word[1:end]) {
		h.addGrams()
	}
	if len(h.starts) == 1 {
		return
	}
	for i, start := range h.starts {
		partEnd := end
		if i+1 < len(h.starts) {
			partEnd = h.starts[i+1]
		}
		h.addWhole(h.word[start:partEnd])
	}
}

// addWhole adds a word as a whole, and says whether it is a function word.
func (h *hasher) addWhole(word []rune) (function bool) {
	digest := uint64(wordSeed)
	for _, r := range word {
		digest = step(digest, r)
	}
	if len(word) <= longestFunctionWord {
		_, function = functionWords[digest]
	}
	if function {
		h.add(digest, functionWeight)
	} else {
		h.add(digest, wordWeight)
	}
	return function
}

// addGrams adds the n-grams of h.word. Those of a long word are many: divided by
// the root of their number, they outweigh the word, but don't drown the others.
func (h *hasher) addGrams() {
	grams := 0
	for n := h.minGram; n <= h.maxGram; n++ {
		grams += max(0, len(h.word)-n+1)
	}
	if grams == 0 {
		return
	}
	weight := max(1, int64(wordWeight/math.Sqrt(float64(grams))))
	for i := range h.word {
		digest := uint64(gramSeed)
		for n, r := range h.word[i:min(i+h.maxGram, len(h.word))] {
			digest = step(digest, r)
			if n+1 >= h.minGram {
				h.add(digest, weight)
			}
		}
	}
}

// step hashes one more character.
func step(digest uint64, r rune) uint64 {
	digest = (digest ^ uint64(r)) * 0x9e3779b97f4a7c15
	return digest ^ digest>>32
}

// add adds weight to the dimension of the feature, with its sign. The last mixing
// is that of splitmix64 (Steele, Lea and Flood 2014).
func (h *hasher) add(feature uint64, weight int64) {
	feature = (feature ^ feature>>30) * 0xbf58476d1ce4e5b9
	feature = (feature ^ feature>>27) * 0x94d049bb133111eb
	feature ^= feature >> 31
	at := (feature >> 32) * uint64(len(h.sums)) >> 32
	if feature&1 == 0 {
		weight = -weight
	}
	h.sums[at] += weight
}
