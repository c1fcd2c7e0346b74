package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/internal/record"
)

var foreignCases = []testcase{
	{name: "foreign/wrong-type", rules: "G5 G6 G7 S2", needs: []need{needPlant}, fn: func(e *env) { e.planted(WrongType) }},
	{name: "foreign/empty", rules: "G5 G6 G7 S2", needs: []need{needPlant}, fn: func(e *env) { e.planted(Empty) }},
	{name: "foreign/in-txn", rules: "T2 G5 S2", needs: []need{needPlant}, fn: foreignInTxn},
	{name: "foreign/wrong-type-to-client", rules: "G5 G6 S2", needs: []need{needPlant}, fn: func(e *env) { e.plantedForClient(WrongType) }},
	{name: "foreign/empty-to-client", rules: "G5 G6 S2", needs: []need{needPlant}, fn: func(e *env) { e.plantedForClient(Empty) }},
	{name: "foreign/random-bytes", rules: "G4 G6 S2", fn: foreignRandomBytes},
	{name: "foreign/other-text", rules: "G4 G6 S2", fn: foreignOtherText},
	{name: "foreign/other-scope", rules: "G4 G6 S2", fn: foreignOtherScope},
	{name: "foreign/other-dimensions", rules: "G4 G6 S2", fn: foreignOtherDimensions},
	{name: "foreign/not-finite", rules: "G4 G6 S2", fn: foreignNotFinite},
	{name: "foreign/flipped-header", rules: "G4 G6 S2", fn: foreignFlippedHeader},
	{name: "foreign/flipped-body", rules: "G4 G6 S2", fn: foreignFlippedBody},
	{name: "foreign/truncated", rules: "G4 G6 S2", fn: foreignTruncated},
	{name: "foreign/trailing", rules: "G4 G6 S2", fn: foreignTrailing},
	{name: "foreign/future", rules: "G4 G6 S9", fn: foreignFuture},
	{name: "foreign/many-in-one-call", rules: "G4 G6 S2", fn: foreignManyInOneCall},
}

// planted looks at a native foreign entry as the backend gives it.
func (e *env) planted(what Foreign) {
	location := e.location()
	c := e.open(location)
	items := e.batch(e.keys("a", 512), 1)
	e.set(c, items)
	keys := keysOf(items)
	bad := []int{0, 1, 255, 300, 511}
	for _, i := range bad {
		e.plant(location, keys[i], what)
	}
	fresh := e.key("fresh", 0) // where nothing was stored before
	e.plant(location, fresh, what)
	keys = append(keys, fresh)
	bad = append(bad, 512)
	action := fmt.Sprintf("GetMany of 512 stored keys, with an entry that is %v under 6 of them", what)
	for _, decline := range []bool{true, false} {
		visits := make([]int, len(keys))
		err := c.GetMany(e.ctx, keys, func(i int, value []byte) error {
			visits[i]++
			if !slices.Contains(bad, i) {
				e.check(bytes.Equal(value, items[i].Value), "G4", action, "the other values as they were stored", fmt.Sprintf("other bytes for index %d", i))
				return nil
			}
			if what == WrongType {
				e.check(value == nil, "G5", action, "a nil value for what can't be read as bytes", fmt.Sprintf("%d bytes", len(value)))
			} else {
				e.check(len(value) == 0, "G5", action, "an empty value, or nil", fmt.Sprintf("%d bytes", len(value)))
			}
			if decline {
				e.check(visits[i] <= 16, "G6", action, "an end of the values that are offered", "16 visits of a declined index")
				return backend.ErrForeign
			}
			return nil
		})
		e.check(err == nil, "G6", action, "nil", errText(err))
		for i, n := range visits {
			e.check(n > 0, "G5", action, "a visit for each", fmt.Sprintf("index %d is not visited", i))
			e.check(n == 1 || slices.Contains(bad, i), "G8", action, "one visit for each accepted index", fmt.Sprintf("%d visits of index %d", n, i))
		}
	}
	for _, at := range bad {
		stop, stopped, more := &visitError{at}, false, 0
		err := c.GetMany(e.ctx, keys, func(i int, _ []byte) error {
			if stopped {
				more++
			}
			if i == at {
				stopped = true
				return stop
			}
			return nil
		})
		e.check(errors.Is(err, stop), "G7", action+", and visit fails there", "an error that wraps that of visit", errText(err))
		e.check(more == 0, "G7", action+", and visit fails there", "no further visit", fmt.Sprintf("%d", more))
	}
	healed := e.batch(keys, 2)
	e.set(c, healed)
	e.stored(c, "S2", fmt.Sprintf("SetMany over entries that are %v", what), healed)
}

func foreignInTxn(e *env) {
	location := e.location()
	c := e.open(location)
	items := e.batch(e.keys("a", 20), 1)
	e.set(c, items)
	keys := keysOf(items)
	what := WrongType
	if skipped, _ := e.attempt("planting:", e.seed, func(e *env) { e.plant(location, keys[7], what) }); skipped {
		what = Empty
		e.plant(location, keys[7], what)
	}
	action := fmt.Sprintf("GetMany of a transaction, with an entry that is %v under one of 20 keys", what)
	err := c.Txn(e.ctx, func(tx backend.Txn) error {
		visited := 0
		err := tx.GetMany(e.ctx, keys, func(i int, value []byte) error {
			visited++
			if i == 7 {
				if what == WrongType {
					e.check(value == nil, "G5", action, "a nil value", fmt.Sprintf("%d bytes", len(value)))
				} else {
					e.check(len(value) == 0, "G5", action, "an empty value, or nil", fmt.Sprintf("%d bytes", len(value)))
				}
				return backend.ErrForeign
			}
			e.check(bytes.Equal(value, items[i].Value), "T2", action, "the other values as they were stored", fmt.Sprintf("other bytes for index %d", i))
			return nil
		})
		e.check(err == nil && visited >= 20, "G5", action, "nil, every key visited", fmt.Sprintf("%s, %d visits", errText(err), visited))
		e.set(tx, items[7:8])
		e.stored(tx, "T2", fmt.Sprintf("SetMany of a transaction over an entry that is %v", what), items)
		return nil
	})
	action = fmt.Sprintf("Txn that writes over an entry that is %v", what)
	e.check(err == nil, "T3", action, "nil", errText(err))
	e.stored(c, "S2", action, items)
}

func (e *env) plantedForClient(what Foreign) {
	k := e.newKnown()
	for _, at := range []int{0, 100, 511} {
		e.plant(k.location, k.items[at].Key, what)
		k.seeMiss(fmt.Sprintf("an entry that is %v", what), at, "unreadable")
	}
}

func foreignRandomBytes(e *env) {
	k := e.newKnown()
	random := e.rand("random bytes")
	for n, size := range []int{1, 2, 63, 64, 65, len(k.items[0].Value), 1000} {
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(random.Uint32())
		}
		reason := "magic"
		if size < record.HeaderSize {
			reason = "unreadable"
		}
		k.replace(fmt.Sprintf("%d random bytes", size), 70*n, value, reason)
	}
}

func foreignOtherText(e *env) {
	k := e.newKnown()
	for _, at := range []int{0, 17, 511} {
		k.replace("the record of another text", at, k.items[(at+1)%len(k.items)].Value, "digest")
	}
}

func foreignOtherScope(e *env) {
	k := e.newKnown()
	others := e.records(k.texts, wordProvider{model: "another", dimensions: k.provider.dimensions})
	for _, at := range []int{0, 17, 511} {
		k.replace("the record of the same text by another model", at, others[at].Value, "scope")
	}
}

func foreignOtherDimensions(e *env) {
	k := e.newKnown()
	for n, dimensions := range []int{1, k.provider.dimensions - 1, k.provider.dimensions + 1, 2 * k.provider.dimensions} {
		others := e.records(k.texts[:40], wordProvider{model: k.provider.model, dimensions: dimensions})
		k.replace(fmt.Sprintf("a record of %d dimensions", dimensions), 9*n, others[9*n].Value, "dimensions")
	}
}

// sealed returns a copy of the record of text at, changed and with a right
// checksum.
func (k *known) sealed(at int, change func(rec []byte)) []byte {
	rec := bytes.Clone(k.items[at].Value)
	change(rec)
	record.Seal(rec)
	return rec
}

func foreignNotFinite(e *env) {
	k := e.newKnown()
	for n, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		for _, place := range []int{0, k.provider.dimensions / 2, k.provider.dimensions - 1} {
			at := 100*n + place
			value := k.sealed(at, func(rec []byte) {
				binary.LittleEndian.PutUint32(rec[record.HeaderSize+4*place:], math.Float32bits(bad))
			})
			k.replace(fmt.Sprintf("a record with %v at place %d and a right checksum", bad, place), at, value, "not finite")
		}
	}
}

// reasonOfFlip is what the order of the checks gives for a flipped bit of the
// header (docs/design.md, "The record").
func reasonOfFlip(offset int) string {
	switch {
	case offset < 4:
		return "magic"
	case offset == 4:
		return "version"
	case offset == 5:
		return "element"
	case offset >= 8 && offset < 12:
		return "dimensions"
	}
	return "checksum"
}

func foreignFlippedHeader(e *env) {
	k := e.newKnown()
	var bad []badEntry
	random := e.rand("header bits")
	for offset := range record.HeaderSize {
		at := 8 * offset
		bit := random.IntN(8)
		value := bytes.Clone(k.items[at].Value)
		value[offset] ^= 1 << bit
		bad = append(bad, badEntry{fmt.Sprintf("a record with bit %d of byte %d of its header flipped", bit, offset), at, value, reasonOfFlip(offset)})
	}
	k.replaceEach(bad)
}

func foreignFlippedBody(e *env) {
	k := e.newKnown()
	var bad []badEntry
	random := e.rand("body bits")
	for n := range 64 {
		at := 8*n + 1
		value := bytes.Clone(k.items[at].Value)
		offset, bit := record.HeaderSize+random.IntN(len(value)-record.HeaderSize), random.IntN(8)
		value[offset] ^= 1 << bit
		bad = append(bad, badEntry{fmt.Sprintf("a record with bit %d of byte %d flipped", bit, offset), at, value, "checksum"})
	}
	k.replaceEach(bad)
}

func foreignTruncated(e *env) {
	k := e.newKnown()
	var bad []badEntry
	for length := 1; length <= 80; length++ { // no bytes at all is Plant's Empty
		at := 6 * length
		reason := "length"
		if length < record.HeaderSize {
			reason = "unreadable"
		}
		bad = append(bad, badEntry{fmt.Sprintf("a record cut to %d bytes", length), at, k.items[at].Value[:length], reason})
	}
	k.replaceEach(bad)
}

func foreignTrailing(e *env) {
	k := e.newKnown()
	for n, extra := range []int{1, 3, 4, 64, 1000} {
		at := 30 * n
		value := append(bytes.Clone(k.items[at].Value), make([]byte, extra)...)
		k.replace(fmt.Sprintf("a record with %d bytes behind it", extra), at, value, "length")
	}
}

// foreignFuture: a record of a later version is a miss, and stays.
func foreignFuture(e *env) {
	k := e.newKnown()
	for n, version := range []byte{record.Version + 1, 99, 255} {
		at := 200 * n
		value := k.sealed(at, func(rec []byte) { rec[4] = version })
		k.put([]backend.Item{{Key: k.items[at].Key, Value: value}})
		for range 2 {
			k.embed(fmt.Sprintf("a record of version %d", version), map[int]string{at: "future"})
			e.stored(k.cache, "S9", "Embed of a text whose record is of a later version", []backend.Item{{Key: k.items[at].Key, Value: value}})
		}
		e.set(k.cache, k.items[at:at+1])
	}
}

// foreignManyInOneCall has one of each kind in one call.
func foreignManyInOneCall(e *env) {
	k := e.newKnown()
	want := make(map[int]string)
	var bad []backend.Item
	put := func(at int, value []byte, reason string) {
		bad = append(bad, backend.Item{Key: k.items[at].Key, Value: value})
		want[at] = reason
	}
	for offset := range record.HeaderSize {
		at := 4 * offset
		value := bytes.Clone(k.items[at].Value)
		value[offset] ^= 0x10
		put(at, value, reasonOfFlip(offset))
	}
	put(301, k.items[300].Value[:63], "unreadable")
	put(302, k.items[302].Value[:70], "length")
	put(303, k.items[304].Value, "digest")
	put(305, k.sealed(305, func(rec []byte) { rec[record.HeaderSize+3] = 0x7f; rec[record.HeaderSize+2] |= 0x80 }), "not finite")
	put(306, []byte{0}, "unreadable")
	k.put(bad)
	k.embed("69 foreign entries", want)
	k.embed("no foreign entry any more", nil)
}
