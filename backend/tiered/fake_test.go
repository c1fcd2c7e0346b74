package tiered_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/tiered"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a layer that tests look into and that does what they say.
type fake struct {
	mu      sync.Mutex
	entries map[backend.Key][]byte
	info    backend.Info
	closes  int
	gets    int // keys asked for
	// before and after a call, without the lock: an error is the call's.
	before, after func(op string) error
}

func newFake() *fake {
	return &fake{entries: make(map[backend.Key][]byte), info: backend.Info{Atomic: true, SnapshotReads: true}}
}

func (f *fake) on(when *func(op string) error, do func(op string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*when = do
}

func (f *fake) run(ctx context.Context, when *func(op string) error, op string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	do := *when
	f.mu.Unlock()
	if do == nil {
		return nil
	}
	return do(op)
}

func (f *fake) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	if err := f.run(ctx, &f.before, "get"); err != nil {
		return err
	}
	f.mu.Lock()
	f.gets += len(keys)
	values := make([][]byte, len(keys))
	stored := make([]bool, len(keys))
	for i, k := range keys {
		values[i], stored[i] = f.entries[k]
	}
	f.mu.Unlock()
	for i, value := range values {
		if !stored[i] {
			continue
		}
		if err := visit(i, value); err != nil && !errors.Is(err, backend.ErrForeign) {
			return fmt.Errorf("fake: %w", err)
		}
	}
	return f.run(ctx, &f.after, "get")
}

func (f *fake) SetMany(ctx context.Context, items []backend.Item) error {
	if err := f.run(ctx, &f.before, "set"); err != nil {
		return err
	}
	if err := f.info.Check(items); err != nil {
		return err
	}
	f.mu.Lock()
	for _, item := range items {
		f.entries[item.Key] = bytes.Clone(item.Value)
	}
	f.mu.Unlock()
	return f.run(ctx, &f.after, "set")
}

func (f *fake) Delete(ctx context.Context, keys []backend.Key, match func(int, []byte) bool) (int, error) {
	if len(keys) > 0 {
		if err := f.run(ctx, &f.before, "delete"); err != nil {
			return 0, err
		}
	}
	f.mu.Lock()
	removed := 0
	for i, k := range keys {
		value, ok := f.entries[k]
		if ok && (match == nil || match(i, value)) {
			delete(f.entries, k)
			removed++
		}
	}
	f.mu.Unlock()
	return removed, f.run(ctx, &f.after, "delete")
}

func (f *fake) Scan(_ context.Context, from backend.Position, _ int, visit func(backend.Entry) error) (backend.Position, error) {
	for k, value := range f.all() {
		if err := visit(backend.Entry{Key: k, Value: value, Size: len(value)}); err != nil {
			return from, err
		}
	}
	return "", nil
}

func (f *fake) Stats(context.Context) (backend.Stats, error) {
	return backend.Stats{Entries: int64(len(f.all())), Bytes: 7, FreeBytes: -1}, nil
}

func (f *fake) Compact(context.Context) error { return errInjected }

func (f *fake) Txn(ctx context.Context, fn func(backend.Txn) error) error {
	return backend.BufferedTxn(ctx, f, fn)
}

func (f *fake) Info() backend.Info { return f.info }

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closes++
	return nil
}

func (f *fake) all() map[backend.Key][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.entries)
}

// has is what is under the keys, as text; "" is nothing.
func (f *fake) has(keys ...backend.Key) []string {
	all := f.all()
	texts := make([]string, len(keys))
	for i, k := range keys {
		texts[i] = string(all[k])
	}
	return texts
}

// puts stores behind the back of everybody.
func (f *fake) puts(value string, keys ...backend.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range keys {
		f.entries[k] = []byte(value)
	}
}

// plain hides everything optional.
type plain struct{ backend.Cache }

func key(i int) (k backend.Key) {
	binary.BigEndian.PutUint64(k[:], uint64(i)+1)
	return k
}

func keys(n int) []backend.Key {
	all := make([]backend.Key, n)
	for i := range all {
		all[i] = key(i)
	}
	return all
}

func items(value string, keys ...backend.Key) []backend.Item {
	all := make([]backend.Item, len(keys))
	for i, k := range keys {
		all[i] = backend.Item{Key: k, Value: []byte(value)}
	}
	return all
}

// pair is a cache over two fakes; faults are those it reported.
type pair struct {
	*tiered.Cache
	t          testing.TB
	fast, slow *fake
	mu         sync.Mutex
	faults     []error
}

func newPair(t testing.TB, opts tiered.Options) *pair {
	p := &pair{t: t, fast: newFake(), slow: newFake()}
	p.join(opts)
	return p
}

func (p *pair) join(opts tiered.Options) {
	opts.OnFault = func(_ context.Context, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults = append(p.faults, err)
	}
	var err error
	p.Cache, err = tiered.New(p.fast, p.slow, &opts)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { require.NoError(p.t, p.Close()) })
}

func (p *pair) told() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.faults)
}

func (p *pair) set(value string, keys ...backend.Key) {
	require.NoError(p.t, p.SetMany(p.t.Context(), items(value, keys...)))
}

// reads returns what is read under the keys, as text; "" is nothing.
func (p *pair) reads(keys ...backend.Key) []string {
	texts, err := p.tryReads(keys...)
	require.NoError(p.t, err)
	return texts
}

func (p *pair) tryReads(keys ...backend.Key) ([]string, error) {
	texts := make([]string, len(keys))
	err := p.GetMany(context.Background(), keys, func(i int, value []byte) error {
		texts[i] += string(value)
		return nil
	})
	return texts, err
}

func always(err error) func(string) error { return func(string) error { return err } }

// only fails the calls of one kind.
func only(kind string, err error) func(string) error {
	return func(op string) error {
		if op == kind {
			return err
		}
		return nil
	}
}
