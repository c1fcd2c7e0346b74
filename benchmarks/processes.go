package main

import (
	"context"
	"errors"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// A call has fewer texts than sqlite advises to split: one goroutine does all of it.
const processTexts = 128

// processRun is the scenario processes: what one repetition needs.
type processRun struct {
	hitRun
	counts  []int // of processes
	batches int   // that each process writes
	next    int   // the first key that nobody has written yet
}

// processes measures several processes that read one file at the same time, and that
// write it, beside as many goroutines of one process. Each process runs this program
// (child.go) and has one goroutine.
func processes(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "sqlite")
	if err != nil {
		return err
	}
	p := &processRun{
		hitRun: hitRun{
			Run:   r,
			dims:  1536,
			texts: r.Texts(0, bench.Pick(r.Quick, 512, 10_000)),
			each:  bench.Pick(r.Quick, 20*time.Millisecond, time.Second),
			table: r.NewTable(),
		},
		counts:  bench.Pick(r.Quick, []int{1, 2}, []int{1, 2, 4}),
		batches: bench.Pick(r.Quick, 1, 8),
		next:    1 << 30,
	}
	p.windows = bench.NewWindows(r.Seed, p.texts)
	p.rows = make([]float32, p.counts[len(p.counts)-1]*processTexts*p.dims)
	for _, b := range backends {
		provider := bench.LocalProvider(p.dims)
		fill := func(c backend.Cache) error { return bench.Fill(ctx, c, provider, p.texts) }
		err := r.Repeat(ctx, b, b.Name, fill, func(repetition int, store *bench.Store) error {
			return p.repeat(ctx, repetition, b.Name, store, provider)
		})
		if err != nil {
			return err
		}
	}
	return p.table.Emit()
}

func (p *processRun) repeat(ctx context.Context, repetition int, name string, store *bench.Store, provider embed.Provider) (err error) {
	copied, err := store.Fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Remove(ctx)) }()
	client, err := embed.New(provider, &embed.Options{Cache: copied})
	if err != nil {
		return err
	}
	defer client.Close()

	const goroutines = bench.CaseOurs + ", goroutines"
	cell := bench.Result{Backend: name, Texts: processTexts, Dims: p.dims, Entries: len(p.texts)}
	for _, n := range p.counts {
		cell.Metric, cell.Unit, cell.Goroutines = "hit", "µs/text", n
		err := p.table.Beside(ctx, repetition, cell,
			bench.Side{Case: bench.CaseOurs, Measure: p.apart(copied.Place, workHits, n)},
			bench.Side{Case: goroutines, Measure: p.through(client, n, processTexts)},
			bench.Side{Case: bench.CaseFloor, Measure: p.apart(copied.Place, workFloor, n)})
		if err != nil {
			return err
		}
		control, err := p.apart(copied.Place, workControl, n)(ctx)
		if err != nil {
			return err
		}
		p.table.Add(bench.Result{Goroutines: n, Metric: "digest", Unit: "µs/digest"}, bench.CaseControl, control)
	}
	// Last, since it makes the copy grow.
	for _, n := range p.counts {
		cell.Metric, cell.Unit, cell.Goroutines = "write", "µs/entry", n
		err := p.table.Beside(ctx, repetition, cell,
			bench.Side{Case: bench.CaseOurs, Measure: p.apart(copied.Place, workWrites, n)},
			bench.Side{Case: goroutines, Measure: p.together(copied, n)})
		if err != nil {
			return err
		}
	}
	return nil
}

// task is what process number of n works on.
func (p *processRun) task(place string, work work, number int) *task {
	t := &task{
		Work: work, Place: place, Number: number, Seed: p.Seed, Dims: p.dims, Stored: len(p.texts), Each: p.each,
	}
	if work == workWrites {
		t.Batches, t.From = p.batches, p.next
		p.next += (1 + p.batches) * processTexts // the first one warms up
	}
	return t
}

// apart measures n processes.
func (p *processRun) apart(place string, work work, n int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (_ float64, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var children []*childProcess
		defer func() {
			if err != nil {
				cancel() // kills them
			}
			for _, c := range children {
				err = errors.Join(err, c.end())
			}
		}()
		for number := range n {
			c, err := startChild(ctx, p.task(place, work, number))
			if err != nil {
				return 0, err
			}
			children = append(children, c)
		}
		for _, c := range children {
			if _, err := c.answer(); err != nil { // it is warm
				return 0, err
			}
		}
		for _, c := range children {
			if err := c.begin(); err != nil {
				return 0, err
			}
		}
		calls := 0
		var began, ended int64
		for i, c := range children {
			a, err := c.answer()
			if err != nil {
				return 0, err
			}
			calls += a.Calls
			if i == 0 || a.Began < began {
				began = a.Began
			}
			ended = max(ended, a.Ended)
		}
		pass := bench.Pass{Calls: calls, Elapsed: time.Duration(ended - began)}
		return pass.PerText(work.texts()), nil
	}
}

// together writes what n processes write with n goroutines.
func (p *processRun) together(c backend.Cache, n int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		tasks := make([]*task, n)
		for g := range tasks {
			tasks[g] = p.task("", workWrites, g)
		}
		// One call to warm up, and one to write all batches.
		pass, err := bench.Loop(ctx, n, 0, func(g, i int) error {
			for batch := i; batch <= i*p.batches; batch++ {
				if err := c.SetMany(ctx, tasks[g].batch(batch)); err != nil {
					return err
				}
			}
			return nil
		})
		return pass.PerText(p.batches * processTexts), err
	}
}
