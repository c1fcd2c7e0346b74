package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/embedonce/embedonce/backend"
)

var readCases = []testcase{
	{name: "read/round-trip", rules: "G1 G4 S3", fn: readRoundTrip},
	{name: "read/missing", rules: "G2", fn: readMissing},
	{name: "read/near-keys", rules: "G2 G4", fn: readNearKeys},
	{name: "read/odd-bytes", rules: "G4", fn: readOddBytes},
	{name: "read/no-keys", rules: "G2", fn: readNoKeys},
	{name: "read/equal-keys", rules: "G1", fn: readEqualKeys},
	{name: "read/callers-goroutine", rules: "G3", fn: readCallersGoroutine},
	{name: "read/declined", rules: "G6 G8", fn: readDeclined},
	{name: "read/visit-error", rules: "G7 G8", fn: readVisitError},
	{name: "read/visit-error-of-context", rules: "G7", fn: readVisitErrorOfContext},
	{name: "read/after-visit-error", rules: "G7 X3", fn: readAfterVisitError},
	{name: "read/keys-unchanged", rules: "G9", fn: readKeysUnchanged},
	{name: "read/keys-reused", rules: "G9", fn: readKeysReused},
}

func readRoundTrip(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 512), 1)
	e.set(c, items)
	visits := make([]int, len(items))
	err := c.GetMany(e.ctx, keysOf(items), func(i int, value []byte) error {
		visits[i]++
		e.check(bytes.Equal(value, items[i].Value), "G4", "GetMany of 512 stored keys", "the value stored under each key",
			fmt.Sprintf("%d other bytes for item %d", len(value), i))
		return nil
	})
	e.check(err == nil, "G1", "GetMany of 512 stored keys", "nil", errText(err))
	for i, n := range visits {
		e.check(n == 1, "G1", "GetMany of 512 stored keys", "one visit for each", fmt.Sprintf("%d visits of index %d", n, i))
	}
}

func readMissing(e *env) {
	c := e.cache()
	e.absent(c, "G2", "GetMany from a fresh store", e.keys("never", 100))
	items := e.batch(e.keys("a", 100), 1)
	e.set(c, items)
	var mixed []backend.Key
	for i, item := range items {
		mixed = append(mixed, e.key("never", i), item.Key, e.key("never", i+100))
	}
	for i, value := range e.read(c, mixed) {
		switch stored := i%3 == 1; {
		case stored && value == nil:
			e.broken("G1", "GetMany of stored keys among missing ones", "every stored key visited", fmt.Sprintf("index %d is not", i))
		case !stored && value != nil:
			e.broken("G2", "GetMany of missing keys among stored ones", "no missing key visited", fmt.Sprintf("index %d is", i))
		case stored && !bytes.Equal(value, items[i/3].Value):
			e.broken("G4", "GetMany of stored keys among missing ones", "the value of each key", fmt.Sprintf("other bytes for index %d", i))
		}
	}
}

// readNearKeys: keys that differ in one bit, or have only zeros or ones, are
// different keys.
func readNearKeys(e *env) {
	c := e.cache()
	base := e.key("base", 0)
	e.set(c, e.batch([]backend.Key{base}, 1))
	var near []backend.Key
	for bit := range len(base) * 8 {
		k := base
		k[bit/8] ^= 1 << (bit % 8)
		near = append(near, k)
	}
	e.absent(c, "G2", "GetMany of 256 keys that differ from a stored one in one bit", near)
	var ones backend.Key
	for i := range ones {
		ones[i] = 0xff
	}
	late, early := backend.Key{31: 1}, backend.Key{0: 1}
	items := e.batch(append(near, base, backend.Key{}, ones, late, early), 2)
	e.set(c, items)
	e.stored(c, "G4", "SetMany of keys that differ in one bit", items)
}

// readOddBytes stores what encodings, quoting and text columns change.
func readOddBytes(e *env) {
	values := [][]byte{
		{0}, {0, 0, 0, 0}, []byte("a\x00b"), []byte("ends in zeros\x00\x00"), []byte("\x00\x00begins with zeros"),
		{0xff}, {0xff, 0xfe}, {0xc3, 0x28}, []byte("\xed\xa0\x80"), []byte("\xef\xbb\xbfmark"),
		[]byte("0"), []byte("1"), []byte("-1"), []byte("9007199254740993"), []byte("1e5"), []byte("nil"), []byte("NULL"), []byte("null"),
		[]byte("'"), []byte("''"), []byte(`"`), []byte(`\`), []byte(`\x00`), []byte("%s%d%%"), []byte("; DROP TABLE entries"),
		[]byte("\n"), []byte("\r\n"), []byte("a\r\nb\rc\n"), []byte(" "), []byte("  both ends  "), []byte("\t"),
		[]byte("e\u0301"), []byte("\u00e9"), []byte("\u2028"),
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	values = append(values, every, bytes.Repeat([]byte{0}, 300))
	c := e.cache()
	var items []backend.Item
	for i, value := range values {
		if limit := e.s.Want.MaxValueBytes; limit == 0 || len(value) <= limit {
			items = append(items, backend.Item{Key: e.key("odd", i), Value: value})
		}
	}
	e.set(c, items)
	e.stored(c, "G4", "SetMany of values with zeros, invalid UTF-8, quotes, numbers and line ends", items)
}

func readNoKeys(e *env) {
	c := e.cache()
	e.set(c, e.batch(e.keys("a", 3), 1))
	for _, keys := range [][]backend.Key{nil, {}} {
		visits := 0
		err := c.GetMany(e.ctx, keys, func(int, []byte) error { visits++; return nil })
		e.check(err == nil, "G2", "GetMany without keys", "nil", errText(err))
		e.check(visits == 0, "G2", "GetMany without keys", "no visit", fmt.Sprintf("%d visits", visits))
	}
}

func readEqualKeys(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 7), 1)
	e.set(c, items)
	var keys []backend.Key
	for i := range 300 {
		keys = append(keys, items[i*i%7].Key)
		if i%10 == 0 {
			keys = append(keys, e.key("never", 0))
		}
	}
	byKey := make(map[backend.Key][]byte)
	for _, item := range items {
		byKey[item.Key] = item.Value
	}
	for i, value := range e.read(c, keys) {
		e.check(bytes.Equal(value, byKey[keys[i]]), "G1", "GetMany of keys that repeat", "the key's value for each index, nothing for a missing key",
			fmt.Sprintf("%d other bytes for index %d (nothing: %v)", len(value), i, value == nil))
	}
}

func readCallersGoroutine(e *env) {
	c := e.cache()
	keys := e.keys("a", 2000)
	e.set(c, e.batch(keys, 1))
	own := goroutineID()
	for _, n := range []int{1, 2, 16, 512, len(keys)} {
		err := c.GetMany(e.ctx, keys[:n], func(int, []byte) error {
			e.check(goroutineID() == own, "G3", fmt.Sprintf("GetMany of %d keys", n), "visit on the caller's goroutine", "visit on another one")
			return nil
		})
		e.check(err == nil, "G2", fmt.Sprintf("GetMany of %d keys", n), "nil", errText(err))
	}
}

// readDeclined: a value that visit declines is as good as missing, and takes
// nothing else with it.
func readDeclined(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 512), 1)
	e.set(c, items)
	keys := keysOf(items)
	for _, declined := range [][]int{{0}, {511}, {255, 256, 257}, {3, 4, 5, 6, 100, 400}} {
		for _, refusal := range []error{backend.ErrForeign, fmt.Errorf("not mine: %w", backend.ErrForeign)} {
			action := fmt.Sprintf("GetMany of 512 stored keys, of which visit declines %v", declined)
			visits := make([]int, len(keys))
			err := c.GetMany(e.ctx, keys, func(i int, value []byte) error {
				visits[i]++
				e.check(bytes.Equal(value, items[i].Value), "G4", action, "the value of each key", fmt.Sprintf("other bytes for index %d", i))
				if slices.Contains(declined, i) {
					// A backend of several layers may offer each layer's value.
					e.check(visits[i] <= 16, "G6", action, "an end of the values that are offered", "16 visits of a declined index")
					return refusal
				}
				return nil
			})
			e.check(err == nil, "G6", action, "nil", errText(err))
			for i, n := range visits {
				e.check(n > 0, "G6", action, "GetMany goes on", fmt.Sprintf("index %d is not visited", i))
				e.check(n == 1 || slices.Contains(declined, i), "G8", action, "each accepted index visited once", fmt.Sprintf("%d visits of index %d", n, i))
			}
		}
	}
	everything := 0
	err := c.GetMany(e.ctx, keys, func(int, []byte) error { everything++; return backend.ErrForeign })
	e.check(err == nil && everything >= len(keys), "G6", "GetMany of 512 stored keys, all declined", "nil after 512 visits",
		fmt.Sprintf("%s after %d visits", errText(err), everything))
	e.stored(c, "G6", "GetMany of 512 stored keys, all declined", items)
}

// visitError is an error that only errors.As finds with its fields.
type visitError struct{ at int }

func (v *visitError) Error() string { return fmt.Sprintf("stop at visit %d", v.at) }

func readVisitError(e *env) {
	c := e.cache()
	items := e.batch(e.keys("a", 512), 1)
	e.set(c, items)
	keys := keysOf(items)
	for _, stop := range []int{1, 2, 100, 256, 511, 512} {
		action := fmt.Sprintf("GetMany of 512 stored keys, where visit %d returns an error", stop)
		visits := 0
		err := c.GetMany(e.ctx, keys, func(int, []byte) error {
			visits++
			if visits >= stop {
				return fmt.Errorf("visit: %w", &visitError{visits})
			}
			return nil
		})
		e.check(err != nil, "G7", action, "an error that wraps visit's", "nil")
		var own *visitError
		e.check(errors.As(err, &own), "G7", action, "an error that wraps visit's", errText(err))
		e.check(visits == stop && own.at == stop, "G7", action, "no further visit", fmt.Sprintf("%d visits, the error of visit %d", visits, own.at))
	}
}

// readVisitErrorOfContext: visit may return the error of another context, which
// says nothing of the call's own.
func readVisitErrorOfContext(e *env) {
	c := e.cache()
	keys := e.keys("a", 64)
	e.set(c, e.batch(keys, 1))
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded, backend.ErrUnavailable, backend.ErrClosed} {
		visits := 0
		err := c.GetMany(e.ctx, keys, func(int, []byte) error { visits++; return cause })
		action := fmt.Sprintf("GetMany where visit returns %q", cause)
		e.check(errors.Is(err, cause), "G7", action, "an error that wraps it", errText(err))
		e.check(visits == 1, "G7", action, "no further visit", fmt.Sprintf("%d visits", visits))
	}
}

// readAfterVisitError: a call that visit stopped leaves no lock, transaction or
// connection behind.
func readAfterVisitError(e *env) {
	c := e.cache()
	keys := e.keys("a", 64)
	e.set(c, e.batch(keys, 1))
	stop := errors.New("stop")
	for range 100 {
		err := c.GetMany(e.ctx, keys, func(i int, _ []byte) error {
			if i%2 == 0 {
				return backend.ErrForeign
			}
			return stop
		})
		e.check(errors.Is(err, stop), "G7", "GetMany where visit returns an error", "an error that wraps it", errText(err))
	}
	e.usable(c, "X3", "100 calls that visit stopped")
}

func readKeysUnchanged(e *env) {
	c := e.cache()
	keys := e.keys("a", 300)
	e.set(c, e.batch(keys[:200], 1))
	slices.SortFunc(keys, func(a, b backend.Key) int { return bytes.Compare(b[:], a[:]) }) // an order that sorting would change
	backing := append(slices.Clone(keys), e.key("beyond", 0))
	given := backing[:len(keys)]
	e.read(c, given)
	e.check(slices.Equal(given, keys), "G9", "GetMany of 300 keys in descending order", "the caller's keys as they were", "other keys")
	e.check(backing[len(keys)] == e.key("beyond", 0), "G9", "GetMany of a slice with room behind its end", "the room untouched", "a changed key")
}

// readKeysReused: the caller may write over its keys once GetMany has returned.
func readKeysReused(e *env) {
	c := e.cache()
	first, second := e.batch(e.keys("a", 50), 1), e.batch(e.keys("b", 50), 2)
	e.set(c, first)
	e.set(c, second)
	keys := keysOf(first)
	for round := range 4 {
		want := first
		if round%2 == 1 {
			want = second
		}
		copy(keys, keysOf(want))
		for i, value := range e.read(c, keys) {
			e.check(bytes.Equal(value, want[i].Value), "G9", "GetMany with a slice of keys that the caller filled anew",
				"the values of the keys as they are now", fmt.Sprintf("other bytes for index %d", i))
		}
	}
}
