package conformance

import (
	"fmt"
	"hash/crc32"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// mutant is a broken cache, and the cases that show it.
type mutant struct {
	name  string
	suite func() Suite
	// must fail; hangs does so by not coming back, so that patience is short there.
	must  []string
	hangs []string
	// may fail: patterns of further names.
	may []string
	// soak has the random cases to run.
	soak []string
}

// The mutants, by what they break; selftest_unix_test.go adds those over files.
var mutants = slices.Concat(readMutants, writeMutants, txnMutants, ctxMutants, closeMutants, batchMutants, evictMutants, damageMutants, scanMutants, deleteMutants, upkeepMutants, gapMutants)

// haveFiles says that there are mutants over files; without them some cases, such
// as those of crashes, have nothing that they could find.
var haveFiles bool

// oddCaches are unusual, and right.
var oddCaches []mutant

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		if err != nil {
			panic(err)
		}
		return ok
	})
}

// sample says whether a case that need not fail is run on a mutant: all are with
// EMBEDONCE_SELFTEST=all, else a tenth of them, always the same ones, and none
// where everything is slow.
func sample(mutant, name string) bool {
	if os.Getenv("EMBEDONCE_SELFTEST") == "all" {
		return true
	}
	return !testing.Short() && !raceDetector && crc32.ChecksumIEEE([]byte(mutant+name))%10 == 0
}

// verdicts runs the cases on a cache and returns the ones that failed, with the
// messages.
func (m *mutant) verdicts(t *testing.T, odd bool) map[string]string {
	suite := m.suite()
	failed := make(map[string]string)
	for i := range cases {
		c := &cases[i]
		if c.unmet(&suite) != "" || c.soak && !slices.Contains(m.soak, c.name) {
			continue
		}
		must := slices.Contains(m.must, c.name) || slices.Contains(m.hangs, c.name) || c.soak
		if !odd && !must && !sample(m.name, c.name) {
			continue
		}
		r := &runner{suite: &suite, child: childOf{Test: "TestSelftestChild", Tag: m.name}, seed: fixedSeed,
			watchdog: time.Minute, patience: callPatience, duration: time.Second}
		if slices.Contains(m.hangs, c.name) {
			r.watchdog, r.patience = 4*time.Second, time.Second
		}
		if res := r.runCase(t, c); res.failed {
			failed[c.name] = res.text()
		}
	}
	return failed
}

// TestSelftest proves that the suite can fail: each broken cache fails the cases
// that are there for it and none that are not, each case is failed by some
// broken cache, and what is odd but right passes. See sample for the cases that
// are run on the broken ones.
func TestSelftest(t *testing.T) {
	if currentJob() != nil {
		t.Skip("another process plays a part in TestSelftestChild")
	}
	var mu sync.Mutex
	covered := make(map[string][]string)
	killed, passed := 0, 0
	check := func(m *mutant, odd bool) {
		failed := m.verdicts(t, odd)
		mu.Lock()
		defer mu.Unlock()
		bad := false
		for _, name := range slices.Concat(m.must, m.hangs) {
			if findCase(name) == nil {
				t.Errorf("%s: no case %s", m.name, name)
			}
			if _, ok := failed[name]; !ok {
				bad = true
				t.Errorf("%s passes %s, which is there to find it", m.name, name)
			}
		}
		var names []string
		for name, text := range failed {
			names = append(names, name)
			covered[name] = append(covered[name], m.name)
			if !slices.Contains(m.must, name) && !slices.Contains(m.hangs, name) && !slices.Contains(m.soak, name) && !matches(m.may, name) {
				bad = true
				t.Errorf("%s fails %s, which it has nothing to do with:\n%s", m.name, name, text)
			}
		}
		slices.Sort(names)
		switch {
		case odd && len(failed) == 0 && !bad:
			passed++
			t.Logf("odd cache %s passes", m.name)
		case !odd && len(failed) > 0 && !bad:
			killed++
			t.Logf("mutant %s is found by %s", m.name, strings.Join(names, ", "))
		}
	}
	var queue = make(chan func())
	var workers sync.WaitGroup
	for range max(2, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for job := range queue {
				job()
			}
		})
	}
	only := os.Getenv("EMBEDONCE_SELFTEST_ONLY") // a part of the caches' names, while one writes them
	for i := range mutants {
		if !strings.Contains(mutants[i].name, only) {
			continue
		}
		queue <- func() { check(&mutants[i], false) }
	}
	for i := range oddCaches {
		if !strings.Contains(oddCaches[i].name, only) {
			continue
		}
		queue <- func() { check(&oddCaches[i], true) }
	}
	close(queue)
	workers.Wait()
	for i := range cases {
		if covered[cases[i].name] == nil && haveFiles && only == "" {
			t.Errorf("no broken cache fails %s: it may not be able to fail", cases[i].name)
		}
	}
	if name := os.Getenv("EMBEDONCE_MATRIX"); name != "" {
		writeMatrix(t, name, covered)
	}
	t.Logf("selftest: mutants %d/%d killed, cases %d/%d covered, odd caches %d/%d passed",
		killed, len(mutants), len(covered), len(cases), passed, len(oddCaches))
}

// writeMatrix writes which case found which mutants.
func writeMatrix(t *testing.T, name string, covered map[string][]string) {
	var b strings.Builder
	for i := range cases {
		slices.Sort(covered[cases[i].name])
		fmt.Fprintf(&b, "%s: %s\n", cases[i].name, strings.Join(covered[cases[i].name], ", "))
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// TestSelftestChild is where another process gets to the caches of TestSelftest.
func TestSelftestChild(t *testing.T) {
	j := currentJob()
	if j == nil {
		t.Skip("only for another process of TestSelftest")
	}
	for _, m := range slices.Concat(mutants, oddCaches) {
		if m.name == j.Tag {
			suite := m.suite()
			r := &runner{suite: &suite, child: j.childOf}
			r.playChild(t)
		}
	}
	t.Fatalf("no cache %q", j.Tag)
}

// TestFails is run by TestFailingSuite in another process: a suite with a broken
// cache, through the same door as anybody's.
func TestFails(t *testing.T) {
	name := os.Getenv("EMBEDONCE_SELFTEST_FAIL")
	if name == "" && currentJob() == nil {
		t.Skip("only for another process of TestFailingSuite")
	}
	suite := mapSuite(mapInfo, func(c *mapCache) backend.Cache { return c })
	if name == "broken" {
		suite = mutants[0].suite()
	}
	if name == "stale" {
		suite.Skip = map[string]string{"read/missing": "it is known to fail, or so somebody thinks"}
	}
	if name == "unknown" {
		suite.Skip = map[string]string{"read/nothing": "of this name"}
	}
	if name == "child" {
		suite.Want.Durability = backend.SurvivesCrash
		open := suite.Open
		suite.Open = func(t testing.TB, location string) backend.Cache {
			if currentJob() != nil {
				t.Fatal("no store in another process")
			}
			return open(t, location)
		}
	}
	if strings.HasPrefix(name, "after a kill") {
		suite.Want.Durability = backend.SurvivesCrash
		open := suite.Open
		suite.Open = func(t testing.TB, location string) backend.Cache {
			switch {
			case currentJob() != nil:
			case name == "after a kill it panics":
				panic("no way to read this log")
			default:
				t.Fatal("the log is not whole")
			}
			return open(t, location)
		}
	}
	suite.Run(t)
}
