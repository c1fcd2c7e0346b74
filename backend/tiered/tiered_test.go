package tiered_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/tiered"
)

func TestNewListsEveryProblem(t *testing.T) {
	_, err := tiered.New(nil, nil, &tiered.Options{FillBytes: -2, MaxAge: -time.Second})
	for _, part := range []string{"tiered.New: ", "fast is nil", "slow is nil", "Options.FillBytes is -2; allowed are -1", "Options.MaxAge is -1s; at least 0"} {
		require.ErrorContains(t, err, part)
	}
	same := newFake()
	_, err = tiered.New(same, same, nil)
	require.ErrorContains(t, err, "the same cache")
	require.Zero(t, same.closes, "the layers stay open")

	notComparable := struct {
		*fake
		more []int
	}{fake: newFake()}
	_, err = tiered.New(notComparable, notComparable, nil)
	require.NoError(t, err)

	hooked := struct { // its type has ==, its values don't
		*fake
		hook any
	}{newFake(), func() {}}
	_, err = tiered.New(hooked, hooked, nil)
	require.NoError(t, err)

	shared, own := newFake(), newFake()
	shared.info.Reach = backend.ReachHosts
	_, err = tiered.New(shared, own, nil)
	require.ErrorContains(t, err, "fast reaches other hosts and slow only its handle")
	own.info.Reach = backend.ReachHosts
	_, err = tiered.New(shared, own, nil)
	require.NoError(t, err)
	shared.info.Durability = backend.SurvivesCrash
	_, err = tiered.New(shared, own, nil)
	require.ErrorContains(t, err, "are they swapped?")
}

func TestInfo(t *testing.T) {
	p := &pair{t: t, fast: newFake(), slow: newFake()}
	p.fast.info = backend.Info{
		SnapshotReads: true, MayEvict: true, Capacity: 1000, MaxValueBytes: 10, MaxBatchItems: 10, MaxBatchBytes: 10,
		Readers: 8, Writers: 8, SplitKeys: 1024,
	}
	p.slow.info = backend.Info{
		Atomic: true, Durability: backend.SurvivesPowerLoss, Reach: backend.ReachHosts, SnapshotReads: true, SnapshotKeys: 5,
		MaxValueBytes: 77, MaxBatchItems: 78, MaxBatchBytes: 79, Readers: 2, Writers: 3, SplitKeys: 256,
	}
	p.join(tiered.Options{})
	require.Equal(t, backend.Info{
		Atomic: true, Durability: backend.SurvivesPowerLoss, Reach: backend.ReachHosts, Copies: true,
		MaxValueBytes: 77, MaxBatchItems: 78, MaxBatchBytes: 79, Readers: 8, Writers: 3, SplitKeys: 1024,
	}, p.Info())

	p.slow.info.Lag = time.Second
	p.join(tiered.Options{MaxAge: time.Minute})
	require.False(t, p.Info().Copies)
	require.Equal(t, time.Minute+time.Second, p.Info().Lag)

	p.slow.info = backend.Info{MayEvict: true, Capacity: 99, Readers: 9} // wants a call whole
	p.join(tiered.Options{})
	require.Equal(t, backend.Info{MayEvict: true, Capacity: 99, Readers: 9}, p.Info())
}

// A tiered cache over a tiered one: the authoritative layer is the lowest.
func TestThreeLayers(t *testing.T) {
	p := newPair(t, tiered.Options{})
	top := newFake()
	c, err := tiered.New(top, p.Cache, nil)
	require.NoError(t, err)
	require.Same(t, p.slow, backend.Authoritative(c))
	require.NoError(t, c.SetMany(t.Context(), items("v", key(0))))
	for _, layer := range []*fake{top, p.fast, p.slow} {
		require.Equal(t, []string{"v"}, layer.has(key(0)))
	}
	require.NoError(t, c.Close())
	for _, layer := range []*fake{top, p.fast, p.slow} {
		require.Equal(t, 1, layer.closes)
	}
}

func TestClose(t *testing.T) {
	p := newPair(t, tiered.Options{})
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.Equal(t, []int{1, 1}, []int{p.fast.closes, p.slow.closes})

	p = newPair(t, tiered.Options{LeaveOpen: true})
	require.NoError(t, p.Close())
	require.Equal(t, []int{0, 0}, []int{p.fast.closes, p.slow.closes})
	require.ErrorIs(t, p.SetMany(t.Context(), items("v", key(0))), backend.ErrClosed)
	require.Empty(t, p.slow.all())
}

// Both layers are closed also where one of them fails, and both errors come out.
func TestCloseFails(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	fast, slow := closeFails{newFake(), one}, closeFails{newFake(), two}
	c, err := tiered.New(fast, slow, nil)
	require.NoError(t, err)
	err = c.Close()
	require.ErrorIs(t, err, one)
	require.ErrorIs(t, err, two)
	require.Equal(t, []int{1, 1}, []int{fast.closes, slow.closes})
	require.NoError(t, c.Close(), "later calls return nil")
}

type closeFails struct {
	*fake
	err error
}

func (c closeFails) Close() error { _ = c.fake.Close(); return c.err }

// Without a hook, an outage is a warning to the default logger, without key or
// value.
func TestOutageIsLogged(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	fast := newFake()
	c, err := tiered.New(fast, newFake(), nil)
	require.NoError(t, err)
	fast.on(&fast.before, always(errInjected))
	for range 3 {
		require.NoError(t, c.SetMany(t.Context(), items("secret", key(0))))
	}
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), errInjected.Error())
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")))
	require.NotContains(t, log.String(), "secret")
	require.NoError(t, c.Close())
}

func TestTxn(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("old", keys(2)...)
	err := p.Txn(t.Context(), func(tx backend.Txn) error {
		require.NoError(t, tx.SetMany(t.Context(), items("new", key(0))))
		got := make([]string, 2)
		require.NoError(t, tx.GetMany(t.Context(), keys(2), func(i int, value []byte) error {
			got[i] = string(value)
			return nil
		}))
		require.Equal(t, []string{"new", "old"}, got)
		require.Equal(t, []string{"old"}, p.slow.has(key(0)))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"new", "old"}, p.reads(keys(2)...))

	p.slow.on(&p.slow.before, only("set", errInjected))
	err = p.Txn(t.Context(), func(tx backend.Txn) error { return tx.SetMany(context.Background(), items("newer", key(0))) })
	require.ErrorIs(t, err, backend.ErrUnavailable)
}
