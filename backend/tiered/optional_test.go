package tiered_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/tiered"
)

func TestDeleteFromBothLayers(t *testing.T) {
	p := newPair(t, tiered.Options{})
	var order []string
	p.slow.on(&p.slow.before, func(op string) error { order = append(order, "slow "+op); return nil })
	p.fast.on(&p.fast.before, func(op string) error { order = append(order, "fast "+op); return nil })
	p.set("v", keys(3)...)
	p.slow.puts("slow alone", key(3))
	p.fast.puts("fast alone", key(4))
	order = nil
	removed, err := p.Delete(t.Context(), []backend.Key{key(0), key(3), key(4), key(9), key(0)}, nil)
	require.NoError(t, err)
	require.Equal(t, 3, removed)
	require.Equal(t, []string{"fast delete", "slow delete"}, order)
	require.Equal(t, []string{"", "v", "v", "", ""}, p.reads(keys(5)...))
	require.Equal(t, []string{"", "v", "v", "", ""}, p.fast.has(keys(5)...))
}

func TestDeleteWithMatch(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("goes", key(0), key(1))
	p.slow.puts("stays", key(2), key(3))
	p.fast.puts("stays", key(1)) // another value of the entry that goes
	p.fast.puts("goes", key(3), key(4))
	p.fast.puts("stays", key(5))
	asked := make(map[int][]string)
	removed, err := p.Delete(t.Context(), keys(7), func(i int, value []byte) bool {
		asked[i] = append(asked[i], string(value))
		return string(value) == "goes"
	})
	require.NoError(t, err)
	require.Equal(t, 3, removed)
	require.Equal(t, map[int][]string{0: {"goes"}, 1: {"goes"}, 2: {"stays"}, 3: {"stays"}, 4: {"goes"}, 5: {"stays"}}, asked)
	require.Equal(t, []string{"", "", "stays", "stays", "", ""}, p.slow.has(keys(6)...))
	require.Equal(t, []string{"", "", "", "", "", "stays"}, p.fast.has(keys(6)...))
}

// match gets the caller's index, also where keys are equal.
func TestDeleteWithMatchOfEqualKeys(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.set("v", keys(2)...)
	var indexes []int
	removed, err := p.Delete(t.Context(), []backend.Key{key(0), key(0), key(1)}, func(i int, _ []byte) bool {
		indexes = append(indexes, i)
		return true
	})
	require.NoError(t, err)
	require.Equal(t, 2, removed)
	require.Equal(t, []int{0, 2}, indexes)
}

// A fast layer that can't delete now: nothing of the store is removed, and the same
// call again does it.
func TestDeleteFailsInTheFastLayer(t *testing.T) {
	for _, removedThere := range []bool{false, true} {
		p := newPair(t, tiered.Options{})
		p.set("v", keys(2)...)
		when := &p.fast.before
		if removedThere {
			when = &p.fast.after
		}
		calls := 0
		p.fast.on(when, func(op string) error {
			if op == "delete" {
				if calls++; calls == 2 || !removedThere { // the first one asks whether it can
					return errInjected
				}
			}
			return nil
		})
		_, err := p.Delete(t.Context(), []backend.Key{key(0)}, nil)
		require.ErrorIs(t, err, errInjected)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.Equal(t, []string{"v", "v"}, p.slow.has(keys(2)...))
		p.fast.on(when, nil)
		require.Equal(t, []string{"v", "v"}, p.reads(keys(2)...))
		removed, err := p.Delete(t.Context(), []backend.Key{key(0)}, nil)
		require.NoError(t, err)
		require.Equal(t, 1, removed)
		require.Equal(t, []string{"", "v"}, p.fast.has(keys(2)...))
		p.set("again", key(0))
		require.Equal(t, []string{"again", "v"}, p.reads(keys(2)...))
	}
}

func TestDeleteFailsInTheSlowLayer(t *testing.T) {
	for _, removedThere := range []bool{false, true} {
		p := newPair(t, tiered.Options{})
		p.set("v", keys(2)...)
		if removedThere {
			calls := 0
			p.slow.on(&p.slow.after, func(op string) error {
				if op == "delete" {
					if calls++; calls == 2 {
						return errInjected
					}
				}
				return nil
			})
		} else {
			p.slow.on(&p.slow.before, only("delete", errInjected))
		}
		_, err := p.Delete(t.Context(), []backend.Key{key(0)}, nil)
		require.ErrorIs(t, err, errInjected)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		want := []string{"v", "v"}
		if removedThere {
			want[0] = ""
		}
		require.Equal(t, want, p.reads(keys(2)...), "what the slow layer says")
	}
}

// The context ends while the slow layer deletes.
func TestDeleteWhoseContextEnds(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.set("v", keys(2)...)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := p.Delete(ctx, []backend.Key{key(0)}, func(int, []byte) bool { cancel(); return true })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"", "v"}, p.reads(keys(2)...), "what the slow layer says")
}

// A layer that can't delete is found before anything is removed.
func TestDeleteUnsupported(t *testing.T) {
	for _, which := range []string{"fast", "slow", "decorated fast"} {
		fast, slow := newFake(), newFake()
		layers := map[string]backend.Cache{"fast": fast, "slow": slow}
		if which == "decorated fast" {
			layers["fast"] = cantDelete{fast}
		} else {
			layers[which] = plain{layers[which]}
		}
		c, err := tiered.New(layers["fast"], layers["slow"], nil)
		require.NoError(t, err)
		require.NoError(t, c.SetMany(t.Context(), items("v", keys(2)...)))
		removed, err := backend.Delete(t.Context(), c, keys(2), nil)
		require.ErrorIs(t, err, errors.ErrUnsupported, which)
		require.NotErrorIs(t, err, backend.ErrUnavailable)
		require.Zero(t, removed)
		require.Len(t, fast.all(), 2)
		require.Len(t, slow.all(), 2)
		require.NoError(t, c.Close())
	}
}

// cantDelete is a decorator of something that can't.
type cantDelete struct{ backend.Cache }

func (c cantDelete) Delete(ctx context.Context, keys []backend.Key, match func(int, []byte) bool) (int, error) {
	return backend.Delete(ctx, plain(c), keys, match)
}

func TestScanStatsAndCompactAreTheSlowLayers(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.slow.puts("slow", keys(2)...)
	p.fast.puts("fast", key(5))
	var found []string
	next, err := backend.Scan(t.Context(), p.Cache, "", 0, func(e backend.Entry) error {
		found = append(found, string(e.Value))
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, next)
	require.Equal(t, []string{"slow", "slow"}, found)
	stats, err := backend.ReadStats(t.Context(), p.Cache)
	require.NoError(t, err)
	require.Equal(t, backend.Stats{Entries: 2, Bytes: 7, FreeBytes: -1}, stats)
	require.ErrorIs(t, backend.Compact(t.Context(), p.Cache), errInjected)
}

func TestUnsupportedBySlowLayer(t *testing.T) {
	c, err := tiered.New(newFake(), plain{newFake()}, nil)
	require.NoError(t, err)
	at, err := backend.Scan(t.Context(), c, "somewhere", 0, nil)
	require.ErrorIs(t, err, backend.ErrUnsupported)
	require.Equal(t, backend.Position("somewhere"), at)
	stats, err := backend.ReadStats(t.Context(), c)
	require.ErrorIs(t, err, backend.ErrUnsupported)
	require.Equal(t, backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}, stats)
	require.ErrorIs(t, backend.Compact(t.Context(), c), backend.ErrUnsupported)
	require.NoError(t, c.Close())
}

// The rules of contexts and of Close hold for what is optional too.
func TestOptionalAfterTheEnd(t *testing.T) {
	p := newPair(t, tiered.Options{})
	p.set("v", key(0))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	calls := func(ctx context.Context) map[string]error {
		_, deleteErr := backend.Delete(ctx, p.Cache, nil, nil)
		_, keyErr := backend.Delete(ctx, p.Cache, keys(1), nil)
		_, scanErr := backend.Scan(ctx, p.Cache, "", 0, func(backend.Entry) error { return nil })
		_, statsErr := backend.ReadStats(ctx, p.Cache)
		return map[string]error{"Delete of nothing": deleteErr, "Delete": keyErr, "Scan": scanErr, "Stats": statsErr, "Compact": backend.Compact(ctx, p.Cache)}
	}
	for name, err := range calls(ended) {
		require.ErrorIs(t, err, context.Canceled, name)
	}
	require.Equal(t, []string{"v"}, p.reads(key(0)))
	require.NoError(t, p.Close())
	for name, err := range calls(t.Context()) {
		require.ErrorIs(t, err, backend.ErrClosed, name)
	}
}
