package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

const (
	hitCallers     = 16 // beside one large call
	hitCallerTexts = 16
	warmTexts      = 64
	// callerRest is how long a caller rests after each call: it has one to make now and
	// then, and doesn't ask for a processor of its own.
	callerRest = time.Millisecond
)

// neighbourRun is the scenario neighbours.
type neighbourRun struct {
	*bench.Run
	dims    int
	sizes   []int // texts of a call
	large   int   // the largest of them
	medium  int   // of the call among callers that don't rest
	each    time.Duration
	calls   int      // that find nothing, of one measurement, at most
	known   []string // that the store has
	fresh   []string // that it hasn't
	windows *bench.Windows
	rows    []float32 // lent to the hit callers

	provider embed.Provider
	table    *bench.Table
}

// neighbours measures what other goroutines feel of calls: a ticker, callers of one
// text, and many hit callers beside one large call that finds nothing.
func neighbours(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt")
	if err != nil {
		return err
	}
	w := &neighbourRun{
		Run:   r,
		dims:  1536,
		sizes: bench.Pick(r.Quick, []int{64, 256}, []int{64, 512, 2048, 4096}),
		each:  bench.Pick(r.Quick, 10*time.Millisecond, time.Second),
		calls: bench.Pick(r.Quick, 2, 50),

		medium: bench.Pick(r.Quick, 4, 512),
		table:  r.NewTable(),
	}
	w.large = slices.Max(w.sizes)
	w.known = r.Texts(0, w.large)
	w.fresh = r.Texts(w.large, w.large+bench.Pick(r.Quick, 256, 4*4096))
	w.windows = bench.NewWindows(r.Seed, w.known)
	w.rows = make([]float32, max(w.large, hitCallers*hitCallerTexts)*w.dims)
	w.provider = r.NewServer(w.dims, bench.Pick(r.Quick, 5*time.Millisecond, 20*time.Millisecond)).Provider()
	filling := r.NewServer(w.dims, 0).Provider()
	for _, b := range backends {
		fill := func(c backend.Cache) error { return bench.Fill(ctx, c, filling, w.known) }
		err := r.Repeat(ctx, b, b.Name, fill, func(repetition int, store *bench.Store) error {
			return w.repeat(ctx, repetition, b.Name, store)
		})
		if err != nil {
			return err
		}
	}
	for repetition := range r.Runs {
		r.Logf("without a store, run %d of %d", repetition+1, r.Runs)
		if err := w.withoutStore(ctx, repetition); err != nil {
			return err
		}
	}
	return w.table.Emit()
}

// repeat measures all that needs a store.
func (w *neighbourRun) repeat(ctx context.Context, repetition int, name string, store *bench.Store) error {
	cell := bench.Result{Backend: name, Goroutines: 1, Dims: w.dims, Entries: len(w.known)}
	for _, n := range w.sizes {
		cell.Texts = n
		err := w.ticker(ctx, repetition, cell,
			tickerSide{"hits", bench.CaseOurs, func(ctx context.Context) (lags bench.Lags, err error) {
				err = store.WithClient(ctx, w.provider, nil, func(client *embed.Client) error {
					lags, err = w.during(math.MaxInt, func(i int) error { return w.hits(ctx, client, i, n) })
					return err
				})
				return lags, err
			}},
			tickerSide{"misses", bench.CaseOurs, func(ctx context.Context) (lags bench.Lags, err error) {
				err = store.WithClient(ctx, w.provider, nil, func(client *embed.Client) error {
					lags, err = w.during(w.missCalls(n), func(i int) error { return w.misses(ctx, client, i, n) })
					return err
				})
				return lags, err
			}})
		if err != nil {
			return err
		}
	}
	if err := w.oneText(ctx, repetition, cell, store); err != nil {
		return err
	}
	if err := w.amongHitCallers(ctx, repetition, cell, store, "hit callers", callerRest, w.large); err != nil {
		return err
	}
	return w.amongHitCallers(ctx, repetition, cell, store, "hot hit callers", 0, w.medium)
}

// withoutStore measures calls without a cache, the same by hand, and the ticker alone.
func (w *neighbourRun) withoutStore(ctx context.Context, repetition int) error {
	for _, n := range w.sizes {
		cell := bench.Result{Goroutines: 1, Texts: n, Dims: w.dims}
		err := w.ticker(ctx, repetition, cell,
			tickerSide{bench.CaseNoCache, bench.CaseOurs, func(ctx context.Context) (lags bench.Lags, err error) {
				err = bench.WithClient(w.provider, nil, func(client *embed.Client) error {
					lags, err = w.during(w.missCalls(n), func(i int) error { return w.misses(ctx, client, i, n) })
					return err
				})
				return lags, err
			}},
			tickerSide{bench.CaseNoCache, bench.CaseFloor, func(ctx context.Context) (bench.Lags, error) {
				return w.during(w.missCalls(n), func(i int) error {
					return bench.Ask(ctx, w.provider, w.fresh[i*n:(i+1)*n], bench.TextsOfRequest, embed.DefaultConcurrentRequests)
				})
			}})
		if err != nil {
			return err
		}
	}
	return w.ticker(ctx, repetition, bench.Result{}, tickerSide{"nothing", bench.CaseControl, func(ctx context.Context) (bench.Lags, error) {
		return bench.IdleLags(ctx, w.each)
	}})
}

// tickerSide is something beside which the ticker runs.
type tickerSide struct {
	beside string // it
	name   string // of the case
	lags   func(ctx context.Context) (bench.Lags, error)
}

// ticker adds how late the ticker was beside each side. They take turns, as in
// [bench.Table.Beside].
func (w *neighbourRun) ticker(ctx context.Context, repetition int, cell bench.Result, sides ...tickerSide) error {
	all := make([]bench.Lags, len(sides))
	for k := range sides {
		at := (k + repetition) % len(sides)
		var err error
		if all[at], err = sides[at].lags(ctx); err != nil {
			return fmt.Errorf("%s, %s on %q, %d texts: %w", sides[at].name, sides[at].beside, cell.Backend, cell.Texts, err)
		}
	}
	for i, side := range sides {
		lags := all[i].Summary()
		for _, figure := range []struct {
			metric, unit string
			value        float64
		}{{"missed ticks", "%", all[i].Missed()}, {"p99 lag", "ms", lags.P99}, {"worst lag", "ms", lags.Max}} {
			cell.Metric, cell.Unit = side.beside+", "+figure.metric, figure.unit
			w.table.Add(cell, side.name, figure.value)
		}
	}
	return nil
}

// during watches the ticker while calls are made, after one that warms up: at most so
// many, and for some time.
func (w *neighbourRun) during(calls int, call func(i int) error) (bench.Lags, error) {
	if err := call(0); err != nil {
		return bench.Lags{}, err
	}
	_, lags, err := bench.Watched(func() error { return w.again(calls, call) })
	return lags, err
}

// again makes calls, from 1 on: at most so many, and if that is not known for some
// time.
func (w *neighbourRun) again(calls int, call func(i int) error) error {
	begun := time.Now()
	for i := 1; i <= calls; i++ {
		if err := call(i); err != nil {
			return err
		}
		if calls == math.MaxInt && time.Since(begun) >= w.each {
			break
		}
	}
	return nil
}

// missCalls is how many calls of n texts there are texts for, beside one that warms up.
func (w *neighbourRun) missCalls(n int) int { return min(w.calls, len(w.fresh)/n-1) }

func (w *neighbourRun) hits(ctx context.Context, client *embed.Client, i, n int) error {
	response, err := client.Do(ctx, &embed.Call{Texts: w.windows.At(0, i, n), CacheOnly: true, Into: w.rows})
	return bench.Check(response, err, n)
}

func (w *neighbourRun) misses(ctx context.Context, client *embed.Client, i, n int) error {
	response, err := client.Embed(ctx, w.fresh[i*n:(i+1)*n])
	return bench.Check(response, err, 0)
}

// oneText measures calls of one text, which is stored, beside large calls.
func (w *neighbourRun) oneText(ctx context.Context, repetition int, cell bench.Result, store *bench.Store) error {
	cell.Texts, cell.Unit = 1, "ms"
	row := make([]float32, w.dims)
	sides := []struct {
		name   string
		beside func(client *embed.Client) error
	}{
		{"alone", func(*embed.Client) error { return w.rest(ctx) }},
		{"beside hits", func(client *embed.Client) error {
			return w.again(math.MaxInt, func(i int) error { return w.hits(ctx, client, i, w.large) })
		}},
		{"beside misses", func(client *embed.Client) error {
			return w.again(w.missCalls(w.large), func(i int) error { return w.misses(ctx, client, i, w.large) })
		}},
	}
	all := make([][]float64, len(sides))
	for k := range sides {
		at := (k + repetition) % len(sides)
		err := store.WithClient(ctx, w.provider, nil, func(client *embed.Client) (err error) {
			if err := w.warm(ctx, client); err != nil {
				return err
			}
			all[at], err = beside(1, callerRest, func(g, i int) error {
				response, err := client.Do(ctx, &embed.Call{Texts: w.windows.At(1, i, 1), CacheOnly: true, Into: row})
				return bench.Check(response, err, 1)
			}, func() error { return sides[at].beside(client) })
			return err
		})
		if err != nil {
			return fmt.Errorf("one text %s on %q: %w", sides[at].name, cell.Backend, err)
		}
	}
	for i, side := range sides {
		cell.Metric = "one text, " + side.name
		w.addAll(cell, all[i])
	}
	return nil
}

// amongHitCallers measures one call that finds nothing of so many texts among callers
// that find everything, and each of them alone. Callers without a rest leave no
// processor idle.
func (w *neighbourRun) amongHitCallers(ctx context.Context, repetition int, cell bench.Result, store *bench.Store, name string, rest time.Duration, texts int) error {
	cell.Unit = "ms"
	callers, miss := cell, cell
	callers.Goroutines, callers.Texts = hitCallers, hitCallerTexts
	miss.Texts = texts
	for k := range 2 {
		together := (k+repetition)%2 == 1
		err := store.WithClient(ctx, w.provider, nil, func(client *embed.Client) error {
			if err := w.warm(ctx, client); err != nil {
				return err
			}
			var took float64
			call := func() error {
				begun := time.Now()
				response, err := client.Embed(ctx, w.fresh[warmTexts:warmTexts+texts])
				took = bench.Micros(time.Since(begun)) / 1000
				return bench.Check(response, err, 0)
			}
			background := call
			callers.Metric, miss.Metric = name+", with a miss", "miss among "+name
			if !together {
				runtime.GC() // as beside does
				if err := call(); err != nil {
					return err
				}
				background = func() error { return w.rest(ctx) }
				callers.Metric, miss.Metric = name+", alone", "miss, alone"
			}
			each, err := beside(hitCallers, rest, func(g, i int) error { return w.hitCall(ctx, client, g, i) }, background)
			w.addAll(callers, each)
			w.addAll(miss, []float64{took})
			return err
		})
		if err != nil {
			return fmt.Errorf("%s and a miss of %d texts on %q: %w", name, texts, cell.Backend, err)
		}
	}
	return nil
}

func (w *neighbourRun) hitCall(ctx context.Context, client *embed.Client, g, i int) error {
	size := hitCallerTexts * w.dims
	response, err := client.Do(ctx, &embed.Call{
		Texts: w.windows.At(g, i, hitCallerTexts), CacheOnly: true, Into: w.rows[g*size : (g+1)*size : (g+1)*size],
	})
	return bench.Check(response, err, hitCallerTexts)
}

// warm makes a Client's first request.
func (w *neighbourRun) warm(ctx context.Context, client *embed.Client) error {
	response, err := client.Embed(ctx, w.fresh[:warmTexts])
	return bench.Check(response, err, 0)
}

// rest waits as long as a measurement lasts.
func (w *neighbourRun) rest(ctx context.Context) error {
	return bench.Sleep(ctx, w.each)
}

func (w *neighbourRun) addAll(cell bench.Result, figures []float64) {
	for _, figure := range figures {
		w.table.Add(cell, bench.CaseOurs, figure)
	}
}

// beside has goroutines call, with a rest after each call, while background runs; each
// calls at least once, after one call that warms up. It returns how many ms the calls
// took.
func beside(goroutines int, rest time.Duration, call func(g, i int) error, background func() error) ([]float64, error) {
	each := make([][]float64, goroutines)
	errs := make([]error, goroutines, goroutines+1)
	start, done := make(chan struct{}), make(chan struct{})
	var warm, all sync.WaitGroup
	warm.Add(goroutines)
	for g := range goroutines {
		all.Go(func() {
			errs[g] = call(g, 0)
			warm.Done()
			<-start
			for i := 1; errs[g] == nil; i++ {
				begun := time.Now()
				errs[g] = call(g, i)
				each[g] = append(each[g], bench.Micros(time.Since(begun))/1000)
				select {
				case <-done:
					return
				default:
				}
				if rest > 0 {
					time.Sleep(rest)
				}
			}
		})
	}
	warm.Wait()
	runtime.GC() // none is left from what came before
	close(start)
	err := background()
	close(done)
	all.Wait()
	return slices.Concat(each...), errors.Join(append(errs, err)...)
}
