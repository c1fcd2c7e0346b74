package redis

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A change whose caller has left comes to its end before the next one begins: on
// another connection it could reach the server later, and undo it.
func TestChangeThatWasLeftComesFirst(t *testing.T) {
	c := &Cache{turns: make(gate, 2)}
	release := make(chan struct{})
	var order []string
	ctx, cancel := context.WithCancel(t.Context())
	err := c.detachChange(ctx, time.Minute, func(context.Context) error {
		cancel()
		<-release
		order = append(order, "left")
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)

	later := func(ctx context.Context) error {
		return c.detachChange(ctx, time.Minute, func(context.Context) error {
			order = append(order, "later")
			return nil
		})
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, later(short), context.DeadlineExceeded, "it waits, as long as its context allows")
	close(release)
	require.NoError(t, later(t.Context()))
	require.Equal(t, []string{"left", "later"}, order)
	c.jobs.Wait()
}
