package openai

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/segmentio/asm/base64"
)

// vector reads an embedding to the end of floats. bad is what is wrong with it
// though it is JSON.
func (d *decoder) vector() (bad, err error) {
	switch d.peek() {
	case '"':
		return d.base64()
	case '[':
		return d.numbers()
	}
	return errBadVector, d.skip(4)
}

// base64 reads an embedding that is a string.
func (d *decoder) base64() (bad, err error) {
	// What decodes whole has no escape and no control character but a line break,
	// which makes the result shorter: then there is nothing else to look for.
	raw := d.b[d.i+1:]
	if end := bytes.IndexByte(raw, '"'); end >= 0 {
		raw = raw[:end]
		padding := len(raw) - len(bytes.TrimRight(raw, "="))
		if b, ok := d.decoded(raw); ok && len(raw)%4 == 0 && len(b) == len(raw)/4*3-padding {
			d.i += 1 + end + 1
			return d.appendFloats(b), nil
		}
	}
	raw, escaped, err := d.str()
	if err != nil {
		return nil, err
	}
	if escaped {
		raw = unquote(raw) // a gateway may write "/" as "\/"
	}
	b, ok := d.decoded(raw)
	if !ok {
		return errBadBase64, nil
	}
	return d.appendFloats(b), nil
}

// decoded decodes base64 into the scratch memory.
func (d *decoder) decoded(raw []byte) (b []byte, ok bool) {
	d.scratch = slices.Grow(d.scratch[:0], base64.StdEncoding.DecodedLen(len(raw)))
	b = d.scratch[:cap(d.scratch)]
	n, err := base64.StdEncoding.Decode(b, raw)
	return b[:n], err == nil
}

// appendFloats appends what b has, little-endian, to floats.
func (d *decoder) appendFloats(b []byte) (bad error) {
	if len(b)%4 != 0 {
		return errBadBase64
	}
	at := len(d.floats)
	d.floats = slices.Grow(d.floats, len(b)/4)[:at+len(b)/4]
	vector := d.floats[at:]
	for i := range vector {
		vector[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return nil
}

// numbers reads an embedding that is an array.
func (d *decoder) numbers() (bad, err error) {
	err = d.array(4, func() error {
		if f, end := plainNumber(d.b, d.i); end > 0 {
			d.floats, d.i = append(d.floats, f), end
			return nil
		}
		if c := d.peek(); c != '-' && (c < '0' || c > '9') {
			bad = errBadVector
			return d.skip(5)
		}
		raw, err := d.number()
		if err != nil {
			return err
		}
		f, err := strconv.ParseFloat(string(raw), 32)
		if err != nil && bad == nil {
			bad = errBadNumber
		}
		d.floats = append(d.floats, float32(f))
		return nil
	})
	return bad, err
}

// powersOfTen are those that a float64 holds exactly.
var powersOfTen = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// plainNumber reads the JSON number at b[i:] and returns the float32 that is nearest
// to it, and where it ends; or an end of 0 where it leaves the number to
// strconv.ParseFloat, of which this is the common case, in one pass: at most 19
// digits, an exponent of no more than 22, and a value that isn't within a hair of
// the middle between two float32 values.
//
// The digits as an integer, divided or multiplied by an exact power of ten, are
// rounded at most twice on the way to a float64, which is then less than two units of
// its last place from the number. The middles between float32 values are float64
// values too. So the two are on the same side of each that is further away.
func plainNumber(b []byte, i int) (f float32, end int) {
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	start := i
	var digits uint64 // overflows where there are more than 19, and counts for nothing
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		digits = 10*digits + uint64(b[i]-'0')
	}
	count := i - start
	if count == 0 || count > 1 && b[start] == '0' {
		return 0, 0
	}
	exponent := 0
	if i < len(b) && b[i] == '.' {
		i++
		point := i
		if b[start] == '0' {
			for i < len(b) && b[i] == '0' {
				i++
			}
			count = point - i // zeros in front don't count
		}
		for ; i < len(b) && b[i]-'0' <= 9; i++ {
			digits = 10*digits + uint64(b[i]-'0')
		}
		exponent = point - i
		if exponent == 0 {
			return 0, 0
		}
		count -= exponent
	}
	if count > 19 {
		return 0, 0
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		given, next := plainExponent(b, i+1)
		if next == 0 {
			return 0, 0
		}
		exponent, i = exponent+given, next
	}
	if exponent < -22 || exponent > 22 {
		return 0, 0
	}
	d := float64(digits)
	if exponent < 0 {
		d /= powersOfTen[-exponent]
	} else {
		d *= powersOfTen[exponent]
	}
	// A float64 has 29 bits more than a float32 of the same size.
	const rest, middle, hair = 1<<29 - 1, 1 << 28, 4
	if near := math.Float64bits(d)&rest - (middle - hair); near <= 2*hair {
		return 0, 0
	}
	// What isn't 0 is at least 1e-22: no float32 of fewer bits is among them.
	if d > largest {
		return 0, 0
	}
	if f = float32(d); negative {
		f = -f
	}
	return f, i
}

// largest is well below what is no float32 any more.
const largest = 0x1p+127

// plainExponent reads an exponent of one or two digits after its 'e'.
func plainExponent(b []byte, i int) (exponent, end int) {
	negative := i < len(b) && b[i] == '-'
	if i < len(b) && (b[i] == '-' || b[i] == '+') {
		i++
	}
	start := i
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		if i-start == 2 {
			return 0, 0
		}
		exponent = 10*exponent + int(b[i]-'0')
	}
	if i == start {
		return 0, 0
	}
	if negative {
		exponent = -exponent
	}
	return exponent, i
}
