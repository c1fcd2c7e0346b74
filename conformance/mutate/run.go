package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// outcome is what became of a mutant.
type outcome string

const (
	killed    outcome = "killed"
	timedOut  outcome = "timed out" // counts as killed
	survived  outcome = "survived"
	noCompile outcome = "does not compile" // counts as nothing
)

// notReached is why a mutant survives of which no test runs a line.
const notReached = "no test gets there"

// verdict is the outcome with its circumstances.
type verdict struct {
	Outcome outcome `json:"outcome"`
	By      string  `json:"by,omitempty"` // the test that failed
	Seconds float64 `json:"seconds"`
	Output  string  `json:"output,omitempty"` // what the tests printed, cut
}

// testBinary is one package whose tests are run.
type testBinary struct {
	dir      string
	race     bool // with the race detector
	cases    []*testCase
	baseline time.Duration // of the unchanged backend
	killers  killers
}

// tester runs tests on a backend that has one file changed.
type tester struct {
	scratch  string // a folder of its own
	binaries []*testBinary
	pattern  string        // of -test.run
	skip     string        // of -test.skip
	pkg      string        // import path of the backend
	limit    time.Duration // of a phase; 0 follows from what it takes
}

// measure runs the tests on the unchanged backend, where they must pass, and notes
// what they get to and how long they take.
func (t *tester) measure(ctx context.Context, jobs int) error {
	found := make(map[string]*testBinary)
	for _, b := range t.binaries {
		if same := found[b.dir]; same != nil { // with the race detector
			b.cases, b.baseline = same.cases, same.baseline
			continue
		}
		if err := t.findCases(ctx, jobs, b); err != nil {
			return err
		}
		found[b.dir] = b
	}
	return nil
}

// test returns what becomes of m, a mutant of src. name is one that no other call
// under way has.
func (t *tester) test(ctx context.Context, name string, m *mutant, src []byte) (verdict, error) {
	dir := filepath.Join(t.scratch, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return verdict{}, err
	}
	defer os.RemoveAll(dir)
	changed := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(changed, m.apply(src), 0o600); err != nil {
		return verdict{}, err
	}
	overlaid, err := overlay(dir, m.File, changed)
	if err != nil {
		return verdict{}, err
	}
	var last verdict
	seconds := 0.0
	for _, b := range t.binaries {
		phases := b.phases(m)
		if len(phases) == 0 {
			continue
		}
		binary := filepath.Join(dir, "test.exe")
		out, err := t.build(ctx, b, binary, "-overlay", overlaid)
		if err != nil {
			return verdict{}, err
		}
		if out != "" {
			return verdict{Outcome: noCompile, Output: out}, nil
		}
		for _, cases := range phases {
			if last, err = t.run(ctx, b, binary, patternOf(cases), t.limitOf(b, cases), nil, nil); err != nil {
				return verdict{}, err
			}
			seconds += last.Seconds
			if last.Outcome != survived {
				b.killers.add(m, last.By)
				last.Seconds = seconds
				return last, nil
			}
		}
	}
	last = verdict{Outcome: survived, Seconds: seconds}
	if !t.reached(m) {
		last.By = notReached
	}
	return last, nil
}

// reached says whether a case gets to m in its own process. Of those that it starts
// nobody knows.
func (t *tester) reached(m *mutant) bool {
	for _, b := range t.binaries {
		for _, c := range b.cases {
			if c.reach.has(m) {
				return true
			}
		}
	}
	return false
}

// limitOf is generous: a busy machine must not be what kills a mutant.
func (t *tester) limitOf(b *testBinary, cases []*testCase) time.Duration {
	if t.limit > 0 {
		return t.limit
	}
	seconds := 10.0
	for _, c := range cases {
		seconds += 4 * c.seconds
	}
	if b.race {
		seconds *= 10
	}
	return time.Duration(seconds * float64(time.Second))
}

// A compiler's complaint; the go command has others, which are no mutant's doing.
var complaint = regexp.MustCompile(`(?m)^\S*\.go:\d+:\d+: `)

// build makes the test binary of b. It returns what the compiler complains of, if it
// does.
func (t *tester) build(ctx context.Context, b *testBinary, binary string, flags ...string) (complaints string, err error) {
	// Without the tables for debuggers linking takes half as long.
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...)
	if b.race {
		args = append(args, "-race")
	}
	build := exec.CommandContext(ctx, "go", append(args, ".")...)
	build.Dir = b.dir
	out, err := build.CombinedOutput()
	switch {
	case err == nil:
		return "", nil
	case ctx.Err() == nil && complaint.Match(out):
		return string(out), nil
	}
	return "", fmt.Errorf("build the tests of %s: %w\n%s", b.dir, err, out)
}

// run runs the tests that match pattern, until one fails or the limit is over.
func (t *tester) run(ctx context.Context, b *testBinary, binary, pattern string, limit time.Duration, env, flags []string) (verdict, error) {
	// Tests that are cut off leave files behind.
	temp, err := os.MkdirTemp(t.scratch, "temp-")
	if err != nil {
		return verdict{}, err
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		return verdict{}, err
	}
	// The binary ends itself at the limit; if it is not even able to, it is ended.
	limited, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	flags = append([]string{"-test.run=" + pattern, "-test.skip=" + t.skip, "-test.failfast", "-test.timeout=" + limit.String()}, flags...)
	test := exec.CommandContext(limited, binary, flags...)
	test.Dir = b.dir
	test.Env = append(os.Environ(), "TMPDIR="+temp, "TMP="+temp, "TEMP="+temp)
	test.Env = append(test.Env, env...)
	test.WaitDelay = 5 * time.Second // its children may hold its output
	var output tail
	test.Stdout, test.Stderr = &output, &output
	start := time.Now()
	err = test.Run()
	v := verdict{Seconds: time.Since(start).Seconds(), Output: output.String()}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return verdict{}, ctx.Err()
	case err == nil && strings.Contains(v.Output, "no tests to run"):
		return verdict{}, fmt.Errorf("%s has no test that matches %s", b.dir, pattern)
	case err == nil:
		v.Outcome = survived
	case limited.Err() != nil || strings.Contains(v.Output, "panic: test timed out after"):
		v.Outcome = timedOut
	case errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay):
		v.Outcome, v.By = killed, killer(v.Output)
	default:
		return verdict{}, err // it could not even be started
	}
	return v, nil
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// killer returns the innermost test that failed, or what else ended the binary.
func killer(output string) string {
	by := ""
	for _, m := range failedTest.FindAllStringSubmatch(output, -1) {
		if len(m[1]) > len(by) {
			by = m[1]
		}
	}
	switch {
	case by != "":
		return by
	case strings.Contains(output, "panic:"), strings.Contains(output, "fatal error:"):
		return "panic"
	}
	return "exit code"
}

// tail keeps the beginning and the end of what is written to it: a mutant may
// print without end.
type tail struct{ first, last bytes.Buffer }

const tailBytes = 1 << 20

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if room := tailBytes - t.first.Len(); room > 0 {
		t.first.Write(p[:min(room, len(p))])
		p = p[min(room, len(p)):]
	}
	t.last.Write(p)
	if more := t.last.Len() - tailBytes; more > tailBytes {
		t.last.Next(more)
	}
	return n, nil
}

func (t *tail) String() string { return t.first.String() + t.last.String() }
