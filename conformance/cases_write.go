package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/embedonce/embedonce/backend"
)

var writeCases = []testcase{
	{name: "write/overwrite", rules: "S2", fn: writeOverwrite},
	{name: "write/last-wins", rules: "S2", fn: writeLastWins},
	{name: "write/neighbours", rules: "S2 S9", fn: writeNeighbours},
	{name: "write/no-items", rules: "S6", fn: writeNoItems},
	{name: "write/no-items-under-faults", rules: "S6", needs: []need{needFault}, fn: writeNoItemsUnderFaults},
	{name: "write/empty-value", rules: "S7", fn: writeEmptyValue},
	{name: "write/items-unchanged", rules: "S5", fn: writeItemsUnchanged},
	{name: "write/items-reused", rules: "S5", fn: writeItemsReused},
	{name: "write/shared-memory", rules: "S5 G4", fn: writeSharedMemory},
	{name: "write/again", rules: "S4", fn: writeAgain},
	{name: "write/random-sequence", rules: "G1 G4 S2 S3 S9 T2 T3 T4", fn: writeRandomSequence},
}

func writeOverwrite(e *env) {
	c := e.cache()
	keys := e.keys("a", 100)
	e.set(c, e.batch(keys, 1))
	for version, size := range []int{80, 20, 90, 1, 80, 80} { // longer, shorter and equal
		var items []backend.Item
		for _, k := range keys {
			items = append(items, backend.Item{Key: k, Value: payload(k, uint64(version+2), e.sized(size))})
		}
		e.set(c, items)
		e.stored(c, "S2", fmt.Sprintf("SetMany of %d-byte values over others", size), items)
	}
}

// sized is size, or what a value may have at most.
func (e *env) sized(size int) int {
	if limit := e.s.Want.MaxValueBytes; limit > 0 {
		size = min(size, limit)
	}
	return size
}

func writeLastWins(e *env) {
	c := e.cache()
	for _, fresh := range []bool{true, false} { // into an empty store, then over what is there
		n := e.atMost(400)
		items := make([]backend.Item, n)
		last := make(map[backend.Key][]byte)
		for i := range items {
			k := e.key("a", i*i%23)
			items[i] = backend.Item{Key: k, Value: payload(k, uint64(i+1), e.size(i))}
			last[k] = items[i].Value
		}
		err := c.SetMany(e.ctx, items)
		action := fmt.Sprintf("SetMany of %d items with equal keys (fresh store: %v)", n, fresh)
		e.check(err == nil, "S2", action, "nil", errText(err))
		keys := keysOf(items)
		for i, value := range e.read(c, keys) {
			e.check(bytes.Equal(value, last[keys[i]]), "S2", action, "the last value of each key", fmt.Sprintf("other bytes for index %d", i))
		}
	}
}

// writeNeighbours: what isn't written stays as it is.
func writeNeighbours(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 512), 1)
	e.set(c, items)
	for _, at := range []int{0, 1, 255, 256, 510, 511} {
		items[at].Value = payload(items[at].Key, uint64(at+2), e.size(at))
		e.set(c, items[at:at+1])
		e.stored(c, "S9", fmt.Sprintf("SetMany of item %d of 512 stored ones", at), items)
	}
}

func writeNoItems(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 10), 1)
	e.set(c, items)
	for _, none := range [][]backend.Item{nil, {}, items[:0]} {
		err := c.SetMany(e.ctx, none)
		e.check(err == nil, "S6", "SetMany without items", "nil", errText(err))
	}
	e.stored(c, "S6", "SetMany without items", items)
}

// writeNoItemsUnderFaults: where there is nothing to store, nothing can fail.
func writeNoItemsUnderFaults(e *env) {
	e.eachFault(func(e *env, kind FaultKind) {
		location := e.location()
		c := e.open(location)
		items := e.batch(e.keys("a", 10), 1)
		e.set(c, items)
		undo := e.fault(location, Fault{Kind: kind})
		action := fmt.Sprintf("SetMany without items while the store is %v", kind)
		var err error
		e.within(e.runner.patience, "X3", action, func() { err = c.SetMany(e.ctx, nil) })
		e.check(err == nil, "S6", action, "nil", errText(err))
		undo()
		e.settle(c)
		e.stored(c, "S6", action, items)
	}, Cut, Locked, Full)
}

func writeEmptyValue(e *env) {
	c := e.cache()
	n := e.atMost(64)
	before := e.batch(e.keys("a", n/2), 1)
	e.set(c, before)
	for _, empty := range [][]byte{nil, {}} {
		for _, at := range []int{0, n / 2, n - 1} {
			items := e.batch(e.keys("a", n), 2)
			items[at].Value = empty
			err := c.SetMany(e.ctx, items)
			action := fmt.Sprintf("SetMany of %d items, of which item %d has no bytes (nil: %v)", n, at, empty == nil)
			e.check(errors.Is(err, backend.ErrEmptyValue), "S7", action, "ErrEmptyValue", errText(err))
			e.stored(c, "S7", action, before)
			e.absent(c, "S7", action, keysOf(items)[n/2:])
		}
	}
}

func cloneItems(items []backend.Item) []backend.Item {
	clone := slices.Clone(items)
	for i := range clone {
		clone[i].Value = bytes.Clone(clone[i].Value)
	}
	return clone
}

func equalItems(a, b []backend.Item) bool {
	return slices.EqualFunc(a, b, func(x, y backend.Item) bool { return x.Key == y.Key && bytes.Equal(x.Value, y.Value) })
}

func writeItemsUnchanged(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", e.atMost(200)), 1)
	items = append(items[:len(items)-1], items[0]) // with an equal key
	slices.SortStableFunc(items, func(a, b backend.Item) int { return bytes.Compare(b.Key[:], a.Key[:]) })
	backing := append(cloneItems(items), backend.Item{Key: e.key("beyond", 0)})
	given := backing[:len(items)]
	err := c.SetMany(e.ctx, given)
	e.check(err == nil, "S3", "SetMany", "nil", errText(err))
	e.check(equalItems(given, items), "S5", "SetMany of items in descending order of keys", "the caller's items as they were", "other keys or values")
	e.check(backing[len(items)].Key == e.key("beyond", 0), "S5", "SetMany of a slice with room behind its end", "the room untouched", "a changed item")
}

// writeItemsReused: the caller may write over keys and values once SetMany has
// returned, also while the store still has work with them.
func writeItemsReused(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", e.atMost(200)), 1)
	given := cloneItems(items)
	err := c.SetMany(e.ctx, given)
	e.check(err == nil, "S3", "SetMany", "nil", errText(err))
	for i := range given {
		given[i].Key = e.key("other", i)
		for at := range given[i].Value {
			given[i].Value[at] ^= 0xff
		}
	}
	e.stored(c, "S5", "SetMany, after which the caller writes over its items", items)
	e.absent(c, "S5", "SetMany, after which the caller writes over its items", keysOf(given))
}

// writeSharedMemory: values may be parts of one slice, and overlap.
func writeSharedMemory(e *env) {
	c := e.cache()
	block := payload(e.key("block", 0), 1, 256)
	n := e.atMost(100)
	items := make([]backend.Item, n)
	for i := range items {
		items[i] = backend.Item{Key: e.key("a", i), Value: block[i : i+e.sized(50+i%50)]}
	}
	items[n-1].Value = items[0].Value
	want := cloneItems(items)
	err := c.SetMany(e.ctx, items)
	e.check(err == nil, "S3", "SetMany of values that overlap in memory", "nil", errText(err))
	clear(block)
	e.stored(c, "S5", "SetMany of values that overlap in memory, which the caller then clears", want)
}

func writeAgain(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", e.atMost(512)), 1)
	for range 3 {
		err := c.SetMany(e.ctx, items)
		e.check(err == nil, "S4", "SetMany of the same items once more", "nil", errText(err))
		e.stored(c, "S4", "SetMany of the same items once more", items)
	}
}

// writeRandomSequence compares a few hundred mixed operations, always the same
// ones, with what a map says.
func writeRandomSequence(e *env) {
	c := e.cache()
	random := e.rand("sequence")
	truth := make(map[backend.Key][]byte)
	some := func(limit int) []backend.Item {
		items := make([]backend.Item, 1+random.IntN(limit))
		for i := range items {
			k := e.key("a", random.IntN(200))
			items[i] = backend.Item{Key: k, Value: payload(k, random.Uint64(), e.sized(1+random.IntN(120)))}
		}
		return items
	}
	merge := func(items []backend.Item) {
		for _, item := range items {
			truth[item.Key] = item.Value
		}
	}
	compare := func(g getter, step int, action string, rule string) {
		keys := make([]backend.Key, 1+random.IntN(60))
		for i := range keys {
			keys[i] = e.key("a", random.IntN(220))
		}
		for i, value := range e.read(g, keys) {
			e.check(bytes.Equal(value, truth[keys[i]]), rule, fmt.Sprintf("step %d of a sequence, %s", step, action),
				"what a map holds", fmt.Sprintf("%d bytes where the map has %d", len(value), len(truth[keys[i]])))
		}
	}
	limit := e.atMost(40)
	for step := range 240 {
		switch random.IntN(6) {
		case 0, 1:
			items := some(limit)
			e.set(c, items)
			merge(items)
			compare(c, step, "SetMany", "S2")
		case 2:
			undone := fmt.Errorf("undone")
			before := make(map[backend.Key][]byte)
			for k, v := range truth {
				before[k] = v
			}
			err := c.Txn(e.ctx, func(tx backend.Txn) error {
				items := some(limit)
				e.set(tx, items)
				merge(items)
				compare(tx, step, "GetMany of a transaction", "T2")
				return undone
			})
			e.check(errors.Is(err, undone), "T4", "Txn whose function fails", "an error that wraps it", errText(err))
			truth = before
			compare(c, step, "Txn that failed", "T4")
		case 3:
			err := c.Txn(e.ctx, func(tx backend.Txn) error {
				for range 1 + random.IntN(3) {
					items := some(max(1, limit/4))
					e.set(tx, items)
					merge(items)
					compare(tx, step, "GetMany of a transaction", "T2")
				}
				return nil
			})
			e.check(err == nil, "T3", "Txn", "nil", errText(err))
			compare(c, step, "Txn", "T3")
		default:
			compare(c, step, "GetMany", "G4")
		}
	}
}
