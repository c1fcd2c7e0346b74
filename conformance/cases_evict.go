package conformance

import (
	"bytes"
	"fmt"

	"github.com/embedonce/embedonce/backend"
)

// A bounded store drops entries; these cases hold it to its bound.
var evictCases = []testcase{
	{name: "evict/unasked", rules: "S9", fn: evictUnasked},
	{name: "evict/small-values-within", rules: "S9", needs: []need{needCapacity}, room: 1, fn: evictSmallWithin},
	{name: "evict/large-values-within", rules: "S9", needs: []need{needCapacity}, room: 1, fn: evictLargeWithin},
	{name: "evict/overwrites-within", rules: "S9", needs: []need{needCapacity}, room: 1, fn: evictOverwritesWithin},
	{name: "evict/batch-beyond", rules: "S8 S9", needs: []need{needCapacity}, room: 1, fn: evictBatchBeyond},
	{name: "evict/bounded", rules: "I1", needs: []need{needCapacity}, room: 1, fn: evictBounded},
	{name: "evict/never-stale", rules: "S2 S9", needs: []need{needCapacity}, room: 1, fn: evictNeverStale},
}

// evictUnasked: a store keeps what it has room for, whether it is read or not.
func evictUnasked(e *env) {
	c := e.cache()
	n := 20_000
	items := make([]backend.Item, n)
	for i := range items {
		k := e.key("a", i)
		items[i] = backend.Item{Key: k, Value: payload(k, 1, 1+i%24)}
	}
	e.set(c, items)
	for range 3 {
		e.read(c, keysOf(items[:200])) // a favourite
	}
	e.stored(c, "S9", fmt.Sprintf("%d small entries, of which 200 are read often", n), items)
}

// capacity is how much the suite stores in a store of this capacity.
func (e *env) capacity() int { return int(min(e.s.Want.Capacity, 8<<20)) }

func evictSmallWithin(e *env) {
	c := e.cache()
	n := min(e.capacity()/(32+8), 40_000)
	items := make([]backend.Item, n)
	for i := range items {
		k := e.key("a", i)
		items[i] = backend.Item{Key: k, Value: payload(k, 1, 8)}
	}
	e.set(c, items)
	e.stored(c, "S9", fmt.Sprintf("%d entries of 8 bytes, %d bytes with their keys; Info.Capacity is %d", n, n*40, e.s.Want.Capacity), items)
}

// filling returns items of each bytes that fill a part of the capacity.
func (e *env) filling(name string, each int, version uint64, part float64) []backend.Item {
	each = e.sized(each)
	n := int(float64(e.capacity()) * part / float64(32+each))
	items := make([]backend.Item, n)
	for i := range items {
		k := e.key(name, i)
		items[i] = backend.Item{Key: k, Value: payload(k, version, each)}
	}
	return items
}

// inPieces stores items in batches that no limit refuses.
func (e *env) inPieces(c setter, items []backend.Item) {
	size := 16
	if limit := e.s.Want.MaxBatchBytes; limit > 0 && len(items) > 0 {
		size = max(1, min(size, limit/len(items[0].Value)))
	}
	for at := 0; at < len(items); at += size {
		e.set(c, items[at:min(at+size, len(items))])
	}
}

func evictLargeWithin(e *env) {
	c := e.cache()
	items := e.filling("a", min(6208, e.capacity()/8), 1, 1)
	e.inPieces(c, items)
	e.stored(c, "S9", fmt.Sprintf("%d entries as large as Info.Capacity (%d) allows", len(items), e.s.Want.Capacity), items)
}

// evictOverwritesWithin: what was overwritten takes no room.
func evictOverwritesWithin(e *env) {
	c := e.cache()
	each := min(6208, e.capacity()/16)
	var items []backend.Item
	for version := uint64(1); version <= 5; version++ {
		items = e.filling("a", each, version, 0.9)
		e.inPieces(c, items)
	}
	e.stored(c, "S9", fmt.Sprintf("%d entries within Info.Capacity (%d), written five times", len(items), e.s.Want.Capacity), items)
}

// evictBounded: a bound that holds nothing back is none.
func evictBounded(e *env) {
	if e.s.Want.Capacity > 8<<20 {
		e.Skipf("Info.Capacity is %d, and the suite fills up at most 8 MiB", e.s.Want.Capacity)
	}
	c := e.cache()
	var keys []backend.Key
	for part := range 4 {
		items := e.filling(fmt.Sprint("part", part), min(6208, e.capacity()/16), 1, 1)
		e.inPieces(c, items)
		keys = append(keys, keysOf(items)...)
	}
	held := int64(0)
	poll(leakPatience, func() bool { // what evicts may come after the write
		held = 0
		for _, value := range e.read(c, keys) {
			if value != nil {
				held += int64(len(backend.Key{}) + len(value))
			}
		}
		return held <= 2*e.s.Want.Capacity
	})
	e.check(held <= 2*e.s.Want.Capacity, "I1", fmt.Sprintf("entries of 4 times Info.Capacity (%d)", e.s.Want.Capacity),
		"at most twice the capacity held", fmt.Sprintf("%d bytes of keys and values", held))
}

// evictNeverStale: beyond the capacity an entry may be gone, but not come back
// with the value that it had before.
func evictNeverStale(e *env) {
	if e.s.Want.Capacity > 8<<20 {
		e.Skipf("Info.Capacity is %d, and the suite fills up at most 8 MiB", e.s.Want.Capacity)
	}
	c := e.cache()
	each := min(3000, e.capacity()/32)
	first := e.filling("a", each, 1, 0.6)
	other := e.filling("b", each, 1, 2.5)
	e.inPieces(c, first)
	e.inPieces(c, other[:len(other)/10])
	for range 3 {
		e.read(c, keysOf(first)) // popular ones
	}
	// Larger values over stored ones: the store gets full with them.
	second := make([]backend.Item, len(first))
	for i := range second {
		second[i] = backend.Item{Key: first[i].Key, Value: payload(first[i].Key, 2, e.sized(2*each))}
	}
	notStale := func(action string) {
		for i, value := range e.read(c, keysOf(second)) {
			e.check(value == nil || bytes.Equal(value, second[i].Value), "S2", action,
				"the last value or nothing", fmt.Sprintf("%d other bytes (the value before: %v)", len(value), bytes.Equal(value, first[i].Value)))
		}
	}
	e.inPieces(c, second)
	notStale("writes over stored entries that fill the store")
	e.inPieces(c, other)
	notStale("writes into a store that is full")
	e.inPieces(c, second)
	notStale("writes over entries, some of them evicted, of a store that is full")
	for i, value := range e.read(c, keysOf(other)) {
		e.check(value == nil || bytes.Equal(value, other[i].Value), "G4", "a store that is full", "the value or nothing", "other bytes")
	}
	e.within(e.runner.patience, "X3", "SetMany into a store that is full", func() { e.set(c, e.filling("c", each, 1, 0.2)) })
}

// evictBatchBeyond: a batch within the declared limits is taken, also where the
// store can't hold all of it.
func evictBatchBeyond(e *env) {
	if e.s.Want.Capacity > 8<<20 {
		e.Skipf("Info.Capacity is %d, and the suite fills up at most 8 MiB", e.s.Want.Capacity)
	}
	c := e.cache()
	items := e.filling("a", min(6208, e.capacity()/16), 1, 1.5)
	if n := e.atMost(len(items)); n < len(items) || e.s.Want.MaxBatchBytes > 0 && len(items)*len(items[0].Value) > e.s.Want.MaxBatchBytes {
		e.Skipf("a batch within Info's limits can't be larger than Info.Capacity")
	}
	err := c.SetMany(e.ctx, items)
	action := fmt.Sprintf("SetMany of %d bytes, within every limit that Info declares, where Info.Capacity is %d", len(items)*(32+len(items[0].Value)), e.s.Want.Capacity)
	e.check(err == nil, "S8", action, "nil", errText(err))
	for i, value := range e.read(c, keysOf(items)) {
		e.check(value == nil || bytes.Equal(value, items[i].Value), "G4", action, "each value or nothing", "other bytes")
	}
	e.usable(c, "X3", action)
}
