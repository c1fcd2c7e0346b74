package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// recorder is the testing.TB of one case. It stands between the case and the
// test that runs it, so that a case which hangs can be given up, and so that the
// suite's own tests can run cases that fail. Unlike in *testing.T, every method
// may be called on any goroutine; FailNow ends the one it is called on.
type recorder struct {
	testing.TB // the test behind it, for what isn't about the outcome

	name   string
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	failed   bool
	skipped  bool
	over     bool // given up, or ended: nothing more is recorded
	messages []string
	cleanups []func()

	onPanic func() // if set, is called after each panic, before the cleanups
}

func newRecorder(t testing.TB, name string) *recorder {
	ctx, cancel := context.WithCancel(context.Background())
	return &recorder{TB: t, name: name, ctx: ctx, cancel: cancel}
}

// Name returns the case's full name.
func (r *recorder) Name() string { return r.name }

// Helper does nothing: every message carries the line of its call.
func (r *recorder) Helper() {}

// Context ends before the cleanups run.
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) record(message string) {
	where := ""
	var pcs [12]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for more := true; more && where == ""; {
		var frame runtime.Frame
		frame, more = frames.Next()
		base := filepath.Base(frame.File)
		if base != "recorder.go" && base != "env.go" && !strings.HasPrefix(frame.Function, "runtime.") {
			where = fmt.Sprintf("%s:%d: ", base, frame.Line)
		}
	}
	r.note(where + message)
}

// note records a message without its line.
func (r *recorder) note(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.messages = append(r.messages, strings.TrimRight(message, "\n"))
	}
}

// add takes over the messages of another recorder.
func (r *recorder) add(messages []string) {
	for _, message := range messages {
		r.note(message)
	}
}

func (r *recorder) Log(args ...any)                 { r.record(fmt.Sprintln(args...)) }
func (r *recorder) Logf(format string, args ...any) { r.record(fmt.Sprintf(format, args...)) }

// Output returns a writer whose lines are logged.
func (r *recorder) Output() io.Writer { return recorderOutput{r} }

type recorderOutput struct{ r *recorder }

func (o recorderOutput) Write(p []byte) (int, error) {
	o.r.record(string(p))
	return len(p), nil
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.failed = true
	}
}

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Error(args ...any) {
	r.record(fmt.Sprintln(args...))
	r.Fail()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.record(fmt.Sprintf(format, args...))
	r.Fail()
}

func (r *recorder) Fatal(args ...any) {
	r.record(fmt.Sprintln(args...))
	r.FailNow()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.record(fmt.Sprintf(format, args...))
	r.FailNow()
}

func (r *recorder) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Skip(args ...any) {
	r.note(fmt.Sprintln(args...))
	r.SkipNow()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.note(fmt.Sprintf(format, args...))
	r.SkipNow()
}

func (r *recorder) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// TempDir makes a directory that is removed when the case ends.
func (r *recorder) TempDir() string {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		r.Fatalf("make a temporary directory: %v", err)
	}
	r.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			r.Errorf("remove the temporary directory: %v", err)
		}
	})
	return dir
}

// run calls f and then the cleanups on a goroutine of their own, and closes done
// when all have ended, however they end.
func (r *recorder) run(f func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer r.runCleanups()
		defer r.cancel()
		defer r.recover()
		f()
	}()
	return ended
}

// recover, deferred, turns a panic into a failure.
func (r *recorder) recover() {
	if p := recover(); p != nil {
		r.Errorf("panic: %v\n%s", p, debug.Stack())
		if r.onPanic != nil {
			r.onPanic()
		}
	}
}

func (r *recorder) runCleanups() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()

		func() {
			returned := false
			defer func() {
				if p := recover(); p != nil {
					r.Errorf("panic in a cleanup: %v\n%s", p, debug.Stack())
				} else if !returned { // FailNow: the rest has to run all the same
					r.runCleanups()
				}
			}()
			f()
			returned = true
		}()
	}
}

// close ends the recording and returns what there is.
func (r *recorder) close() (failed, skipped bool, messages []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	return r.failed, r.skipped, r.messages
}

// goroutineID is the number of the calling goroutine, for comparing only.
func goroutineID() string {
	var buf [64]byte
	stack := buf[:runtime.Stack(buf[:], false)]
	stack = bytes.TrimPrefix(stack, []byte("goroutine "))
	id, _, _ := bytes.Cut(stack, []byte(" "))
	return string(id)
}
