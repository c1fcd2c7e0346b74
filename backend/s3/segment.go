package s3

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/embedonce/embedonce/backend"
)

// A segment is one object, little-endian:
//
//	frames      key (32), length of the value (4), value
//	index       for each frame in order: key (32), length of the value (4)
//	runs        for each run in order: stamp (8), writer (8), number of frames (4)
//	replaced    for each segment that this one replaces: length (1), name
//	tombstones  for each: key (32), stamp (8), writer (8), server's seconds (8)
//	footer      64 bytes
//
// A run is what one PUT of a writer brought; a written segment has one, an output
// of a compaction those of what it replaces. All behind the frames is the tail,
// which one range GET reads.
const (
	frameHead  = len(backend.Key{}) + 4
	entrySize  = len(backend.Key{}) + 4
	runSize    = 20
	tombSize   = len(backend.Key{}) + 24
	footerSize = 64

	formatVersion = 1
	magic         = "1embseg\n"

	// maxDataBytes: an offset has 32 bits.
	maxDataBytes = math.MaxUint32
	maxNameBytes = 16 << 20
)

// The footer:
//
//	 0  8  bytes of frames
//	 8  8  XXH3 of the frames
//	16  8  XXH3 of the tail without the footer
//	24  4  frames
//	28  4  runs
//	32  4  bytes of replaced names
//	36  4  tombstones
//	40  4  0
//	44  4  version
//	48  8  XXH3 of the 48 bytes before
//	56  8  magic
//
// Version, checksum and magic are at the same distance from the end in every
// version.
type footer struct {
	dataBytes        uint64
	dataSum, tailSum uint64
	frames           uint32 // how many
	nRuns, nTombs    uint32
	replacedBytes    uint32
}

// entry is one frame as the index has it.
type entry struct {
	key  backend.Key
	size uint32 // of the value
}

// run is a stretch of frames of one version.
type run struct {
	version version
	frames  uint32
}

// tomb says that records of key up to a version are deleted.
type tomb struct {
	key  backend.Key
	upTo version
	// created is when the server had it first, in seconds since 1970; 0 in a written
	// segment, whose own age tells.
	created int64
}

var (
	// errForeign: no segment, or a damaged one.
	errForeignObject = errors.New("no segment, or a damaged one")
	// errFuture: a segment of a later version of this package.
	errFuture = errors.New("a segment of a later version")
)

// segmentWriter collects a segment.
type segmentWriter struct {
	data     []byte
	entries  []entry
	runs     []run
	replaced []string
	tombs    []tomb
}

func appendFrame(data []byte, key *backend.Key, value []byte) []byte {
	data = append(data, key[:]...)
	data = binary.LittleEndian.AppendUint32(data, uint32(len(value)))
	return append(data, value...)
}

// finish returns the whole object and how long its tail is.
func (w *segmentWriter) finish() (object []byte, tail int) {
	var names []byte
	for _, name := range w.replaced {
		names = append(append(names, byte(len(name))), name...)
	}
	tail = len(w.entries)*entrySize + len(w.runs)*runSize + len(names) + len(w.tombs)*tombSize + footerSize
	f := footer{
		dataBytes: uint64(len(w.data)), dataSum: xxh3.Hash(w.data),
		frames: uint32(len(w.entries)), nRuns: uint32(len(w.runs)), replacedBytes: uint32(len(names)), nTombs: uint32(len(w.tombs)),
	}
	object = w.data
	if cap(object)-len(object) < tail {
		object = make([]byte, len(w.data), len(w.data)+tail)
		copy(object, w.data)
	}
	for i := range w.entries {
		object = append(object, w.entries[i].key[:]...)
		object = binary.LittleEndian.AppendUint32(object, w.entries[i].size)
	}
	for _, r := range w.runs {
		object = binary.LittleEndian.AppendUint64(object, r.version.stamp)
		object = binary.LittleEndian.AppendUint64(object, r.version.writer)
		object = binary.LittleEndian.AppendUint32(object, r.frames)
	}
	object = append(object, names...)
	for i := range w.tombs {
		object = append(object, w.tombs[i].key[:]...)
		object = binary.LittleEndian.AppendUint64(object, w.tombs[i].upTo.stamp)
		object = binary.LittleEndian.AppendUint64(object, w.tombs[i].upTo.writer)
		object = binary.LittleEndian.AppendUint64(object, uint64(w.tombs[i].created))
	}
	f.tailSum = xxh3.Hash(object[len(w.data):])
	return f.append(object), tail
}

func (f *footer) append(to []byte) []byte {
	from := len(to)
	for _, v := range []uint64{f.dataBytes, f.dataSum, f.tailSum} {
		to = binary.LittleEndian.AppendUint64(to, v)
	}
	for _, v := range []uint32{f.frames, f.nRuns, f.replacedBytes, f.nTombs, 0, formatVersion} {
		to = binary.LittleEndian.AppendUint32(to, v)
	}
	to = binary.LittleEndian.AppendUint64(to, xxh3.Hash(to[from:]))
	return append(to, magic...)
}

// parseFooter reads the footer of an object of so many bytes from its last bytes.
// It returns errForeignObject or errFuture for what it can't use.
func parseFooter(end []byte, objectBytes int64) (f footer, err error) {
	if len(end) < footerSize {
		return f, fmt.Errorf("%w: too short", errForeignObject)
	}
	b := end[len(end)-footerSize:]
	if string(b[56:]) != magic {
		return f, fmt.Errorf("%w: wrong magic", errForeignObject)
	}
	if binary.LittleEndian.Uint64(b[48:]) != xxh3.Hash(b[:48]) {
		return f, fmt.Errorf("%w: wrong checksum of the footer", errForeignObject)
	}
	if v := binary.LittleEndian.Uint32(b[44:]); v > formatVersion {
		return f, fmt.Errorf("%w: %d", errFuture, v)
	} else if v == 0 {
		return f, fmt.Errorf("%w: version 0", errForeignObject)
	}
	f = footer{
		dataBytes: binary.LittleEndian.Uint64(b), dataSum: binary.LittleEndian.Uint64(b[8:]), tailSum: binary.LittleEndian.Uint64(b[16:]),
		frames: binary.LittleEndian.Uint32(b[24:]), nRuns: binary.LittleEndian.Uint32(b[28:]),
		replacedBytes: binary.LittleEndian.Uint32(b[32:]), nTombs: binary.LittleEndian.Uint32(b[36:]),
	}
	if max(f.frames, f.nTombs, f.nRuns) > maxBatchItems || f.replacedBytes > maxNameBytes {
		return f, fmt.Errorf("%w: its parts are longer than they may be", errForeignObject)
	}
	if f.dataBytes > maxDataBytes || f.dataBytes+f.tailBytes() != uint64(objectBytes) {
		return f, fmt.Errorf("%w: its parts are not as long as the object", errForeignObject)
	}
	return f, nil
}

// tailBytes can't overflow: each part is below 2^38.
func (f *footer) tailBytes() uint64 {
	return uint64(f.frames)*uint64(entrySize) + uint64(f.nRuns)*runSize + uint64(f.replacedBytes) + uint64(f.nTombs)*uint64(tombSize) + footerSize
}

// tail is a parsed tail. It refers to the bytes that it was parsed from.
type tail struct {
	footer
	index    []byte
	runs     []run
	replaced []string
	tombs    []tomb
	stride   uint32 // the length of each frame, if all are equally long
}

// parseTail parses the tail of an object called name, of so many bytes. b has at
// least the tail, and may have more before it. Nothing is allocated that b doesn't
// have the bytes for.
func parseTail(name objectName, b []byte, objectBytes int64) (*tail, error) {
	f, err := parseFooter(b, objectBytes)
	if err != nil {
		return nil, err
	}
	if uint64(len(b)) < f.tailBytes() {
		return nil, fmt.Errorf("%w: a part of the tail is missing", errForeignObject)
	}
	b = b[uint64(len(b))-f.tailBytes() : len(b)-footerSize]
	if xxh3.Hash(b) != f.tailSum {
		return nil, fmt.Errorf("%w: wrong checksum of the index", errForeignObject)
	}
	t := &tail{footer: f}
	take := func(n int) (part []byte) {
		part, b = b[:n], b[n:]
		return part
	}
	t.index = take(int(f.frames) * entrySize)
	if err := t.checkIndex(); err != nil {
		return nil, err
	}
	if err := t.parseRuns(take(int(f.nRuns) * runSize)); err != nil {
		return nil, err
	}
	for names := take(int(f.replacedBytes)); len(names) > 0; {
		n := int(names[0]) + 1
		if n > len(names) {
			return nil, fmt.Errorf("%w: a name that it replaces is cut", errForeignObject)
		}
		replaced := string(names[1:n])
		if _, ok := parseName(replaced); !ok {
			return nil, fmt.Errorf("%w: what it replaces is no segment", errForeignObject)
		}
		t.replaced = append(t.replaced, replaced)
		names = names[n:]
	}
	for ; len(b) > 0; b = b[tombSize:] {
		t.tombs = append(t.tombs, tomb{
			key:     backend.Key(b[:32]),
			upTo:    version{binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[40:])},
			created: int64(binary.LittleEndian.Uint64(b[48:])),
		})
	}
	switch {
	case name.compacted:
	case len(t.replaced) > 0:
		return nil, fmt.Errorf("%w: a writer replaces nothing", errForeignObject)
	case len(t.runs) > 1 || len(t.runs) == 1 && t.runs[0].version != name.version:
		return nil, fmt.Errorf("%w: it belongs to another name", errForeignObject)
	}
	return t, nil
}

// checkIndex looks whether the frames that the index has fill the data exactly.
// Offsets are not stored, and so can't be wrong.
func (t *tail) checkIndex() error {
	var sum uint64
	equal := true
	for i := range int(t.frames) {
		size := uint64(frameHead) + uint64(t.size(i))
		sum += size
		equal = equal && size == uint64(frameHead)+uint64(t.size(0))
	}
	if sum != t.dataBytes {
		return fmt.Errorf("%w: its frames are not as long as its data", errForeignObject)
	}
	if equal && t.frames > 0 {
		t.stride = uint32(frameHead) + t.size(0)
	}
	return nil
}

func (t *tail) parseRuns(b []byte) error {
	var frames uint64
	t.runs = make([]run, 0, len(b)/runSize)
	for ; len(b) > 0; b = b[runSize:] {
		r := run{version{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}, binary.LittleEndian.Uint32(b[16:])}
		if frames += uint64(r.frames); r.version.stamp >= farthest {
			return fmt.Errorf("%w: a stamp that no later one could exceed", errForeignObject)
		}
		t.runs = append(t.runs, r)
	}
	if frames != uint64(t.frames) {
		return fmt.Errorf("%w: its runs have not as many frames as its index", errForeignObject)
	}
	return nil
}

func (t *tail) key(i int) *backend.Key {
	return (*backend.Key)(t.index[i*entrySize:])
}

func (t *tail) size(i int) uint32 {
	return binary.LittleEndian.Uint32(t.index[i*entrySize+len(backend.Key{}):])
}
