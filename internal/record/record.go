// Package record is the layout of one cached vector: a header that says whose
// vector it is and lets it be checked, then the vector. docs/design.md has the
// layout as a contract; every byte of it is pinned by a test.
package record

import (
	"encoding/binary"
	"math"
	"time"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// HeaderSize is the bytes before the vector.
const HeaderSize = 64

// Version is the layout this package writes. A higher one is read by nobody yet,
// and not overwritten by us.
const Version = 1

const magic = "1emb"

const elementFloat32 = 1

// MaxDimensions is far above any embedding model's, and keeps a hostile length
// from becoming a matrix that no machine holds.
const MaxDimensions = 1 << 16

// FlagLong marks the vector of a text so long that it could have been cut.
const FlagLong uint16 = 1 << 0

// Offsets in the header; every number is little-endian.
const (
	offMagic      = 0  // 4 bytes
	offVersion    = 4  // 1
	offElement    = 5  // 1
	offFlags      = 6  // 2
	offDimensions = 8  // 4
	offCreated    = 12 // 4, seconds since 1970
	offChecksum   = 16 // 8
	offDigest     = 24 // 32
	offScope      = 56 // 8
)

// Reason says why a value is not the record that was looked for.
type Reason uint8

// The reasons, in the order in which they are looked for.
const (
	Valid      Reason = iota
	Unreadable        // nil, or shorter than a header
	Magic             // another program's value
	WrongVersion
	Future // a whole record of a later version: never overwritten
	Element
	Dimensions
	Length
	Checksum
	Digest // another text's record
	Scope  // another model's, or another setting's
	NotFinite
	reasons
)

var reasonNames = [reasons]string{"valid", "unreadable", "magic", "version", "future",
	"element", "dimensions", "length", "checksum", "digest", "scope", "not finite"}

// String returns the name that Usage.Foreign counts under.
func (r Reason) String() string { return reasonNames[r] }

// Origin is what a record says of itself beside its vector.
type Origin struct {
	Digest  [32]byte // of the text
	Scope   [8]byte  // the first bytes of the scope
	Flags   uint16
	Created time.Time // kept in seconds
}

// Size is the length of a record of so many dimensions.
func Size(dimensions int) int { return HeaderSize + 4*dimensions }

// Append appends the record of vector to b.
func Append(b []byte, vector []float32, origin *Origin) []byte {
	start := len(b)
	b = append(b, make([]byte, HeaderSize)...)
	h := b[start:]
	copy(h[offMagic:], magic)
	h[offVersion] = Version
	h[offElement] = elementFloat32
	binary.LittleEndian.PutUint16(h[offFlags:], origin.Flags)
	binary.LittleEndian.PutUint32(h[offDimensions:], uint32(len(vector)))
	binary.LittleEndian.PutUint32(h[offCreated:], uint32(origin.Created.Unix()))
	copy(h[offDigest:], origin.Digest[:])
	copy(h[offScope:], origin.Scope[:])
	if littleEndian {
		b = append(b, bytesOf(vector)...)
	} else {
		for _, f := range vector {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
	}
	Seal(b[start:])
	return b
}

// Seal writes the checksum that makes rec, at least a header, whole.
func Seal(rec []byte) {
	binary.LittleEndian.PutUint64(rec[offChecksum:], checksum(rec, rec[HeaderSize:]))
}

// checksum is XXH3-64 of the header with XXH3-64 of the body in the checksum's
// place. It is the same in every version of the layout.
func checksum(header, body []byte) uint64 {
	var h [HeaderSize]byte
	copy(h[:], header)
	binary.LittleEndian.PutUint64(h[offChecksum:], xxh3.Hash(body))
	return xxh3.Hash(h[:])
}

// Shape makes the checks that need only the header: it returns the dimensions of
// a value that looks like a record, or why it doesn't. A want of 0 takes any
// dimensions.
func Shape(value []byte, want int) (dimensions int, reason Reason) {
	dimensions, reason = shape(value, len(value), want)
	if reason == Future && binary.LittleEndian.Uint64(value[offChecksum:]) != checksum(value, value[HeaderSize:]) {
		reason = WrongVersion
	}
	return dimensions, reason
}

// shape is Shape for the first bytes of a value of so many, a header at least. It
// takes every later version for whole.
func shape(head []byte, size, want int) (dimensions int, reason Reason) {
	switch {
	case len(head) < HeaderSize || size < HeaderSize:
		return 0, Unreadable
	case string(head[offMagic:offMagic+4]) != magic:
		return 0, Magic
	case head[offVersion] > Version:
		return 0, Future
	case head[offVersion] != Version:
		return 0, WrongVersion
	case head[offElement] != elementFloat32:
		return 0, Element
	}
	d := binary.LittleEndian.Uint32(head[offDimensions:])
	switch {
	case d == 0 || d > MaxDimensions || want != 0 && d != uint32(want):
		return 0, Dimensions
	case size != Size(int(d)):
		return 0, Length
	}
	return int(d), Valid
}

// Load copies the vector of value, whose Shape is valid, into dst, and makes the
// other checks on the copy while it is in the processor's nearest cache. After
// any reason but Valid the contents of dst are worthless.
func Load(dst []float32, value []byte, digest *[32]byte, scope *[8]byte) Reason {
	body := value[HeaderSize:]
	if littleEndian {
		copied := bytesOf(dst)
		copy(copied, body)
		body = copied
	} else {
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(body[4*i:]))
		}
	}
	switch {
	case binary.LittleEndian.Uint64(value[offChecksum:]) != checksum(value, body):
		return Checksum
	case [32]byte(value[offDigest:offDigest+32]) != *digest:
		return Digest
	case [8]byte(value[offScope:offScope+8]) != *scope:
		return Scope
	case !finite(body):
		return NotFinite
	}
	return Valid
}

// finite says whether no float32 in b is NaN or infinite, which are the ones
// whose eight exponent bits are all set. It looks at two of them at a time:
// adding one to such an exponent carries into the bit above it.
func finite(b []byte) bool {
	const exponents, one, carries = 0x7f800000_7f800000, 0x00800000_00800000, 0x80000000_80000000
	var seen uint64
	for len(b) >= 32 {
		seen |= binary.LittleEndian.Uint64(b)&exponents + one
		seen |= binary.LittleEndian.Uint64(b[8:])&exponents + one
		seen |= binary.LittleEndian.Uint64(b[16:])&exponents + one
		seen |= binary.LittleEndian.Uint64(b[24:])&exponents + one
		b = b[32:]
	}
	for len(b) >= 4 {
		seen |= uint64(binary.LittleEndian.Uint32(b))&exponents + one
		b = b[4:]
	}
	return seen&carries == 0
}

// Finite says whether v has neither NaN nor an infinity.
func Finite(v []float32) bool {
	if littleEndian {
		return finite(bytesOf(v))
	}
	for _, f := range v {
		if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
			return false
		}
	}
	return true
}

// littleEndian says whether a float32 in memory is what a record holds, so that
// vectors are copied whole.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// bytesOf returns the memory of v.
func bytesOf(v []float32) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
}

// SameText says whether value is a whole record of the same text, scope and
// dimensions as the whole record other.
func SameText(value, other []byte) bool {
	dimensions, reason := Shape(other, 0)
	if reason != Valid {
		return false
	}
	if _, reason := Shape(value, dimensions); reason != Valid {
		return false
	}
	digest := [32]byte(other[offDigest : offDigest+32])
	scope := [8]byte(other[offScope : offScope+8])
	return Load(make([]float32, dimensions), value, &digest, &scope) == Valid
}
