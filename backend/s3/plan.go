package s3

import (
	"cmp"
	"slices"
)

// want is a frame that a call wants to read.
type want struct {
	candidate
	key  int    // which of the call's distinct keys
	head uint32 // how many bytes of the value, from its beginning
}

// piece is a stretch of one segment that one request reads, and what is wanted of
// it, in order.
type piece struct {
	segment  *segment
	from, to uint64
	wants    []want
}

const (
	// splitBytes: a stretch that is longer is read by two requests at once.
	splitBytes = 4 << 20
	// pieceBytes: no request is for much more.
	pieceBytes = 64 << 20
)

// plan sorts wants and joins those that are close to each other, at most gap bytes
// apart, into pieces. A stretch of one segment becomes one piece, two if it is
// long, and more only where it is longer than any batch.
func plan(wants []want, gap int) (pieces []piece) {
	slices.SortFunc(wants, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.segment.name, b.segment.name), cmp.Compare(a.offset, b.offset))
	})
	for len(wants) > 0 {
		n, end := 1, wants[0].end()
		for n < len(wants) && wants[n].segment == wants[0].segment && uint64(wants[n].offset) <= end+uint64(gap) {
			end = max(end, wants[n].end())
			n++
		}
		pieces = appendPieces(pieces, wants[:n:n], end)
		wants = wants[n:]
	}
	return pieces
}

// end is behind the last byte that is needed.
func (w *want) end() uint64 {
	return uint64(w.offset) + min(uint64(w.atMost), uint64(frameHead)+uint64(w.head))
}

func appendPieces(to []piece, wants []want, end uint64) []piece {
	from := uint64(wants[0].offset)
	parts := uint64(1)
	if length := end - from; length > splitBytes {
		parts = max(2, (length+pieceBytes-1)/pieceBytes)
	}
	each := (end - from + parts - 1) / parts
	for len(wants) > 0 {
		p := piece{segment: wants[0].segment, from: uint64(wants[0].offset)}
		n := 0
		for n < len(wants) && (n == 0 || uint64(wants[n].offset) < p.from+each) {
			p.to = max(p.to, wants[n].end())
			n++
		}
		p.wants = wants[:n:n]
		to = append(to, p)
		wants = wants[n:]
	}
	return to
}
