package openai

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep arrays and objects may nest, as in encoding/json.
const maxDepth = 10_000

// scanner steps through JSON, as strictly as encoding/json, and keeps nothing.
type scanner struct {
	b []byte
	i int // the next byte
}

// syntaxError says where an answer stops being JSON; it quotes nothing of it.
type syntaxError struct{ offset, length int }

func (e *syntaxError) Error() string {
	return fmt.Sprintf("answer is cut off or not JSON: stopped at byte %d of %d", e.offset, e.length)
}

// cutOff says whether all that is there could be the beginning of an answer.
func (e *syntaxError) cutOff() bool { return e.offset == e.length }

// object reads an object at the given depth; member reads the value of each key.
func (s *scanner) object(depth int, member func(key []byte) error) error {
	return s.sequence(depth, '}', func() error {
		if s.peek() != '"' {
			return s.syntax()
		}
		key, escaped, err := s.str()
		if err != nil {
			return err
		}
		if escaped {
			key = unquote(key)
		}
		if s.space(); s.peek() != ':' {
			return s.syntax()
		}
		s.i++
		s.space()
		return member(key)
	})
}

// array reads an array at the given depth; element reads each of its values.
func (s *scanner) array(depth int, element func() error) error {
	return s.sequence(depth, ']', element)
}

// sequence reads what stands between the bracket at s.i and end, with commas
// between its parts.
func (s *scanner) sequence(depth int, end byte, part func() error) error {
	if depth > maxDepth {
		return s.syntax()
	}
	s.i++
	if s.space(); s.peek() == end {
		s.i++
		return nil
	}
	for {
		if err := part(); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.i++
			s.space()
		case end:
			s.i++
			return nil
		default:
			return s.syntax()
		}
	}
}

// skip reads any value.
func (s *scanner) skip(depth int) (err error) {
	switch c := s.peek(); c {
	case '{':
		return s.object(depth, func([]byte) error { return s.skip(depth + 1) })
	case '[':
		return s.array(depth, func() error { return s.skip(depth + 1) })
	case '"':
		_, _, err = s.str()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		_, err = s.number()
	}
	return err
}

func (s *scanner) literal(word string) error {
	for at := range len(word) {
		if s.peek() != word[at] {
			return s.syntax()
		}
		s.i++
	}
	return nil
}

// number reads a number and returns its text.
func (s *scanner) number() ([]byte, error) {
	start := s.i
	if s.peek() == '-' {
		s.i++
	}
	if s.peek() == '0' {
		s.i++
	} else if !s.digits() {
		return nil, s.syntax()
	}
	if s.peek() == '.' {
		if s.i++; !s.digits() {
			return nil, s.syntax()
		}
	}
	if s.peek()|0x20 == 'e' {
		if s.i++; s.peek() == '+' || s.peek() == '-' {
			s.i++
		}
		if !s.digits() {
			return nil, s.syntax()
		}
	}
	return s.b[start:s.i], nil
}

// digits reads digits and says whether there was one.
func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	return s.i > start
}

// str reads a string, checks it and returns what stands between its quotes.
func (s *scanner) str() (raw []byte, escaped bool, err error) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	start := s.i + 1
	for s.i = start; s.i < len(s.b); {
		// Eight bytes at once, up to the first that is a quote, a backslash or a
		// control character.
		for s.i+8 <= len(s.b) {
			w := binary.LittleEndian.Uint64(s.b[s.i:])
			quote, slash := w^('"'*ones), w^('\\'*ones)
			found := ((w-0x20*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs
			if found != 0 {
				s.i += bits.TrailingZeros64(found) / 8
				break
			}
			s.i += 8
		}
		if s.i == len(s.b) {
			break
		}
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1], escaped, nil
		case c == '\\':
			escaped = true
			s.i++
			switch s.peek() {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				s.i++
			case 'u':
				s.i++
				for range 4 {
					if !isHex(s.peek()) {
						return nil, false, s.syntax()
					}
					s.i++
				}
			default:
				return nil, false, s.syntax()
			}
		case c < 0x20:
			return nil, false, s.syntax()
		default:
			s.i++
		}
	}
	return nil, false, s.syntax()
}

// unquote replaces the escapes of a string that str has checked, and what is not
// UTF-8 by U+FFFD.
func unquote(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			r, size := utf8.DecodeRune(raw[i:])
			out = utf8.AppendRune(out, r)
			i += size
			continue
		}
		i += 2
		switch c := raw[i-1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(raw[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if len(raw)-i >= 6 && raw[i] == '\\' && raw[i+1] == 'u' {
					low = hex4(raw[i+2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
	}
	return out
}

// hex4 returns the number that b begins with in four hexadecimal digits, or -1.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\n' || s.b[s.i] == '\r' || s.b[s.i] == '\t') {
		s.i++
	}
}

// peek returns the next byte, or 0 at the end: 0 can't stand where it is asked.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) syntax() error { return &syntaxError{min(s.i, len(s.b)), len(s.b)} }
