package hashing

import (
	"strings"

	"github.com/embedonce/embedonce/embed"
)

// functionWords has the hashes of English words that say how others belong
// together, and of what an apostrophe leaves of them. It stands in for
// weights by rarity, for which all texts would have to be known beforehand.
var functionWords = func() map[uint64]struct{} {
	hashes := make(map[uint64]struct{})
	for _, word := range strings.Fields(functionWordList) {
		digest := uint64(wordSeed)
		for _, r := range word {
			digest = step(digest, r)
		}
		hashes[digest] = struct{}{}
	}
	return hashes
}()

// longestFunctionWord is in characters.
const longestFunctionWord = 7

const functionWordList = `
	a about above after again all also am an and another any are as at be been
	before being below between both but by can could d did do does down during
	each every few for from had has have having he her here his how i if in into
	it its just ll m may me might more most must my no nor not of off on only onto
	or other our out over own re s same shall she should so some such t than that
	the their them then there these they this those through to too under up us ve
	very was we were what when where which who whom whose why will with without
	would you your`

// words counts the words of a text, as Embed does.
type words struct{}

var _ embed.Tokenizer = words{}

func (words) Name() string { return identity }
func (words) Exact() bool  { return true }

func (words) Count(text string) int {
	_, count := cutWords(text, len(text))
	return count
}

func (words) Cut(text string, limit int) (string, int) {
	end, count := cutWords(text, limit)
	return text[:end], count
}

// cutWords returns where the word after limit words begins, or the end, and the
// number of words before it.
func cutWords(text string, limit int) (end, count int) {
	inWord := false
	for i := 0; i < len(text); {
		_, size, class := next(text[i:])
		if class == dense || class == letter && !inWord {
			if count >= limit {
				return i, count
			}
			count++
		}
		inWord = class == letter
		i += size
	}
	return len(text), count
}
