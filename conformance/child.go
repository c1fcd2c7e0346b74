package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// A second process is the test binary again, told by an environment variable
// what to do. It gets to the suite on the same way as the first one: through the
// test that calls Run or Soak. Both talk in lines: the child on standard output,
// behind a prefix, since tests print there too; the parent on standard input,
// whose end also ends the child.
const (
	childVariable = "EMBEDONCE_CONFORMANCE_CHILD"
	childPrefix   = "embedonce-child: "
)

// childOf is the way to a suite in another process.
type childOf struct {
	Test string // full name of the test function or subtest
	Call int    // which call of Run or Soak in that test
	Tag  string // of the suite's own tests: which cache
}

// job is what the environment variable holds.
type job struct {
	childOf
	Role     string
	Location string
	Seed     uint64
	Number   int
}

var (
	callsMutex sync.Mutex
	calls      = make(map[string]int) // of Run and Soak, by test
)

// newChildOf counts this call, so that a test may run several suites.
func newChildOf(t *testing.T) childOf {
	callsMutex.Lock()
	defer callsMutex.Unlock()
	name := t.Name()
	calls[name]++
	if calls[name] == 1 {
		t.Cleanup(func() { // for -count
			callsMutex.Lock()
			defer callsMutex.Unlock()
			delete(calls, name)
		})
	}
	return childOf{Test: name, Call: calls[name]}
}

// currentJob returns the job of this process, or nil if it is no child.
func currentJob() *job {
	text := os.Getenv(childVariable)
	if text == "" {
		return nil
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		panic("conformance: " + childVariable + " is set, but not by this package: " + err.Error())
	}
	return &j
}

// playChild plays the child's part if this process is one, and says so. The
// process ends with the part; it only returns for a child of another suite.
func (r *runner) playChild(t testing.TB) bool {
	j := currentJob()
	if j == nil {
		return false
	}
	if j.childOf != r.child {
		return true
	}
	role, ok := roles[j.Role]
	if !ok {
		t.Fatalf("conformance: no part %q for a child", j.Role)
	}
	c := &child{TB: t, s: r.suite, job: j, lines: make(chan string)}
	go c.listen()
	role.play(c)
	os.Exit(0)
	return true
}

// child is what a role works with, in the other process.
type child struct {
	testing.TB
	s     *Suite
	job   *job
	lines chan string
	out   sync.Mutex
}

func (c *child) listen() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		c.lines <- in.Text()
	}
	os.Exit(3) // the parent is gone
}

// say sends a line to the parent.
func (c *child) say(format string, args ...any) {
	c.out.Lock()
	defer c.out.Unlock()
	if _, err := fmt.Fprintf(os.Stdout, "\n"+childPrefix+format+"\n", args...); err != nil {
		os.Exit(3)
	}
}

// hear waits for a line of the parent.
func (c *child) hear() string { return <-c.lines }

// open opens the store; what fails fails the child's test.
func (c *child) open() backend.Cache { return c.s.Open(c, c.job.Location) }

// die ends the process as SIGKILL does.
func (c *child) die() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		c.say("can't kill myself: %v", err)
	}
	select {}
}

// env gives a role the helpers of a case. A failure fails the child's test.
func (c *child) env() *env {
	return &env{recorder: newRecorder(c, c.Name()), runner: &runner{patience: callPatience}, s: c.s, seed: c.job.Seed}
}

// process is a child seen from the parent.
type process struct {
	e      *env
	role   string
	action string // what it is to do
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string
	output *lockedBuffer
	ended  chan struct{} // closed when it was waited for
	err    error         // of Wait
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// excerpt leaves out the middle of what is long: a panic's reason comes first, a
// failed test's last.
func (b *lockedBuffer) excerpt() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.TrimSpace(b.buf.String())
	const end = 3000
	if len(text) <= 2*end {
		return text
	}
	return text[:end] + "\n[...]\n" + text[len(text)-end:]
}

// reexec returns the command that runs test of this binary again for a job.
func reexec(j job) *exec.Cmd {
	var pattern []string
	for _, part := range strings.Split(j.Test, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	args := []string{"-test.run=" + strings.Join(pattern, "/"), "-test.count=1", "-test.timeout=10m"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	for _, arg := range os.Args[1:] {
		if !strings.HasPrefix(arg, "-test.") && !strings.HasPrefix(arg, "--test.") {
			args = append(args, arg)
		}
	}
	text, err := json.Marshal(j)
	if err != nil {
		panic(err) // strings and numbers
	}
	executable, err := os.Executable()
	if err != nil {
		executable = os.Args[0]
	}
	cmd := exec.Command(executable, args...)
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	return cmd
}

// spawn starts another process that plays role on the store at location. It is
// killed at the latest when the case ends.
func (e *env) spawn(role, location string, number int) *process {
	e.labelled(false)
	defer e.labelled(true)
	p := &process{e: e, role: role, action: roles[role].action, lines: make(chan string, 64), output: new(lockedBuffer), ended: make(chan struct{})}
	p.cmd = reexec(job{childOf: e.runner.child, Role: role, Location: location, Seed: e.seed, Number: number})
	p.cmd.Stderr = p.output
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		e.Fatalf("start another process: %v", err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		e.Fatalf("start another process: %v", err)
	}
	if err := p.cmd.Start(); err != nil {
		e.Fatalf("start another process: %v", err)
	}
	go func() {
		defer close(p.ended)
		in := bufio.NewScanner(stdout)
		for in.Scan() {
			if _, line, ok := strings.Cut(in.Text(), childPrefix); ok {
				p.lines <- line
			} else {
				fmt.Fprintln(p.output, in.Text())
			}
		}
		close(p.lines)
		p.err = p.cmd.Wait()
	}()
	e.Cleanup(p.kill)
	return p
}

// next returns the next line of the child; ok is false when it has ended.
func (p *process) next() (line string, ok bool) {
	timer := time.NewTimer(childPatience)
	defer timer.Stop()
	select {
	case line, ok = <-p.lines:
		return line, ok
	case <-timer.C:
		p.e.Fatalf("the other process (%s) said nothing for %v; its output:\n%s", p.role, childPatience, p.output.excerpt())
		return "", false
	}
}

// expect waits for this very line.
func (p *process) expect(want string) {
	line, ok := p.next()
	if !ok {
		<-p.ended
		p.broken(fmt.Sprintf("that it says %q", want))
	}
	if line != want {
		p.e.Fatalf("the other process (%s): %s", p.role, line)
	}
}

// expectEnd waits for the child to end by itself, without any further line.
func (p *process) expectEnd() {
	if line, ok := p.next(); ok {
		p.e.Fatalf("the other process (%s): %s", p.role, line)
	}
	<-p.ended
	if p.failed() {
		p.broken("no failure")
	}
}

// failed says whether a child that has ended did so by a failure or a panic. On
// Windows one that was killed has the exit code of a failure, but says nothing.
func (p *process) failed() bool {
	code := p.cmd.ProcessState.ExitCode()
	return code > 0 && (runtime.GOOS != "windows" || code != 1 || p.output.excerpt() != "")
}

// broken fails the case for a child that has ended before it did its part.
func (p *process) broken(want string) {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	p.e.Fatalf("rule %s\naction:  another process (%s) is to %s\nwant:    %s\ngot:     it ended: %s\nseed:    %d\nits output:\n%s",
		ruleText("S3"), p.role, p.action, want, how, p.e.seed, p.output.excerpt())
}

// tell sends a line to the child.
func (p *process) tell(line string) {
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.e.Fatalf("tell the other process (%s): %v; its output:\n%s", p.role, err, p.output.excerpt())
	}
}

// kill ends the child as SIGKILL does, and waits until it is gone.
func (p *process) kill() {
	// An error says that it is gone already.
	_ = p.cmd.Process.Kill()
	for range p.lines {
		// What it said before; the reader must not block.
	}
	<-p.ended
}

// How long another process may take to start or to do its part.
const childPatience = 40 * time.Second
