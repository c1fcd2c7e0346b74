package conformance

import (
	"errors"
	"fmt"

	"github.com/embedonce/embedonce/backend"
)

var sizeCases = []testcase{
	{name: "size/values", rules: "G4 S8", room: 16 << 20, fn: sizeValues},
	{name: "size/alone", rules: "G1 G4", room: 16 << 20, fn: sizeAlone},
	{name: "size/largest-value", rules: "S8", needs: []need{needMaxValue}, room: 1, fn: sizeLargestValue},
	{name: "size/largest-batch", rules: "S8", needs: []need{needMaxItems}, room: 1, fn: sizeLargestBatch},
	{name: "size/largest-bytes", rules: "S8", needs: []need{needMaxBytes}, room: 1, fn: sizeLargestBytes},
	{name: "size/ten-thousand-keys", rules: "G1 G2 S3", fn: sizeTenThousandKeys},
	{name: "size/one-batch-of-ten-thousand", rules: "S1 S8", fn: sizeBigBatch},
	{name: "size/many-sizes-in-one-call", rules: "G4", room: 16 << 20, fn: sizeManySizes},
}

// The lengths at which length fields, pages and buffers change.
func (e *env) sizes(limit int) []int {
	if most := e.s.Want.MaxValueBytes; most > 0 {
		limit = min(limit, most)
	}
	if most := e.s.Want.MaxBatchBytes; most > 0 {
		limit = min(limit, most)
	}
	var sizes []int
	for n := 1; n <= limit; n *= 2 {
		for _, size := range []int{n - 1, n, n + 1} {
			if size > 0 && size <= limit && (len(sizes) == 0 || size > sizes[len(sizes)-1]) {
				sizes = append(sizes, size)
			}
		}
	}
	// An embedding of 1,536 float32 with its header, a common one.
	if common := 64 + 4*1536; common <= limit {
		sizes = append(sizes, common)
	}
	return sizes
}

// sizeValues stores one value at a time.
func sizeValues(e *env) {
	c := e.cache()
	for _, size := range e.sizes(4 << 20) {
		k := e.key("value", size)
		item := []backend.Item{{Key: k, Value: payload(k, 1, size)}}
		action := fmt.Sprintf("SetMany of a value of %d bytes (Info.MaxValueBytes is %d)", size, e.s.Want.MaxValueBytes)
		err := c.SetMany(e.ctx, item)
		e.check(err == nil, "S8", action, "nil", errText(err))
		e.stored(c, "G4", action, item)
	}
}

// sizeAlone stores one value, larger and larger, in a store that has no other, of the
// sizes with which it may end where a page, and so a file, ends: whatever stands before
// it in the page.
func sizeAlone(e *env) {
	for before := 0; before <= 160; before += 8 {
		c := e.cache()
		k := e.key("alone", before)
		for pages := 1; pages <= 6; pages++ {
			size := e.sized(pages<<12 - before)
			item := []backend.Item{{Key: k, Value: payload(k, uint64(pages), size)}}
			action := fmt.Sprintf("SetMany of a value of %d bytes, the only one of the store", size)
			err := c.SetMany(e.ctx, item)
			e.check(err == nil, "S8", action, "nil", errText(err))
			e.stored(c, "G4", action, item)
		}
		e.close(c)
	}
}

// sizeManySizes reads small and large values in one call, in turn, so that a
// buffer that is used again shows.
func sizeManySizes(e *env) {
	c := e.cache()
	sizes := e.sizes(256 << 10)
	var items []backend.Item
	for i := range sizes {
		for _, size := range []int{sizes[len(sizes)-1-i], sizes[i]} {
			k := e.key("value", len(items))
			items = append(items, backend.Item{Key: k, Value: payload(k, 1, size)})
		}
	}
	for i := range items {
		err := c.SetMany(e.ctx, items[i:i+1])
		e.check(err == nil, "S8", "SetMany of one value", "nil", errText(err))
	}
	e.stored(c, "G4", "GetMany of values of 1 byte to 256 KiB in one call", items)
}

func sizeLargestValue(e *env) {
	limit := e.s.Want.MaxValueBytes
	if batch := e.s.Want.MaxBatchBytes; batch > 0 {
		limit = min(limit, batch)
	}
	if limit > 16<<20 {
		e.Skipf("Info.MaxValueBytes is %d, and the suite doesn't go over 16 MiB", limit)
	}
	e.limit(func(n int) []backend.Item {
		k := e.key("value", n)
		items := []backend.Item{{Key: k, Value: payload(k, 1, limit+n)}}
		if n > 0 && e.atMost(2) == 2 { // beside one that would be taken
			items = append([]backend.Item{{Key: e.key("small", n), Value: []byte{1}}}, items...)
		}
		return items
	}, fmt.Sprintf("MaxValueBytes = %d", limit))
}

func sizeLargestBatch(e *env) {
	limit := e.s.Want.MaxBatchItems
	if limit > 100_000 {
		e.Skipf("Info.MaxBatchItems is %d, and the suite doesn't go over 100,000", limit)
	}
	e.limit(func(n int) []backend.Item {
		items := make([]backend.Item, limit+n)
		for i := range items {
			items[i] = backend.Item{Key: e.key(fmt.Sprint("batch", n), i), Value: []byte{byte(i)}}
		}
		return items
	}, fmt.Sprintf("MaxBatchItems = %d", limit))
}

func sizeLargestBytes(e *env) {
	limit := e.s.Want.MaxBatchBytes
	if limit > 16<<20 {
		e.Skipf("Info.MaxBatchBytes is %d, and the suite doesn't go over 16 MiB", limit)
	}
	e.limit(func(n int) []backend.Item {
		each := e.sized(max(1, limit/4))
		if items := e.s.Want.MaxBatchItems; items > 0 && each*items < limit {
			e.Skipf("a batch of MaxBatchItems can't reach MaxBatchBytes")
		}
		var items []backend.Item
		for rest := limit + n; rest > 0; rest -= min(rest, each) {
			k := e.key(fmt.Sprint("bytes", n), len(items))
			items = append(items, backend.Item{Key: k, Value: payload(k, 1, min(rest, each))})
		}
		if most := e.s.Want.MaxBatchItems; most > 0 && len(items) > most {
			e.Skipf("a batch of MaxBatchItems can't go over MaxBatchBytes")
		}
		return items
	}, fmt.Sprintf("MaxBatchBytes = %d", limit))
}

// limit checks that a batch which is n over a declared limit is taken for n = 0
// and refused, whole, for n = 1.
func (e *env) limit(batch func(n int) []backend.Item, name string) {
	c := e.cache()
	at := batch(0)
	err := c.SetMany(e.ctx, at)
	e.check(err == nil, "S8", "SetMany at Info."+name, "nil", errText(err))
	e.stored(c, "S8", "SetMany at Info."+name, at)
	over := batch(1)
	err = c.SetMany(e.ctx, over)
	e.check(errors.Is(err, backend.ErrTooLarge), "S8", "SetMany of 1 more than Info."+name, "ErrTooLarge", errText(err))
	e.absent(c, "S8", "SetMany of 1 more than Info."+name, keysOf(over))
	e.stored(c, "S8", "SetMany of 1 more than Info."+name, at)
}

func sizeTenThousandKeys(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 10_000), 1)
	e.set(c, items)
	e.stored(c, "G1", "GetMany of 10,000 stored keys", items)
	e.absent(c, "G2", "GetMany of 10,000 missing keys", e.keys("never", 10_000))
	one := make([]backend.Key, 10_000)
	for i := range one {
		one[i] = items[77].Key
	}
	for i, value := range e.read(c, one) {
		e.check(string(value) == string(items[77].Value), "G1", "GetMany of one stored key 10,000 times", "the value for each index", fmt.Sprintf("%d other bytes for index %d", len(value), i))
	}
}

// sizeBigBatch: where Info declares no limit, none is met.
func sizeBigBatch(e *env) {
	c := e.cache()
	n := e.atMost(10_000)
	items := e.batch(e.keys("a", n), 1)
	err := c.SetMany(e.ctx, items)
	action := fmt.Sprintf("SetMany of %d items, within what Info allows", n)
	e.check(err == nil, "S8", action, "nil", errText(err))
	e.stored(c, "S3", action, items)
	items[n-1].Value = nil
	err = c.SetMany(e.ctx, e.changed(items))
	e.check(errors.Is(err, backend.ErrEmptyValue), "S7", action+", the last one empty", "ErrEmptyValue", errText(err))
	e.stored(c, "S1", action+", the last one empty: a refused call", items[:n-1])
}

// changed returns items with another value wherever there is one.
func (e *env) changed(items []backend.Item) []backend.Item {
	changed := make([]backend.Item, len(items))
	for i, item := range items {
		changed[i].Key = item.Key
		if len(item.Value) > 0 {
			changed[i].Value = payload(item.Key, 1<<32, len(item.Value))
		}
	}
	return changed
}
