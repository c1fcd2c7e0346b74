package tiered_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/tiered"
)

func TestWritesGoToTheSlowLayerFirst(t *testing.T) {
	p := newPair(t, tiered.Options{})
	var order []string
	p.slow.on(&p.slow.before, func(op string) error { order = append(order, "slow "+op); return nil })
	p.fast.on(&p.fast.before, func(op string) error { order = append(order, "fast "+op); return nil })
	p.set("v", keys(3)...)
	require.Equal(t, []string{"slow set", "fast set"}, order)
	require.Equal(t, []string{"v", "v", "v"}, p.fast.has(keys(3)...))
	require.Equal(t, []string{"v", "v", "v"}, p.slow.has(keys(3)...))
}

// The slow layer fails, having stored the batch or not: the handle sees all of it.
func TestSlowLayerFailsOnWrite(t *testing.T) {
	for _, stored := range []bool{false, true} {
		p := newPair(t, tiered.Options{})
		p.set("old", key(0))
		when := &p.slow.before
		if stored {
			when = &p.slow.after
		}
		p.slow.on(when, only("set", errInjected))
		err := p.SetMany(t.Context(), items("new", keys(3)...))
		require.ErrorIs(t, err, errInjected)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.Equal(t, []string{"new", "new", "new"}, p.fast.has(keys(3)...), "filled whole")
		require.Equal(t, []string{"new", "new", "new"}, p.reads(keys(3)...))
	}
}

// A slow layer that says what is wrong is quoted; one that refused the batch has
// certainly not stored it, and then nobody has.
func TestErrorsOfTheSlowLayerOnWrite(t *testing.T) {
	for _, test := range []struct {
		err         error
		unavailable bool
		kept        bool
	}{
		{backend.ErrUnavailable, true, true},
		{backend.ErrReadOnly, false, true},
		{backend.ErrCorrupt, false, true},
		{errors.New("a driver's"), true, true},
		{&backend.BatchError{NotStored: []int{1}, Err: errors.New("a driver's")}, true, true},
		{&backend.BatchError{NotStored: []int{1}, Err: backend.ErrTooLarge}, false, true},
		{backend.ErrTooLarge, false, false},
		{backend.ErrEmptyValue, false, false},
		{backend.ErrClosed, false, false},
	} {
		p := newPair(t, tiered.Options{})
		p.slow.on(&p.slow.before, only("set", fmt.Errorf("wrapped: %w", test.err)))
		err := p.SetMany(t.Context(), items("v", keys(2)...))
		require.ErrorIs(t, err, test.err)
		require.Equal(t, test.unavailable, errors.Is(err, backend.ErrUnavailable), "%v", test.err)
		require.Equal(t, test.kept, len(p.fast.all()) == 2, "%v", test.err)
	}
}

// Both layers fail. Whatever each of them has, no read sees a mixture: the slow
// layer alone is asked, until the keys are written or copied again.
func TestBothLayersFailOnWrite(t *testing.T) {
	for _, slowStored := range []bool{false, true} {
		for _, fastStored := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, tiered.Options{})
				p.set("old", keys(2)...)
				fail := only("set", errInjected)
				if slowStored {
					p.slow.on(&p.slow.after, fail)
				} else {
					p.slow.on(&p.slow.before, fail)
				}
				if fastStored {
					p.fast.on(&p.fast.after, fail)
				} else {
					p.fast.on(&p.fast.before, fail)
				}
				require.Error(t, p.SetMany(t.Context(), items("new", keys(3)...)))
				p.fast.on(&p.fast.before, nil)
				p.fast.on(&p.fast.after, nil)
				want := []string{"old", "old", ""}
				if slowStored {
					want = []string{"new", "new", "new"}
				}
				require.Equal(t, want, p.reads(keys(3)...), "slow stored %v, fast stored %v", slowStored, fastStored)
				time.Sleep(2 * time.Second) // the outage is over
				require.Equal(t, want, p.reads(keys(3)...))
				require.Equal(t, want, p.reads(keys(3)...), "copied by the read before")
			})
		}
	}
}

// An acknowledged batch that the fast layer missed is seen all the same, also
// where the fast layer has old values and works again.
func TestFastLayerFailsOnWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, tiered.Options{})
		p.set("old", keys(3)...)
		p.fast.on(&p.fast.before, only("set", errInjected))
		p.set("new", keys(2)...)
		require.Equal(t, []string{"old", "old", "old"}, p.fast.has(keys(3)...))
		p.fast.on(&p.fast.before, nil)
		time.Sleep(2 * time.Second)
		require.Len(t, p.told(), 1)

		gets := p.slow.gets
		require.Equal(t, []string{"new", "new", "old"}, p.reads(keys(3)...))
		require.Equal(t, 2, p.slow.gets-gets, "only for the keys that are in doubt")
		require.Equal(t, []string{"new", "new", "old"}, p.fast.has(keys(3)...), "healed by the copy")
		gets = p.slow.gets
		require.Equal(t, []string{"new", "new", "old"}, p.reads(keys(3)...))
		require.Equal(t, gets, p.slow.gets)

		// A write heals too.
		p.fast.on(&p.fast.before, only("set", errInjected))
		p.set("third", keys(2)...)
		p.fast.on(&p.fast.before, nil)
		time.Sleep(2 * time.Second)
		p.set("fourth", keys(2)...)
		require.Equal(t, []string{"fourth", "fourth"}, p.reads(keys(2)...))
		require.Equal(t, gets, p.slow.gets)
	})
}

// While the fast layer is bypassed, writes don't wait for it either.
func TestWritesDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, tiered.Options{})
		p.set("old", key(0))
		calls := 0
		p.fast.on(&p.fast.before, func(string) error { calls++; time.Sleep(fastHangs); return errInjected })
		for i := range 5 {
			p.set("new", key(i))
		}
		require.Equal(t, 1, calls)
		p.fast.on(&p.fast.before, nil)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"new", "new", "new", "new", "new"}, p.reads(keys(5)...))
	})
}

const fastHangs = 500 * time.Millisecond

// More misses than can be remembered: the fast layer isn't asked any more.
func TestTooManyMissedWrites(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.set("old", key(0))
	p.fast.on(&p.fast.before, only("set", errInjected))
	p.set("new", keys(1<<17+1)...)
	p.fast.on(&p.fast.before, nil)
	require.Len(t, p.told(), 2)
	require.ErrorIs(t, p.told()[1], backend.ErrUnavailable)
	require.Equal(t, []string{"new"}, p.reads(key(0)))
	p.set("newer", key(0))
	require.Equal(t, []string{"newer"}, p.reads(key(0)))
	require.Equal(t, []string{"old"}, p.fast.has(key(0)), "neither read nor written")
}

// A batch over the limits of the fast layer is written there in pieces, without
// the values that are too large for it; those are read from the slow layer.
func TestBatchTooLargeForTheFastLayer(t *testing.T) {
	p := &pair{t: t, fast: newFake(), slow: newFake()}
	p.fast.info.MaxValueBytes, p.fast.info.MaxBatchItems, p.fast.info.MaxBatchBytes = 10, 4, 25
	p.join(tiered.Options{})
	require.Zero(t, p.Info().MaxValueBytes)
	require.Zero(t, p.Info().MaxBatchItems)
	p.set("old", keys(9)...)
	require.Len(t, p.fast.all(), 9)

	batch := items("0123456789", keys(8)...)
	batch[3].Value = []byte("too large for it")
	batch = append(batch, backend.Item{Key: key(5), Value: []byte("too large as well")}) // of equal keys the last wins
	require.NoError(t, p.SetMany(t.Context(), batch))
	require.Empty(t, p.told(), "that is no fault")
	require.Equal(t, []string{"0123456789", "too large for it", "too large as well", "old"}, p.reads(key(0), key(3), key(5), key(8)))
	require.Equal(t, []string{"0123456789", "", "", "old"}, p.fast.has(key(0), key(3), key(5), key(8)))
}

// Where the slow layer fails, such a batch is in no layer: it can't be whole in
// the fast one.
func TestLargeBatchThatTheSlowLayerFails(t *testing.T) {
	p := &pair{t: t, fast: newFake(), slow: newFake()}
	p.fast.info.MaxBatchItems = 4
	p.join(tiered.Options{})
	p.set("old", key(0))
	p.slow.on(&p.slow.before, only("set", errInjected))
	require.Error(t, p.SetMany(t.Context(), items("new", keys(5)...)))
	require.Equal(t, []string{"old", "", "", "", ""}, p.reads(keys(5)...))
}

// The context ends in the slow layer: its error comes out, and the layers don't
// differ for it.
func TestContextThatEndsDuringAWrite(t *testing.T) {
	for _, acknowledged := range []bool{false, true} {
		p := newPair(t, tiered.Options{})
		p.set("old", keys(2)...)
		ctx, cancel := context.WithCancel(t.Context())
		p.slow.on(&p.slow.before, func(op string) error {
			if op != "set" {
				return nil
			}
			cancel()
			if acknowledged {
				return nil
			}
			return errInjected // a driver that calls it by another name
		})
		slow := p.slow
		err := p.SetMany(ctx, items("new", keys(3)...))
		p.slow.on(&p.slow.before, nil)
		if acknowledged {
			// The fake's own look at the context fails the call after it stored.
			require.Equal(t, []string{"new", "new", "new"}, slow.has(keys(3)...))
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []string{"new", "new", "new"}, p.reads(keys(3)...), "what was paid for is kept")
	}
}

// A fast layer that hangs holds a write up for two seconds and not for ever.
func TestFastLayerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fast, slow := newFake(), newFake()
		c, err := tiered.New(hanging{fast}, slow, &tiered.Options{OnFault: func(context.Context, error) {}})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		start := time.Now()
		require.NoError(t, c.SetMany(t.Context(), items("v", keys(3)...)))
		require.Equal(t, 2*time.Second, time.Since(start))
		time.Sleep(time.Minute)

		slow.on(&slow.before, only("set", errInjected))
		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.Error(t, c.SetMany(ctx, items("v", keys(3)...)))
		require.Equal(t, 2*time.Second, time.Since(start), "also where the context has ended meanwhile")
		time.Sleep(time.Minute)

		start = time.Now()
		found := 0
		require.NoError(t, c.GetMany(t.Context(), keys(3), func(int, []byte) error { found++; return nil }))
		require.Equal(t, 3, found)
		require.Equal(t, 2*time.Second, time.Since(start), "and so for a copy")
	})
}

// hanging never ends a write of its own accord.
type hanging struct{ *fake }

func (h hanging) SetMany(ctx context.Context, _ []backend.Item) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestLimitsOfTheSlowLayer(t *testing.T) {
	p := &pair{t: t, fast: newFake(), slow: newFake()}
	p.slow.info.MaxBatchItems = 2
	p.join(tiered.Options{})
	require.ErrorIs(t, p.SetMany(t.Context(), items("v", keys(3)...)), backend.ErrTooLarge)
	require.ErrorIs(t, p.SetMany(t.Context(), items("", key(0))), backend.ErrEmptyValue)
	require.Empty(t, p.fast.all())
	require.Empty(t, p.slow.all())
}
