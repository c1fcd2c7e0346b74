package embedtest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/zeebo/xxh3"
)

// Space is what decides a vector beside the text and the dimensions.
type Space struct {
	// Model is the model that was asked for, whatever the answer calls it.
	Model string
	// Role is the same as the parameter "input_type", if it is not "".
	Role string
	// Prefix is the same as the text with Prefix before it.
	Prefix string
	// Params has every other parameter of a request, except "user" and
	// "encoding_format". The order of keys and the spelling of numbers don't
	// matter, and null is the same as none.
	Params map[string]any
}

// Vectors is what CheckVectors looks at; *embed.Response is one.
type Vectors interface {
	// Len is the number of vectors.
	Len() int
	// Vector returns vector i, nil if there is none.
	Vector(i int) []float32
}

// Vector returns the vector of text for DefaultModel without further
// parameters. See Space.Vector.
func Vector(text string, dimensions int) []float32 {
	return Space{Model: DefaultModel}.Vector(text, dimensions)
}

// IsVectorOf says whether v is the whole vector of text for DefaultModel. See
// Space.IsVectorOf.
func IsVectorOf(text string, v []float32) bool {
	return Space{Model: DefaultModel}.IsVectorOf(text, v)
}

// CheckVectors fails t if vector i of got is not that of texts[i] for
// DefaultModel. See Space.CheckVectors.
func CheckVectors(t testing.TB, texts []string, got Vectors) {
	t.Helper()
	Space{Model: DefaultModel}.CheckVectors(t, texts, got)
}

// Vector returns the vector of text, of norm 1 and without zeros. It is the
// same on every machine, for ever. Texts that differ have vectors that differ,
// already in their first two or three numbers; so do spaces, and a longer vector
// doesn't begin with a shorter one. One dimension can't do that: there are only
// 1 and -1. Invalid UTF-8 counts as U+FFFD for each byte, which is what a JSON
// request makes of it.
//
// Each number takes a few nanoseconds. It panics if dimensions is not positive
// or Params can't be written as JSON.
func (s Space) Vector(text string, dimensions int) []float32 {
	if dimensions <= 0 {
		panic(fmt.Sprintf("embedtest: dimensions are %d, must be positive", dimensions))
	}
	v := make([]float32, dimensions)
	fill(v, s.seed(dimensions), s.Prefix, text)
	return v
}

// IsVectorOf says whether v is, bit for bit, the whole vector of text with as
// many dimensions as v has. An empty v is not.
func (s Space) IsVectorOf(text string, v []float32) bool {
	return len(v) > 0 && slices.Equal(v, s.Vector(text, len(v)))
}

// CheckVectors fails t if got hasn't as many vectors as texts, if vector i is
// not that of texts[i], or if vectors differ in length. Where it is the vector of
// another text of texts, the message says of which; it prints no text.
func (s Space) CheckVectors(t testing.TB, texts []string, got Vectors) {
	t.Helper()
	if got.Len() != len(texts) {
		t.Errorf("%d vectors for %d texts", got.Len(), len(texts))
		return
	}
	const shown = 5
	wrong, dimensions := 0, 0
	for i, text := range texts {
		v := got.Vector(i)
		if dimensions == 0 {
			dimensions = len(v)
		}
		if len(v) == dimensions && s.IsVectorOf(text, v) {
			continue
		}
		if wrong++; wrong > shown {
			continue
		}
		t.Errorf("vector %d %s", i, s.describe(texts, v, dimensions))
	}
	if wrong > shown {
		t.Errorf("%d of %d vectors are wrong", wrong, len(texts))
	}
}

// describe says what is wrong with v, which should have been another vector.
func (s Space) describe(texts []string, v []float32, dimensions int) string {
	if len(v) == 0 {
		return "is missing"
	}
	if len(v) != dimensions {
		return fmt.Sprintf("has %d dimensions, the first one has %d", len(v), dimensions)
	}
	for i, text := range texts {
		if s.IsVectorOf(text, v) {
			return fmt.Sprintf("is that of text %d", i)
		}
	}
	return "is that of no text of the call"
}

// seed digests the space and the dimensions, with lengths before what can vary
// so that no two spaces look alike.
func (s Space) seed(dimensions int) uint64 {
	params := s.Params
	if s.Role != "" {
		params = maps.Clone(params)
		if params == nil {
			params = make(map[string]any)
		}
		params["input_type"] = s.Role
	}
	canonical, err := canonicalParams(params)
	if err != nil {
		panic(fmt.Sprintf("embedtest: Space.Params: %v", err))
	}
	digest := binary.LittleEndian.AppendUint64(nil, uint64(dimensions))
	digest = binary.LittleEndian.AppendUint64(digest, uint64(len(s.Model)))
	digest = append(digest, s.Model...)
	return xxh3.Hash(append(digest, canonical...))
}

// fill makes dst the vector of prefix+text. The numbers come from splitmix64
// (Steele, Lea and Flood 2014), 16 bits each. All sums are of integers, and no
// product is added to anything, so that no machine can round differently.
func fill(dst []float32, seed uint64, prefix, text string) {
	state := xxh3.HashStringSeed(validUTF8(prefix+text), seed)
	var squares uint64
	for i := 0; i < len(dst); {
		state += 0x9e3779b97f4a7c15
		bits := state
		bits = (bits ^ bits>>30) * 0xbf58476d1ce4e5b9
		bits = (bits ^ bits>>27) * 0x94d049bb133111eb
		bits ^= bits >> 31
		for end := min(i+4, len(dst)); i < end; i++ {
			number := int64(int16(bits)) | 1 // odd: never zero
			bits >>= 16
			squares += uint64(number * number)
			dst[i] = float32(number)
		}
	}
	scale := 1 / math.Sqrt(float64(squares))
	for i := range dst {
		dst[i] = float32(float64(dst[i]) * scale)
	}
}

// validUTF8 replaces each invalid byte by U+FFFD, as encoding/json does;
// strings.ToValidUTF8 replaces runs of them by one.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// canonicalParams spells equal parameters equally: keys sorted, numbers as
// fractions, nulls left out.
func canonicalParams(params map[string]any) ([]byte, error) {
	if len(params) == 0 {
		return nil, nil
	}
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	var decoded map[string]any
	if err := decoder.Decode(&decoded); err != nil {
		return nil, err
	}
	maps.DeleteFunc(decoded, func(_ string, value any) bool { return value == nil })
	if len(decoded) == 0 {
		return nil, nil
	}
	return json.Marshal(canonicalValue(decoded)) // sorts keys
}

func canonicalValue(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = canonicalValue(value[key])
		}
	case []any:
		for i := range value {
			value[i] = canonicalValue(value[i])
		}
	case string:
		return "s" + value
	case json.Number:
		return "n" + canonicalNumber(value.String())
	}
	return value
}

// canonicalNumber spells the number as a fraction, unless its exponent is so
// large that the fraction would fill the memory.
func canonicalNumber(number string) string {
	if at := strings.IndexAny(number, "eE"); at >= 0 && len(number)-at > 5 {
		return number
	}
	fraction, ok := new(big.Rat).SetString(number)
	if !ok {
		return number
	}
	return fraction.RatString()
}
