package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if isChild() {
		os.Exit(child(ctx, os.Stdin, os.Stdout))
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const usage = `usage:
  go run ./benchmarks list
  go run ./benchmarks SCENARIO [-quick] [-json] [-runs N] [-seed N] [-backends A,B] [-redis URL]
  go run ./benchmarks report [-docs DIR] [-quick] FILE...
`

// errUsage is of arguments that are wrong.
var errUsage = errors.New("wrong arguments")

// run is the program. It returns the exit code: 0 if all went well, 2 for wrong
// arguments, 130 after Ctrl-C, and else 1.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	var err error
	switch name := args[0]; name {
	case "-h", "-help", "--help", "help":
		fmt.Fprint(stdout, usage)
	case "list":
		err = list(stdout)
	case "report":
		err = reportCommand(args[1:], stdout, stderr)
	default:
		err = measure(ctx, name, args[1:], stdout, stderr)
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "benchmarks: %v\n", err)
		return 2
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "benchmarks: interrupted")
		return 130
	}
	fmt.Fprintf(stderr, "benchmarks: %v\n", err)
	return 1
}

// list prints a line for each scenario.
func list(stdout io.Writer) error {
	for _, s := range scenarios {
		if _, err := fmt.Fprintf(stdout, "%-12s %s\n", s.name, s.says); err != nil {
			return err
		}
	}
	return nil
}

// find returns the scenario of that name, or an error that names all.
func find(name string) (*scenario, error) {
	names := make([]string, len(scenarios))
	for i := range scenarios {
		if names[i] = scenarios[i].name; names[i] == name {
			return &scenarios[i], nil
		}
	}
	return nil, fmt.Errorf("%w: there is no scenario %q; there are %s", errUsage, name, strings.Join(names, ", "))
}

// measure runs a scenario.
func measure(ctx context.Context, name string, args []string, stdout, stderr io.Writer) (err error) {
	s, err := find(name)
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	settings := bench.Settings{Scenario: name, Progress: stderr}
	flags.BoolVar(&settings.Quick, "quick", false, "a trial that ends within 45 seconds")
	asJSON := flags.Bool("json", false, "print lines of JSON, for report")
	flags.IntVar(&settings.Runs, "runs", 0, "how many `repetitions` a figure is of; 0 is 7, and 3 with -quick")
	flags.Uint64Var(&settings.Seed, "seed", 1, "the `seed` of the texts and of random choices")
	only := flags.String("backends", "", "measure only these, of "+strings.Join(bench.BackendNames(), ","))
	flags.StringVar(&settings.RedisURL, "redis", "", "a Redis `URL` on this machine; without it, a redis-server is started")
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: %q is one too many; a scenario takes flags alone", errUsage, flags.Arg(0))
	}
	if *only != "" {
		settings.Backends = strings.Split(*only, ",")
	}
	if *asJSON {
		settings.Sink = bench.Lines{W: stdout}
	} else {
		settings.Sink = bench.NewHuman(stdout)
	}
	r, err := bench.Start(ctx, settings)
	if err != nil {
		return err
	}
	// Also after an error: what was measured is shown.
	return errors.Join(s.run(ctx, r), settings.Sink.Flush(), r.End())
}

// parse parses flags. The package prints what is wrong, with a list of the flags.
func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return err
}
