// Package bench has what every scenario needs: texts, a fake provider, stores of
// which each repetition gets a fresh copy, goroutines that start together, and
// figures with their spread.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Settings are those of the command line.
type Settings struct {
	Scenario string
	Quick    bool
	Runs     int      // repetitions; 0 is 3 with Quick, else 7
	Seed     uint64   // of the texts and of every random choice
	Backends []string // only these; none is all
	RedisURL string   // a server on this machine; "" starts one
	Sink     Sink
	Progress io.Writer // says what goes on; nil is silence
}

// Run is one run of a scenario: its settings, and what belongs to it while it lasts.
type Run struct {
	Settings
	dir     string // for the files of stores
	places  int    // that were named
	redis   redisServer
	skipped map[string]bool
	cleanup []func() error
}

// Start begins a run. The caller must End it.
func Start(ctx context.Context, s Settings) (_ *Run, err error) {
	if s.Runs == 0 {
		s.Runs = Pick(s.Quick, 3, 7)
	}
	if s.Runs < 1 || s.Runs > 1000 {
		return nil, fmt.Errorf("-runs is %d; 1 to 1000 are allowed, and 0 for the default", s.Runs)
	}
	problems := []error{}
	for _, name := range s.Backends {
		if !isBackend(name) {
			problems = append(problems, fmt.Errorf("-backends has %q; allowed are %s", name, strings.Join(BackendNames(), ", ")))
		}
	}
	if s.RedisURL != "" {
		if err := CheckLoopback(s.RedisURL); err != nil {
			problems = append(problems, fmt.Errorf("-redis: %w", err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	r := &Run{Settings: s, skipped: make(map[string]bool)}
	if r.Progress == nil {
		r.Progress = io.Discard
	}
	if r.dir, err = os.MkdirTemp("", "embedonce-bench-"); err != nil {
		return nil, err
	}
	header := Header{
		Scenario: s.Scenario, Started: time.Now().UTC().Format(time.RFC3339), Machine: ThisMachine(),
		Versions: versions(ctx), Seed: s.Seed, Runs: s.Runs, Quick: s.Quick,
	}
	if version := r.redisVersion(ctx); version != "" {
		header.Versions["redis"] = version
	}
	if err := r.Sink.Header(header); err != nil {
		return nil, errors.Join(err, r.End())
	}
	return r, nil
}

// End stops what the run has started and removes its files.
func (r *Run) End() error {
	var errs []error
	for i := len(r.cleanup) - 1; i >= 0; i-- {
		errs = append(errs, r.cleanup[i]())
	}
	r.cleanup = nil
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// Cleanup has End call f.
func (r *Run) Cleanup(f func() error) { r.cleanup = append(r.cleanup, f) }

// TempDir returns the name of a new directory, which End removes.
func (r *Run) TempDir() (string, error) {
	r.places++
	dir := filepath.Join(r.dir, fmt.Sprint(r.places))
	return dir, os.Mkdir(dir, 0o700)
}

// Texts returns n distinct texts: see the function Texts.
func (r *Run) Texts(from, n int) []string { return Texts(r.Seed, from, n) }

// Emit hands a result on.
func (r *Run) Emit(result Result) error {
	result.Scenario = r.Scenario
	result.Floor = round(result.Floor)
	if err := result.check(); err != nil {
		return fmt.Errorf("a result of scenario %s: %w", r.Scenario, err)
	}
	return r.Sink.Result(result)
}

// Logf tells the user how far the run is.
func (r *Run) Logf(format string, args ...any) {
	fmt.Fprintf(r.Progress, "%s: %s\n", r.Scenario, fmt.Sprintf(format, args...))
}

// Skip says that nothing is measured on a backend, once.
func (r *Run) Skip(name, reason string) error {
	if r.skipped[name] {
		return nil
	}
	r.skipped[name] = true
	r.Logf("%s is skipped: %s", name, reason)
	return r.Sink.Skip(Skip{Scenario: r.Scenario, Backend: name, Reason: reason})
}

// Pick returns what a quick run uses, or else the full value.
func Pick[T any](quick bool, inQuick, inFull T) T {
	if quick {
		return inQuick
	}
	return inFull
}
