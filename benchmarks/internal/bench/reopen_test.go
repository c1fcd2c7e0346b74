package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// After it was opened again, a copy has what it had, and can be removed.
func TestReopen(t *testing.T) {
	r := startRun(t, Settings{Quick: true})
	defer func() { require.NoError(t, r.End()) }()
	usable, err := r.Backends(t.Context(), BackendNames()...)
	require.NoError(t, err)
	for _, b := range usable {
		t.Run(b.Name, func(t *testing.T) {
			ctx := t.Context()
			keys := []backend.Key{{1}, {9}}
			want := map[backend.Key]string{{1}: "one"}
			store, err := r.Prepare(ctx, b, func(c backend.Cache) error {
				return c.SetMany(ctx, []backend.Item{{Key: keys[0], Value: []byte("one")}})
			})
			require.NoError(t, err)

			copied, err := store.Fresh(ctx)
			require.NoError(t, err)
			before := copied.Cache
			closing, opening, err := copied.Reopen(ctx)
			require.NoError(t, err)
			require.Positive(t, closing)
			require.Positive(t, opening)
			require.NotSame(t, before, copied.Cache)
			require.ErrorIs(t, before.GetMany(ctx, keys, func(int, []byte) error { return nil }), backend.ErrClosed)
			require.Equal(t, want, values(t, func(keys []backend.Key, visit func(int, []byte)) error {
				return copied.GetMany(ctx, keys, func(i int, value []byte) error { visit(i, value); return nil })
			}, keys))
			require.NoError(t, copied.Remove(ctx))

			byHand, err := store.Floor(ctx)
			require.NoError(t, err)
			closing, opening, err = byHand.Reopen(ctx)
			if b.Name == "memory" {
				require.ErrorIs(t, err, ErrInMemory)
			} else {
				require.NoError(t, err)
				require.Positive(t, closing)
				require.Positive(t, opening)
			}
			reader, err := byHand.Reader()
			require.NoError(t, err)
			require.Equal(t, want, values(t, reader.Get, keys))
			require.NoError(t, reader.Close())
			require.NoError(t, byHand.Remove(ctx))
			require.NoError(t, store.Close(ctx))
		})
	}
}
