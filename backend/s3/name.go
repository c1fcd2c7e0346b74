package s3

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Folders under the prefix.
const (
	writtenFolder   = "s/" // one object for each PUT of a writer
	compactedFolder = "c/" // one object for each output of a compaction
)

// version orders the records of one key: the higher one is the newer. The writer
// decides between equal stamps, so that every reader decides alike.
type version struct{ stamp, writer uint64 }

func (v version) less(w version) bool {
	if v.stamp != w.stamp {
		return v.stamp < w.stamp
	}
	return v.writer < w.writer
}

// objectName is what the name of a segment says, relative to the prefix. tail and
// count are hints, which let the index be read in one request; nothing relies on
// them.
type objectName struct {
	compacted bool
	version   version  // of a written segment
	seq       uint32   // of a written segment: its number in the life of its writer
	unique    [16]byte // of an output of a compaction
	tail      uint32   // how many bytes at the end are no frames
	count     uint32   // of frames
}

func (n objectName) String() string {
	if n.compacted {
		return fmt.Sprintf("%s%s.%08x.%08x", compactedFolder, hex.EncodeToString(n.unique[:]), n.tail, n.count)
	}
	return fmt.Sprintf("%s%016x-%016x-%08x.%08x.%08x", writtenFolder, n.version.stamp, n.version.writer, n.seq, n.tail, n.count)
}

// parseName is the inverse of String; ok is false for every other string.
func parseName(s string) (n objectName, ok bool) {
	rest, written := strings.CutPrefix(s, writtenFolder)
	if !written {
		if rest, n.compacted = strings.CutPrefix(s, compactedFolder); !n.compacted {
			return n, false
		}
	}
	id, hints, _ := strings.Cut(rest, ".")
	tail, count, _ := strings.Cut(hints, ".")
	number := func(digits string, size int) (v uint64) {
		v, err := strconv.ParseUint(digits, 16, size)
		ok = ok && err == nil
		return v
	}
	ok = true
	n.tail, n.count = uint32(number(tail, 32)), uint32(number(count, 32))
	if n.compacted {
		// String compares below: Decode need not be strict, only bounded.
		if len(id) != hex.EncodedLen(len(n.unique)) {
			return n, false
		}
		if _, err := hex.Decode(n.unique[:], []byte(id)); err != nil {
			return n, false
		}
	} else {
		stamp, behind, _ := strings.Cut(id, "-")
		writer, seq, _ := strings.Cut(behind, "-")
		n.version = version{number(stamp, 64), number(writer, 64)}
		n.seq = uint32(number(seq, 32))
	}
	return n, ok && n.String() == s
}

// clock gives stamps: nanoseconds since 1970, but always more than any stamp seen
// before, so that a write is newer than what its writer knew, whatever the clocks
// say.
type clock struct {
	mu      sync.Mutex
	highest uint64
	now     func() time.Time
}

// next returns a stamp higher than all before it.
func (c *clock) next() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highest = max(c.highest+1, uint64(max(0, c.now().UnixNano())))
	return c.highest
}

// farthest is above every stamp that counts: a record near the end of the numbers
// could never be overwritten. It is in the year 2262.
const farthest = 1 << 63

// saw tells the clock of a stamp that somebody else gave.
func (c *clock) saw(stamp uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highest = max(c.highest, stamp)
}

// oldest returns the name from which on s/ has everything that was named in the
// last window before the newest stamp seen, or before now if that is earlier.
func (c *clock) oldest(window time.Duration) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest := min(c.highest, uint64(max(0, c.now().UnixNano())))
	return fmt.Sprintf("%s%016x", writtenFolder, newest-min(newest, uint64(window)))
}
