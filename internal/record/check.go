package record

import "encoding/binary"

// Glance makes the checks that need no more than the header: head has at least
// the first HeaderSize bytes of a value of size bytes. It returns when a value
// that looks like a record was created, in seconds since 1970, or why it doesn't.
// Every header of a later version is Future here: the checksum, which would tell
// whether it is whole, needs the whole value.
func Glance(head []byte, size int) (created uint32, reason Reason) {
	if _, reason = shape(head, size, 0); reason != Valid {
		return 0, reason
	}
	return binary.LittleEndian.Uint32(head[offCreated:]), Valid
}

// Check makes every check on a value of which nothing is known beforehand, in
// the order of a lookup. belongs is asked in the place of the checks of digest and
// scope, with those of the record, and says Valid, Digest or Scope; they are the
// memory of value.
func Check(value []byte, belongs func(digest *[32]byte, scope *[8]byte) Reason) Reason {
	if _, reason := Shape(value, 0); reason != Valid {
		return reason
	}
	body := value[HeaderSize:]
	if binary.LittleEndian.Uint64(value[offChecksum:]) != checksum(value, body) {
		return Checksum
	}
	reason := belongs((*[32]byte)(value[offDigest:]), (*[8]byte)(value[offScope:]))
	if reason == Valid && !finite(body) {
		return NotFinite
	}
	return reason
}
