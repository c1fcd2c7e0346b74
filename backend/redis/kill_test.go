package redis

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// TestServerIsKilled kills a server that syncs its log after each write, again and
// again while four goroutines write batches: nothing that was acknowledged is lost,
// and nothing is there in part. EMBEDONCE_REDIS_KILLS says how often.
func TestServerIsKilled(t *testing.T) {
	needServer(t)
	kills := 5
	if text := os.Getenv("EMBEDONCE_REDIS_KILLS"); text != "" {
		var err error
		kills, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	ctx := context.Background()
	// A socket of its own: a port could go to another server while this one is down, and
	// that would acknowledge batches too.
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	s := newServer(t, dir, "--appendonly", "yes", "--appendfsync", "always", "--unixsocket", socket)
	t.Cleanup(s.stop)
	openSocket := func(timeout time.Duration) *Cache {
		c, err := Open("unix://"+socket, &Options{Prefix: t.Name() + ":", Timeout: timeout})
		require.NoError(t, err)
		return c
	}

	const writers = 4
	acknowledged, lost, part, errs := 0, 0, 0, 0
	for kill := range kills {
		c := openSocket(2 * time.Second)
		require.Equal(t, backend.SurvivesPowerLoss, c.Info().Durability)
		type written struct {
			from, n int
			err     error
		}
		batches := make([][]written, writers)
		stop := make(chan struct{})
		var writing sync.WaitGroup
		for w := range writers {
			writing.Go(func() {
				for b := 0; ; b++ {
					batch := written{from: ((kill*writers+w)*1000 + b) * 100, n: 1 + (b*37)%100}
					batch.err = c.SetMany(ctx, testItems(batch.from, batch.n, byte(kill)))
					batches[w] = append(batches[w], batch)
					select {
					case <-stop:
						return
					default:
					}
					if batch.err != nil {
						return
					}
				}
			})
		}
		timer := time.NewTimer(time.Duration(random.Int64N(int64(60 * time.Millisecond))))
		<-timer.C // the moment of the kill is left to chance
		s.kill()
		close(stop)
		writing.Wait()
		s.start(t, "redis-server")
		require.NoError(t, c.Close())

		again := openSocket(5 * time.Second)
		for _, all := range batches {
			for _, batch := range all {
				keys := make([]backend.Key, batch.n)
				for i := range keys {
					keys[i] = testKey(batch.from + i)
				}
				values := readAll(t, again, keys)
				for i, value := range values {
					require.Equal(t, testValue(batch.from+i, byte(kill)), value)
				}
				switch {
				case batch.err == nil:
					acknowledged++
					if len(values) < batch.n {
						lost++
						t.Errorf("kill %d: %d of %d entries of a batch that was acknowledged are there; batches of its writer: %+v", kill, len(values), batch.n, all)
					}
				default:
					errs++
					if len(values) != 0 && len(values) != batch.n {
						part++
					}
				}
			}
		}
		require.NoError(t, again.Close())
		require.Zero(t, lost, "batches that were acknowledged are lost, seed %d", seed)
		require.Zero(t, part, "batches are stored in part, seed %d", seed)
		if kill%50 == 49 { // a log that is as long as all kills makes each start slower
			require.NoError(t, s.raw.FlushAll(ctx).Err())
			require.NoError(t, s.raw.BgRewriteAOF(ctx).Err())
			require.Eventually(t, func() bool {
				info, err := s.raw.InfoMap(ctx, "persistence").Result()
				return err == nil && info["Persistence"]["aof_rewrite_in_progress"] == "0"
			}, 30*time.Second, 10*time.Millisecond)
		}
	}
	t.Logf("%d kills, %d batches acknowledged, %d of them lost, %d unknown, %d in part", kills, acknowledged, lost, errs, part)
	require.Positive(t, acknowledged)
}
