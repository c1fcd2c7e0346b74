package bench

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// wordsOfText is how long a text is: a paragraph.
const wordsOfText = 180

// words are common and short, as in English prose: about 4 bytes each.
var words = strings.Fields(`the of and to a in is it that was for on as with he be at by
	I this had not are but from or have an they which one you were her all she there
	would their we him been has when who will more no if out so said what up its about
	into than them can only other new some could time these two may then do first any my
	now such like our over man me even most made after also did many before must through
	back years where much your way well down should because each just those people how
	too little state good very make world still own see men work long get here between
	both life being under never day same another know while last might us great old year
	off come since against go came right used take three`)

// Texts returns n texts of about 180 words. No two texts of a seed are equal, also
// not those of two calls, unless their ranges from, from+1, ..., from+n-1 overlap:
// a text depends on the seed and its number alone.
func Texts(seed uint64, from, n int) []string {
	texts := make([]string, n)
	var source rand.PCG
	b := make([]byte, 0, 6*wordsOfText)
	for i := range texts {
		number := uint64(from + i)
		source.Seed(seed, number)
		b = append(strconv.AppendUint(append(b[:0], "Passage "...), number, 10), ':')
		for w := 2; w < wordsOfText; {
			bits := source.Uint64()
			// Seven words from 64 bits; that the last words are a little rarer
			// doesn't matter.
			for range 7 {
				b = append(append(b, ' '), words[(bits&511)*uint64(len(words))>>9]...)
				bits >>= 9
				w++
			}
		}
		texts[i] = string(append(b, '.'))
	}
	return texts
}
