package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// harness measures contestants against each other.
type harness struct {
	plan        plan
	texts       []string
	api         *api
	contestants []contestant
	root        string // of all stores
	progress    io.Writer
	begun       time.Time
	// After lastTurn groups have one turn, after lastCase none; zero is never.
	lastTurn, lastCase time.Time

	stores  int               // made so far
	dropped map[string]string // contestants that are out, and why
	skipped []string          // groups for which there was no time
	results []result
	right   map[[2]int]string // digests by start and length
}

// group is what is measured in alternation.
type group struct {
	title   string
	entries []entry
	work    func(l layout) work
	stored  int  // texts in the store before a run
	fresh   bool // a run changes the store: each gets a copy of its own
	latency time.Duration
	// hits is how many of the texts of a run must come from the cache.
	hits func(texts int) int
}

// entry is one contestant in one layout.
type entry struct {
	contestant contestant
	layout     layout
	caseName   string // entries of one name are compared
	floor      *float64
}

// label is the contestant, and how it has its callers where that is not plain.
func (e entry) label() string {
	label := e.contestant.name()
	if p, isPredecessor := e.contestant.(*predecessor); isPredecessor {
		kind := "threads"
		if p.tasks {
			kind = "tasks"
		}
		label += fmt.Sprintf(" %d x %d %s", e.layout.processes, e.layout.threads, kind)
	}
	return label
}

// prepare fills a store for each contestant through the API and reads it back. Who
// returns one wrong vector is out.
func (h *harness) prepare(ctx context.Context) error {
	// 64 is a divisor of the number of entries.
	all := work{perCall: 64, checkAll: true, starts: make([][]int, 1)}
	for start := 0; start < h.plan.entries; start += all.perCall {
		all.starts[0] = append(all.starts[0], start)
	}
	for _, c := range h.contestants {
		fmt.Fprintf(h.progress, "filling the store of %s\n", c.name())
		err := os.MkdirAll(h.base(c), 0o755)
		if err != nil {
			return err
		}
		for _, hits := range []int{0, h.plan.entries} {
			if _, isControl := c.(*control); isControl {
				break
			}
			var s session
			if s, err = c.open(ctx, h.base(c), layout{1, 1, 1}); err != nil {
				break
			}
			_, err = h.checked(ctx, s, all, func(int) int { return hits })
			if err = errors.Join(err, s.close()); err != nil {
				break
			}
		}
		if err := h.failed(ctx, c, err); err != nil {
			return err
		}
	}
	return nil
}

// base is the folder of the store that prepare fills.
func (h *harness) base(c contestant) string {
	for i, other := range h.contestants {
		if other == c {
			return filepath.Join(h.root, "base", strconv.Itoa(i))
		}
	}
	panic("no contestant: " + c.name())
}

// checked is one run whose hits and vectors are right.
func (h *harness) checked(ctx context.Context, s session, w work, hits func(texts int) int) (outcome, error) {
	runtime.GC() // what others left behind is not on this one's time
	out, err := s.run(ctx, w)
	if err != nil {
		return outcome{}, err
	}
	if want := hits(out.texts); out.hits != want {
		return outcome{}, fmt.Errorf("%d of %d texts came from the cache, not %d", out.hits, out.texts, want)
	}
	for _, a := range out.answers {
		at := [2]int{a.start, w.perCall}
		if h.right[at] == "" {
			h.right[at] = wanted(h.texts[a.start : a.start+w.perCall])
		}
		if a.digest != h.right[at] {
			return outcome{}, fmt.Errorf("wrong vectors for the %d texts from number %d on", w.perCall, a.start)
		}
	}
	return out, nil
}

// failed takes c out for err, if there is one. It returns what ends everything.
func (h *harness) failed(ctx context.Context, c contestant, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && h.dropped[c.name()] == "" {
		h.dropped[c.name()] = err.Error()
		fmt.Fprintf(h.progress, "%s is out: %v\n", c.name(), err)
		h.results = slices.DeleteFunc(h.results, func(r result) bool { return r.contestant == c.name() })
	}
	return nil
}

// all measures every group.
func (h *harness) all(ctx context.Context) error {
	groups := h.groups()
	for i, g := range groups {
		fmt.Fprintf(h.progress, "%4.0f s, %d of %d: %s\n", time.Since(h.begun).Seconds(), i+1, len(groups), g.title)
		var due time.Time
		if !h.lastCase.IsZero() && time.Now().After(h.lastCase) {
			h.skipped = append(h.skipped, g.title)
			continue
		}
		if !h.lastTurn.IsZero() {
			due = h.begun.Add(h.lastTurn.Sub(h.begun) * time.Duration(i+1) / time.Duration(len(groups)))
		}
		if err := h.measure(ctx, g, due); err != nil {
			return err
		}
	}
	return nil
}

// measure runs the entries of g in turns: A B C A B C. After due, if that is not
// zero, there is no further turn.
func (h *harness) measure(ctx context.Context, g group, due time.Time) error {
	h.api.setLatency(g.latency)
	defer h.api.setLatency(0)
	type figures struct{ rates, calls []float64 }
	measured := make([]figures, len(g.entries))
	for turn := range h.plan.turns {
		if turn > 0 && !due.IsZero() && time.Now().After(due) {
			break
		}
		for i, e := range g.entries {
			if h.dropped[e.contestant.name()] != "" {
				continue
			}
			out, err := h.turn(ctx, e, g)
			if err == nil {
				f := &measured[i]
				f.rates = append(f.rates, float64(out.texts)/out.elapsed.Seconds())
				for _, call := range out.calls {
					f.calls = append(f.calls, call.Seconds()*1e3)
				}
			}
			if err := h.failed(ctx, e.contestant, err); err != nil {
				return err
			}
		}
	}
	for i, e := range g.entries {
		if h.dropped[e.contestant.name()] != "" || len(measured[i].rates) == 0 {
			continue
		}
		r := result{
			Scenario: "compare", Case: e.caseName, Backend: e.label(), Goroutines: e.layout.lanes(),
			Texts: g.work(e.layout).perCall, Dims: dimensions, Entries: g.stored,
			contestant: e.contestant.name(), group: g.title,
		}
		rate, call := r, r
		rate.Metric, rate.Unit, rate.Floor = "throughput", "texts/s", e.floor
		call.Metric, call.Unit = "call", "ms"
		h.results = append(h.results, rate.summarise(measured[i].rates), call.summarise(measured[i].calls))
	}
	return nil
}

// turn measures e once: after a run to warm up, on the store that prepare filled;
// or without one, on a store of its own, since such a run changes it.
func (h *harness) turn(ctx context.Context, e entry, g group) (out outcome, err error) {
	dir := h.base(e.contestant)
	if g.fresh {
		h.stores++
		dir = filepath.Join(h.root, "copies", strconv.Itoa(h.stores))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return outcome{}, err
		}
		defer func() {
			e.contestant.dropStore(dir)
			err = errors.Join(err, os.RemoveAll(dir))
		}()
		if g.stored > 0 {
			if err := e.contestant.copyStore(ctx, h.base(e.contestant), dir); err != nil {
				return outcome{}, err
			}
		}
	}
	s, err := e.contestant.open(ctx, dir, e.layout)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	w := g.work(e.layout)
	if !g.fresh {
		if _, err := h.checked(ctx, s, w, g.hits); err != nil {
			return outcome{}, err
		}
	}
	return h.checked(ctx, s, w, g.hits)
}
