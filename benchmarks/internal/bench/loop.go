package bench

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Pass is what Loop saw.
type Pass struct {
	Calls   int
	Elapsed time.Duration   // from the start of all until the last one was done
	Each    []time.Duration // how long each call took
}

// PerText returns the microseconds that one text took, of calls with so many texts:
// the inverse of the throughput of all goroutines together.
func (p Pass) PerText(texts int) float64 {
	return Micros(p.Elapsed) / float64(p.Calls) / float64(texts)
}

// EachMillis returns how many milliseconds each call took, for Summarize.
func (p Pass) EachMillis() []float64 {
	millis := make([]float64, len(p.Each))
	for i, d := range p.Each {
		millis[i] = Micros(d) / 1000
	}
	return millis
}

// Micros is d in microseconds.
func Micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// Loop measures call: so many goroutines call it again and again, until they have
// done so for at least d, each at least once. i counts the calls of a goroutine g
// from 1. Before, each goroutine makes one call with i = 0 to warm up; then all wait
// for each other, so that they start together. The first error ends all.
func Loop(ctx context.Context, goroutines int, d time.Duration, call func(g, i int) error) (Pass, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	each := make([][]time.Duration, goroutines)
	start := make(chan struct{})
	var begun, ended sync.WaitGroup
	var began time.Time // is set before start is closed
	begun.Add(goroutines)
	for g := range goroutines {
		ended.Go(func() {
			each[g] = make([]time.Duration, 0, 4096)
			err := call(g, 0)
			begun.Done()
			<-start
			last := began
			for i := 1; err == nil && ctx.Err() == nil; i++ {
				err = call(g, i)
				now := time.Now()
				each[g] = append(each[g], now.Sub(last))
				last = now
				if now.Sub(began) >= d {
					break
				}
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	begun.Wait()
	runtime.GC() // none is left from what came before
	began = time.Now()
	close(start)
	ended.Wait()
	elapsed := time.Since(began)
	if err := context.Cause(ctx); err != nil {
		return Pass{}, err
	}
	all := slices.Concat(each...)
	return Pass{Calls: len(all), Elapsed: elapsed, Each: all}, nil
}

// Sleep waits for d, or until ctx ends, whose error it returns then.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
