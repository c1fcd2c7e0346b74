package s3

import (
	"slices"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// segment is what a handle remembers of one: not its keys, which are in the table.
type segment struct {
	id       uint32 // its number in the table, while it is shown
	name     string // relative to the prefix
	parsed   objectName
	bytes    int64 // of the object
	data     uint32
	stride   uint32 // the length of each frame, if all are equally long
	entries  int
	runs     []runEnd
	replaces []string
	tombs    []tomb
	modified time.Time // by the server
	shown    bool      // its records count; else something replaces it, or it is lost
}

// runEnd is a run with the offset behind its last frame.
type runEnd struct {
	version version
	end     uint32
}

// versionAt returns the version of the frame at offset.
func (s *segment) versionAt(offset uint32) version {
	i, _ := slices.BinarySearchFunc(s.runs, offset, func(r runEnd, offset uint32) int {
		if r.end > offset {
			return 1
		}
		return -1
	})
	if i == len(s.runs) {
		return version{} // a place that no frame of it has
	}
	return s.runs[i].version
}

// candidate is a frame that may have the value of a key.
type candidate struct {
	segment *segment
	offset  uint32
	atMost  uint32 // how long the frame is at most
	version version
}

// view is what one handle knows of the store. A batch gets into it in one step, so
// that a reader sees all of it or nothing.
type view struct {
	mu     sync.RWMutex
	table  table
	byID   []*segment // nil where a number is free
	free   []uint32
	byName map[string]*segment // shown or not, as long as the object is there
	// replaced has how many segments say that they replace the one of this name.
	replaced map[string]int
	tombs    map[backend.Key]version // the highest one
	dead     int                     // places in the table that no longer count
}

func newView() *view {
	return &view{table: newTable(), byName: make(map[string]*segment), replaced: make(map[string]int), tombs: make(map[backend.Key]version)}
}

// newSegment makes a segment from what was parsed or written.
func newSegment(parsed objectName, t *tail, modified time.Time) *segment {
	s := &segment{
		name: parsed.String(), parsed: parsed, bytes: int64(t.dataBytes + t.tailBytes()), data: uint32(t.dataBytes), stride: t.stride,
		entries: int(t.frames), replaces: t.replaced, tombs: t.tombs, modified: modified,
		runs: make([]runEnd, 0, len(t.runs)),
	}
	frame, end := 0, uint32(0)
	for _, r := range t.runs {
		if t.stride > 0 {
			end += r.frames * t.stride
		} else {
			for range r.frames {
				end += uint32(frameHead) + t.size(frame)
				frame++
			}
		}
		s.runs = append(s.runs, runEnd{r.version, end})
	}
	return s
}

// newest returns the highest stamp in s.
func (s *segment) newest() (stamp uint64) {
	for _, r := range s.runs {
		stamp = max(stamp, r.version.stamp)
	}
	for _, t := range s.tombs {
		stamp = max(stamp, t.upTo.stamp)
	}
	return stamp
}

// add shows s, whose keys t has, and hides what it replaces, in one step. It does
// nothing if s is known, and returns false if there are more segments than a place
// can tell apart.
func (v *view) add(s *segment, t *tail) bool {
	hashes := make([]uint64, s.entries)
	for i := range hashes {
		hashes[i] = v.table.hash(t.key(i))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byName[s.name] != nil {
		return true
	}
	if len(v.byID) == maxSegments && len(v.free) == 0 {
		return false
	}
	v.byName[s.name] = s
	for _, name := range s.replaces {
		v.replaced[name]++
	}
	if v.replaced[s.name] == 0 {
		v.show(s, t, hashes)
	}
	for _, name := range s.replaces {
		if old := v.byName[name]; old != nil && old.shown {
			v.hide(old)
		}
	}
	v.purgeIfWorthwhile()
	return true
}

func (v *view) show(s *segment, t *tail, hashes []uint64) {
	s.shown = true
	if n := len(v.free); n > 0 {
		s.id, v.free = v.free[n-1], v.free[:n-1]
		v.byID[s.id] = s
	} else {
		s.id = uint32(len(v.byID))
		v.byID = append(v.byID, s)
	}
	offset := uint32(0)
	for i, hash := range hashes {
		size := uint32(frameHead) + t.size(i)
		v.table.insert(hash, makePlace(s.id, offset, size))
		offset += size
	}
	for _, t := range s.tombs {
		if v.tombs[t.key].less(t.upTo) {
			v.tombs[t.key] = t.upTo
		}
	}
}

// hide takes the records of s out of the view. Its number stays taken until the
// table has lost its places.
func (v *view) hide(s *segment) {
	s.shown = false
	v.dead += s.entries
	if len(s.tombs) > 0 { // what replaces it has those that still count
		clear(v.tombs)
		for _, other := range v.byID {
			if other == nil || !other.shown {
				continue
			}
			for _, t := range other.tombs {
				if v.tombs[t.key].less(t.upTo) {
					v.tombs[t.key] = t.upTo
				}
			}
		}
	}
}

func (v *view) purgeIfWorthwhile() {
	if v.dead < 4096 && len(v.byID)-len(v.free) < maxSegments/2 || v.dead*4 < v.table.used {
		return
	}
	v.table.purge(func(p place) bool { return v.byID[p.segment()].shown })
	v.dead = 0
	for id, s := range v.byID {
		if s != nil && !s.shown {
			v.byID[id] = nil
			v.free = append(v.free, uint32(id))
		}
	}
}

// gone forgets the segment called name, whose object is no longer there.
func (v *view) gone(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.byName[name]
	if s == nil {
		return
	}
	delete(v.byName, name)
	if s.shown {
		v.hide(s)
	}
	for _, old := range s.replaces {
		if v.replaced[old]--; v.replaced[old] > 0 {
			continue
		}
		delete(v.replaced, old)
		// Nobody replaces it any more: if it is still there, it is read again.
		if o := v.byName[old]; o != nil && !o.shown {
			delete(v.byName, old)
		}
	}
}

// hidden says whether a segment replaces the one called name.
func (v *view) hidden(name string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.replaced[name] > 0
}

// candidates returns, for each key, what may have its value, the newest first, as
// it is at one moment.
func (v *view) candidates(keys []backend.Key) [][]candidate {
	all := make([][]candidate, len(keys))
	hashes := make([]uint64, len(keys))
	for i := range keys {
		hashes[i] = v.table.hash(&keys[i])
	}
	var places []place
	arena := make([]candidate, 0, len(keys))
	v.mu.RLock()
	defer v.mu.RUnlock()
	for i := range keys {
		places = v.table.find(hashes[i], places[:0])
		from := len(arena)
		arena = v.appendCandidates(arena, &keys[i], places)
		all[i] = arena[from:len(arena):len(arena)]
	}
	return all
}

// appendCandidates appends those of places that count for key, the newest first.
func (v *view) appendCandidates(to []candidate, key *backend.Key, places []place) []candidate {
	from := len(to)
	deleted, isDeleted := v.tombs[*key]
	for _, p := range places {
		c := v.candidate(p)
		if !c.segment.shown || isDeleted && !deleted.less(c.version) {
			continue
		}
		to = append(to, c)
	}
	if len(to)-from > 1 {
		slices.SortFunc(to[from:], func(a, b candidate) int {
			switch {
			case b.version.less(a.version):
				return -1
			case a.version.less(b.version):
				return 1
			}
			return 0
		})
	}
	return to
}

func (v *view) candidate(p place) candidate {
	s := v.byID[p.segment()]
	atMost := min(p.atMost(), uint64(s.data-p.offset()))
	if s.stride > 0 {
		atMost = uint64(s.stride)
	}
	return candidate{segment: s, offset: p.offset(), atMost: uint32(atMost), version: s.versionAt(p.offset())}
}

// all returns every segment that is known, shown or not.
func (v *view) all() []*segment {
	v.mu.RLock()
	defer v.mu.RUnlock()
	segments := make([]*segment, 0, len(v.byName))
	for _, s := range v.byName {
		segments = append(segments, s)
	}
	return segments
}

// knows says whether the segment called name need not be read: its index was, or
// something replaces it.
func (v *view) knows(name string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.byName[name] != nil || v.replaced[name] > 0
}

func (v *view) isShown(s *segment) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return s.shown
}

// deleted says whether the record of key with this version was deleted.
func (v *view) deleted(key *backend.Key, of version) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	upTo, ok := v.tombs[*key]
	return ok && !upTo.less(of)
}
