package conformance

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// again runs a test of this binary in another process.
func again(t *testing.T, test, variable string, args ...string) (output string, err error) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(executable, append([]string{"-test.run=" + test, "-test.v", "-test.count=1"}, args...)...)
	cmd.Env = append(os.Environ(), "EMBEDONCE_SELFTEST_FAIL="+variable)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestFailingSuite: a suite that fails ends the test binary with an exit code
// that isn't 0, and says what is wrong; a right one ends it with 0.
func TestFailingSuite(t *testing.T) {
	if currentJob() != nil {
		t.Skip("this is another process")
	}
	for _, c := range []struct {
		name, variable, run string
		fails               bool
		says                []string
	}{
		{"right cache", "right", "^TestFails$/^read$", false, []string{"conformance level 1: 13 cases, 13 passed, 0 failed, 0 skipped"}},
		{"broken cache", "broken", "^TestFails$/^read$", true, []string{
			"rule G1: GetMany calls visit once for each index i whose keys[i] is stored, in any order; equal keys are visited for each index.",
			"action:  GetMany of 512 stored keys", "want:    one visit for each", "got:     0 visits of index 511", "seed:    20240229",
			"FAIL: TestFails/read/round-trip"}},
		{"stale entry of Skip", "stale", "^TestFails$/^read$", true, []string{`Suite.Skip["read/missing"] is stale: the case passes`}},
		{"unknown entry of Skip", "unknown", "^TestFails$/^read$", true, []string{`Suite.Skip["read/nothing"] names no case`}},
		{"one group by name", "right", "Fails/txn", false, []string{"17 cases, 17 passed"}},
		{"no needs", "right", "Fails/crash", false, []string{"skipped crash/in-txn: Info.Durability is none"}},
		{"child that can't open", "child", "Fails/crash/while-writing", true, []string{"rule S3: nil means",
			"action:  another process (write-on) is to open a new store", "it ended: exit status 1", "no store in another process"}},
		{"no Open after a kill", "after a kill it fails", "Fails/crash/after-acknowledgement", true, []string{"rule S3: nil means",
			"action:  Open after SIGKILL of a process in which SetMany had returned nil", "want:    a handle on the store",
			"got:     it failed: selftest_test.go:", "the log is not whole", "seed:    20240229"}},
		{"panic of Open after a kill", "after a kill it panics", "Fails/crash/in-visit", true, []string{"rule S9: What was acknowledged",
			"action:  Open after SIGKILL of a process in the middle of a call", "got:     it failed: ", "panic: no way to read this log", "seed:    20240229"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			output, err := again(t, c.run, c.variable)
			if (err != nil) != c.fails {
				t.Errorf("the process ended with %v\n%s", err, output)
			}
			for _, want := range c.says {
				if !strings.Contains(output, want) {
					t.Errorf("the output lacks %q:\n%s", want, output)
				}
			}
		})
	}
}

// TestSkipKnownFailure: a case that fails as Skip says is skipped.
func TestSkipKnownFailure(t *testing.T) {
	suite := mutants[0].suite()
	suite.Skip = map[string]string{"read/round-trip": "skips the last key"}
	r := &runner{suite: &suite, seed: fixedSeed, watchdog: time.Minute, patience: callPatience}
	var sum tally
	t.Run("case", func(t *testing.T) { r.report(t, findCase("read/round-trip"), &sum) })
	if len(sum.skipped) != 1 || len(sum.failed) != 0 {
		t.Errorf("skipped %v, failed %v", sum.skipped, sum.failed)
	}
}

// TestPartOfFaultAndPlant: a suite that offers some kinds of fault and of entry
// gets what can be checked with these.
func TestPartOfFaultAndPlant(t *testing.T) {
	whole := mapSuite(mapInfo, func(c *mapCache) backend.Cache { return c })
	run := func(name string, faults []FaultKind, plants Foreign) result {
		suite := whole
		suite.Fault = func(t testing.TB, location string, f Fault) func() {
			if !slices.Contains(faults, f.Kind) {
				return nil
			}
			return whole.Fault(t, location, f)
		}
		suite.Plant = func(t testing.TB, location string, k backend.Key, what Foreign) {
			if what != plants {
				t.Skip("not this kind")
			}
			whole.Plant(t, location, k, what)
		}
		r := &runner{suite: &suite, seed: fixedSeed, watchdog: time.Minute, patience: callPatience, duration: 50 * time.Millisecond}
		return r.runCase(t, findCase(name))
	}
	for _, c := range []struct {
		name    string
		faults  []FaultKind
		plants  Foreign
		skipped bool
	}{
		{"soak/faults", []FaultKind{FailAtItem}, 0, false},
		{"soak/faults", []FaultKind{Cut}, 0, false},
		{"soak/faults", nil, 0, true},
		{"foreign/in-txn", nil, Empty, false},
		{"foreign/in-txn", nil, WrongType, false},
		{"foreign/in-txn", nil, 0, true},
	} {
		if res := run(c.name, c.faults, c.plants); res.failed || res.skipped != c.skipped {
			t.Errorf("%s with faults %v and entries %v: failed %v, skipped %v\n%s", c.name, c.faults, c.plants, res.failed, res.skipped, res.text())
		}
	}
}

// TestOptional: a cache that lacks an optional interface, itself or behind a
// decorator, has its cases skipped, with the reason.
func TestOptional(t *testing.T) {
	for name, wrap := range map[string]func(c *mapCache) backend.Cache{
		"lacks them":               func(c *mapCache) backend.Cache { return bare{c} },
		"decorator says it for it": func(c *mapCache) backend.Cache { return &broken{Cache: bare{c}, m: c} },
	} {
		suite := mapSuite(mapInfo, wrap)
		r := &runner{suite: &suite, seed: fixedSeed, watchdog: time.Minute, patience: callPatience}
		for group, method := range map[string]string{"scan": "Scan", "delete": "Delete", "stats": "Stats", "compact": "Compact"} {
			for i := range cases {
				if c := &cases[i]; c.group() == group && c.unmet(&suite) == "" {
					if res := r.runCase(t, c); !res.skipped || !strings.Contains(res.text(), "the cache has no "+method) {
						t.Errorf("%s, a cache that %s: failed %v, skipped %v\n%s", c.name, name, res.failed, res.skipped, res.text())
					}
				}
			}
		}
	}
}

// TestWatchdog: a case that doesn't end is given up, with the stacks of its
// goroutines.
func TestWatchdog(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	suite := mapSuite(mapInfo, func(c *mapCache) backend.Cache { return c })
	r := &runner{suite: &suite, watchdog: 20 * time.Millisecond, patience: callPatience}
	res := r.runCase(t, &testcase{name: "test/hangs", rules: "X3", fn: func(*env) { <-release }})
	if !res.hung || !res.failed || !strings.Contains(res.text(), "TestWatchdog") {
		t.Errorf("%+v", res)
	}
}

// TestPanicThatLeavesALock: a case that panicked isn't waited for as long as one
// that may still end.
func TestPanicThatLeavesALock(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	suite := mapSuite(mapInfo, func(c *mapCache) backend.Cache { return c })
	r := &runner{suite: &suite, watchdog: time.Hour, patience: time.Millisecond}
	locked := func(e *env) {
		e.Cleanup(func() { <-release })
		panic("with a lock held")
	}
	res := r.runCase(t, &testcase{name: "test/panics", rules: "X3", fn: locked})
	if !res.hung || !res.failed || !strings.Contains(res.text(), "with a lock held") {
		t.Errorf("%+v", res)
	}
	res = r.runCase(t, &testcase{name: "test/panics-in-a-part", rules: "X3", fn: func(e *env) { e.attempt("a part:", 1, locked) }})
	if !res.hung || !res.failed {
		t.Errorf("%+v", res)
	}
}

// TestOpenThatPanics: where a store may refuse to be opened, a panic is a refusal.
func TestOpenThatPanics(t *testing.T) {
	suite := mapSuite(mapInfo, func(c *mapCache) backend.Cache { panic("no way to read this") })
	r := &runner{suite: &suite, watchdog: time.Minute, patience: callPatience}
	refused := ""
	res := r.runCase(t, &testcase{name: "test/refusal", rules: "S3", fn: func(e *env) { _, refused = e.tryOpen(e.location()) }})
	if res.failed || !strings.Contains(refused, "panic: no way to read this") {
		t.Errorf("refused with %q, %+v", refused, res)
	}
}

// TestRecorder: failing, skipping and panicking end a case at once, with its
// cleanups in the right order.
func TestRecorder(t *testing.T) {
	suite := mapSuite(mapInfo, func(c *mapCache) backend.Cache { return c })
	r := &runner{suite: &suite, watchdog: time.Minute, patience: callPatience}
	for name, c := range map[string]struct {
		fn              func(e *env)
		failed, skipped bool
		says            string
	}{
		"passes":   {fn: func(e *env) { e.Log("a remark") }, says: "suite_test.go"},
		"fails":    {fn: func(e *env) { e.Fatal("it", "failed") }, failed: true, says: "it failed"},
		"skips":    {fn: func(e *env) { e.Skipf("no %s", "room") }, skipped: true, says: "no room"},
		"panics":   {fn: func(*env) { panic("out of order") }, failed: true, says: "panic: out of order"},
		"cleanup":  {fn: func(e *env) { e.Cleanup(func() { e.Fatal("in a cleanup") }) }, failed: true, says: "in a cleanup"},
		"apart":    {fn: func(e *env) { e.parallel(3, func(int) { panic("on a goroutine") }) }, failed: true, says: "on a goroutine"},
		"both":     {fn: func(e *env) { e.Error("failed"); e.Skip("then skipped") }, failed: true, says: "failed"},
		"too long": {fn: func(e *env) { e.within(time.Millisecond, "X3", "waiting", func() { <-e.Context().Done() }) }, failed: true, says: "rule X3"},
		"within":   {fn: func(e *env) { e.within(time.Minute, "X3", "failing", func() { e.Fatal("in the background") }) }, failed: true, says: "suite_test.go"},
	} {
		t.Run(name, func(t *testing.T) {
			var order []int
			dir := ""
			res := r.runCase(t, &testcase{name: "test/" + name, fn: func(e *env) {
				e.Cleanup(func() { order = append(order, 1) })
				e.Cleanup(func() { order = append(order, 2) })
				dir = e.TempDir()
				c.fn(e)
				order = append(order, 0)
			}})
			if res.failed != c.failed || res.skipped != c.skipped || !strings.Contains(res.text(), c.says) {
				t.Errorf("failed %v, skipped %v, messages %q", res.failed, res.skipped, res.messages)
			}
			if n := len(order); n < 2 || order[n-2] != 2 || order[n-1] != 1 {
				t.Errorf("cleanups ran in the order %v", order)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("the temporary directory is still there: %v", err)
			}
		})
	}
}
