package main

import (
	"context"
	"os"
	"sync"
	"time"
)

// layout is how many callers a contestant has: processes times threads.
type layout struct {
	processes, threads int
	clients            int // in each process; the threads share them evenly
}

func (l layout) lanes() int { return l.processes * l.threads }

// work is what one measured run does, the same for every contestant. Each lane is
// one caller, which makes one call after the other.
type work struct {
	perCall int     // texts a call
	starts  [][]int // of each lane: the index of the first text of each call
	// limit is when a lane begins no further call; it goes round its starts until
	// then. 0 makes each call once.
	limit time.Duration
	// checkAll keeps all answers, not only the last of each lane.
	checkAll bool
}

// outcome is what one run did.
type outcome struct {
	elapsed     time.Duration // from the common start to the end of the last lane
	calls       []time.Duration
	texts, hits int
	answers     []answer // what was kept; digested outside of elapsed
}

// answer is what one call returned.
type answer struct {
	start  int // of the call
	digest string
}

// contestant is one way to embed with a cache. dir is the folder of a store; it
// exists, and an empty one is an empty store.
type contestant interface {
	name() string
	open(ctx context.Context, dir string, l layout) (session, error)
	// copyStore makes to, which is empty, a copy of from. Neither is open.
	copyStore(ctx context.Context, from, to string) error
	// dropStore frees what belongs to dir, before the folder is removed.
	dropStore(dir string)
}

// session is a store that is open.
type session interface {
	run(ctx context.Context, w work) (outcome, error)
	close() error
}

// drive runs w on one goroutine a lane. call embeds the texts from start on and
// returns how many were hits, and the vectors, which it must not use again.
func drive(ctx context.Context, w work, call func(lane, start int) (hits int, matrix []float32, err error)) (outcome, error) {
	type kept struct {
		start  int
		matrix []float32
	}
	type laneResult struct {
		calls []time.Duration
		kept  []kept
		hits  int
		end   time.Time
		err   error
	}
	lanes := make([]laneResult, len(w.starts))
	barrier := make(chan struct{})
	var begin time.Time // set before the barrier opens
	var ready, done sync.WaitGroup
	for lane, starts := range w.starts {
		ready.Add(1)
		done.Go(func() {
			r := &lanes[lane]
			ready.Done()
			<-barrier
			for i := 0; w.more(i, len(starts), time.Since(begin)); i++ {
				if r.err = ctx.Err(); r.err != nil {
					break
				}
				start := starts[i%len(starts)]
				from := time.Now()
				hits, matrix, err := call(lane, start)
				r.calls = append(r.calls, time.Since(from))
				if r.err = err; err != nil {
					break
				}
				r.hits += hits
				if !w.checkAll {
					r.kept = r.kept[:0]
				}
				if matrix != nil {
					r.kept = append(r.kept, kept{start, matrix})
				}
			}
			r.end = time.Now()
		})
	}
	ready.Wait()
	begin = time.Now()
	close(barrier)
	done.Wait()

	var out outcome
	for _, r := range lanes {
		if r.err != nil {
			return outcome{}, r.err
		}
		out.elapsed = max(out.elapsed, r.end.Sub(begin))
		out.calls = append(out.calls, r.calls...)
		out.texts += len(r.calls) * w.perCall
		out.hits += r.hits
		for _, k := range r.kept {
			out.answers = append(out.answers, answer{k.start, digest(k.matrix)})
		}
	}
	return out, nil
}

// more says whether a lane that has made i calls makes another.
func (w work) more(i, starts int, elapsed time.Duration) bool {
	if w.limit == 0 {
		return i < starts
	}
	return i == 0 || elapsed < w.limit
}

// copyFolder copies the files of a store that is closed.
func copyFolder(from, to string) error { return os.CopyFS(to, os.DirFS(from)) }
