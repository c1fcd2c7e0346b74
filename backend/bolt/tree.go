package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"

	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

// Before bbolt writes, this file looks at every page that it will replace. bbolt
// copies what a page says into new ones and frees as many pages as the old one
// says it has: a damaged page would take others with it, which are whole and hold
// what was acknowledged, or all memory. Reading needs no such check.

const (
	branchPage   = 0x01
	leafPage     = 0x02
	elementBytes = 16
	bucketFlag   = 0x01
	bucketBytes  = 16 // of a bucket's value before the page that it may have inside
	maxDepth     = 64 // of a tree; one of 8 levels has more pages than a disk
)

// tree looks at the pages of one transaction.
type tree struct {
	data     []byte // the part of the map that is in use
	pageSize uint64
	entries  uint64 // page of the root of the bucket of entries, 0 if it is in root
	checked  map[uint64]struct{}
}

// newTree checks what leads to the bucket of entries. The caller must guard
// against faults.
func newTree(tx *bbolt.Tx, entries *bbolt.Bucket) (*tree, error) {
	info := tx.DB().Info()
	// A map is no memory of Go's: it stays where it is while tx does.
	first := *(*unsafe.Pointer)(unsafe.Pointer(&info.Data))
	t := &tree{
		data:     unsafe.Slice((*byte)(first), tx.Size()),
		pageSize: uint64(info.PageSize),
		entries:  uint64(entries.Root()),
		checked:  make(map[uint64]struct{}),
	}
	root := uint64(tx.Cursor().Bucket().Root())
	if t.entries != 0 {
		return t, t.checkPath(root, entriesBucket, false)
	}
	leaf, err := t.leafOf(root, entriesBucket, false)
	if err != nil {
		return nil, err
	}
	for i := range int(binary.NativeEndian.Uint16(leaf[10:])) {
		e := leafElement(leaf, i)
		if string(e.key) != string(entriesBucket) {
			continue
		}
		if e.flags&bucketFlag == 0 || len(e.value) < bucketBytes+pageBytes {
			return nil, errTree
		}
		return t, t.checkElements(e.value[bucketBytes:])
	}
	return nil, errTree
}

var errTree = fmt.Errorf("%w: a page is damaged", backend.ErrCorrupt)

// checkEntry checks the pages that lead to a key in the bucket of entries; with
// beside also those beside them, with which bbolt may merge them.
func (t *tree) checkEntry(key *backend.Key, beside bool) error {
	if t.entries == 0 {
		return nil // it was checked as a whole
	}
	return t.checkPath(t.entries, key[:], beside)
}

func (t *tree) checkPath(root uint64, key []byte, beside bool) error {
	_, err := t.leafOf(root, key, beside)
	return err
}

// leafOf returns the page on which key is, or would be.
func (t *tree) leafOf(root uint64, key []byte, beside bool) ([]byte, error) {
	page, err := t.page(root)
	for depth := 0; err == nil && depth < maxDepth; depth++ {
		if binary.NativeEndian.Uint16(page[8:]) == leafPage {
			return page, nil
		}
		at, count := 0, int(binary.NativeEndian.Uint16(page[10:]))
		for low, high := 0, count; low < high; { // the last one with a key up to this
			middle := int(uint(low+high) / 2)
			if e := branchElement(page, middle); bytes.Compare(e.key, key) <= 0 {
				at, low = middle, middle+1
			} else {
				high = middle
			}
		}
		for i := max(at-1, 0); beside && i <= min(at+1, count-1); i++ {
			if _, err := t.child(page, i); err != nil {
				return nil, err
			}
		}
		page, err = t.child(page, at)
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: its pages lead back to themselves", errTree)
}

// child returns the page that an element of a branch page leads to. Its keys must
// be those that belong there: a page that two elements lead to would be freed by
// a write through the one, and still be in use through the other.
func (t *tree) child(parent []byte, i int) ([]byte, error) {
	e := branchElement(parent, i)
	page, err := t.page(e.child)
	if err != nil {
		return nil, err
	}
	count := int(binary.NativeEndian.Uint16(page[10:]))
	if count == 0 {
		return page, nil
	}
	inside := bytes.Compare(keyOn(page, 0), e.key) >= 0
	if next := i + 1; next < int(binary.NativeEndian.Uint16(parent[10:])) {
		inside = inside && bytes.Compare(keyOn(page, count-1), branchElement(parent, next).key) < 0
	}
	if !inside {
		return nil, fmt.Errorf("%w: page %d is reached by a wrong way", errTree, e.child)
	}
	return page, nil
}

// page returns a page with those that belong to it, checked.
func (t *tree) page(id uint64) ([]byte, error) {
	pages := uint64(len(t.data)) / t.pageSize
	if id < 2 || id >= pages {
		return nil, fmt.Errorf("%w: it leads to page %d of %d", errTree, id, pages)
	}
	page := t.data[id*t.pageSize:]
	more := uint64(binary.NativeEndian.Uint32(page[12:]))
	if binary.NativeEndian.Uint64(page) != id || id+more >= pages {
		return nil, fmt.Errorf("%w: the header of page %d", errTree, id)
	}
	page = page[:(more+1)*t.pageSize]
	if _, known := t.checked[id]; known {
		return page, nil
	}
	if err := t.checkElements(page); err != nil {
		return nil, fmt.Errorf("%w: the contents of page %d", err, id)
	}
	t.checked[id] = struct{}{}
	return page, nil
}

// checkElements checks that everything on a page is on the page, in order.
func (t *tree) checkElements(page []byte) error {
	flags, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
	table := pageBytes + count*elementBytes
	if table > len(page) || flags != branchPage && flags != leafPage || flags == branchPage && count == 0 {
		return errTree
	}
	var last []byte
	for i := range count {
		at := pageBytes + i*elementBytes
		var start, size uint64
		if flags == branchPage {
			start = uint64(binary.NativeEndian.Uint32(page[at:]))
			size = uint64(binary.NativeEndian.Uint32(page[at+4:]))
		} else {
			start = uint64(binary.NativeEndian.Uint32(page[at+4:]))
			size = uint64(binary.NativeEndian.Uint32(page[at+8:])) + uint64(binary.NativeEndian.Uint32(page[at+12:]))
		}
		if start += uint64(at); start < uint64(table) || start+size > uint64(len(page)) {
			return errTree
		}
		key := keyOn(page, i)
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return errTree
		}
		last = key
	}
	return nil
}

// keyOn returns the key of an element that checkElements has looked at.
func keyOn(page []byte, i int) []byte {
	if binary.NativeEndian.Uint16(page[8:]) == branchPage {
		return branchElement(page, i).key
	}
	return leafElement(page, i).key
}

type branch struct {
	key   []byte
	child uint64
}

// branchElement and leafElement read an element that checkElements has looked at.
func branchElement(page []byte, i int) branch {
	at := pageBytes + i*elementBytes
	start := at + int(binary.NativeEndian.Uint32(page[at:]))
	return branch{
		key:   page[start : start+int(binary.NativeEndian.Uint32(page[at+4:]))],
		child: binary.NativeEndian.Uint64(page[at+8:]),
	}
}

type leaf struct {
	flags      uint32
	key, value []byte
}

func leafElement(page []byte, i int) leaf {
	at := pageBytes + i*elementBytes
	start := at + int(binary.NativeEndian.Uint32(page[at+4:]))
	middle := start + int(binary.NativeEndian.Uint32(page[at+8:]))
	return leaf{
		flags: binary.NativeEndian.Uint32(page[at:]),
		key:   page[start:middle],
		value: page[middle : middle+int(binary.NativeEndian.Uint32(page[at+12:]))],
	}
}
