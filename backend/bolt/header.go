package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"github.com/embedonce/embedonce/backend"
)

// bbolt trusts what its meta pages point to, and panics or faults where that is
// wrong, in one case on a goroutine on which nobody can catch it. So this file
// looks first. It knows the first bytes of a page, the meta pages and the list
// of free pages; the format is that of bbolt's version 2, in the byte order of
// the machine.

const (
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	metaBytes    = 64 // the last 8 are the checksum
	pageBytes    = 16 // of a page's own header
	metaPage     = 0x04
	freelistPage = 0x10
	minPageSize  = 1 << 10
	maxPageSize  = 1 << 24
	noFreelist   = ^uint64(0)
)

// header is what the newer of the two meta pages says.
type header struct {
	pageSize int64
	root     uint64 // page of the root bucket
	freelist uint64 // page of the list of free pages
	pages    uint64 // how many there are
	txid     uint64
	free     uint64 // how many pages the list has
}

// bytes is how long the file must be.
func (h *header) bytes() int64 { return int64(h.pages) * h.pageSize }

// checkFile checks the header of an open file that is not empty.
func checkFile(file *os.File) (header, error) {
	info, err := file.Stat()
	if err != nil {
		return header{}, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return checkHeader(file, info.Size())
}

// checkHeader reads and checks the meta pages and the list of free pages of a
// file of size bytes. Only reading can fail otherwise than with ErrCorrupt.
func checkHeader(file io.ReaderAt, size int64) (header, error) {
	h, err := readMeta(file, size)
	if err != nil {
		return header{}, err
	}
	corrupt := func(format string, args ...any) (header, error) {
		return header{}, fmt.Errorf("%w: %s", backend.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	switch {
	case h.pages < 4 || h.pages > uint64(1)<<62/uint64(h.pageSize):
		return corrupt("its header counts %d pages", h.pages)
	case size < h.bytes():
		return header{}, errTruncated
	case h.root < 2 || h.root >= h.pages:
		return corrupt("its root is page %d of %d", h.root, h.pages)
	case h.freelist == noFreelist:
		return corrupt("it has no list of free pages (bbolt's NoFreelistSync), which a cache always has")
	case h.freelist < 2 || h.freelist >= h.pages:
		return corrupt("its list of free pages is page %d of %d", h.freelist, h.pages)
	}
	if h.free, err = checkFreelist(file, h); err != nil {
		return header{}, err
	}
	return h, nil
}

// readMeta returns the newer of the meta pages that are whole. Page 1 is found
// without page 0 by trying all page sizes.
func readMeta(file io.ReaderAt, size int64) (header, error) {
	best, known, other := header{}, false, error(nil)
	look := func(at int64) (header, bool) {
		h, err := readMetaAt(file, size, at)
		if errors.Is(err, backend.ErrCorrupt) {
			other = err // a version, which is more than no meta page
			return h, false
		}
		return h, err == nil
	}
	if h, ok := look(0); ok {
		best, known = h, true
		if h, ok := look(best.pageSize); ok && h.txid > best.txid {
			best = h
		}
	}
	for at := int64(minPageSize); !known && at <= maxPageSize; at *= 2 {
		if h, ok := look(at); ok && h.pageSize == at {
			best, known = h, true
		}
	}
	switch {
	case known:
		return best, nil
	case other != nil:
		return header{}, other
	}
	return header{}, fmt.Errorf("%w: it is no bbolt database, or both of its meta pages are damaged", backend.ErrCorrupt)
}

var errNoMeta = errors.New("no meta page")

func readMetaAt(file io.ReaderAt, size, at int64) (header, error) {
	var page [pageBytes + metaBytes]byte
	if at+int64(len(page)) > size {
		return header{}, errNoMeta
	}
	if _, err := file.ReadAt(page[:], at); err != nil {
		return header{}, errNoMeta
	}
	meta := page[pageBytes:]
	order := binary.NativeEndian
	if order.Uint16(page[8:])&metaPage == 0 || order.Uint32(meta) != metaMagic {
		return header{}, errNoMeta
	}
	sum := fnv.New64a()
	_, _ = sum.Write(meta[:metaBytes-8]) // a hash never fails
	if order.Uint64(meta[metaBytes-8:]) != sum.Sum64() {
		return header{}, errNoMeta
	}
	if v := order.Uint32(meta[4:]); v != metaVersion {
		return header{}, fmt.Errorf("%w: it has version %d of bbolt's format, this program reads version %d", backend.ErrCorrupt, v, metaVersion)
	}
	h := header{
		pageSize: int64(order.Uint32(meta[8:])),
		root:     order.Uint64(meta[16:]),
		freelist: order.Uint64(meta[32:]),
		pages:    order.Uint64(meta[40:]),
		txid:     order.Uint64(meta[48:]),
	}
	if p := h.pageSize; p < minPageSize || p > maxPageSize || p&(p-1) != 0 {
		return header{}, fmt.Errorf("%w: its header says that pages have %d bytes", backend.ErrCorrupt, p)
	}
	return h, nil
}

// checkFreelist returns how many pages the list has. A page that is in it twice,
// or is no page, would let bbolt overwrite what is stored.
func checkFreelist(file io.ReaderAt, h header) (n uint64, err error) {
	unreadable := func(err error) error {
		return fmt.Errorf("%w: its list of free pages can't be read: %w", backend.ErrCorrupt, err)
	}
	var head [pageBytes + 8]byte
	at := int64(h.freelist) * h.pageSize
	if _, err := file.ReadAt(head[:], at); err != nil {
		return 0, unreadable(err)
	}
	order := binary.NativeEndian
	id, flags, overflow := order.Uint64(head[:]), order.Uint16(head[8:]), uint64(order.Uint32(head[12:]))
	wrong := fmt.Errorf("%w: its list of free pages is damaged", backend.ErrCorrupt)
	if id != h.freelist || flags != freelistPage || h.freelist+overflow >= h.pages {
		return 0, wrong
	}
	n, first := uint64(order.Uint16(head[10:])), int64(pageBytes)
	if n == 0xFFFF { // the number is too large for its field, and is the first element
		n, first = order.Uint64(head[pageBytes:]), first+8
	}
	room := (overflow+1)*uint64(h.pageSize) - uint64(first)
	if n > h.pages || n*8 > room {
		return 0, wrong
	}
	list := io.NewSectionReader(file, at+first, int64(n)*8)
	buffer := make([]byte, 32<<10)
	last := uint64(1) // pages 0 and 1 are the meta pages
	for left := int64(n) * 8; left > 0; {
		part := buffer[:min(left, int64(len(buffer)))]
		if _, err := io.ReadFull(list, part); err != nil {
			return 0, unreadable(err)
		}
		for ; len(part) > 0; part = part[8:] {
			page := order.Uint64(part)
			if page <= last || page >= h.pages || page == h.root || page >= h.freelist && page <= h.freelist+overflow {
				return 0, wrong
			}
			last = page
			left -= 8
		}
	}
	return n, nil
}
