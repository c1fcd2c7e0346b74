package conformance

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/embedonce/embedonce/backend"
)

// beside runs one on a goroutine of its own, and the other one again and again
// until it has ended, at least twice.
func (e *env) beside(one, other func()) {
	done := e.background(one)
	func() {
		defer func() { <-done }()
		for round := 0; ; round++ {
			select {
			case <-done:
				if round > 1 {
					return
				}
			default:
			}
			if e.Failed() {
				return
			}
			other()
		}
	}()
	if e.Failed() {
		e.FailNow()
	}
}

// scanWhileWritten: a writer overwrites some entries and adds others. Those that
// are there all the while are seen in each walk, and no value that is too old.
func scanWhileWritten(e *env) {
	_, c, items := e.scannable(1500)
	const batches = 30
	n := e.atMost(40)
	changing := keysOf(items[:n])
	versions := make(map[string]int)
	for v := 1; v <= batches+1; v++ {
		for i, k := range changing {
			versions[string(payload(k, uint64(v), e.size(i)))] = v
		}
	}
	index := make(map[backend.Key]bool)
	for _, k := range changing {
		index[k] = true
	}
	var begun, acknowledged atomic.Int64
	begun.Store(1)
	acknowledged.Store(1)
	e.beside(func() {
		for v := 2; v <= batches+1; v++ {
			begun.Store(int64(v))
			e.set(c, e.batch(changing, uint64(v)))
			acknowledged.Store(int64(v))
			e.set(c, e.batch(e.keys(fmt.Sprint("new", v), e.atMost(20)), 1))
		}
	}, func() {
		w := e.walk(c, backend.WholeValue)
		for !w.over {
			least := int(acknowledged.Load())
			var values []string
			w.each = func(entry backend.Entry) {
				if index[entry.Key] {
					values = append(values, string(entry.Value))
				}
			}
			w.part()
			most := int(begun.Load())
			for _, value := range values {
				v, known := versions[value]
				e.check(known, "N2", "Scan while entries are overwritten", "a value that was written", fmt.Sprintf("%d other bytes", len(value)))
				e.check(v >= least && v <= most, "N2", fmt.Sprintf("Scan begun after version %d was acknowledged, ended before version %d began", least, most+1),
					"a value of that time", fmt.Sprintf("version %d", v))
			}
		}
		action := "a walk while other entries are written"
		w.has(action, items[n:])
		for i, k := range changing {
			_, ok := w.seen[k]
			e.check(ok, "N1", "a walk while entries are overwritten", "a visit of each of them", fmt.Sprintf("none of entry %d of %d", i, n))
		}
	})
}

// scanWhileDeleted: a deleter removes half of the entries. The other half is seen
// in each walk, and nothing that was removed before a Scan began.
func scanWhileDeleted(e *env) {
	_, c, items := e.scannable(2000)
	e.needDelete(c)
	half := len(items) / 2
	var mu sync.Mutex
	gone := make(map[backend.Key]bool)
	isGone := func() map[backend.Key]bool {
		mu.Lock()
		defer mu.Unlock()
		copied := make(map[backend.Key]bool, len(gone))
		for k := range gone {
			copied[k] = true
		}
		return copied
	}
	e.beside(func() {
		for at := 0; at < half; at += 50 {
			keys := keysOf(items[at:min(at+50, half)])
			e.remove(c, keys)
			mu.Lock()
			for _, k := range keys {
				gone[k] = true
			}
			mu.Unlock()
		}
	}, func() {
		w := e.walk(c, 8)
		for !w.over {
			before := isGone()
			w.each = func(entry backend.Entry) {
				e.check(!before[entry.Key], "D3", "Scan begun after a Delete that returned nil", "no visit of what was removed", "a visit")
			}
			w.part()
		}
		w.has("a walk while other entries are deleted", items[half:])
	})
	e.stored(c, "D4", "Delete of other entries", items[half:])
	e.walk(c, 64).rest().hasOnly("a walk after half of the entries were deleted", items[half:])
}
