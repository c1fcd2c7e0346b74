package s3

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A write goes on when its caller has left. What it stores doesn't come back after a
// Delete that begins then, with or without match.
func TestDeleteAfterAWriteThatWasLeft(t *testing.T) {
	for name, match := range map[string]func(int, []byte) bool{"all": nil, "match": func(int, []byte) bool { return true }} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, fakeServer(t))
			c := s.open(t, nil)
			begun, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			s.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
				if r.Method == http.MethodPut {
					once.Do(func() { close(begun); <-release })
				}
				pass.ServeHTTP(w, r)
			})
			ctx, cancel := context.WithCancel(ctxb)
			left := make(chan error, 1)
			go func() { left <- c.SetMany(ctx, testItems(0, 3, 100, 'a')) }()
			<-begun
			cancel()
			require.ErrorIs(t, <-left, context.Canceled)

			short, stop := context.WithTimeout(ctxb, 30*time.Millisecond)
			defer stop()
			_, err := c.Delete(short, testKeys(3), match)
			require.ErrorIs(t, err, context.DeadlineExceeded, "it waits for the write")
			close(release)
			removed, err := c.Delete(ctxb, testKeys(3), match)
			require.NoError(t, err)
			require.Equal(t, 3, removed)
			require.Empty(t, readAll(t, c, testKeys(3)))
		})
	}
}
