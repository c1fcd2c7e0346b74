package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// testCase is what can be run alone: a test, or one case of the suite.
type testCase struct {
	name    string
	reach   reach
	seconds float64 // on the unchanged backend
	// A process that the case starts leaves no profile: it may get wherever any
	// case gets.
	starts bool
}

const (
	suitePrefix = "TestConformance"
	caseDepth   = 3 // TestConformance/group/case
)

// mayReach says whether a mutant can change what the case sees.
func (c *testCase) mayReach(m *mutant) bool { return c.starts || c.reach.has(m) }

var passedTest = regexp.MustCompile(`(?m)^\s*--- PASS: (\S+)`)

// caseName cuts a test's name to that of the case it belongs to. Subtests of other tests
// may have a seed in their name.
func caseName(test string) string {
	parts := strings.Split(test, "/")
	if !strings.HasPrefix(test, suitePrefix) {
		return parts[0]
	}
	return strings.Join(parts[:min(caseDepth, len(parts))], "/")
}

// caseNames returns the cases among the tests that passed, in that order.
func caseNames(output string) []string {
	var names []string
	parents := make(map[string]bool)
	for _, m := range passedTest.FindAllStringSubmatch(output, -1) {
		name := caseName(m[1])
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		for at := strings.LastIndex(name, "/"); at > 0; at = strings.LastIndex(name[:at], "/") {
			parents[name[:at]] = true
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return parents[name] })
}

// patternOf returns what -test.run needs for these cases and no others.
func patternOf(cases []*testCase) string {
	var parents []string
	under := make(map[string][]string)
	for _, c := range cases {
		parent, last := "", c.name
		if at := strings.LastIndex(c.name, "/"); at >= 0 {
			parent, last = c.name[:at], c.name[at+1:]
		}
		if under[parent] == nil {
			parents = append(parents, parent)
		}
		under[parent] = append(under[parent], regexp.QuoteMeta(last))
	}
	var patterns []string
	for _, parent := range parents {
		pattern := "^(" + strings.Join(under[parent], "|") + ")$"
		if parent != "" {
			var above []string
			for part := range strings.SplitSeq(parent, "/") {
				above = append(above, "^"+regexp.QuoteMeta(part)+"$")
			}
			pattern = strings.Join(above, "/") + "/" + pattern
		}
		patterns = append(patterns, pattern)
	}
	return strings.Join(patterns, "|")
}

// startsVariable names the folder where every process of the test binary that
// finds the cases' reach leaves a file.
const startsVariable = "MUTATE_STARTS"

// startsFile is added to the package whose tests are run.
const startsFile = `package %s

import "os"

func init() {
	f, err := os.CreateTemp(os.Getenv("` + startsVariable + `"), "process-")
	if err != nil {
		panic(err)
	}
	f.Close()
}
`

// findCases runs each test of the unchanged backend alone, so many at once, and
// notes where it gets.
func (t *tester) findCases(ctx context.Context, jobs int, b *testBinary) error {
	pkg, err := goCommand(ctx, b.dir, "list", "-f", "{{.Name}}", ".")
	if err != nil {
		return err
	}
	added := filepath.Join(t.scratch, "starts.go")
	if err := os.WriteFile(added, fmt.Appendf(nil, startsFile, strings.TrimSpace(string(pkg))), 0o600); err != nil {
		return err
	}
	overlaid, err := overlay(t.scratch, filepath.Join(b.dir, "mutate_starts_test.go"), added)
	if err != nil {
		return err
	}
	binary := filepath.Join(t.scratch, "baseline.test.exe")
	defer os.Remove(binary)
	out, err := t.build(ctx, b, binary, "-overlay", overlaid, "-cover", "-coverpkg="+t.pkg)
	if err != nil {
		return err
	}
	if out != "" {
		return fmt.Errorf("%s: the unchanged backend does not compile:\n%s", b.dir, out)
	}
	all, _, err := t.runWatched(ctx, b, binary, t.pattern, "-test.v")
	if err != nil {
		return err
	}
	b.baseline = time.Duration(all.Seconds * float64(time.Second))
	for _, name := range caseNames(all.Output) {
		b.cases = append(b.cases, &testCase{name: name, reach: make(reach)})
	}
	return inParallel(ctx, jobs, len(b.cases), func(ctx context.Context, i int) error {
		c := b.cases[i]
		profile := filepath.Join(t.scratch, fmt.Sprintf("profile-%d", i))
		defer os.Remove(profile)
		v, processes, err := t.runWatched(ctx, b, binary, patternOf(b.cases[i:i+1]), "-test.coverprofile="+profile)
		if err != nil {
			return fmt.Errorf("%s alone: %w", c.name, err)
		}
		c.seconds, c.starts = v.Seconds, processes > 1
		return c.reach.read(profile, t.pkg)
	})
}

// runWatched runs tests that must pass, and counts the processes they take.
func (t *tester) runWatched(ctx context.Context, b *testBinary, binary, pattern string, flags ...string) (v verdict, processes int, err error) {
	dir, err := os.MkdirTemp(t.scratch, "starts-")
	if err != nil {
		return v, 0, err
	}
	defer os.RemoveAll(dir)
	v, err = t.run(ctx, b, binary, pattern, 30*time.Minute, []string{startsVariable + "=" + dir}, flags)
	if err != nil {
		return v, 0, err
	}
	if v.Outcome != survived {
		return v, 0, fmt.Errorf("%s: the unchanged backend %s:\n%s", b.dir, v.Outcome, v.Output)
	}
	started, err := os.ReadDir(dir)
	return v, len(started), err
}

// overlay writes the file for -overlay, in dir, that puts one file in place of another.
func overlay(dir, old, now string) (string, error) {
	text, err := json.Marshal(map[string]map[string]string{"Replace": {old: now}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}

// slowSeconds is from when on a case is put off until all others have passed.
const slowSeconds = 0.3

// phases returns the cases that may kill m: first those that killed the most like
// it, then the quick ones, then the slow ones.
func (b *testBinary) phases(m *mutant) (phases [][]*testCase) {
	kills := make(map[*testCase]int)
	var likely []*testCase
	for _, c := range b.cases {
		if n := b.killers.kills(m, c.name); n > 0 && c.mayReach(m) {
			kills[c] = n
			likely = append(likely, c)
		}
	}
	slices.SortStableFunc(likely, func(x, y *testCase) int { return cmp.Compare(kills[y], kills[x]) })
	const most = 6
	likely = likely[:min(most, len(likely))]
	var quick, slow []*testCase
	for _, c := range b.cases {
		switch {
		case !c.mayReach(m) || slices.Contains(likely, c):
		case c.seconds < slowSeconds:
			quick = append(quick, c)
		default:
			slow = append(slow, c)
		}
	}
	for _, phase := range [][]*testCase{likely, quick, slow} {
		if len(phase) > 0 {
			phases = append(phases, phase)
		}
	}
	return phases
}

// killers counts the mutants that a case killed: of a function and of a file, since
// such a case is likely to kill others there.
type killers struct {
	mu    sync.Mutex
	count map[killersKey]int
}

type killersKey struct{ file, fn, name string }

// add counts a kill by a test. What else ended the tests, such as a panic, is nobody's.
func (k *killers) add(m *mutant, test string) {
	if !strings.HasPrefix(test, "Test") {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.count == nil {
		k.count = make(map[killersKey]int)
	}
	k.count[killersKey{m.File, m.Func, caseName(test)}]++
	k.count[killersKey{m.File, "", caseName(test)}]++
}

// kills returns how many mutants like m the case killed; one of the same function
// counts for ten.
func (k *killers) kills(m *mutant, name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return 10*k.count[killersKey{m.File, m.Func, name}] + k.count[killersKey{m.File, "", name}]
}
