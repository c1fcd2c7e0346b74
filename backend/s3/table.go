package s3

import (
	"hash/maphash"
	"math/bits"

	"github.com/embedonce/embedonce/backend"
)

// table finds where the frames of a key may be: for all segments together, so that
// a lookup costs the same for one segment and for thousands. A slot has 16 bytes: a
// hash of the whole key and a place. The key itself is only in the frame. It is not
// safe for concurrent use.
//
// It is cut into shards, each of which grows by a quarter when it is 82 % full: so
// it never has more than 16 / 0.82 * 1.25 = 24.4 bytes a key, and growing never
// needs more than a shard twice.
type table struct {
	seed   maphash.Seed
	shards [1 << shardBits]shard
	used   int
}

const (
	shardBits   = 6
	fullPercent = 82
)

type shard struct {
	slots []slot
	used  int
}

type slot struct {
	hash uint64
	at   place // 0 is an empty slot
}

// place is a segment's number (24 bits), an offset in it (32) and how long the
// frame is at most (8, see sizeClass). A frame has at least 36 bytes, so that no
// place is 0.
type place uint64

const maxSegments = 1 << 24

func makePlace(segment, offset, size uint32) place {
	return place(segment)<<40 | place(offset)<<8 | place(sizeClass(size))
}

func (p place) segment() uint32 { return uint32(p >> 40) }
func (p place) offset() uint32  { return uint32(p >> 8) }
func (p place) atMost() uint64  { return classSize(uint8(p)) }

// sizeClass returns the smallest class that is at least n: eight to each power of
// two, so that a size that is read from a class is at most an eighth too large.
func sizeClass(n uint32) uint8 {
	if n <= 8 {
		return 0
	}
	shift := bits.Len32(n-1) - 4 // n-1 has 4 bits left of it
	if shift < 0 {
		shift = 0
	}
	m := (uint64(n) + 1<<shift - 1) >> shift // 8 to 16
	return uint8(uint64(shift)<<3 + m - 8)
}

func classSize(class uint8) uint64 {
	return uint64(8+class&7) << (class >> 3)
}

func newTable() table { return table{seed: maphash.MakeSeed()} }

func (t *table) hash(key *backend.Key) uint64 { return maphash.Bytes(t.seed, key[:]) }

func (t *table) shard(hash uint64) *shard { return &t.shards[hash>>(64-shardBits)] }

// home is where the search for hash begins.
func (s *shard) home(hash uint64) int {
	hi, _ := bits.Mul64(hash<<shardBits, uint64(len(s.slots)))
	return int(hi)
}

func (t *table) insert(hash uint64, at place) {
	s := t.shard(hash)
	if (s.used+1)*100 > len(s.slots)*fullPercent {
		s.resize(max(8, len(s.slots)+len(s.slots)/4))
	}
	s.put(hash, at)
	t.used++
}

func (s *shard) put(hash uint64, at place) {
	i := s.home(hash)
	for s.slots[i].at != 0 {
		if i++; i == len(s.slots) {
			i = 0
		}
	}
	s.slots[i] = slot{hash, at}
	s.used++
}

func (s *shard) resize(n int) {
	old := s.slots
	s.slots, s.used = make([]slot, n), 0
	for _, slot := range old {
		if slot.at != 0 {
			s.put(slot.hash, slot.at)
		}
	}
}

// find appends every place that hash was inserted with.
func (t *table) find(hash uint64, to []place) []place {
	s := t.shard(hash)
	if s.used == 0 {
		return to
	}
	for i := s.home(hash); s.slots[i].at != 0; {
		if s.slots[i].hash == hash {
			to = append(to, s.slots[i].at)
		}
		if i++; i == len(s.slots) {
			i = 0
		}
	}
	return to
}

// purge drops all places that keep doesn't want.
func (t *table) purge(keep func(place) bool) {
	t.used = 0
	for n := range t.shards {
		s := &t.shards[n]
		kept := 0
		for _, slot := range s.slots {
			if slot.at != 0 && keep(slot.at) {
				kept++
			}
		}
		old := s.slots
		*s = shard{}
		if kept > 0 {
			s.slots = make([]slot, max(8, kept*100/fullPercent+1))
		}
		for _, slot := range old {
			if slot.at != 0 && keep(slot.at) {
				s.put(slot.hash, slot.at)
			}
		}
		t.used += s.used
	}
}

// distinct calls f once for each hash that is there, with all of its places, which
// f must not keep.
func (t *table) distinct(f func(hash uint64, places []place)) {
	var places []place
	for n := range t.shards {
		s := &t.shards[n]
		for i, slot := range s.slots {
			if slot.at == 0 {
				continue
			}
			first := s.home(slot.hash)
			for s.slots[first].hash != slot.hash || s.slots[first].at == 0 {
				if first++; first == len(s.slots) {
					first = 0
				}
			}
			if first == i {
				places = t.find(slot.hash, places[:0])
				f(slot.hash, places)
			}
		}
	}
}

// bytes is how much memory the slots take.
func (t *table) bytes() (n int) {
	for i := range t.shards {
		n += len(t.shards[i].slots) * 16
	}
	return n
}
