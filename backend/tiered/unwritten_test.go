package tiered_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/tiered"
)

// A fast layer that evicts would show a part of such a batch sooner or later: the
// batch is kept beside it, whole.
func TestUnwrittenBatchBesideALayerThatEvicts(t *testing.T) {
	for _, canDelete := range []bool{true, false} {
		fast, slow := newFake(), newFake()
		fast.info.MayEvict = true
		var upper backend.Cache = fast
		if !canDelete {
			upper = plain{fast}
		}
		c, err := tiered.New(upper, slow, nil)
		require.NoError(t, err)
		p := &pair{Cache: c, t: t, fast: fast, slow: slow}
		p.set("old", key(1), key(4))
		slow.on(&slow.before, only("set", errInjected))
		require.ErrorIs(t, c.SetMany(t.Context(), items("new", keys(3)...)), backend.ErrUnavailable)
		want := []string{"new", "new", "new", "", "old"}
		require.Equal(t, want, p.reads(keys(5)...))
		clear(fast.entries)
		slow.puts("slow", key(2))
		require.Equal(t, want, p.reads(keys(5)...))

		// A declined value is followed by the next candidate.
		var seen []string
		require.NoError(t, c.GetMany(t.Context(), keys(3)[2:], func(_ int, value []byte) error {
			if seen = append(seen, string(value)); len(seen) == 1 {
				return backend.ErrForeign
			}
			return nil
		}))
		require.Equal(t, []string{"new", "slow"}, seen)
		stop := errors.New("stop")
		require.ErrorIs(t, c.GetMany(t.Context(), keys(3), func(int, []byte) error { return stop }), stop)

		// Without the slow layer it is still there; a later write or deletion ends it.
		slow.on(&slow.before, always(errInjected))
		require.Equal(t, []string{"new", "new"}, p.reads(keys(2)...))
		slow.on(&slow.before, nil)
		p.set("newer", key(0))
		require.Equal(t, []string{"newer", "new", "new"}, p.reads(keys(3)...))
		if canDelete {
			removed, err := c.Delete(t.Context(), keys(3)[1:], func(i int, value []byte) bool { return i == 0 })
			require.NoError(t, err)
			require.Equal(t, 1, removed)
			require.Equal(t, []string{"newer", "", "slow"}, p.reads(keys(3)...), "where it stays, the slow layer's stays")
		}
		require.NoError(t, c.Close())
	}
}

// What is kept so is bounded, and the oldest batch goes first and as a whole.
func TestUnwrittenBatchesAreBounded(t *testing.T) {
	fast, slow := newFake(), newFake()
	fast.info.MayEvict = true
	c, err := tiered.New(fast, slow, nil)
	require.NoError(t, err)
	slow.on(&slow.before, only("set", errInjected))
	value := make([]byte, 10<<20)
	fails := func(keys ...backend.Key) {
		batch := items("", keys...)
		for i := range batch {
			batch[i].Value = value
		}
		require.Error(t, c.SetMany(t.Context(), batch))
	}
	there := func() (found []int) {
		require.NoError(t, c.GetMany(t.Context(), keys(10), func(i int, _ []byte) error { found = append(found, i); return nil }))
		return found
	}
	fails(key(0), key(1), key(2))
	fails(key(3), key(4), key(5))
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, there())
	fails(key(6))
	require.Equal(t, []int{3, 4, 5, 6}, there())
	fails(key(3), key(4), key(5)) // again: it takes no more room
	fails(key(7), key(8))
	require.Equal(t, []int{3, 4, 5, 6, 7, 8}, there())
	fails(keys(7)...) // too much
	require.Equal(t, []int{7, 8}, there())
	require.NoError(t, c.Close())
}

// A process that ends between the two writes, or whose fast layer missed one, must
// not leave old values there beside new ones in the slow layer.
func TestDurableFastLayerForgetsBeforeTheSlowOneIsWritten(t *testing.T) {
	p := &pair{t: t, fast: newFake(), slow: newFake()}
	p.fast.info.Durability, p.slow.info.Durability = backend.SurvivesCrash, backend.SurvivesCrash
	p.join(tiered.Options{})
	deletes := 0
	p.fast.on(&p.fast.before, func(op string) error {
		if op == "delete" {
			deletes++
		}
		return nil
	})
	p.set("old", keys(3)...)
	require.Zero(t, deletes, "there was nothing to forget")
	p.slow.on(&p.slow.before, func(op string) error {
		if op == "set" {
			require.Equal(t, []string{"", "", "old"}, p.fast.has(keys(3)...))
			p.fast.on(&p.fast.before, only("set", errInjected))
		}
		return nil
	})
	p.set("new", key(0), key(1))
	require.Equal(t, 1, deletes)
	p.slow.on(&p.slow.before, nil)
	p.fast.on(&p.fast.before, nil)
	p.join(tiered.Options{}) // another process
	require.Equal(t, []string{"new", "new", "old"}, p.reads(keys(3)...))

	// The same values again are no reason to forget them.
	p.fast.on(&p.fast.before, only("delete", errInjected))
	p.set("new", key(0), key(1))
	require.EqualValues(t, 0, p.Counts().FastFailures)
	p.set("newer", key(0), key(1))
	require.EqualValues(t, 1, p.Counts().FastFailures)
	require.Equal(t, []string{"newer", "newer", "old"}, p.reads(keys(3)...), "this handle knows what it did")
}

// A durable fast layer without Delete is used all the same.
func TestDurableFastLayerThatCantForget(t *testing.T) {
	fast, slow := newFake(), newFake()
	fast.info.Durability, slow.info.Durability = backend.SurvivesCrash, backend.SurvivesCrash
	c, err := tiered.New(plain{fast}, slow, nil)
	require.NoError(t, err)
	for _, value := range []string{"old", "new"} {
		require.NoError(t, c.SetMany(t.Context(), items(value, key(0))))
	}
	require.Equal(t, []string{"new"}, fast.has(key(0)))
	require.Zero(t, c.Counts().FastFailures)
	require.NoError(t, c.Close())
}

// What is kept beside the fast layer hides no longer than MaxAge what others did
// since, and is still there when nothing else is.
func TestUnwrittenBatchGrowsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pair{t: t, fast: newFake(), slow: newFake()}
		p.fast.info.MayEvict = true
		p.join(tiered.Options{MaxAge: time.Minute})
		p.slow.on(&p.slow.before, func(op string) error {
			if op == "set" {
				time.Sleep(time.Second) // what others write meanwhile counts too
				return errInjected
			}
			return nil
		})
		require.Error(t, p.SetMany(t.Context(), items("old", keys(3)...)))
		p.slow.puts("new", key(0))
		time.Sleep(time.Minute - time.Second - 1)
		require.Equal(t, []string{"old", "old", "old"}, p.reads(keys(3)...))
		time.Sleep(time.Nanosecond)
		require.Equal(t, []string{"new", "", ""}, p.reads(keys(3)...))

		p.slow.on(&p.slow.before, always(errInjected))
		texts, err := p.tryReads(keys(3)...)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.Equal(t, []string{"new", "old", "old"}, texts)
		stop := errors.New("stop")
		require.ErrorIs(t, p.GetMany(t.Context(), keys(3)[1:], func(int, []byte) error { return stop }), stop)
		p.slow.on(&p.slow.before, nil)
		removed, err := p.Delete(t.Context(), keys(3)[1:], nil)
		require.NoError(t, err)
		require.Equal(t, 2, removed)
		p.slow.on(&p.slow.before, only("get", errInjected))
		texts, err = p.tryReads(keys(3)...)
		require.Error(t, err)
		require.Equal(t, []string{"", ""}, texts[1:])
		p.slow.on(&p.slow.before, nil)
	})
}
