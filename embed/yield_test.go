package embed_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
)

// TestSmallCallsLetOthersRun: a caller that finds everything and never waits lets
// another goroutine of its processor run once for 128 texts, however few are in a
// call.
func TestSmallCallsLetOthersRun(t *testing.T) {
	client := newClient(t, embedtest.NewProvider(&embedtest.Options{Dimensions: 8, NoLog: true}), &embed.Options{Cache: newTestCache()})
	texts := numbered(3)
	_, err := client.Embed(t.Context(), texts)
	require.NoError(t, err)

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var ran atomic.Int64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
				ran.Add(1)
				runtime.Gosched()
			}
		}
	}()
	const turns = 50 // some may be lost where the processor is another program's
	for range turns * 128 / len(texts) {
		response, err := client.Embed(t.Context(), texts)
		require.NoError(t, err)
		require.Equal(t, len(texts), response.Usage.Hits)
	}
	close(done)
	<-ended
	require.GreaterOrEqual(t, ran.Load(), int64(turns*4/5))
}
