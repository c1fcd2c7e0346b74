package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// plan is how much is measured.
type plan struct {
	seed      uint64
	entries   int           // in the stores that are read from; a multiple of 64
	perCall   int           // texts of a call that is all hits
	turns     int           // of each entry
	limit     time.Duration // of a run that is all hits
	missCalls int           // of each caller
	missCases []int         // callers
	rates     []int         // of hits, in percent
	normal    bool          // measure sqlite without a sync for each write too
}

const (
	missTexts   = 16 // of a call that is all misses
	missLatency = 50 * time.Millisecond
	rateLatency = 20 * time.Millisecond
)

var (
	fullPlan = plan{
		entries: 4096, perCall: 512, turns: 7, limit: time.Second, missCalls: 20,
		missCases: []int{1, 4, 16}, rates: []int{0, 25, 50, 75, 90, 99, 100}, normal: true,
	}
	quickPlan = plan{
		entries: 512, perCall: 64, turns: 3, limit: 60 * time.Millisecond, missCalls: 2,
		missCases: []int{1, 4, 16}, rates: []int{0, 50, 90, 100},
	}
)

// texts is how many all cases need.
func (p plan) texts() int {
	n := 2 * p.entries // a call of the rates without a hit
	for _, callers := range p.missCases {
		n = max(n, callers*p.missCalls*missTexts)
	}
	return n
}

// groups is everything that is measured, in order.
func (h *harness) groups() []group {
	var all []group
	for _, l := range []layout{{1, 1, 1}, {2, 1, 1}, {1, 4, 1}, {2, 4, 1}, {1, 16, 1}, {2, 16, 1}} {
		all = append(all, h.hits(l))
	}
	all = append(all, h.clients())
	for _, rate := range h.plan.rates {
		all = append(all, h.rate(rate))
	}
	for _, callers := range h.plan.missCases {
		all = append(all, h.misses(callers))
	}
	return all
}

// with makes an entry of each contestant in layout l, the predecessor's processes
// included, and in so many goroutines where there is only one process. writes says
// that what a store does for a write counts.
func (h *harness) with(caseName string, l layout, writes bool, floor *float64) []entry {
	var entries []entry
	for _, c := range h.contestants {
		own := l
		switch c := c.(type) {
		case *predecessor:
			if c.tasks && l.processes > 1 {
				continue
			}
		case *control:
			own = layout{1, l.lanes(), 1}
			if writes {
				continue
			}
		case *ours:
			own = layout{1, l.lanes(), l.clients}
			if c.syncless && !writes {
				continue
			}
		}
		entries = append(entries, entry{c, own, caseName, floor})
	}
	return entries
}

// around is work that is all hits: each lane goes round the entries in an order of
// its own.
func (h *harness) around(l layout) work {
	w := work{perCall: h.plan.perCall, limit: h.plan.limit}
	for lane := range l.lanes() {
		r := rand.New(rand.NewPCG(h.plan.seed, uint64(lane)))
		starts := r.Perm(h.plan.entries / h.plan.perCall)
		for i := range starts {
			starts[i] *= h.plan.perCall
		}
		w.starts = append(w.starts, starts)
	}
	return w
}

func allHits(texts int) int { return texts }
func noHits(int) int        { return 0 }

func (h *harness) hits(l layout) group {
	name := fmt.Sprintf("hits/callers=%d", l.lanes())
	return group{
		title:   fmt.Sprintf("All hits, %d texts a call, %s", h.plan.perCall, callers(l.lanes())),
		entries: h.with(name, l, false, nil),
		work:    h.around,
		stored:  h.plan.entries,
		hits:    allHits,
	}
}

// clients is one client against four on one handle of a store.
func (h *harness) clients() group {
	g := group{
		title:  fmt.Sprintf("All hits, %d texts a call, 4 callers of 1 or 4 clients on one store", h.plan.perCall),
		work:   h.around,
		stored: h.plan.entries,
		hits:   allHits,
	}
	for _, n := range []int{1, 4} {
		g.entries = append(g.entries, h.with(fmt.Sprintf("clients/clients=%d", n), layout{1, 4, n}, false, nil)...)
	}
	return g
}

// rate is one call of as many texts as the store has, of which it has so many
// percent.
func (h *harness) rate(percent int) group {
	n := h.plan.entries
	misses := n * (100 - percent) / 100
	return group{
		title: fmt.Sprintf("One call of %d texts, %d %% hits, %v a request", n, percent, rateLatency),
		// The store has the texts up to n.
		work:    func(layout) work { return work{perCall: n, starts: [][]int{{misses}}} },
		entries: h.with(fmt.Sprintf("mixed/hits=%d%%", percent), layout{1, 1, 1}, true, nil),
		stored:  n,
		fresh:   true,
		latency: rateLatency,
		hits:    func(texts int) int { return texts - misses },
	}
}

// misses is an empty store, and no text twice.
func (h *harness) misses(n int) group {
	floor := float64(n*missTexts) / missLatency.Seconds()
	return group{
		title: fmt.Sprintf("All misses, %d texts a call, %v a request, %s", missTexts, missLatency, callers(n)),
		work: func(l layout) work {
			w := work{perCall: missTexts}
			next := 0
			for range l.lanes() {
				var starts []int
				for range h.plan.missCalls {
					starts = append(starts, next)
					next += missTexts
				}
				w.starts = append(w.starts, starts)
			}
			return w
		},
		entries: h.with(fmt.Sprintf("misses/callers=%d", n), layout{1, n, 1}, true, &floor),
		fresh:   true,
		latency: missLatency,
		hits:    noHits,
	}
}

func callers(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", n)
}
