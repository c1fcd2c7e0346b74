package redis

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Reading makes at most 4 allocations for a key, and writing at most 4 for an entry;
// today it is about one and less than one. A count is no timing, and can be tested.
func TestAllocations(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	c := openOn(t, sharedServer(t).addr, Options{})
	const n = 512
	items := make([]byte, 6208)
	batch := testItems(0, n, 'a')
	for i := range batch {
		batch[i].Value = items
	}
	require.NoError(t, c.SetMany(ctx, batch))
	keys := testKeys(n)
	to := make([]byte, len(items))
	reading := testing.AllocsPerRun(20, func() {
		err := c.GetMany(ctx, keys, func(_ int, value []byte) error { copy(to, value); return nil })
		if err != nil {
			t.Error(err)
		}
	})
	writing := testing.AllocsPerRun(20, func() {
		if err := c.SetMany(ctx, batch); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%.2f allocations for a key, %.2f for an entry", reading/n, writing/n)
	require.LessOrEqual(t, reading, 4.0*n)
	require.LessOrEqual(t, writing, 4.0*n)
}
