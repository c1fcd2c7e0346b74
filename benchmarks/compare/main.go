package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"
)

// With -quick, quickTurns after the installation no case has another turn, and
// quickCases after it no case begins.
const (
	quickTurns = 28 * time.Second
	quickCases = 38 * time.Second
)

// processes is how many of the predecessor's a layout has at most.
const processes = 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "measure less: 45 seconds after the installation")
	asJSON := flags.Bool("json", false, "print one JSON object a line instead of tables")
	seed := flags.Uint64("seed", 1, "of the texts and of their order")
	python := flags.String("python", "python3", "the Python, 3.11 or later, that the predecessor is installed for; \"\" leaves it out")
	turns := flags.Int("turns", 0, "how often each contestant is measured in each case; 0 is 7, or up to 3 with -quick")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	p := fullPlan
	if *quick {
		p = quickPlan
	}
	p.seed = *seed
	switch {
	case *turns < 0:
		return fmt.Errorf("-turns is %d: it must be at least 1, or 0 for the default", *turns)
	case *turns > 0:
		p.turns = *turns
	}
	return compare(ctx, p, *quick, *asJSON, *python, stdout, stderr)
}

// compare measures everything and prints it. Who could not be installed is named and
// left out; who failed, or returned a wrong vector, is an error after the tables.
func compare(ctx context.Context, p plan, quick, asJSON bool, python string, stdout, stderr io.Writer) (err error) {
	m := machine{
		Scenario: "compare", Started: time.Now().UTC().Format(time.RFC3339),
		Machine: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Versions: versionsOfOurs(),
		Seed: p.seed, Runs: p.turns, Quick: quick, LeftOut: make(map[string]string),
	}
	var installed *installation
	if python == "" {
		m.LeftOut["predecessor"] = "-python is empty"
	} else if installed, err = install(ctx, python, stderr); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		m.LeftOut["predecessor"] = err.Error()
	}

	h := &harness{
		plan: p, texts: makeTexts(p.texts(), p.seed), api: newAPI(), progress: stderr,
		begun: time.Now(), dropped: make(map[string]string), right: make(map[[2]int]string),
	}
	defer h.api.Close()
	if quick {
		h.lastTurn, h.lastCase = h.begun.Add(quickTurns), h.begun.Add(quickCases)
	}
	if h.root, err = os.MkdirTemp("", "embedonce-compare"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(h.root)) }()

	if installed != nil {
		workers, versions, err := installed.start(ctx, processes, h.texts)
		for _, w := range workers {
			defer w.stop()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			m.LeftOut["predecessor"] = err.Error()
		} else {
			maps.Copy(m.Versions, versions)
			for _, tasks := range []bool{false, true} {
				h.contestants = append(h.contestants, &predecessor{workers: workers, baseURL: h.api.BaseURL, tasks: tasks})
			}
		}
	}
	if reason := m.LeftOut["predecessor"]; reason != "" {
		fmt.Fprintf(stderr, "the predecessor is not measured: %s\n", reason)
	}
	h.contestants = append(h.contestants, newOurs(h.texts, h.api.BaseURL, p.normal)...)
	defer func() {
		for _, c := range h.contestants {
			c.dropStore(h.base(c))
		}
	}()
	h.contestants = append(h.contestants, &control{h.texts})

	if err := h.prepare(ctx); err != nil {
		return err
	}
	if err := h.all(ctx); err != nil {
		return err
	}
	maps.Copy(m.LeftOut, h.dropped)
	for _, title := range h.skipped {
		m.LeftOut[title] = "no time was left"
	}
	write := writeTable
	if asJSON {
		write = writeJSON
	}
	if err := write(stdout, m, h.results); err != nil {
		return err
	}
	if len(h.dropped) > 0 {
		return fmt.Errorf("%d contestants failed: %v", len(h.dropped), sortedKeys(h.dropped))
	}
	return nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
