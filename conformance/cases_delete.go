package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/embedonce/embedonce/backend"
)

var deleteCases = []testcase{
	{name: "delete/all", rules: "D1 D3", fn: deleteAll},
	{name: "delete/some", rules: "D1 D3 D4", fn: deleteSome},
	{name: "delete/nothing", rules: "D1 D5", fn: deleteNothing},
	{name: "delete/near-keys", rules: "D1", fn: deleteNearKeys},
	{name: "delete/match", rules: "D1 D2 D5", fn: deleteMatch},
	{name: "delete/callers-goroutine", rules: "D5", fn: deleteCallersGoroutine},
	{name: "delete/written-meanwhile", rules: "D2 D5", fn: deleteWrittenMeanwhile},
	{name: "delete/written-by-another-handle", rules: "D2 D5", needs: []need{needHost}, fn: deleteWrittenByAnotherHandle},
	{name: "delete/beside-writers", rules: "D2 D4 S9", fn: deleteBesideWriters},
	{name: "delete/several", rules: "D1 D3", fn: deleteSeveral},
	{name: "delete/foreign", rules: "D1 D5 G5", needs: []need{needPlant}, fn: deleteForeign},
	{name: "delete/write-again", rules: "D3 S3", fn: deleteWriteAgain},
	{name: "delete/reopen", rules: "D3 S9", needs: []need{needDurable}, fn: deleteReopen},
	{name: "delete/reopen-much", rules: "D3 S9", needs: []need{needDurable}, room: 32 << 20, fn: deleteReopenMuch},
	{name: "delete/other-handle", rules: "D3", needs: []need{needHost, needNoCopies}, fn: deleteOtherHandle},
	{name: "delete/other-process", rules: "D1 D3", needs: []need{needHost, needNoCopies}, fn: deleteOtherProcess},
	{name: "delete/ended-context", rules: "X1", fn: deleteEndedContext},
	{name: "delete/ends-at-each-look", rules: "X2 D4", fn: deleteEndsAtEachLook},
	{name: "delete/left", rules: "S4 D1", fn: deleteLeft},
	{name: "delete/left-slow", rules: "S4 D1", needs: []need{needFault}, fn: deleteLeftSlow},
	{name: "delete/closed", rules: "C3", fn: deleteClosed},
	{name: "delete/close-waits", rules: "C2 D3", fn: deleteCloseWaits},
	{name: "delete/under-faults", rules: "D4 X2 X3", needs: []need{needFault}, fn: deleteUnderFaults},
	{name: "delete/full", rules: "D3 D4 X3", needs: []need{needFault}, room: 32 << 20, fn: deleteFull},
}

// deletable makes a store with n entries under the keys "a".
func (e *env) deletable(n int) (location string, c backend.Cache, items []backend.Item) {
	location = e.location()
	c = e.open(location)
	e.needDelete(c)
	items = e.batch(e.keys("a", n), 1)
	e.set(c, items)
	return location, c, items
}

// delete calls Delete, which must work and remove so many entries.
func (e *env) delete(c backend.Cache, action string, keys []backend.Key, match func(int, []byte) bool, want int) {
	removed, err := backend.Delete(e.ctx, c, keys, match)
	e.check(err == nil, "D1", action, "nil", errText(err))
	e.check(removed == want, "D1", action, fmt.Sprintf("%d entries removed", want), fmt.Sprintf("%d", removed))
}

func deleteAll(e *env) {
	_, c, items := e.deletable(2500)
	action := fmt.Sprintf("Delete of %d stored keys", len(items))
	e.delete(c, action, keysOf(items), nil, len(items))
	e.absent(c, "D3", action, keysOf(items))
	e.delete(c, action+", once more", keysOf(items), nil, 0)
	e.usable(c, "D3", "deleting everything")
}

// deleteSome deletes stored keys among missing ones, some of them repeated.
func deleteSome(e *env) {
	_, c, items := e.deletable(600)
	gone, rest := items[:200], items[200:]
	var keys []backend.Key
	for i, item := range gone {
		keys = append(keys, e.key("never", i), item.Key)
		if i%3 == 0 {
			keys = append(keys, item.Key, gone[(i+7)%len(gone)].Key)
		}
	}
	given := slices.Clone(keys)
	action := "Delete of 200 stored keys, some repeated, among missing ones"
	e.delete(c, action, given, nil, len(gone))
	e.check(slices.Equal(given, keys), "D1", action, "the caller's keys as they were", "other keys")
	e.absent(c, "D3", action, keysOf(gone))
	e.stored(c, "D4", action+": the others", rest)
	same := []backend.Key{rest[0].Key, rest[0].Key, rest[0].Key}
	e.delete(c, "Delete of one key given three times, with a match that returns true", same, func(int, []byte) bool { return true }, 1)
	e.absent(c, "D3", "Delete of one key given three times", same)
	e.stored(c, "D4", "Delete of one key given three times: the others", rest[1:])
}

func deleteNothing(e *env) {
	_, c, items := e.deletable(20)
	calls := 0
	count := func(int, []byte) bool { calls++; return true }
	for _, match := range []func(int, []byte) bool{nil, count} {
		e.delete(c, "Delete without keys", nil, match, 0)
		e.delete(c, "Delete of missing keys", e.keys("never", 20), match, 0)
	}
	e.check(calls == 0, "D5", "Delete of missing keys", "no call of match", fmt.Sprintf("%d calls", calls))
	e.stored(c, "D1", "Delete of missing keys", items)
}

// deleteNearKeys: keys that differ from a deleted one in one bit stay.
func deleteNearKeys(e *env) {
	_, c, items := e.deletable(1)
	var near []backend.Key
	for bit := range len(items[0].Key) * 8 {
		k := items[0].Key
		k[bit/8] ^= 1 << (bit % 8)
		near = append(near, k)
	}
	others := e.batch(near, 1)
	e.set(c, others)
	e.delete(c, "Delete of one key", keysOf(items), nil, 1)
	e.absent(c, "D3", "Delete of one key", keysOf(items))
	e.stored(c, "D1", "Delete of a key from which 256 others differ in one bit", others)
}

func deleteMatch(e *env) {
	_, c, items := e.deletable(600)
	keys := keysOf(items)
	for i := 0; i < 600; i += 60 {
		keys[i] = e.key("never", i) // so that indexes and stored entries are not the same
	}
	wanted := func(i int) bool { return i%3 == 0 || i > 500 }
	var gone, stay []backend.Item
	for i, item := range items {
		if i%60 != 0 && wanted(i) {
			gone = append(gone, item)
		} else {
			stay = append(stay, item)
		}
	}
	action := "Delete of 590 stored keys among missing ones, with a match that wants some of them"
	called := make([]int, len(keys))
	var inside atomic.Bool
	removed, err := backend.Delete(e.ctx, c, keys, func(i int, value []byte) bool {
		e.check(inside.CompareAndSwap(false, true), "D5", action, "one call of match at a time", "match called while another call runs")
		defer inside.Store(false)
		e.check(i >= 0 && i < len(keys), "D5", action, "an index of keys", fmt.Sprintf("index %d", i))
		e.check(i%60 != 0, "D5", action, "no call for a key that isn't stored", fmt.Sprintf("a call for index %d", i))
		e.check(bytes.Equal(value, items[i].Value), "D5", action, "the stored value of each key", fmt.Sprintf("%d other bytes for index %d", len(value), i))
		called[i]++
		return wanted(i)
	})
	e.check(err == nil, "D1", action, "nil", errText(err))
	for i, n := range called {
		e.check(n > 0 || i%60 == 0, "D5", action, "a call of match for each stored key", fmt.Sprintf("none for index %d", i))
	}
	e.check(removed == len(gone), "D1", action, fmt.Sprintf("%d entries removed", len(gone)), fmt.Sprint(removed))
	e.absent(c, "D3", action+": those it wants", keysOf(gone))
	e.stored(c, "D2", action+": the others", stay)
	e.delete(c, "Delete with a match that wants none", keysOf(stay), func(int, []byte) bool { return false }, 0)
	e.stored(c, "D2", "Delete with a match that wants none", stay)
}

func deleteCallersGoroutine(e *env) {
	_, c, items := e.deletable(600)
	own := goroutineID()
	e.delete(c, "Delete with match", keysOf(items), func(int, []byte) bool {
		e.check(goroutineID() == own, "D5", "Delete", "match on the caller's goroutine", "match on another one")
		return true
	}, len(items))
}

func deleteForeign(e *env) {
	for _, what := range []Foreign{WrongType, Empty} {
		location, c, items := e.deletable(40)
		keys := []backend.Key{items[3].Key, items[20].Key, e.key("fresh", 0)}
		if skipped, _ := e.attempt("planting:", e.seed, func(e *env) {
			for _, k := range keys {
				e.plant(location, k, what)
			}
		}); skipped {
			e.Logf("Suite.Plant plants nothing that is %v", what)
			continue
		}
		action := fmt.Sprintf("Delete of entries that are %v", what)
		calls := 0
		look := func(want bool) func(int, []byte) bool {
			return func(_ int, value []byte) bool {
				calls++
				e.check(value == nil || what == Empty && len(value) == 0, "D5", action, "the value as GetMany gives it: none", fmt.Sprintf("%d bytes", len(value)))
				return want
			}
		}
		e.delete(c, action+", with a match that wants none", keys, look(false), 0)
		e.check(calls >= len(keys), "D5", action, "a call of match for each", fmt.Sprintf("%d calls", calls))
		e.delete(c, action+", with a match that wants one", keys[:1], look(true), 1)
		e.delete(c, action, keys, nil, len(keys)-1)
		e.absent(c, "D3", action, keys)
		rest := slices.Concat(items[:3], items[4:20], items[21:])
		e.stored(c, "D4", action+": the others", rest)
		healed := e.batch(keys, 2)
		e.set(c, healed)
		e.stored(c, "S3", action+", then SetMany", healed)
	}
}

func deleteWriteAgain(e *env) {
	_, c, items := e.deletable(100)
	keys := keysOf(items)
	for version := uint64(2); version < 8; version++ {
		e.delete(c, "Delete of entries that were deleted and written before", keys, nil, len(keys))
		e.absent(c, "D3", "Delete of entries that were deleted and written before", keys)
		again := e.batch(keys, version)
		e.set(c, again)
		e.stored(c, "S3", "SetMany of keys that were deleted", again)
	}
}

func deleteReopen(e *env) {
	location, c, items := e.deletable(300)
	var gone []backend.Key
	for round := range 3 {
		at := 100 * round
		keys := keysOf(items[at : at+50])
		e.delete(c, "Delete", keys, nil, len(keys))
		gone = append(gone, keys...)
		if round == 1 { // written again before it is closed
			e.set(c, items[at:at+50])
			gone = gone[:len(gone)-50]
		}
		e.close(c)
		c = e.open(location)
		e.absent(c, "D3", "Delete, Close, Open", gone)
		e.stored(c, "S9", "Delete of other entries, Close, Open", items[at+50:])
	}
	e.stored(c, "S9", "Delete, SetMany of the same keys, Close, Open", items[100:150])
}

func deleteOtherHandle(e *env) {
	location, c, items := e.deletable(200)
	other := e.open(location)
	e.seen(other, "S3", "SetMany, read through another handle", items)
	keys := keysOf(items)
	e.delete(c, "Delete through one of two handles", keys[:100], nil, 100)
	e.unseen(other, "Delete through one of two handles, read through the other", keys[:100])
	e.stored(other, "D4", "Delete of other entries through another handle", items[100:])
	e.delete(other, "Delete through the other of two handles", keys[100:], nil, 100)
	e.unseen(c, "Delete through one of two handles, read through the other", keys)
	e.unseen(e.open(location), "Delete, read through a handle that was opened afterwards", keys)
}

func deleteOtherProcess(e *env) {
	location, c, mine := e.deletable(50)
	items := e.batch(e.keys("parent", 100), 1)
	e.set(c, items)
	p := e.spawn("delete", location, len(items))
	action := "Delete in another process"
	line, ok := p.next()
	if !ok {
		<-p.ended
		p.broken("that it says what it removed")
	}
	var removed int
	if _, err := fmt.Sscanf(line, "removed %d", &removed); err != nil {
		e.Fatalf("the other process: %s", line)
	}
	e.check(removed == len(items), "D1", action, fmt.Sprintf("%d entries removed", len(items)), fmt.Sprint(removed))
	e.unseen(c, action+", read through a handle that was open before", keysOf(items))
	e.stored(c, "D4", action+" of other entries", mine)
	p.tell("end")
	p.expectEnd()
	e.unseen(c, action+" that has ended", keysOf(items))
}
