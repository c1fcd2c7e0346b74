package s3

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// soakTime is what EMBEDONCE_SOAK says, 20 s by default.
func soakTime() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("EMBEDONCE_SOAK")); err == nil {
		return d
	}
	return 20 * time.Second
}

// truth is what the soak knows of one key, which one writer has for itself.
type truth struct {
	mu sync.Mutex
	state
}

type state struct {
	begun   int  // the last version that a write was begun with
	stored  int  // the last one that was acknowledged; 0 is none
	deleted bool // after that
	maybe   bool // a deletion since then that has not ended, or failed
}

func (k *truth) snapshot() state {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// fits says whether got (0: missing) may be what a read found that began when before
// was true and ended when after was.
func fits(got int, before, after state) bool {
	if got == 0 {
		return before.stored == 0 || before.deleted || before.maybe || after.deleted || after.maybe
	}
	// A write that failed may come to light after a deletion that didn't see it.
	return got <= after.begun && (got > before.stored || got == before.stored && !before.deleted)
}

func soakValue(key, v int) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(key))
	b = binary.BigEndian.AppendUint32(b, uint32(v))
	return append(b, bytes.Repeat([]byte{byte(key), byte(v)}, 10+key%40)...)
}

// zombies repeat PUTs long after they were made, as a network may, and lose answers.
type zombies struct {
	random      func(n int) int
	conditional bool
	late        sync.WaitGroup
	count       atomic.Int64
	gone        atomic.Int64 // 404s that readers and compactors got
	stop        chan struct{}
}

func (z *zombies) meddle(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	if !z.conditional {
		r.Header.Del("If-None-Match")
	}
	switch {
	case isPut(r):
		body, err := io.ReadAll(r.Body)
		if err != nil {
			cut()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if z.random(3) == 0 {
			again := r.Clone(context.WithoutCancel(r.Context()))
			again.Header.Del("If-None-Match")
			again.Body = io.NopCloser(bytes.NewReader(body))
			delay := time.Duration(z.random(4000)) * time.Millisecond
			z.late.Go(func() {
				select {
				case <-time.After(delay):
				case <-z.stop:
				}
				pass.ServeHTTP(&discard{make(http.Header)}, again)
				z.count.Add(1)
			})
		}
		switch z.random(20) {
		case 0:
			pass.ServeHTTP(&discard{make(http.Header)}, r)
			cut()
		case 1:
			refuse(w, 503, "SlowDown")
			return
		case 2:
			<-time.After(time.Duration(z.random(100)) * time.Millisecond)
		}
	case z.random(300) == 0:
		refuse(w, 500, "InternalError")
		return
	}
	status := &statusWriter{ResponseWriter: w}
	pass.ServeHTTP(status, r)
	if status.status == http.StatusNotFound {
		z.gone.Add(1)
	}
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

func TestCompactionSoak(t *testing.T) {
	for _, conditional := range []bool{true, false} {
		t.Run(fmt.Sprintf("conditional writes %v", conditional), func(t *testing.T) {
			compactionSoak(t, conditional, soakTime()/4)
		})
	}
}

// compactionSoak: 4 writers, 2 compactors and 2 readers, each with a handle of its
// own, and zombies.
func compactionSoak(t *testing.T, conditional bool, duration time.Duration) {
	s := newStore(t, fakeServer(t))
	seed := rand.Uint64()
	t.Logf("on %s, seed %d", s.name, seed)
	var mu sync.Mutex
	shared := rand.New(rand.NewPCG(seed, 0))
	z := &zombies{conditional: conditional, stop: make(chan struct{}), random: func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return shared.IntN(n)
	}}
	s.set(z.meddle)
	const writers, each = 4, 150
	keys := make([]*truth, writers*each)
	for i := range keys {
		keys[i] = new(truth)
	}
	end := time.Now().Add(duration)
	running := func() bool { return time.Now().Before(end) && !t.Failed() }
	var group sync.WaitGroup
	var writes, refused, deletes, checks, compactions, failedCompactions atomic.Int64
	for w := range writers {
		c := s.open(t, atOnce(s))
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w+1)))
			for running() {
				first := w*each + random.IntN(each-20)
				n := 1 + random.IntN(20)
				if random.IntN(8) == 0 {
					soakDelete(t, c, keys, first, n, &deletes)
					continue
				}
				var items []backend.Item
				for i := first; i < first+n; i++ {
					keys[i].mu.Lock()
					keys[i].begun++
					items = append(items, backend.Item{Key: testKey(i), Value: soakValue(i, keys[i].begun)})
					keys[i].mu.Unlock()
				}
				writes.Add(1)
				if err := c.SetMany(ctxb, items); err != nil {
					refused.Add(1)
					continue
				}
				for i := first; i < first+n; i++ {
					keys[i].mu.Lock()
					keys[i].stored, keys[i].deleted, keys[i].maybe = keys[i].begun, false, false
					keys[i].mu.Unlock()
				}
			}
		})
	}
	for m := range 2 {
		c := s.open(t, atOnce(s))
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(m+100)))
			for running() {
				limit := 30 * time.Second
				if random.IntN(3) == 0 {
					limit = time.Duration(random.IntN(300)) * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(ctxb, limit)
				err := c.Compact(ctx) // one that is cut off is a compactor that died
				cancel()
				compactions.Add(1)
				if err != nil {
					failedCompactions.Add(1)
				}
			}
		})
	}
	check := func(c *Cache, first, n int, fresh bool) {
		before := make([]state, n)
		for i := range before {
			before[i] = keys[first+i].snapshot()
		}
		if fresh {
			if err := c.freshen(ctxb, time.Now(), true); err != nil {
				return
			}
		}
		got := make([]int, n)
		err := c.GetMany(ctxb, testKeys(first + n)[first:], func(i int, value []byte) error {
			if len(value) < 8 || int(binary.BigEndian.Uint32(value)) != first+i {
				t.Errorf("a value of another key")
				return nil
			}
			if got[i] = int(binary.BigEndian.Uint32(value[4:])); !bytes.Equal(value, soakValue(first+i, got[i])) {
				t.Errorf("a value that nobody has written")
			}
			return nil
		})
		if err != nil {
			if !fresh {
				t.Error(err)
			}
			return // a server that fails is no finding
		}
		for i := range got {
			after := keys[first+i].snapshot()
			if !fits(got[i], before[i], after) {
				t.Errorf("key %d has version %d (0: none), where %+v was true before and %+v afterwards", first+i, got[i], before[i], after)
			}
			checks.Add(1)
		}
	}
	for m := range 2 {
		c := s.open(t, atOnce(s))
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(m+200)))
			for running() {
				check(c, random.IntN(len(keys)-60), 60, true)
			}
		})
	}
	group.Wait()
	close(z.stop)
	z.late.Wait()
	s.set(nil)
	last := s.open(t, atOnce(s))
	for range 3 {
		check(last, 0, len(keys), false)
		check(s.open(t, nil), 0, len(keys), false)
		require.NoError(t, last.Compact(ctxb))
	}
	t.Logf("%d writes (%d refused), %d deletions, %d compactions (%d cut off), %d late PUTs, %d answers of 404, %d checks of keys, 0 wrong or lost",
		writes.Load(), refused.Load(), deletes.Load(), compactions.Load(), failedCompactions.Load(), z.count.Load(), z.gone.Load(), checks.Load())
}

func soakDelete(t *testing.T, c *Cache, keys []*truth, first, n int, deletes *atomic.Int64) {
	var doomed []backend.Key
	for i := first; i < first+n; i++ {
		keys[i].mu.Lock()
		keys[i].maybe = true
		keys[i].mu.Unlock()
		doomed = append(doomed, testKey(i))
	}
	deletes.Add(1)
	if _, err := c.Delete(ctxb, doomed, nil); err != nil {
		return
	}
	for i := first; i < first+n; i++ {
		keys[i].mu.Lock()
		keys[i].deleted, keys[i].maybe = true, false
		keys[i].mu.Unlock()
	}
}
