// Mutate measures how much of a backend the conformance suite holds in place. It
// changes the backend one operator, constant, condition or statement at a time,
// and runs the deterministic tier of the suite on each of these mutants:
//
//	go run ./conformance/mutate memory
//
// It prints the mutants that no test noticed, and
//
//	mutation score memory: 96.2 % (K/N)
//
// and the same without the code that no test runs, such as that of an option.
// Whether the backend's other tests notice what survived is another question:
//
//	go run ./conformance/mutate -json suite.json memory
//	go run ./conformance/mutate -tests rest -survivors suite.json memory
//
// Each case of the suite is first run alone on the unchanged backend, to see where it
// gets: a mutant is tested with the cases that get to it. One where none gets counts
// as survived, one that is stopped at the time limit as killed, one that doesn't
// compile as nothing. The go command gets the changed file as an overlay; but the tests
// run in the package's folder, where a mutant may leave files, which can fail later ones:
// give it a clone. What somebody judged of a survivor is in verdicts/.
//
// Give it a machine that does nothing else: a test that fails because others are
// busy counts as a kill. -json keeps what the tests printed.
//
// The exit code is 0 however many survive, 1 if the unchanged backend fails or
// something else is wrong, 2 if the arguments are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type options struct {
	backend       string
	tests         string
	jobs          int
	timeout       time.Duration
	match         *regexp.Regexp
	list          bool
	verbose       bool
	race          bool
	jsonFile      string
	survivorsFile string
	sample        int
	seed          uint64
}

// testsOf has the patterns of -tests.
var testsOf = map[string]struct{ pattern, skip string }{
	"suite": {"^" + suitePrefix, ""},
	"rest":  {".", "^(" + suitePrefix + "|TestSoak)"},
	"all":   {".", "^TestSoak"},
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: mutate [flags] BACKEND\n\nBACKEND is the name of a folder in backend, or the path of another one.\n\n")
		flags.PrintDefaults()
	}
	flags.StringVar(&o.tests, "tests", "suite", "the tests that may kill: `suite` is TestConformance*, rest is all others but TestSoak*, all is both")
	flags.StringVar(&o.survivorsFile, "survivors", "", "only mutants that survived according to this `file`, which -json wrote")
	flags.IntVar(&o.jobs, "jobs", max(1, runtime.NumCPU()/2), "mutants tested at once")
	flags.DurationVar(&o.timeout, "timeout", 0, "the limit for tests that are run together; 0 is 10s and 4 times what they take on the unchanged backend")
	match := flags.String("run", "", "only mutants whose `file:line: change` matches this regular expression")
	flags.BoolVar(&o.list, "list", false, "print the mutants and test none")
	flags.BoolVar(&o.verbose, "v", false, "print each mutant as it ends")
	flags.BoolVar(&o.race, "race", false, "test what survives once more, with the race detector")
	flags.StringVar(&o.jsonFile, "json", "", "write every mutant's outcome to this `file`")
	flags.IntVar(&o.sample, "sample", 0, "only so many mutants, drawn by chance; 0 is all")
	flags.Uint64Var(&o.seed, "seed", 1, "of -sample")
	var names []string
	for len(args) > 0 { // flags may follow the name
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if args = flags.Args(); len(args) > 0 {
			names, args = append(names, args[0]), args[1:]
		}
	}
	var wrong []error
	if len(names) != 1 {
		wrong = append(wrong, fmt.Errorf("%d backends are named, allowed is one", len(names)))
	} else {
		o.backend = names[0]
	}
	if _, ok := testsOf[o.tests]; !ok {
		wrong = append(wrong, fmt.Errorf("-tests is %q, allowed are suite, rest and all", o.tests))
	}
	if o.jobs < 1 {
		wrong = append(wrong, fmt.Errorf("-jobs is %d, allowed is 1 or more", o.jobs))
	}
	if o.timeout < 0 {
		wrong = append(wrong, fmt.Errorf("-timeout is %v, allowed is 0 or more", o.timeout))
	}
	if o.sample < 0 {
		wrong = append(wrong, fmt.Errorf("-sample is %d, allowed is 0 or more", o.sample))
	}
	var err error
	if o.match, err = regexp.Compile(*match); err != nil {
		wrong = append(wrong, fmt.Errorf("-run: %w", err))
	}
	if err := errors.Join(wrong...); err != nil {
		fmt.Fprintln(stderr, err)
		return nil, err
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := measure(ctx, o, stdout); err != nil {
		fmt.Fprintln(stderr, "mutate:", err)
		return 1
	}
	return 0
}

// measure does what the options say, and prints the result.
func measure(ctx context.Context, o *options, stdout io.Writer) (err error) {
	t, err := findTarget(ctx, o.backend)
	if err != nil {
		return err
	}
	mutants, sources, err := t.mutants()
	if err != nil {
		return err
	}
	judged, err := readJudgements(t.name)
	if err != nil {
		return err
	}
	outdated := stale(judged, mutants)
	all := len(mutants)
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool {
		return !o.match.MatchString(t.where(&m) + ": " + m.Change)
	})
	if o.survivorsFile != "" {
		survivors, err := readSurvivors(o.survivorsFile)
		if err != nil {
			return err
		}
		mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !survivors[keyOf(&m)] })
	}
	if o.sample > 0 && o.sample < len(mutants) {
		mutants = sample(mutants, o.sample, o.seed)
	}
	if o.list {
		for i := range mutants {
			fmt.Fprintf(stdout, "%s: %s\n", t.where(&mutants[i]), mutants[i].Change)
		}
		return nil
	}
	if len(mutants) == 0 {
		return fmt.Errorf("no mutants of %s, of %d in all, match", o.backend, all)
	}

	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	// Tests of another user's rights have to get in.
	if err := os.Chmod(scratch, 0o755); err != nil {
		return err
	}
	tests := testsOf[o.tests]
	runner := &tester{scratch: scratch, pkg: t.pkg, pattern: tests.pattern, skip: tests.skip, limit: o.timeout}
	for _, dir := range t.tests {
		runner.binaries = append(runner.binaries, &testBinary{dir: dir})
	}
	if o.race {
		for _, dir := range t.tests {
			runner.binaries = append(runner.binaries, &testBinary{dir: dir, race: true})
		}
	}
	if err := runner.measure(ctx, o.jobs); err != nil {
		return err
	}
	for _, b := range runner.binaries {
		if !b.race {
			fmt.Fprintf(stdout, "baseline %s: %d cases in %.1fs\n", t.relative(b.dir), len(b.cases), b.baseline.Seconds())
		}
	}
	for _, line := range outdated {
		fmt.Fprintf(stdout, "a verdict names no mutant: %s\n", line)
	}
	r := &report{target: t, options: o, all: all, judged: judged, out: stdout}
	testErr := inParallel(ctx, o.jobs, len(mutants), func(ctx context.Context, i int) error {
		m := &mutants[i]
		v, err := runner.test(ctx, fmt.Sprintf("mutant-%d", i), m, sources[m.File])
		if err != nil {
			return fmt.Errorf("%s: %s: %w", t.where(m), m.Change, err)
		}
		r.add(m, v)
		return nil
	})
	return errors.Join(testErr, r.finish())
}

// inParallel calls do for 0 to n-1, so many at once, until one returns an error.
func inParallel(ctx context.Context, jobs, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	next := make(chan int)
	for range jobs {
		workers.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err) // the first one counts
				}
			}
		})
	}
feed:
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

// sample draws n mutants and keeps their order.
func sample(mutants []mutant, n int, seed uint64) []mutant {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(mutants))[:n]
	slices.Sort(order)
	drawn := make([]mutant, n)
	for i, at := range order {
		drawn[i] = mutants[at]
	}
	return drawn
}
