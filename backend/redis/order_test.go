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
	err := c.detachChange(ctx, time.Minute, func(own context.Context) error {
		cancel()
		<-release
		// It would cut the connection, and what was sent would arrive some time.
		require.NoError(t, own.Err(), "the end of the caller's context is none of the change's")
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

// A Delete with match looks after a write that was left, whose entries would come
// back otherwise.
func TestDeleteLooksAfterAWriteThatWasLeft(t *testing.T) {
	needServer(t)
	c := openOn(t, sharedServer(t).addr, Options{})
	write := make(chan struct{})
	c.left.add(write)
	looked := false
	match := func(int, []byte) bool { looked = true; return true }
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Delete(short, testKeys(1), match)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, looked)

	// The write comes to its end, and has stored something.
	other := openOn(t, sharedServer(t).addr, Options{Prefix: c.options.Prefix})
	require.NoError(t, other.SetMany(t.Context(), testItems(0, 1, 'a')))
	close(write)
	removed, err := c.Delete(t.Context(), testKeys(1), match)
	require.NoError(t, err)
	require.Equal(t, 1, removed)
}
