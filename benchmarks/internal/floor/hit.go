package floor

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed/embedtest"
)

const headerSize = 64

// Hits reads the vectors of texts that are all stored: the steps of a Client's call,
// with constants where it has settings. One goroutine uses it.
type Hits struct {
	reader  Reader
	dims    int
	scope   [32]byte
	digests [][32]byte
	keys    []backend.Key
}

// NewHits returns a Hits for calls of so many texts whose vectors come from a
// Provider of package embedtest with nothing but its dimensions set.
func NewHits(reader Reader, texts, dims int) *Hits {
	return &Hits{
		reader: reader, dims: dims,
		// What a Client digests once, when it is made.
		scope:   fields("embedonce scope", "1", "embedtest", embedtest.DefaultModel, "", "", "", "{}", "0"),
		digests: make([][32]byte, texts),
		keys:    make([]backend.Key, texts),
	}
}

// Read puts the vectors of texts into rows, one after the other.
func (h *Hits) Read(texts []string, rows []float32) error {
	keys := h.keys[:len(texts)]
	for i, text := range texts {
		h.digests[i] = sha256.Sum256(unsafe.Slice(unsafe.StringData(text), len(text)))
		keys[i] = h.key(&h.digests[i])
	}
	found := 0
	err := h.reader.Get(keys, func(i int, value []byte) {
		if h.check(rows[i*h.dims:(i+1)*h.dims], value, &h.digests[i]) {
			found++
		}
	})
	if err == nil && found != len(texts) {
		err = fmt.Errorf("the floor found %d of %d", found, len(texts))
	}
	return err
}

func fields(all ...string) (digest [32]byte) {
	h := sha256.New()
	for _, field := range all {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(field))))
		h.Write([]byte(field))
	}
	return [32]byte(h.Sum(nil))
}

func (h *Hits) key(digest *[32]byte) backend.Key {
	var b [16 + 64]byte
	copy(b[:], "embedonce key 1\x00")
	copy(b[16:], h.scope[:])
	copy(b[48:], digest[:])
	return sha256.Sum256(b[:])
}

// check copies the vector and verifies the copy as the record's layout asks.
func (h *Hits) check(row []float32, value []byte, digest *[32]byte) bool {
	if len(value) != headerSize+4*h.dims || string(value[:6]) != "1emb\x01\x01" ||
		int(binary.LittleEndian.Uint32(value[8:])) != h.dims {
		return false
	}
	body := unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), 4*h.dims)
	copy(body, value[headerSize:])
	header := [headerSize]byte(value[:headerSize])
	sum := binary.LittleEndian.Uint64(header[16:])
	binary.LittleEndian.PutUint64(header[16:], xxh3.Hash(body))
	if xxh3.Hash(header[:]) != sum || [32]byte(value[24:56]) != *digest || [8]byte(value[56:64]) != [8]byte(h.scope[:8]) {
		return false
	}
	// A carry into the sign bit shows an exponent of ones: no finite number.
	const exponents, one, carries = 0x7f800000_7f800000, 0x00800000_00800000, 0x80000000_80000000
	var seen uint64
	for ; len(body) >= 32; body = body[32:] {
		seen |= binary.LittleEndian.Uint64(body)&exponents + one
		seen |= binary.LittleEndian.Uint64(body[8:])&exponents + one
		seen |= binary.LittleEndian.Uint64(body[16:])&exponents + one
		seen |= binary.LittleEndian.Uint64(body[24:])&exponents + one
	}
	return seen&carries == 0
}
