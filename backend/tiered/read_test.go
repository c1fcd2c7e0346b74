package tiered_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/tiered"
)

func TestReadsFillTheFastLayer(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("slow", keys(4)...)
	p.fast.puts("fast", key(1))

	require.Equal(t, []string{"slow", "fast", "slow", "slow", ""}, p.reads(keys(5)...))
	require.Equal(t, []string{"slow", "fast", "slow", "slow", ""}, p.fast.has(keys(5)...))
	require.Equal(t, 4, p.slow.gets, "the slow layer is asked for the rest alone")
	require.Equal(t, tiered.Counts{Fast: 1, Slow: 3, Missing: 1, Filled: 3}, p.Counts())

	require.Equal(t, []string{"slow", "slow"}, p.reads(key(0), key(3)))
	require.Equal(t, 4, p.slow.gets)
	require.Equal(t, []string{"slow", "slow", "slow"}, p.reads(key(3), key(3), key(3)))
}

func TestEqualKeysAreFilledOnce(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("slow", key(0))
	require.Equal(t, []string{"slow", "slow"}, p.reads(key(0), key(0)))
	require.EqualValues(t, 1, p.Counts().Filled)
}

// Only what visit accepted is copied, and what was declined in the fast layer is
// healed by it.
func TestDeclinedValues(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.fast.puts("bad", key(0), key(1), key(2))
	p.slow.puts("good", key(0))
	p.slow.puts("worse", key(1), key(3))
	seen := make([][]string, 4)
	err := p.GetMany(t.Context(), keys(4), func(i int, value []byte) error {
		seen[i] = append(seen[i], string(value))
		if string(value) != "good" {
			return backend.ErrForeign
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"bad", "good"}, {"bad", "worse"}, {"bad"}, {"worse"}}, seen)
	require.Equal(t, []string{"good", "bad", "bad", ""}, p.fast.has(keys(4)...))
}

func TestUnreadableIsNotFilled(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.entries[key(0)] = nil
	visits := 0
	require.NoError(t, p.GetMany(t.Context(), keys(1), func(int, []byte) error { visits++; return nil }))
	require.Equal(t, 1, visits)
	require.Empty(t, p.fast.all())
}

func TestVisitErrorOfEachLayer(t *testing.T) {
	stop := errors.New("stop")
	for _, at := range []string{"fast", "slow"} {
		p := newPair(t, tiered.Options{})
		p.fast.puts("fast", key(0))
		p.slow.puts("slow", key(1), key(2))
		visits := 0
		err := p.GetMany(t.Context(), keys(3), func(_ int, value []byte) error {
			visits++
			if string(value) == at {
				return stop
			}
			return nil
		})
		require.ErrorIs(t, err, stop)
		require.NotErrorIs(t, err, backend.ErrUnavailable)
		require.Equal(t, map[string]int{"fast": 1, "slow": 2}[at], visits)
		require.Empty(t, p.told(), "that is no fault of a layer")
	}
}

func TestFillIsBounded(t *testing.T) {
	value := string(bytes.Repeat([]byte("v"), 100))
	for bytes, filled := range map[int]int{-1: 0, 99: 0, 250: 2, 0: 10} {
		p := newPair(t, tiered.Options{FillBytes: bytes})
		p.slow.puts(value, keys(10)...)
		require.Len(t, p.reads(keys(10)...), 10)
		require.Len(t, p.fast.all(), filled, "FillBytes %d", bytes)
	}
}

// A fill keeps to the limits of the fast layer.
func TestFillWithinLimits(t *testing.T) {
	p := &pair{t: t, fast: newFake(), slow: newFake()}
	p.fast.info.MaxBatchItems, p.fast.info.MaxValueBytes, p.fast.info.MaxBatchBytes = 3, 10, 25
	p.join(tiered.Options{})
	p.slow.puts("0123456789", keys(10)...)
	p.slow.puts("0123456789+", key(4))
	require.Len(t, p.reads(keys(10)...), 10)
	require.Empty(t, p.told())
	require.Len(t, p.fast.all(), 9)
	require.NotContains(t, p.fast.all(), key(4))
}

// What a fast layer can't hold isn't copied for it.
func TestFillWithinCapacity(t *testing.T) {
	p := &pair{t: t, fast: newFake(), slow: newFake()}
	p.fast.info.MayEvict, p.fast.info.Capacity = true, 60
	p.join(tiered.Options{})
	p.slow.puts("0123456789", keys(10)...)
	require.Len(t, p.reads(keys(10)...), 10)
	require.Len(t, p.fast.all(), 3)
}

func TestFailingFillFailsNoRead(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("slow", keys(3)...)
	p.fast.on(&p.fast.before, only("set", errInjected))
	require.Equal(t, []string{"slow", "slow", "slow"}, p.reads(keys(3)...))
	require.Len(t, p.told(), 1)
	require.ErrorIs(t, p.told()[0], errInjected)
	require.EqualValues(t, 1, p.Counts().FastFailures)
}

// A fast layer that fails is bypassed for a second, and reported once.
func TestFailingFastLayerIsBypassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, tiered.Options{})
		p.fast.puts("fast", key(0))
		p.slow.puts("slow", keys(2)...)
		calls := 0
		p.fast.on(&p.fast.before, func(string) error { calls++; return errInjected })
		for range 3 {
			require.Equal(t, []string{"slow", "slow"}, p.reads(keys(2)...))
		}
		require.Equal(t, 1, calls, "asked once and then left alone")
		time.Sleep(time.Second)
		require.Equal(t, []string{"slow", "slow"}, p.reads(keys(2)...))
		require.Equal(t, 2, calls)
		require.Len(t, p.told(), 1, "one outage")

		p.fast.on(&p.fast.before, nil)
		time.Sleep(time.Second)
		require.Equal(t, []string{"fast", "slow"}, p.reads(keys(2)...), "it is used again")
		p.fast.on(&p.fast.before, always(errInjected))
		require.Equal(t, []string{"slow", "slow"}, p.reads(keys(2)...))
		require.Len(t, p.told(), 2, "another outage")
	})
}

// A fast layer that fails half-way: what it gave is used, and the rest is asked
// of the slow layer.
func TestFastLayerFailsHalfWay(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.fast.puts("fast", key(0))
	p.slow.puts("slow", keys(2)...)
	p.fast.on(&p.fast.after, only("get", errInjected))
	require.Equal(t, []string{"fast", "slow"}, p.reads(keys(2)...))
	require.Len(t, p.told(), 1)
}

func TestFailingSlowLayer(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.fast.puts("fast", key(0), key(2))
	p.slow.puts("slow", keys(4)...)
	p.slow.on(&p.slow.before, only("get", errInjected))
	texts, err := p.tryReads(keys(4)...)
	require.ErrorIs(t, err, errInjected)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Equal(t, []string{"fast", "", "fast", ""}, texts)
	require.Equal(t, []string{"fast", "fast"}, p.reads(key(0), key(2)), "without the slow layer, no error")
	require.Zero(t, p.Counts().Missing, "what can't be told is not missing")

	p.slow.on(&p.slow.before, only("get", backend.ErrCorrupt))
	_, err = p.tryReads(keys(4)...)
	require.ErrorIs(t, err, backend.ErrCorrupt)
	require.NotErrorIs(t, err, backend.ErrUnavailable, "its own sentinel says more")
	require.Empty(t, p.told(), "the caller has the error")
}

// What the slow layer gave before it failed is used, and kept.
func TestSlowLayerFailsHalfWay(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("slow", key(0))
	p.slow.on(&p.slow.after, only("get", errInjected))
	texts, err := p.tryReads(keys(2)...)
	require.ErrorIs(t, err, errInjected)
	require.Equal(t, []string{"slow", ""}, texts)
	require.Equal(t, []string{"slow", ""}, p.fast.has(keys(2)...))
}

// The lower layer is empty, as after its file was removed: what the fast one has
// is served, the rest is missing, and a layer that counts says that it's empty.
func TestEmptySlowLayer(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.fast.puts("fast", key(0))
	require.Equal(t, []string{"fast", ""}, p.reads(keys(2)...))
	require.Empty(t, p.slow.all())
	require.Same(t, p.slow, backend.Authoritative(p.Cache))
}

func TestContextThatEndsInTheFastLayer(t *testing.T) {
	p := newPair(t, tiered.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	p.slow.puts("slow", keys(2)...)
	p.fast.on(&p.fast.before, func(string) error { cancel(); return errInjected })
	err := p.GetMany(ctx, keys(2), func(int, []byte) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, p.slow.gets)
	require.Empty(t, p.told())
}

// A read that ends in the slow layer copies nothing any more.
func TestContextThatEndsInTheSlowLayer(t *testing.T) {
	p := newPair(t, tiered.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	p.slow.puts("slow", keys(2)...)
	err := p.GetMany(ctx, keys(2), func(int, []byte) error { cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, p.fast.all())
	require.Empty(t, p.told())
}

// MaxAge bounds how long what another handle wrote or deleted stays hidden.
func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = time.Minute
		p := newPair(t, tiered.Options{MaxAge: age})
		p.fast.puts("before New", key(5))
		p.set("first", keys(3)...)
		p.slow.puts("other", keys(2)...)
		p.slow.puts("", key(2))
		p.slow.mu.Lock()
		delete(p.slow.entries, key(2))
		p.slow.mu.Unlock()
		require.Equal(t, []string{"first", "first", "first", ""}, p.reads(key(0), key(1), key(2), key(5)), "and what is older than this handle counts as old")

		// A look does not make an entry younger.
		end := time.Now().Add(age)
		for time.Now().Before(end) {
			_ = p.reads(keys(3)...)
			time.Sleep(age / 10)
		}
		require.Equal(t, []string{"other", "other", ""}, p.reads(keys(3)...))

		gets := p.slow.gets
		require.Equal(t, []string{"other", "other"}, p.reads(keys(2)...))
		require.Equal(t, gets, p.slow.gets, "a copy is young again")

		// After a long pause nothing is young.
		time.Sleep(10 * age)
		p.slow.puts("later", keys(2)...)
		require.Equal(t, []string{"later", "later"}, p.reads(keys(2)...))
	})
}

// Without the slow layer, an old value is better than to pay again.
func TestMaxAgeWhileTheSlowLayerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, tiered.Options{MaxAge: time.Minute})
		p.set("v", keys(2)...)
		time.Sleep(time.Hour)
		p.slow.on(&p.slow.before, always(errInjected))
		texts, err := p.tryReads(keys(3)...)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.Equal(t, []string{"v", "v", ""}, texts)
	})
}

func TestKeysAreNeitherChangedNorKept(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("slow", keys(5)...)
	given := keys(5)
	_ = p.reads(given...)
	require.True(t, slices.Equal(given, keys(5)))
	clear(given)
	require.Equal(t, []string{"slow", "slow", "slow", "slow", "slow"}, p.reads(keys(5)...))
}
