package bench

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
)

func TestEachClientHasAFreshCopy(t *testing.T) {
	r := startRun(t, Settings{Quick: true})
	defer func() { require.NoError(t, r.End()) }()
	ctx := t.Context()
	provider := LocalProvider(8)
	texts := r.Texts(0, 3)
	usable, err := r.Backends(ctx, "memory", "sqlite")
	require.NoError(t, err)
	for _, b := range usable {
		store, err := r.Prepare(ctx, b, func(c backend.Cache) error { return Fill(ctx, c, provider, texts[:2]) })
		require.NoError(t, err)
		before, err := os.ReadDir(r.dir)
		require.NoError(t, err)
		mistake := errors.New("mistake")
		for range 2 {
			var kept *embed.Client
			err := store.WithClient(ctx, provider, nil, func(client *embed.Client) error {
				kept = client
				response, err := client.Embed(ctx, texts)
				require.NoError(t, Check(response, err, 2))
				return mistake
			})
			require.ErrorIs(t, err, mistake)
			_, err = kept.Embed(ctx, texts)
			require.ErrorIs(t, err, embed.ErrClosed)
		}
		after, err := os.ReadDir(r.dir)
		require.NoError(t, err)
		require.Len(t, after, len(before))
		require.ErrorContains(t, store.WithClient(ctx, provider, &embed.Options{MaxRetries: -2}, nil), "MaxRetries")
		require.NoError(t, store.Close(ctx))
	}
}
