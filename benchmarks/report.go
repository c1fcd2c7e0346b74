package main

import (
	_ "embed"
	"flag"
	"fmt"
	"io"

	"github.com/embedonce/embedonce/benchmarks/internal/report"
)

// docs is docs/benchmarks.md without its figures.
//
//go:embed docs.md.tmpl
var docs string

// reportCommand writes docs/benchmarks.md and its charts.
func reportCommand(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("docs", "docs", "the `directory` for benchmarks.md and charts/")
	quick := flags.Bool("quick", false, "take results of quick runs too, to try the report out")
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("%w: report needs files of results, such as benchmarks/results/*.jsonl", errUsage)
	}
	results, err := report.Read(flags.Args(), *quick)
	if err != nil {
		return err
	}
	page, err := results.Render(docs)
	if err != nil {
		return err
	}
	names, err := page.Write(*dir)
	for _, name := range names {
		fmt.Fprintln(stdout, name)
	}
	return err
}
