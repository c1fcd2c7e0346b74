package redis

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/embedonce/embedonce/backend"
)

// reply takes one answer of the server, as go-redis reads it from the connection:
// it is the writer of a driver.RawWriteToCmd. The length of a value is known before
// its bytes come, so one of any size finds room and doesn't spoil its neighbours,
// and an error costs nothing that a missing key doesn't.
//
// go-redis writes a line, then its end, and offers the bytes of a value through
// ReadFrom. Any error of these methods makes it close the connection.
type reply struct {
	room *room // where a value goes; nil where none is expected

	kind   byte // the first byte of the answer's line; 0: no answer came
	inLine bool // a line was written, its end not yet

	size int // of a value: -1 is none
	from int // where in room the value begins; -1: there was no room
	code errorCode

	parts, whole int  // of an array: answers in it, and how many of them are +OK
	number       int  // of a number
	queued       bool // the answer is +QUEUED
}

var (
	errStrange = fmt.Errorf("%w: it answers with what is none of Redis's answers, or not one to what was asked", backend.ErrUnavailable)

	// errReplica makes the driver close the connection, as it does by itself where it
	// reads the answer: the name that it was dialled by may point to the master now.
	errReplica = errors.New("the server is a replica")

	lineEnd    = []byte("\r\n")
	okLine     = []byte("+OK")
	queuedLine = []byte("+QUEUED")
)

// longestCode is longer than any code of Redis's errors.
const longestCode = 32

func (r *reply) reset() { *r = reply{room: r.room, size: -1, from: -1} }

// Write takes a line, or the end of one.
func (r *reply) Write(p []byte) (int, error) {
	if r.inLine {
		if !bytes.Equal(p, lineEnd) {
			return 0, errStrange
		}
		r.inLine = false
		return len(p), nil
	}
	if len(p) == 0 {
		return 0, errStrange
	}
	r.inLine = true
	if r.kind != 0 { // a part of an array
		return len(p), r.takePart(p)
	}
	r.kind = p[0]
	var err error
	switch r.kind {
	case '$', '*':
		var n int
		if n, err = strconv.Atoi(string(p[1:])); err != nil || n < -1 {
			return 0, errStrange
		}
		if r.kind == '$' {
			r.size = n
		} else {
			r.parts = n
		}
	case ':':
		if r.number, err = strconv.Atoi(string(p[1:])); err != nil {
			return 0, errStrange
		}
	case '-':
		if r.code = codeOf(p[1:]); r.code == "READONLY" {
			return 0, errReplica
		}
	case '+':
		r.queued = bytes.Equal(p, queuedLine)
		if bytes.Equal(p, okLine) {
			r.whole = 1
		}
	case '_':
	default:
		return 0, errStrange
	}
	return len(p), nil
}

func (r *reply) takePart(line []byte) error {
	switch {
	case r.kind != '*' || line[0] != '+' && line[0] != '-':
		return errStrange
	case bytes.Equal(line, okLine):
		r.whole++
	case line[0] == '-' && r.code == "":
		r.code = codeOf(line[1:])
	}
	return nil
}

// ReadFrom takes a value, and the end of its line, from the driver's buffer.
func (r *reply) ReadFrom(src io.Reader) (int64, error) {
	if r.kind != '$' || r.size < 0 {
		return 0, errStrange
	}
	length := r.size + len(lineEnd)
	if r.room == nil || !r.room.hasRoomFor(length) {
		n, err := io.Copy(io.Discard, src)
		if err == nil && n != int64(length) {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	at, to := r.room.take(length)
	n, err := io.ReadFull(src, to)
	if err == nil && !bytes.Equal(to[r.size:], lineEnd) {
		err = errStrange
	}
	r.from = at
	return int64(n), err
}

// ok says whether the answer is +OK.
func (r *reply) ok() bool { return r.kind == '+' && r.whole == 1 }

// value returns the stored value, which lives in room.
func (r *reply) value() []byte { return r.room.bytes[r.from : r.from+r.size : r.from+r.size] }

// room is the memory for the values of one chunk. Values are found by their place,
// since it moves when it grows.
type room struct {
	bytes []byte
	used  int
	limit int // what it grows to, unless a single value is longer
	most  int // the longest value, its end of line included
}

func (r *room) hasRoomFor(n int) bool {
	return n <= r.most && (r.used == 0 || r.used+n <= r.limit)
}

// take returns n bytes, and their place.
func (r *room) take(n int) (at int, to []byte) {
	at = r.used
	r.used += n
	if r.used > len(r.bytes) {
		bigger := make([]byte, max(r.used, min(2*len(r.bytes), r.limit)))
		copy(bigger, r.bytes[:at])
		r.bytes = bigger
	}
	return at, r.bytes[at:r.used]
}

// empty gives all room back, and memory that a single long value had asked for.
func (r *room) empty() {
	r.used = 0
	if len(r.bytes) > r.limit {
		r.bytes = nil
	}
}
