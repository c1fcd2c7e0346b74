package embed

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/embedonce/embedonce/backend"
)

// The layout of keys is a contract (docs/design.md, "The key"): a change makes
// every cached vector a miss, and costs users money. Golden keys pin it.
const (
	scopeDomain = "embedonce scope"
	longDomain  = "embedonce long"
	keyDomain   = "embedonce key 1\x00"
	keyVersion  = "1"
)

// digest is a SHA-256 of something.
type digest = [sha256.Size]byte

// digestFields digests fields so that no two lists of fields give the same
// bytes: ["ab","c"] is not ["a","bc"].
func digestFields(fields ...string) digest {
	h := sha256.New()
	var length [8]byte
	for _, field := range fields {
		binary.LittleEndian.PutUint64(length[:], uint64(len(field)))
		h.Write(length[:])
		h.Write([]byte(field))
	}
	return digest(h.Sum(nil))
}

// scopeOf digests all that decides which vector a text gets, but the text.
func scopeOf(spec *Spec, generation uint64) (digest, error) {
	params, err := canonicalJSON(spec.Params)
	if err != nil {
		return digest{}, err
	}
	// An unset number is the empty field, which no number is spelled like.
	dimensions := ""
	if spec.Dimensions != nil {
		dimensions = strconv.Itoa(*spec.Dimensions)
	}
	return digestFields(scopeDomain, keyVersion, spec.Identity, spec.Model, dimensions,
		spec.Role, spec.Prefix, string(params), strconv.FormatUint(generation, 10)), nil
}

// longScopeOf is the scope of texts that could have been cut: where and how
// they are cut decides their vector too.
func longScopeOf(scope digest, limit int, policy LongTexts, tokenizer string) digest {
	return digestFields(longDomain, string(scope[:]), strconv.Itoa(limit), policy.String(), tokenizer)
}

// keyOf joins a scope and a text's digest. It needs no text: with the digest in
// hand a cache can be re-keyed or imported.
func keyOf(scope, text *digest) backend.Key {
	var b [len(keyDomain) + 2*sha256.Size]byte
	n := copy(b[:], keyDomain)
	n += copy(b[n:], scope[:])
	copy(b[n:], text[:])
	return sha256.Sum256(b[:])
}

// textDigester digests texts, with HMAC where the user gave a secret.
type textDigester struct {
	macs *sync.Pool // of hash.Hash; nil without a secret
}

func newTextDigester(secret []byte) textDigester {
	if len(secret) == 0 {
		return textDigester{}
	}
	secret = append([]byte(nil), secret...)
	return textDigester{macs: &sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }}}
}

// sum returns the digest of text, which is valid UTF-8.
func (d textDigester) sum(text string) digest {
	b := unsafe.Slice(unsafe.StringData(text), len(text)) // only read
	if d.macs == nil {
		return sha256.Sum256(b)
	}
	mac := d.macs.Get().(hash.Hash)
	defer d.macs.Put(mac)
	mac.Reset()
	mac.Write(b)
	var sum digest
	mac.Sum(sum[:0])
	return sum
}

// validUTF8 returns text with each byte that is no part of a character replaced
// by U+FFFD, as encoding/json does when it sends the text: so the key is that
// of the text the provider sees.
func validUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	size := 0
	for _, r := range text {
		size += utf8.RuneLen(r)
	}
	var b strings.Builder
	b.Grow(size)             // doubling would take three times the memory of a large text
	for _, r := range text { // an invalid byte ranges as one U+FFFD
		b.WriteRune(r)
	}
	return b.String()
}
