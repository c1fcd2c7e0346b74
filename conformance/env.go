package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// env is what a case works with.
type env struct {
	*recorder
	runner *runner
	s      *Suite
	seed   uint64
	label  string
}

// broken fails the case, and ends the goroutine.
func (e *env) broken(rule, action, want, got string) {
	e.Fatalf("rule %s\naction:  %s\nwant:    %s\ngot:     %s\nseed:    %d", ruleText(rule), action, want, got, e.seed)
}

// check fails the case unless ok.
func (e *env) check(ok bool, rule, action, want, got string) {
	if !ok {
		e.broken(rule, action, want, got)
	}
}

func errText(err error) string {
	if err == nil {
		return "nil"
	}
	return fmt.Sprintf("error %q", err)
}

// attempt runs f in an environment of its own, which is cleaned up at the end of
// f, and says whether f skipped, with its messages. If f fails, so does the case,
// with the messages under the title.
func (e *env) attempt(title string, seed uint64, f func(e *env)) (skipped bool, messages []string) {
	rec := newRecorder(e.TB, e.Name())
	rec.onPanic = e.onPanic
	own := &env{recorder: rec, runner: e.runner, s: e.s, seed: seed, label: e.label}
	<-rec.run(func() {
		own.labelled(true)
		f(own)
	})
	failed, skipped, messages := rec.close()
	messages = append([]string{title}, messages...)
	if failed {
		e.add(messages)
		e.FailNow()
	}
	return skipped, messages
}

// plant puts a foreign entry under k.
func (e *env) plant(location string, k backend.Key, what Foreign) {
	e.labelled(false)
	defer e.labelled(true)
	e.s.Plant(e, location, k, what)
}

// fault makes the store misbehave until the returned function is called, at the
// latest until the case ends. A store that can't ends the case as skipped.
func (e *env) fault(location string, f Fault) (undo func()) {
	e.labelled(false)
	defer e.labelled(true)
	back := e.s.Fault(e, location, f)
	if back == nil {
		e.Skipf("Suite.Fault doesn't offer %v", f.Kind)
	}
	var once atomic.Bool
	undo = func() {
		if once.CompareAndSwap(false, true) {
			back()
		}
	}
	e.Cleanup(undo)
	return undo
}

// rand returns a generator that depends on the seed and the purpose alone.
func (e *env) rand(purpose string) *rand.Rand {
	sum := sha256.Sum256([]byte(purpose))
	return rand.New(rand.NewPCG(e.seed, binary.LittleEndian.Uint64(sum[:])))
}

// key returns the i-th key of the set called name.
func (e *env) key(name string, i int) backend.Key {
	return sha256.Sum256(fmt.Appendf(nil, "%d/%s/%d", e.seed, name, i))
}

func (e *env) keys(name string, n int) []backend.Key {
	keys := make([]backend.Key, n)
	for i := range keys {
		keys[i] = e.key(name, i)
	}
	return keys
}

// payload returns the value of size bytes that version puts under k: different
// for every key and, from 8 bytes on, for every version.
func payload(k backend.Key, version uint64, size int) []byte {
	value := make([]byte, (size+7)/8*8)
	x := version ^ binary.LittleEndian.Uint64(k[:])
	for at := 0; at < len(value); at += 8 { // splitmix64
		x += 0x9e3779b97f4a7c15
		z := x
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(value[at:], z^z>>31)
	}
	return value[:size]
}

// size is the usual size of the value under the i-th key: small, and not equal
// for neighbours.
func (e *env) size(i int) int {
	size := 64 + i%17
	if limit := e.s.Want.MaxValueBytes; limit > 0 {
		size = min(size, limit)
	}
	return size
}

// batch returns the items of a batch: version's values under keys.
func (e *env) batch(keys []backend.Key, version uint64) []backend.Item {
	items := make([]backend.Item, len(keys))
	for i, k := range keys {
		items[i] = backend.Item{Key: k, Value: payload(k, version, e.size(i))}
	}
	return items
}

// atMost is n, or as many usual items as fit in one batch of the store.
func (e *env) atMost(n int) int {
	if limit := e.s.Want.MaxBatchItems; limit > 0 {
		n = min(n, limit)
	}
	if limit := e.s.Want.MaxBatchBytes; limit > 0 {
		n = min(n, max(1, limit/e.size(16)))
	}
	return n
}

// over says whether a batch of so many items and bytes is over a limit.
func (e *env) over(items, bytes int) bool {
	want := e.s.Want
	return want.MaxBatchItems > 0 && items > want.MaxBatchItems || want.MaxBatchBytes > 0 && bytes > want.MaxBatchBytes
}

type getter interface {
	GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error
}

type setter interface {
	SetMany(ctx context.Context, items []backend.Item) error
}

// read returns a copy of the value of each key, nil where there is none.
func (e *env) read(c getter, keys []backend.Key) [][]byte {
	values, err := e.tryRead(e.ctx, c, keys)
	e.check(err == nil, "G2", fmt.Sprintf("GetMany of %d keys", len(keys)), "nil", errText(err))
	return values
}

// tryRead is read for a call that may fail. It checks what holds for every call.
func (e *env) tryRead(ctx context.Context, c getter, keys []backend.Key) ([][]byte, error) {
	action := fmt.Sprintf("GetMany of %d keys", len(keys))
	values := make([][]byte, len(keys))
	var inside atomic.Bool
	err := c.GetMany(ctx, keys, func(i int, value []byte) error {
		e.check(inside.CompareAndSwap(false, true), "G3", action, "one visit at a time", "visit called while another visit runs")
		defer inside.Store(false)
		e.check(i >= 0 && i < len(keys), "G1", action, "an index of keys", fmt.Sprintf("visit of index %d", i))
		e.check(values[i] == nil, "G1", action, "each index visited once", "an index is visited again after visit returned nil")
		values[i] = append([]byte{}, value...)
		return nil
	})
	return values, err
}

// set stores items, in as many calls as the store's limits ask for.
func (e *env) set(c setter, items []backend.Item) {
	for len(items) > 0 {
		n, bytes := 0, 0
		for n < len(items) && (n == 0 || !e.over(n+1, bytes+len(items[n].Value))) {
			bytes += len(items[n].Value)
			n++
		}
		part := items[:n]
		items = items[n:]
		err := c.SetMany(e.ctx, part)
		e.check(err == nil, "S3", fmt.Sprintf("SetMany of %d items", len(part)), "nil", errText(err))
	}
}

// contents says how many of items are stored as they are, and how many keys have
// what before says (nil: nothing). Anything else is a wrong value.
func (e *env) contents(c getter, action string, items, before []backend.Item) (now, old int) {
	keys := keysOf(items)
	for i, value := range e.read(c, keys) {
		switch {
		case value != nil && bytes.Equal(value, items[i].Value):
			now++
		case before == nil && value == nil, before != nil && bytes.Equal(value, before[i].Value):
			old++
		case value == nil:
			e.broken("S9", action, "the value that was stored before, or the new one", fmt.Sprintf("nothing under key %d of %d", i, len(items)))
		default:
			e.broken("G4", action, "a value that was stored under the key", fmt.Sprintf("%d other bytes under key %d of %d", len(value), i, len(items)))
		}
	}
	return now, old
}

// stored checks that all of items are stored, as rule asks for.
func (e *env) stored(c getter, rule, action string, items []backend.Item) {
	for i, value := range e.read(c, keysOf(items)) {
		switch {
		case value == nil:
			e.broken(rule, action, "every item stored", fmt.Sprintf("item %d of %d is missing", i, len(items)))
		case !bytes.Equal(value, items[i].Value):
			e.broken(rule, action, "every item stored as it was given",
				fmt.Sprintf("item %d of %d has other bytes (%d for %d)", i, len(items), len(value), len(items[i].Value)))
		}
	}
}

// absent checks that none of keys is stored, as rule asks for.
func (e *env) absent(c getter, rule, action string, keys []backend.Key) {
	for i, value := range e.read(c, keys) {
		e.check(value == nil, rule, action, "nothing stored, so no visit", fmt.Sprintf("a visit of key %d of %d, with %d bytes", i, len(keys), len(value)))
	}
}

// allOrNone checks that a batch which ended with err is stored whole or not at
// all, and whole if err is nil. A store that isn't atomic may have stored a part
// if it says which.
func (e *env) allOrNone(c getter, action string, items, before []backend.Item, err error) {
	now, _ := e.contents(c, action, items, before)
	switch {
	case now == len(items):
	case err == nil:
		e.broken("S3", action+", which returned nil", "every item stored", fmt.Sprintf("%d of %d items stored", now, len(items)))
	case now > 0 && e.s.Want.Atomic:
		e.broken("S1", action+", which returned "+errText(err), "all items stored or none", fmt.Sprintf("%d of %d items stored", now, len(items)))
	case now > 0:
		e.namesRest(c, action, items, err)
	}
}

// namesRest checks the error of a batch of which a part is stored.
func (e *env) namesRest(c getter, action string, items []backend.Item, err error) {
	var partial *backend.BatchError
	e.check(errors.As(err, &partial), "S1", action, "a *BatchError, as a part is stored", errText(err))
	e.check(partial.Err != nil, "S1", action, "a *BatchError with a cause", "Err is nil")
	missing := make(map[int]bool)
	last := -1
	for _, i := range partial.NotStored {
		e.check(i > last && i < len(items), "S1", action, "ascending indexes of items in NotStored", fmt.Sprint(partial.NotStored))
		missing[i], last = true, i
	}
	for i, value := range e.read(c, keysOf(items)) {
		e.check(missing[i] || bytes.Equal(value, items[i].Value), "S1", action,
			"every item stored that NotStored doesn't name", fmt.Sprintf("item %d is neither stored nor named", i))
	}
}

// background runs f on a goroutine of its own, and closes done when it has ended,
// however it does. A panic fails the case.
func (e *env) background(f func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer e.recover()
		f()
	}()
	return ended
}

// within runs f and fails the case if it takes longer than limit.
func (e *env) within(limit time.Duration, rule, action string, f func()) {
	done := e.background(f)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		e.broken(rule, action, "an end", fmt.Sprintf("no end within %v", limit))
	}
	if e.Failed() {
		e.FailNow() // f failed on its own goroutine
	}
}

// usable checks that c still stores and finds things.
func (e *env) usable(c backend.Cache, rule, after string) {
	items := e.batch(e.keys("usable after "+after, 3), 1)
	e.within(e.runner.patience, rule, "SetMany and GetMany after "+after, func() {
		err := c.SetMany(e.ctx, items)
		e.check(err == nil, rule, "SetMany after "+after, "nil", errText(err))
		e.stored(c, rule, "SetMany and GetMany after "+after, items)
	})
}

// How long a call may take that has nothing to wait for but the machine.
const callPatience = 20 * time.Second

// How long a wrong cache gets to show that it doesn't wait.
const grace = 30 * time.Millisecond

func keysOf(items []backend.Item) []backend.Key {
	keys := make([]backend.Key, len(items))
	for i := range items {
		keys[i] = items[i].Key
	}
	return keys
}

// parallel runs f on n goroutines and waits for them; a failure in one of them
// ends the case.
func (e *env) parallel(n int, f func(i int)) {
	all := make([]<-chan struct{}, n)
	for i := range n {
		all[i] = e.background(func() { f(i) })
	}
	for _, done := range all {
		<-done
	}
	if e.Failed() {
		e.FailNow()
	}
}

// timeout is a context with a deadline.
func (e *env) timeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.ctx, d)
}

// withDeadline calls a store that misbehaves with a deadline of 50 ms.
func (e *env) withDeadline(action string, call func(ctx context.Context) error) (err error) {
	// An error from before the deadline need not wrap its error, and on a busy
	// machine it may look as if it came later: but not three times in a row.
	for try := 1; ; try++ {
		late := false
		e.within(min(5*time.Second, e.runner.patience), "X2", action, func() {
			ctx, cancel := e.timeout(50 * time.Millisecond)
			defer cancel()
			err = call(ctx)
			late = ctx.Err() != nil
		})
		if err == nil || !late || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		e.check(try < 3, "X2", action, "nil or an error that wraps context.DeadlineExceeded", errText(err))
	}
}
