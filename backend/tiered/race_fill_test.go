package tiered_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/tiered"
)

// readDuring runs a read of the keys that has its values from the slow layer, and
// calls between before it copies them.
func readDuring(p *pair, between func(), keys ...backend.Key) []string {
	texts := make([]string, len(keys))
	p.slow.on(&p.slow.after, func(op string) error {
		if op == "get" {
			p.slow.on(&p.slow.after, nil)
			between()
		}
		return nil
	})
	err := p.GetMany(context.Background(), keys, func(i int, value []byte) error {
		texts[i] = string(value)
		return nil
	})
	require.NoError(p.t, err)
	return texts
}

// A copy never overwrites what this handle wrote since the slow layer was read.
func TestFillDoesNotOverwriteANewerValue(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("old", keys(4)...)
	got := readDuring(p, func() { p.set("new", key(1), key(2)) }, keys(4)...)
	require.Equal(t, []string{"old", "old", "old", "old"}, got)
	require.Equal(t, []string{"old", "new", "new", "old"}, p.fast.has(keys(4)...))
	require.Equal(t, []string{"old", "new", "new", "old"}, p.reads(keys(4)...))
}

// Nor what went into the fast layer alone.
func TestFillDoesNotOverwriteAnUnwrittenValue(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("old", keys(2)...)
	readDuring(p, func() {
		p.slow.on(&p.slow.before, only("set", errInjected))
		require.Error(t, p.SetMany(t.Context(), items("new", key(0))))
		p.slow.on(&p.slow.before, nil)
	}, keys(2)...)
	require.Equal(t, []string{"new", "old"}, p.reads(keys(2)...))
}

// A copy never brings back what this handle deleted since.
func TestFillDoesNotBringBackADeletedEntry(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("old", keys(3)...)
	readDuring(p, func() {
		removed, err := p.Delete(t.Context(), []backend.Key{key(1)}, nil)
		require.NoError(t, err)
		require.Equal(t, 1, removed)
	}, keys(3)...)
	require.Equal(t, []string{"old", "", "old"}, p.fast.has(keys(3)...))
	require.Equal(t, []string{"old", "", "old"}, p.reads(keys(3)...))
}

// A read that began in the middle of a write, with the slow layer's part done,
// leaves the fast layer to that write.
func TestFillInTheMiddleOfAWrite(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("old", keys(2)...)
	inside := false
	p.fast.on(&p.fast.before, func(op string) error {
		if op == "set" && !inside {
			inside = true
			require.Equal(t, []string{"new", "old"}, p.reads(keys(2)...))
			require.Equal(t, []string{"", "old"}, p.fast.has(keys(2)...))
		}
		return nil
	})
	p.set("new", key(0))
	require.True(t, inside)
	require.Equal(t, []string{"new", "old"}, p.fast.has(keys(2)...))
}

// A read that begins in the middle of a write or a deletion, before the slow layer
// has it, and ends after it, has an old value in its hands.
func TestFillOfAReadThatBeganInTheMiddleOfAChange(t *testing.T) {
	for op, change := range map[string]func(p *pair){
		"set":    func(p *pair) { p.set("new", key(0)) },
		"delete": func(p *pair) { _, err := p.Delete(context.Background(), keys(1), nil); require.NoError(p.t, err) },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, tiered.Options{})
			p.slow.puts("old", keys(1)...)
			begin, end := make(chan struct{}), make(chan struct{})
			p.slow.on(&p.slow.before, func(now string) error {
				if now == op {
					<-begin
				}
				return nil
			})
			p.slow.on(&p.slow.after, func(now string) error {
				if now == "get" {
					<-end
				}
				return nil
			})
			go change(p)
			synctest.Wait()
			go func() { require.Equal(t, []string{"old"}, p.reads(key(0))) }()
			synctest.Wait()
			close(begin)
			synctest.Wait()
			close(end)
			synctest.Wait()
			want := map[string]string{"set": "new"}[op]
			require.Equal(t, []string{want}, p.fast.has(key(0)), op)
			require.Equal(t, []string{want}, p.reads(key(0)), op)
		})
	}
}

// A write that comes while a copy is under way waits for it, and so is later in
// both layers. A write of other keys doesn't wait.
func TestWriteWaitsForACopyOfItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, tiered.Options{})
		p.slow.puts("old", keys(2)...)
		release, entered := make(chan struct{}), make(chan struct{})
		p.fast.on(&p.fast.before, func(op string) error {
			if op == "set" {
				p.fast.on(&p.fast.before, nil)
				close(entered)
				<-release
			}
			return nil
		})
		go func() { _ = p.reads(keys(2)...) }()
		<-entered
		p.set("other", key(7))
		written := false
		go func() { p.set("new", key(0)); written = true }()
		synctest.Wait()
		require.False(t, written)
		require.Equal(t, []string{"old", "old"}, p.slow.has(keys(2)...), "nothing is done before the turn")

		ctx, cancel := context.WithCancel(t.Context())
		cancelled := make(chan error)
		go func() { cancelled <- p.SetMany(ctx, items("cancelled", key(1))) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-cancelled, context.Canceled)

		close(release)
		synctest.Wait()
		require.True(t, written)
		require.Equal(t, []string{"new", "old"}, p.fast.has(keys(2)...))
		require.Equal(t, []string{"new", "old"}, p.reads(keys(2)...))
	})
}

// Two writes that have a key in common take turns through both layers; two that
// have none don't wait for each other.
func TestWritesOfOneKeyTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, tiered.Options{})
		release, entered := make(chan struct{}), make(chan struct{}, 10)
		p.slow.on(&p.slow.after, func(op string) error {
			if op == "set" {
				entered <- struct{}{}
				<-release
			}
			return nil
		})
		for _, batch := range [][]backend.Item{items("first", key(0), key(1)), items("second", key(1), key(2)), items("apart", key(3))} {
			go func() { require.NoError(t, p.SetMany(context.Background(), batch)) }()
			synctest.Wait()
		}
		require.Len(t, entered, 2, "the first and the one apart")
		require.Equal(t, []string{"first", "first", "", "apart"}, p.slow.has(keys(4)...))
		close(release)
		synctest.Wait()
		want := []string{"first", "second", "second", "apart"}
		require.Equal(t, want, p.slow.has(keys(4)...))
		require.Equal(t, want, p.fast.has(keys(4)...))
	})
}

// Equal keys in one batch are one turn.
func TestEqualKeysInABatch(t *testing.T) {
	p := newPair(t, tiered.Options{})
	batch := append(items("first", key(0)), items("last", key(0))...)
	require.NoError(t, p.SetMany(t.Context(), batch))
	require.Equal(t, []string{"last"}, p.fast.has(key(0)))
	p.set("again", key(0))
	require.Equal(t, []string{"again"}, p.reads(key(0)))
}

// A panic of visit goes its way and leaves no key in anybody's hands.
func TestPanicOfVisit(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("v", keys(2)...)
	require.PanicsWithValue(t, "visit", func() {
		_ = p.GetMany(t.Context(), keys(2), func(int, []byte) error { panic("visit") })
	})
	p.set("new", keys(2)...)
	require.Equal(t, []string{"new", "new"}, p.reads(keys(2)...))
}
