package embed_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// waiting is a source that gives one text and then waits for the next until
// released.
func waiting(released <-chan struct{}) func(func(string, string) bool) {
	return func(yield func(string, string) bool) {
		if yield("id", "first") {
			<-released
			yield("id", "second")
		}
	}
}

// TestSourceThatWaits holds up neither a consumer that leaves nor the news that
// nothing more can be had.
func TestSourceThatWaits(t *testing.T) {
	for name, fault := range map[string]embedtest.Fault{"break": {}, "fatal": embedtest.Unauthorized()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				released := make(chan struct{})
				client := newClient(t, embedtest.NewProvider(&embedtest.Options{Faults: []embedtest.Fault{fault}}), nil)
				var errs []error
				for _, err := range client.Stream(context.Background(), waiting(released), nil).All() {
					errs = append(errs, err)
					if name == "break" {
						break
					}
				}
				if name == "break" {
					require.Equal(t, []error{nil}, errs)
				} else {
					require.Len(t, errs, 2)
					require.ErrorContains(t, errs[1], "401")
				}
				close(released) // the source's yield returns false, and it ends
			})
		})
	}
}

// TestSourceThatExits: a stream whose source didn't come to its end is no success.
func TestSourceThatExits(t *testing.T) {
	client := newClient(t, embedtest.NewProvider(nil), nil)
	source := func(yield func(string, string) bool) {
		yield("id", "first")
		runtime.Goexit()
	}
	var errs []error
	for _, err := range client.Stream(t.Context(), source, nil).All() {
		errs = append(errs, err)
	}
	require.Len(t, errs, 2)
	require.NoError(t, errs[0])
	require.ErrorContains(t, errs[1], "Goexit")
}

// TestLargeTextsAreNotReadAhead: the source is ahead of a slow consumer by a bounded
// number of bytes, not only of texts.
func TestLargeTextsAreNotReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given := 0
		large := strings.Repeat("large ", 1<<18)
		source := func(yield func(string, string) bool) {
			for range 400 {
				given++
				if !yield("id", large) {
					return
				}
			}
		}
		client := newClient(t, embedtest.NewProvider(nil), nil)
		for range client.Stream(t.Context(), source, &embed.StreamOptions{Linger: time.Millisecond}).All() {
			synctest.Wait()
			break
		}
		// One in each chunk of the window, and a few on their way.
		require.LessOrEqual(t, given, 40)
	})
}
