package bench

import (
	"context"
	"runtime"
	"time"
)

// Tick is the period of the ticker that stands for a neighbour: a goroutine that
// has next to nothing to do, and has to do it soon.
const Tick = 5 * time.Millisecond

// Lags is how late the ticks of one ticker were.
type Lags struct {
	Period time.Duration
	// Each has every tick that was due, in order. One that found its goroutine still
	// waiting for an earlier tick is not left out: it is as late as the goroutine.
	Each []time.Duration
}

// Watch starts a goroutine that wants to run once in each period. The caller must
// call stop once, which ends it and returns how late it ran.
func Watch(period time.Duration) (stop func() Lags) {
	lags := Lags{Period: period, Each: make([]time.Duration, 0, 4096)}
	next := time.Now().Add(period)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
				next = lags.note(next, time.Now())
				timer.Reset(time.Until(next))
			case <-done:
				lags.note(next, time.Now())
				return
			}
		}
	}()
	return func() Lags {
		close(done)
		<-ended
		return lags
	}
}

// note adds the ticks that are due from next on, and returns the first after now.
func (l *Lags) note(next, now time.Time) time.Time {
	for !next.After(now) {
		l.Each = append(l.Each, now.Sub(next))
		next = next.Add(l.Period)
	}
	return next
}

// Missed is the share of ticks, in percent, that were a period late or more: the
// next one was due before they came.
func (l Lags) Missed() float64 {
	missed := 0
	for _, lag := range l.Each {
		if lag >= l.Period {
			missed++
		}
	}
	return 100 * float64(missed) / float64(max(len(l.Each), 1))
}

// Summary is of the lags in milliseconds; zero where no tick was due.
func (l Lags) Summary() Summary {
	if len(l.Each) == 0 {
		return Summary{}
	}
	millis := make([]float64, len(l.Each))
	for i, lag := range l.Each {
		millis[i] = Micros(lag) / 1000
	}
	return Summarize(millis)
}

// Watched says how long f took, and how late the ticker was meanwhile.
func Watched(f func() error) (time.Duration, Lags, error) {
	runtime.GC() // none is left from what came before
	stop := Watch(Tick)
	begun := time.Now()
	err := f()
	elapsed := time.Since(begun)
	return elapsed, stop(), err
}

// IdleLags watches the ticker for d while nothing else goes on in this process:
// what the machine alone makes of it.
func IdleLags(ctx context.Context, d time.Duration) (Lags, error) {
	_, lags, err := Watched(func() error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	return lags, err
}
