package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	race     bool          // with the race detector
	baseline time.Duration // of the unchanged backend
	limit    time.Duration
	killers  killers
}

// tester runs tests on a backend that has one file changed.
type tester struct {
	scratch  string // a folder of its own
	binaries []*testBinary
	pattern  string // of -test.run
	skip     string // of -test.skip
	pkg      string // import path of the backend
	reach    reach  // set by measure
}

// measure runs the tests on the unchanged backend, and notes what they get to.
// They must pass, and how long they take sets the limit, unless limit does.
func (t *tester) measure(ctx context.Context, limit time.Duration) error {
	t.reach = make(reach)
	profile := filepath.Join(t.scratch, "profile")
	for _, b := range t.binaries {
		b.limit = 30 * time.Minute
		var build, run []string
		if !b.race {
			build, run = []string{"-cover", "-coverpkg=" + t.pkg}, []string{"-test.coverprofile=" + profile}
		}
		v, err := t.testOne(ctx, b, "baseline", "", build, run)
		if err != nil {
			return err
		}
		if v.Outcome != survived {
			return fmt.Errorf("%s: the unchanged backend %s:\n%s", b.dir, v.Outcome, v.Output)
		}
		if !b.race {
			if err := t.reach.read(profile, t.pkg); err != nil {
				return err
			}
		}
		b.baseline = time.Duration(v.Seconds * float64(time.Second))
		// A busy machine must not be what kills a mutant.
		if b.limit = limit; limit == 0 {
			b.limit = 4*b.baseline + 10*time.Second
		}
	}
	return nil
}

// test returns what becomes of m, a mutant of src. name is one that no other call
// under way has.
func (t *tester) test(ctx context.Context, name string, m *mutant, src []byte) (verdict, error) {
	if !t.reach.has(m) {
		return verdict{Outcome: survived, By: notReached}, nil
	}
	dir := filepath.Join(t.scratch, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return verdict{}, err
	}
	defer os.RemoveAll(dir)
	changed := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(changed, m.apply(src), 0o600); err != nil {
		return verdict{}, err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {m.File: changed}})
	if err != nil {
		return verdict{}, err
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return verdict{}, err
	}
	var last verdict
	seconds := 0.0
	for _, b := range t.binaries {
		last, err = t.testOne(ctx, b, name, m.File, []string{"-overlay", overlayFile}, nil)
		if err != nil {
			return verdict{}, err
		}
		seconds += last.Seconds
		if last.Outcome != survived {
			break
		}
	}
	last.Seconds = seconds
	return last, nil
}

// A compiler's complaint; the go command has others, which are no mutant's doing.
var complaint = regexp.MustCompile(`(?m)^\S*\.go:\d+:\d+: `)

// testOne builds the test binary of b and runs its tests, with further flags: those
// first that killed other mutants of the file, if one is named.
func (t *tester) testOne(ctx context.Context, b *testBinary, name, file string, buildFlags, runFlags []string) (verdict, error) {
	binary := filepath.Join(t.scratch, name+".test.exe")
	defer os.Remove(binary)
	// Without the tables for debuggers linking takes half as long.
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, buildFlags...)
	if b.race {
		args = append(args, "-race")
	}
	build := exec.CommandContext(ctx, "go", append(args, ".")...)
	build.Dir = b.dir
	if out, err := build.CombinedOutput(); err != nil {
		if ctx.Err() == nil && complaint.Match(out) {
			return verdict{Outcome: noCompile, Output: string(out)}, nil
		}
		return verdict{}, fmt.Errorf("build the tests of %s: %w\n%s", b.dir, err, out)
	}
	if likely := b.killers.likely(file); likely != "" {
		v, err := t.run(ctx, b, binary, likely, runFlags)
		if err != nil || v.Outcome != survived {
			b.killers.add(file, v.By)
			return v, err
		}
	}
	v, err := t.run(ctx, b, binary, t.pattern, runFlags)
	b.killers.add(file, v.By)
	return v, err
}

func (t *tester) run(ctx context.Context, b *testBinary, binary, pattern string, flags []string) (verdict, error) {
	// Tests that are cut off leave files behind.
	temp, err := os.MkdirTemp(t.scratch, "temp-")
	if err != nil {
		return verdict{}, err
	}
	defer os.RemoveAll(temp)
	// The binary ends itself at the limit; if it is not even able to, it is ended.
	limited, cancel := context.WithTimeout(ctx, b.limit+10*time.Second)
	defer cancel()
	flags = append([]string{"-test.run=" + pattern, "-test.skip=" + t.skip, "-test.failfast", "-test.timeout=" + b.limit.String()}, flags...)
	test := exec.CommandContext(limited, binary, flags...)
	test.Dir = b.dir
	test.Env = append(os.Environ(), "TMPDIR="+temp, "TMP="+temp, "TEMP="+temp)
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
