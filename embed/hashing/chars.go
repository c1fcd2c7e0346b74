package hashing

import (
	"slices"
	"unicode/utf8"
)

// charClass is what a character is to the words of a text. The classes are ranges
// of this package's own, not the tables of package unicode: those grow with the
// versions of Go, and vectors in a cache must not depend on that.
type charClass uint8

const (
	separator charClass = iota // white space and punctuation
	letter                     // letters, digits and the marks on them
	dense                      // scripts in which a character is a word, or nearly
)

// asciiLetters has the lower case of the letters and the digits of ASCII, and 0
// for what is a separator.
var asciiLetters = func() (table [utf8.RuneSelf]byte) {
	for c := range byte(utf8.RuneSelf) {
		switch {
		case 'A' <= c && c <= 'Z':
			table[c] = c + 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			table[c] = c
		}
	}
	return table
}()

// next returns the first character of text, its length in bytes and its class.
// A byte that is not valid UTF-8 is utf8.RuneError, a separator.
func next(text string) (rune, int, charClass) {
	if c := text[0]; c < utf8.RuneSelf {
		if asciiLetters[c] != 0 {
			return rune(c), 1, letter
		}
		return rune(c), 1, separator
	}
	r, size := utf8.DecodeRuneInString(text)
	return r, size, classOf(r)
}

// classRange is the class of the characters from lo to hi.
type classRange struct {
	lo, hi rune
	class  charClass
}

// classRanges are in ascending order; what is beyond ASCII and in none of them is
// a letter.
var classRanges = []classRange{
	{0x0080, 0x00a9, separator},
	{0x00ab, 0x00b1, separator}, // 00aa, 00ba: ordinals
	{0x00b4, 0x00b4, separator}, // 00b2, 00b3, 00b9: superscript digits; 00b5: micro
	{0x00b6, 0x00b8, separator},
	{0x00bb, 0x00bb, separator}, // 00bc to 00be: fractions
	{0x00bf, 0x00bf, separator},
	{0x00d7, 0x00d7, separator},
	{0x00f7, 0x00f7, separator},
	{0x02c2, 0x02c5, separator},
	{0x02d2, 0x02df, separator},
	{0x037e, 0x037e, separator}, // Greek
	{0x0387, 0x0387, separator},
	{0x055a, 0x055f, separator}, // Armenian
	{0x0589, 0x058a, separator},
	{0x05be, 0x05be, separator}, // Hebrew
	{0x05c0, 0x05c0, separator},
	{0x05c3, 0x05c3, separator},
	{0x05f3, 0x05f4, separator},
	{0x0609, 0x060d, separator}, // Arabic
	{0x061b, 0x061f, separator},
	{0x066a, 0x066d, separator},
	{0x06d4, 0x06d4, separator},
	{0x0964, 0x0965, separator}, // danda of the scripts of India
	{0x0e00, 0x0edf, dense},     // Thai, Lao
	{0x0f04, 0x0f14, separator}, // Tibetan
	{0x1000, 0x1049, dense},     // Burmese
	{0x104a, 0x104f, separator},
	{0x1050, 0x109f, dense},
	{0x1100, 0x11ff, dense},     // parts of Korean syllables
	{0x1360, 0x1368, separator}, // Ethiopic
	{0x1680, 0x1680, separator},
	{0x1780, 0x17d3, dense}, // Khmer
	{0x17d4, 0x17d6, separator},
	{0x17d7, 0x17d7, dense}, // repetition
	{0x17d8, 0x17da, separator},
	{0x17db, 0x17ff, dense},
	{0x2000, 0x206f, separator}, // general punctuation
	{0x20a0, 0x20cf, dense},     // currencies
	{0x2190, 0x23ff, dense},     // arrows, mathematics, technical symbols
	{0x2500, 0x2bff, dense},     // symbols
	{0x2e00, 0x2e2e, separator}, // more punctuation
	{0x2e30, 0x2e7f, separator}, // 2e2f: a letter
	{0x2e80, 0x2fff, dense},     // parts of Chinese characters
	{0x3000, 0x3004, separator},
	{0x3005, 0x3007, dense},
	{0x3008, 0x3020, separator},
	{0x3021, 0x303c, dense},
	{0x303d, 0x303f, separator},
	{0x3040, 0x30fa, dense}, // kana
	{0x30fb, 0x30fb, separator},
	{0x30fc, 0xa4cf, dense}, // kana, Chinese characters, Yi
	{0xa960, 0xa97f, dense}, // parts of Korean syllables
	{0xac00, 0xd7ff, dense}, // Korean syllables
	{0xf900, 0xfaff, dense}, // Chinese characters for compatibility
	{0xfe10, 0xfe1f, separator},
	{0xfe30, 0xfe6f, separator},
	{0xfeff, 0xfeff, separator}, // byte order mark
	{0xff00, 0xff0f, separator}, // full width
	{0xff1a, 0xff20, separator},
	{0xff3b, 0xff40, separator},
	{0xff5b, 0xff65, separator},
	{0xff66, 0xffdf, dense}, // half-width kana and Korean
	{0xffe0, 0xffff, separator},
	{0x1b000, 0x1b2ff, dense}, // historic kana
	{0x1f000, 0x1faff, dense}, // emoji and other pictures
	{0x20000, 0x3ffff, dense}, // rare Chinese characters
}

// classOf returns the class of a character beyond ASCII.
func classOf(r rune) charClass {
	at, found := slices.BinarySearchFunc(classRanges, r, func(c classRange, r rune) int {
		switch {
		case r > c.hi:
			return -1
		case r < c.lo:
			return 1
		}
		return 0
	})
	if !found {
		return letter
	}
	return classRanges[at].class
}

// isSpace says whether r is white space; only for texts without any word.
func isSpace(r rune) bool {
	switch r {
	case ' ', '\t', '\n', '\v', '\f', '\r', 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000:
		return true
	}
	return 0x2000 <= r && r <= 0x200a
}

// fold returns the lower case of r, for the scripts that most texts with case are
// written in; full-width characters become ASCII.
func fold(r rune) rune {
	switch {
	case r < 0x80:
		if 'A' <= r && r <= 'Z' {
			return r + 0x20
		}
	case r < 0x180:
		return foldLatin(r)
	case 0x386 <= r && r <= 0x3ab, r == 0x3c2:
		return foldGreek(r)
	case 0x400 <= r && r <= 0x40f: // Cyrillic
		return r + 0x50
	case 0x410 <= r && r <= 0x42f:
		return r + 0x20
	case 0x460 <= r && r <= 0x481, 0x48a <= r && r <= 0x4bf, 0x4d0 <= r && r <= 0x52f:
		return r | 1
	case 0x4c1 <= r && r <= 0x4ce:
		return r + r&1
	case r == 0x4c0:
		return 0x4cf
	case 0x531 <= r && r <= 0x556: // Armenian
		return r + 0x30
	case 0x1e00 <= r && r <= 0x1e95, 0x1ea0 <= r && r <= 0x1eff: // Vietnamese and others
		return r | 1
	case 0xff10 <= r && r <= 0xff5a: // full width
		return fold(r - 0xfee0)
	}
	return r
}

// foldLatin folds U+0080 to U+017F.
func foldLatin(r rune) rune {
	switch {
	case 0xc0 <= r && r <= 0xde && r != 0xd7:
		return r + 0x20
	case r == 0x130: // capital I with a dot
		return 'i'
	case r == 0x178: // capital y with diaeresis
		return 0xff
	case r == 0x17f: // long s
		return 's'
	case r == 0x131, r == 0x138, r == 0x149: // without case
		return r
	case 0x100 <= r && r <= 0x137, 0x14a <= r && r <= 0x177:
		return r | 1
	case 0x139 <= r && r <= 0x148, 0x179 <= r && r <= 0x17e:
		return r + r&1
	}
	return r
}

// foldGreek folds U+0386 to U+03AB, and the final sigma.
func foldGreek(r rune) rune {
	switch {
	case r == 0x386:
		return 0x3ac
	case 0x388 <= r && r <= 0x38a:
		return r + 0x25
	case r == 0x38c:
		return 0x3cc
	case r == 0x38e, r == 0x38f:
		return r + 0x3f
	case 0x391 <= r && r <= 0x3ab && r != 0x3a2:
		return r + 0x20
	case r == 0x3c2:
		return 0x3c3
	}
	return r
}
