package conformance

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// testcase is one row of the suite's table.
type testcase struct {
	name  string // group/name
	rules string // the ids of the rules that it checks
	needs []need // what must be there for it to mean anything
	room  int64  // bytes of keys and values it stores at most; 0 is 4 MiB
	level int    // the edition of the suite that brought it; 0 counts as 1
	soak  bool   // left to chance: run by Soak, not by Run
	fn    func(e *env)
}

// Level is the edition of the suite, which Run prints. Each case carries the
// level at which it came in, so that a failure after an upgrade can be told
// from one that was there before.
const Level = 1

const defaultRoom = 4 << 20

// cases has every case, grouped, in the order in which they run.
var cases = slices.Concat(readCases, writeCases, sizeCases, txnCases, ctxCases, closeCases, infoCases,
	batchCases, dropCases, evictCases, foreignCases, damageCases,
	scanCases, deleteCases, statsCases, compactCases, crashCases, soakCases)

func findCase(name string) *testcase {
	for i := range cases {
		if cases[i].name == name {
			return &cases[i]
		}
	}
	return nil
}

func (c *testcase) group() string { group, _, _ := strings.Cut(c.name, "/"); return group }
func (c *testcase) short() string { _, short, _ := strings.Cut(c.name, "/"); return short }

// unmet returns why the case can't be run on s, or "".
func (c *testcase) unmet(s *Suite) string {
	for _, n := range c.needs {
		if !n.met(s) {
			return n.reason
		}
	}
	room := c.room
	if room == 0 {
		room = defaultRoom
	}
	if s.Want.MayEvict && s.Want.Capacity > 0 && s.Want.Capacity < room {
		return fmt.Sprintf("needs room for %d bytes, Info.Capacity is %d", room, s.Want.Capacity)
	}
	return ""
}

// runner runs cases of one suite.
type runner struct {
	suite    *Suite
	child    childOf // how another process gets to this suite
	seed     uint64
	watchdog time.Duration // for a case
	patience time.Duration // for a call that has nothing to wait for but the machine
	duration time.Duration // of a soak case
}

// The fixed seed of Run, and of the first half of Soak.
const fixedSeed = 20240229

// result is what came of one case.
type result struct {
	failed, skipped, hung bool
	messages              []string
}

func (r result) text() string { return strings.Join(r.messages, "\n") }

var caseNumber atomic.Int64

// runCase runs one case and waits for it, at most as long as the watchdog says.
func (r *runner) runCase(t testing.TB, c *testcase) result {
	rec := newRecorder(t, t.Name()+"/"+c.name)
	e := &env{recorder: rec, runner: r, s: r.suite, seed: r.seed, label: strconv.FormatInt(caseNumber.Add(1), 10)}
	panicked := make(chan struct{}, 1)
	rec.onPanic = func() {
		select {
		case panicked <- struct{}{}:
		default: // it is known already
		}
	}
	done := rec.run(func() {
		e.labelled(true)
		c.fn(e)
	})
	hung, ending := false, "an end"
	timer := time.NewTimer(r.watchdog)
	defer timer.Stop()
	waited := r.watchdog
	for over, first := false, panicked; !over; {
		select {
		case <-done:
			over = true
		case <-first:
			// A call that ended in a panic may have left a lock that Close waits for.
			first, ending = nil, "an end after a panic"
			waited = min(waited, r.patience)
			timer.Reset(waited)
		case <-timer.C:
			over, hung = true, true
			rec.Errorf("rule %s\naction:  the case %s\nwant:    %s within %v\ngot:     it still runs; its goroutines:\n%s",
				ruleText("X3"), c.name, ending, waited, labelledStacks(e.label))
		}
	}
	if !hung && !rec.Failed() && !rec.Skipped() {
		if left := leftGoroutines(e.label, min(r.patience, leakPatience)); left != "" {
			rec.Errorf("rule %s\naction:  the case %s, then Close of every handle\nwant:    no goroutine left that the calls started\ngot:     %s",
				ruleText("C4"), c.name, left)
		}
	}
	failed, skipped, messages := rec.close()
	return result{failed, skipped && !failed, hung, messages}
}

// Goroutines inherit the profiling label of the one that starts them, which
// tells those of a case from all others in the process.
const labelKey = "embedonce-case"

// labelled sets the label of the calling goroutine, or takes it away while code
// of the suite's author runs whose goroutines are not the cache's.
func (e *env) labelled(on bool) {
	ctx := context.Background()
	if on {
		ctx = pprof.WithLabels(ctx, pprof.Labels(labelKey, e.label))
	}
	pprof.SetGoroutineLabels(ctx)
}

func labelledStacks(label string) string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	want := fmt.Sprintf("%q:%q", labelKey, label)
	var own []string
	for _, block := range strings.Split(all.String(), "\n\n") {
		if strings.Contains(block, want) {
			own = append(own, strings.TrimSpace(block))
		}
	}
	return strings.Join(own, "\n\n")
}

// leftGoroutines waits for the goroutines with this label to end, and returns
// the stacks of those that don't.
func leftGoroutines(label string, patience time.Duration) string {
	left := ""
	poll(patience, func() bool {
		left = labelledStacks(label)
		return left == ""
	})
	return left
}

// How long a goroutine or file that is going away may take.
const leakPatience = 3 * time.Second

// poll calls ok until it is true, at most for patience, and returns the last
// answer. It looks at least twice.
func poll(patience time.Duration, ok func() bool) bool {
	end := time.Now().Add(patience)
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		late := time.Now().After(end)
		if ok() {
			return true
		}
		if late {
			return false
		}
		runtime.Gosched()
		<-time.After(wait)
	}
}

// outcome of the cases of one Run or Soak, for the list at the end.
type tally struct {
	ran, passed int
	failed      []string
	skipped     []string
}

// report runs one case as a subtest's body.
func (r *runner) report(t *testing.T, c *testcase, sum *tally) {
	sum.ran++
	if reason := c.unmet(r.suite); reason != "" {
		sum.skipped = append(sum.skipped, c.name+": "+reason)
		t.Skip(reason)
	}
	reason, known := r.suite.Skip[c.name]
	if known && c.soak {
		sum.skipped = append(sum.skipped, c.name+": "+reason)
		t.Skip(reason)
	}
	res := r.runCase(t, c)
	switch {
	case known && res.failed:
		sum.skipped = append(sum.skipped, c.name+": "+reason)
		t.Skip("fails as Suite.Skip says: " + reason)
	case known:
		sum.failed = append(sum.failed, c.name)
		t.Errorf("Suite.Skip[%q] is stale: the case passes; remove the entry", c.name)
	case res.failed:
		sum.failed = append(sum.failed, c.name)
		t.Errorf("%s\nsince:   level %d of the suite", res.text(), max(1, c.level))
	case res.skipped:
		sum.skipped = append(sum.skipped, c.name+": "+res.text())
		t.Skip(res.text())
	default:
		sum.passed++
		if len(res.messages) > 0 {
			t.Log(res.text())
		}
	}
}

// Run checks every rule that can be checked without chance, each case in a
// subtest group/name of t. It must not run in parallel with another Run in the
// same test function.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	r := &runner{suite: &s, child: newChildOf(t), seed: fixedSeed, watchdog: time.Minute, patience: callPatience}
	if r.playChild(t) {
		return
	}
	s.validate(t)
	r.runAll(t, false)
}

func (r *runner) runAll(t *testing.T, soak bool) {
	var sum tally
	for rest := cases; len(rest) > 0; {
		group := rest[0].group()
		n := 1
		for n < len(rest) && rest[n].group() == group {
			n++
		}
		own := rest[:n]
		rest = rest[n:]
		if !slices.ContainsFunc(own, func(c testcase) bool { return c.soak == soak }) {
			continue
		}
		t.Run(group, func(t *testing.T) {
			for i := range own {
				if own[i].soak == soak {
					t.Run(own[i].short(), func(t *testing.T) { r.report(t, &own[i], &sum) })
				}
			}
		})
	}
	if testing.Verbose() || !t.Failed() { // else it hides what failed
		for _, line := range sum.skipped {
			t.Logf("skipped %s", line)
		}
	}
	t.Logf("conformance level %d: %d cases, %d passed, %d failed, %d skipped", Level, sum.ran, sum.passed, len(sum.failed), len(sum.skipped))
}
