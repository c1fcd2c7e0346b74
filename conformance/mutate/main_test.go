package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const toy = "./testdata/toy"

// mutate runs the tool on the toy, and checks that the toy stays as it is.
func mutate(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	before, err := os.ReadFile(filepath.Join(toy, "toy.go"))
	require.NoError(t, err)
	scratch := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, scratch)
	}
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	after, err := os.ReadFile(filepath.Join(toy, "toy.go"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	left, err := filepath.Glob(filepath.Join(scratch, "mutate-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	return code, out.String(), errs.String()
}

func TestToy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.json")
	code, stdout, stderr := mutate(t, toy, "-jobs", "2", "-v", "-json", file, "-run", `toy\.go:(6:|13:|9: .*3)`)
	require.Zero(t, code, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.Regexp(t, `^baseline conformance/mutate/testdata/toy: 3 cases in \d+\.\ds$`, lines[0])
	place := "conformance/mutate/testdata/toy/toy.go:"
	mutants := lines[1 : len(lines)-4]
	slices.Sort(mutants)
	require.Equal(t, []string{
		"does not compile " + place + "13: func Join(a, b string) string { return a + b }: + -> -",
		"killed " + place + `13: a + b -> "" (TestConformance/join)`,
		"killed " + place + "6: n < 0 -> false (TestConformance)",
		"killed " + place + "6: n < 0 -> true (TestConformance)",
		"killed " + place + "9: 2 -> 3 (TestConformance)",
		"survived " + place + "6: 0 -> 1",
		"survived " + place + "6: if n < 0 {: < -> <=",
	}, mutants)
	require.Equal(t, []string{
		"6 mutants of 25 in all: 4 killed, 0 timed out, 2 survived; 1 more don't compile",
		"of the survivors: 0 equivalent, 0 outside of the suite's rules, 2 not judged",
		"of the 6 that a test may get to: 66.6 % (4/6)",
		"mutation score ./testdata/toy: 66.6 % (4/6)",
	}, lines[len(lines)-4:])

	var result struct {
		Killed, Counted int
		Mutants         []struct{ File, Func, Change, Outcome, By string }
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &result))
	require.Equal(t, 4, result.Killed)
	require.Equal(t, 6, result.Counted)
	require.Len(t, result.Mutants, 7)
	require.Contains(t, result.Mutants, struct{ File, Func, Change, Outcome, By string }{
		"conformance/mutate/testdata/toy/toy.go", "Join", `a + b -> ""`, "killed", "TestConformance/join"})
}

// TestOtherProcess: what a test gets to in a process that it starts.
func TestOtherProcess(t *testing.T) {
	code, stdout, stderr := mutate(t, "-run", "42 -> 0", "-v", toy)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "killed conformance/mutate/testdata/toy/toy.go:28: 42 -> 0 (TestConformanceProcess)\n")
}

// TestTests: what only other tests notice survives the suite.
func TestTests(t *testing.T) {
	code, stdout, stderr := mutate(t, "-run", "2 . n -> 0", toy)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "toy.go:16: 2 * n -> 0 (no test gets there)\n")
	require.Contains(t, stdout, "mutation score ./testdata/toy: 0.0 % (0/1)\n")
	code, stdout, stderr = mutate(t, "-run", "2 . n -> 0", "-tests", "all", toy)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "mutation score ./testdata/toy: 100.0 % (1/1), by all tests of the package\n")
}

// TestSurvivors: the other tests are asked about what the suite let live.
func TestSurvivors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "suite.json")
	code, _, stderr := mutate(t, "-run", "-> 0", "-json", file, toy)
	require.Zero(t, code, stderr)
	code, stdout, stderr := mutate(t, "-run", "-> 0", "-survivors", file, "-tests", "rest", "-v", toy)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "killed conformance/mutate/testdata/toy/toy.go:16: 2 * n -> 0 (TestTwice)\n")
	require.Contains(t, stdout, "mutation score ./testdata/toy: 100.0 % (2/2), by the package's tests that are not of the suite\n")

	code, _, stderr = mutate(t, "-survivors", file+"-no", toy)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "-survivors: open ")
	require.NoError(t, os.WriteFile(file, []byte("nonsense"), 0o600))
	code, _, stderr = mutate(t, "-survivors", file, toy)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "-survivors "+file)
}

func TestTimeLimit(t *testing.T) {
	code, stdout, stderr := mutate(t, "-timeout", "1s", "-run", "deleted n--", toy)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "timed out conformance/mutate/testdata/toy/toy.go:21: deleted n--\n")
	require.Contains(t, stdout, "mutation score ./testdata/toy: 100.0 % (1/1)\n")
}

func TestFailingBaseline(t *testing.T) {
	t.Setenv("TOY_FAILS", "1")
	code, stdout, stderr := mutate(t, toy)
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "the unchanged backend killed")
	require.Contains(t, stderr, "not so many steps")
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &cancelling{after: "survived", cancel: cancel}
	var errs bytes.Buffer
	require.Equal(t, 1, run(ctx, []string{"-jobs", "1", "-run", `toy\.go:6: (0|if)`, toy}, out, &errs))
	require.Contains(t, errs.String(), "context canceled")
	require.Contains(t, out.String(), "mutation score ./testdata/toy: 0.0 % (0/1)\n")
}

// cancelling cancels a context when a text was written to it.
type cancelling struct {
	bytes.Buffer
	after  string
	cancel func()
}

func (c *cancelling) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.after) {
		c.cancel()
	}
	return c.Buffer.Write(p)
}

func TestArguments(t *testing.T) {
	code, stdout, _ := mutate(t, "-list", "-sample", "3", "-seed", "5", toy)
	require.Zero(t, code)
	require.Len(t, strings.Split(strings.TrimSpace(stdout), "\n"), 3)
	_, again, _ := mutate(t, "-list", "-sample", "3", "-seed", "5", toy)
	require.Equal(t, stdout, again)
	_, other, _ := mutate(t, "-list", "-sample", "3", "-seed", "6", toy)
	require.NotEqual(t, stdout, other)

	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 2, "0 backends are named, allowed is one"},
		{[]string{"memory", "sqlite"}, 2, "2 backends are named"},
		{[]string{"-jobs", "0", "-sample", "-1", "-timeout", "-1s", "-tests", "some", "-run", "(", toy}, 2,
			"-tests is \"some\", allowed are suite, rest and all\n-jobs is 0, allowed is 1 or more\n-timeout is -1s, allowed is 0 or more\n-sample is -1, allowed is 0 or more\n-run: "},
		{[]string{"-nonsense"}, 2, "usage: mutate"},
		{[]string{"-help"}, 0, "usage: mutate"},
		{[]string{"nothing"}, 1, `no backend "nothing": it must be the name of a folder in backend`},
		{[]string{"-run", "no such change", toy}, 1, "no mutants of ./testdata/toy, of 25 in all, match"},
	} {
		code, stdout, stderr := mutate(t, c.args...)
		require.Equal(t, c.code, code, c.args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, c.says)
	}
}

func TestFindTarget(t *testing.T) {
	found, err := findTarget(t.Context(), "memory")
	require.NoError(t, err)
	require.Contains(t, found.files, filepath.Join(found.root, "backend", "memory", "memory.go"))
	require.Equal(t, filepath.Join(found.root, "backend", "memory"), found.tests[0])

	has, err := hasConformance(toy)
	require.NoError(t, err)
	require.True(t, has)
	has, err = hasConformance(".")
	require.NoError(t, err)
	require.False(t, has)
}

func TestKiller(t *testing.T) {
	for output, by := range map[string]string{
		"--- FAIL: TestA (0s)\n    --- FAIL: TestA/read (0s)\n        --- FAIL: TestA/read/x (0s)\nFAIL": "TestA/read/x",
		"panic: no\n\ngoroutine 1":            "panic",
		"fatal error: all goroutines are asl": "panic",
		"leaked":                              "exit code",
	} {
		require.Equal(t, by, killer(output))
	}
}

func TestTail(t *testing.T) {
	var kept tail
	kept.Write([]byte("begin"))
	for range 100 {
		n, err := kept.Write(bytes.Repeat([]byte("x"), tailBytes/10))
		require.NoError(t, err)
		require.Equal(t, tailBytes/10, n)
	}
	kept.Write([]byte("end"))
	text := kept.String()
	require.True(t, strings.HasPrefix(text, "begin") && strings.HasSuffix(text, "xend"))
	require.Less(t, len(text), 4*tailBytes)
}

func TestJudgements(t *testing.T) {
	judged, err := parseJudgements(strings.NewReader("# a remark\n\na.go T.f | a | b -> a & b | equivalent: both are 0\na.go - | 1 -> 0 | outside: advice\n"))
	require.NoError(t, err)
	require.Equal(t, map[judgementKey]string{
		{"a.go", "T.f", "a | b -> a & b"}: "equivalent: both are 0",
		{"a.go", "", "1 -> 0"}:            "outside: advice",
	}, judged)
	for _, line := range []string{"a.go f | equivalent: x", "a.go | a | equivalent: x", "a.go f | a | maybe: x", "a.go f | a | equivalent", "a.go f | * | equivalent: x"} {
		_, err := parseJudgements(strings.NewReader(line))
		require.ErrorContains(t, err, "verdicts, line 1", line)
	}
}

// What is judged of a whole function gives way to what is judged of one change.
func TestJudgementOfAFunction(t *testing.T) {
	judged := map[judgementKey]string{{"a.go", "f", "*"}: "outside: an option", {"a.go", "f", "1 -> 0"}: "equivalent: x"}
	of := func(fn, change string) string {
		return judgementOf(judged, &mutant{File: "/x/a.go", Func: fn, Change: change})
	}
	require.Equal(t, "outside: an option", of("f", "2 -> 0"))
	require.Equal(t, "equivalent: x", of("f", "1 -> 0"))
	require.Empty(t, of("g", "2 -> 0"))
}

func TestVerdicts(t *testing.T) {
	files, err := filepath.Glob("verdicts/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		judged, err := readJudgements(strings.TrimSuffix(filepath.Base(file), ".txt"))
		require.NoError(t, err, file)
		require.NotEmpty(t, judged)
	}
	judged, err := readJudgements("nothing")
	require.NoError(t, err)
	require.Empty(t, judged)
}

func TestStale(t *testing.T) {
	found := []mutant{{File: "/x/a.go", Func: "f", Change: "1 -> 0"}}
	require.Equal(t, []string{"a.go T.f | 1 -> 0", "b.go - | 1 -> 0"}, stale(map[judgementKey]string{
		{"a.go", "f", "1 -> 0"}: "", {"a.go", "f", "*"}: "", {"b.go", "", "1 -> 0"}: "", {"a.go", "T.f", "1 -> 0"}: "",
	}, found))
}

func TestPercent(t *testing.T) {
	require.Equal(t, "99.9", percent(2999, 3000))
	require.Equal(t, "100.0", percent(3, 3))
	require.Equal(t, "-", percent(0, 0))
}

func TestReach(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "profile")
	require.NoError(t, os.WriteFile(profile, []byte("mode: set\nx.org/a/b/f.go:3.10,5.2 2 1\nx.org/a/b/f.go:5.2,9.3 1 0\nx.org/a/c/f.go:5.2,9.3 1 1\n"), 0o600))
	r := make(reach)
	require.NoError(t, r.read(profile, "x.org/a/b"))
	for _, c := range []struct {
		line, column int
		want         bool
	}{{3, 9, true}, {3, 10, true}, {5, 1, true}, {5, 2, false}, {8, 90, false}, {9, 2, false}, {9, 3, true}} {
		require.Equal(t, c.want, r.has(&mutant{File: "/src/b/f.go", Line: c.line, Column: c.column}), c)
	}
	require.True(t, r.has(&mutant{File: "/src/b/other.go", Line: 6, Column: 1}))
	require.NoError(t, os.WriteFile(profile, []byte("mode: set\nx.org/a/b/f.go:5.2,9.3 1 2\n"), 0o600))
	require.NoError(t, r.read(profile, "x.org/a/b"))
	require.True(t, r.has(&mutant{File: "/src/b/f.go", Line: 8, Column: 1}), "another package's tests get there")

	require.NoError(t, os.WriteFile(profile, []byte("nonsense\n"), 0o600))
	require.ErrorContains(t, r.read(profile, "x.org/a/b"), "nonsense")
	require.ErrorIs(t, r.read(profile+"-no", "x.org/a/b"), os.ErrNotExist)
}

func TestKillers(t *testing.T) {
	var k killers
	m := &mutant{File: "a.go", Func: "f"}
	require.Zero(t, k.kills(m, "TestConformanceA/read/x"))
	for _, test := range []string{"TestConformanceA/read/x/1", "TestConformanceA/read/x/2", "TestConformanceA/write/y", "panic", ""} {
		k.add(m, test)
	}
	require.Equal(t, 22, k.kills(m, "TestConformanceA/read/x"))
	require.Equal(t, 2, k.kills(&mutant{File: "a.go", Func: "g"}, "TestConformanceA/read/x"))
	require.Zero(t, k.kills(&mutant{File: "b.go", Func: "f"}, "TestConformanceA/read/x"))
	require.Len(t, k.count, 4)
}

func TestCaseNames(t *testing.T) {
	require.Equal(t, []string{"TestB", "TestConformanceA/read/x", "TestConformanceA/read/y", "TestConformanceA/info"}, caseNames("--- PASS: TestB (0s)\n"+
		"--- PASS: TestConformanceA (0s)\n    --- PASS: TestConformanceA/read (0s)\n        --- PASS: TestConformanceA/read/x (0s)\n            --- PASS: TestConformanceA/read/x/1 (0s)\n"+
		"        --- PASS: TestConformanceA/read/y (0s)\n        --- SKIP: TestConformanceA/read/z (0s)\n    --- PASS: TestConformanceA/info (0s)\nPASS\n"))
}

func TestPatternOf(t *testing.T) {
	var cases []*testCase
	for _, name := range []string{"TestA/read/x", "TestA/close/u+v", "TestA/read/y", "TestB", "TestC"} {
		cases = append(cases, &testCase{name: name})
	}
	require.Equal(t, `^TestA$/^read$/^(x|y)$|^TestA$/^close$/^(u\+v)$|^(TestB|TestC)$`, patternOf(cases))
}

func TestPhases(t *testing.T) {
	line := func(from int) reach { return reach{"f.go": {{from, 1, from + 1, 1, true}, {1, 1, 99, 1, false}}} }
	b := &testBinary{cases: []*testCase{
		{name: "TestA", reach: line(5), seconds: 2}, {name: "TestB", reach: line(5)}, {name: "TestC", reach: line(7)},
		{name: "TestD", reach: line(7), starts: true}, {name: "TestE", reach: line(5)},
	}}
	names := func(m *mutant) (names []string) {
		for _, cases := range b.phases(m) {
			phase := ""
			for _, c := range cases {
				phase += c.name[len("Test"):]
			}
			names = append(names, phase)
		}
		return names
	}
	m := &mutant{File: "/x/f.go", Line: 5, Column: 3}
	require.Equal(t, []string{"BDE", "A"}, names(m))
	b.killers.add(m, "TestE")
	b.killers.add(m, "TestA")
	b.killers.add(m, "TestA")
	require.Equal(t, []string{"AE", "BD"}, names(m))
	require.Equal(t, []string{"D"}, names(&mutant{File: "/x/f.go", Line: 30, Column: 3}))
}
