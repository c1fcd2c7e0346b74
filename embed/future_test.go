package embed_test

import (
	"context"
	"testing"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// A later version's record is not overwritten by Refresh, which doesn't look, nor
// after a read that failed.
func TestFutureRecordSurvives(t *testing.T) {
	for _, how := range []string{"refresh", "stream refresh", "a read that failed"} {
		t.Run(how, func(t *testing.T) {
			cache := newTestCache()
			client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
			_, err := client.Embed(t.Context(), []string{"a"})
			require.NoError(t, err)
			for key, good := range cache.entries {
				cache.entries[key] = edit(func(b []byte) { b[4] = 9 }, true)(good, nil)
			}
			before := cache.snapshot()
			switch how {
			case "refresh":
				_, err = client.Do(t.Context(), &embed.Call{Texts: []string{"a"}, Refresh: true})
			case "stream refresh":
				for range client.Stream(t.Context(), pairs([]string{"a"}), &embed.StreamOptions{Refresh: true}).All() {
				}
			case "a read that failed":
				failures := 1
				cache.onGet = func(context.Context, []backend.Key) error {
					if failures--; failures >= 0 {
						return errDisk
					}
					return nil
				}
				_, err = client.Embed(t.Context(), []string{"a"})
			}
			require.NoError(t, err)
			require.Equal(t, before, cache.snapshot())
		})
	}
}
