// Package report makes a page with tables and charts of raw results.
//
// A template says what the page says; every figure in it comes from the results, by
// the functions that a template may call. They take filters: "FIELD=VALUE", with
// alternatives as "FIELD=VALUE|VALUE", where FIELD is one of scenario, case,
// backend, goroutines, texts, dims, entries, metric and unit. A result is chosen that
// fits all of them.
//
//	has FILTER...                  whether there is any result
//	machines                       a table of the machines and versions
//	skips                          a list of what could not be measured
//	table FILTER...                a table with a row for each result
//	pivot ROW COLUMN FILTER...     a table of medians; ROW and COLUMN are fields
//	chart FILE TITLE X SERIES FILTER...   a chart in charts/FILE.svg; X and SERIES are fields
//	figure FILTER...               the median of the one result, with its unit
//	versus THEIRS FILTER...        a table of a predecessor (cases, or backends, that
//	                               begin with THEIRS), the floor, and each contestant
//
// A function that finds nothing, or more than it can show, is an error that names
// the filters. The same results make the same page, byte for byte.
package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// Results are those of all files.
type Results struct {
	runs    []bench.RunLines
	results []bench.Result
}

// Read reads files of results, in the order of their names. Two results of the same
// measurement are an error, and so are those of quick runs unless they are wanted.
func Read(names []string, quick bool) (*Results, error) {
	all := new(Results)
	seen := make(map[bench.Result]string)
	for _, name := range slices.Sorted(slices.Values(names)) {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		runs, err := bench.ReadLines(name, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
		for _, run := range runs {
			if run.Header.Quick && !quick {
				return nil, fmt.Errorf("%s is of a quick run, which is too short for figures that count; run it again without -quick", name)
			}
			for _, result := range run.Results {
				id := result.Identity()
				if before, twice := seen[id]; twice {
					return nil, fmt.Errorf("%s and %s both measure %s; give one of them", before, name, describe(&id))
				}
				seen[id] = name
			}
			all.runs = append(all.runs, run)
			all.results = append(all.results, run.Results...)
		}
	}
	return all, nil
}

// describe names a measurement.
func describe(r *bench.Result) string {
	var parts []string
	for _, field := range fields {
		if value := field.of(r); value != "" && value != "0" {
			parts = append(parts, field.name+"="+value)
		}
	}
	return strings.Join(parts, " ")
}

// Page is a page with its charts.
type Page struct {
	Markdown []byte
	Charts   map[string][]byte // SVG by file name
}

// Render executes the template of a page.
func (all *Results) Render(text string) (*Page, error) {
	page := &Page{Charts: make(map[string][]byte)}
	t, err := template.New("docs").Option("missingkey=error").Funcs(template.FuncMap{
		"has":      all.has,
		"machines": all.machines,
		"skips":    all.skips,
		"table":    all.table,
		"pivot":    all.pivot,
		"figure":   all.figure,
		"versus":   all.versus,
		"chart": func(file, title, x, series string, filters ...string) (string, error) {
			return all.chart(page, file, title, x, series, filters)
		},
	}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the template: %w", err)
	}
	var b strings.Builder
	if err := t.Execute(&b, nil); err != nil {
		return nil, fmt.Errorf("the template: %w", err)
	}
	page.Markdown = []byte(strings.TrimSpace(b.String()) + "\n")
	return page, nil
}

// Write writes benchmarks.md and charts/ into a directory, which must exist, and
// returns the names of the files. Charts that an earlier page had are removed.
func (p *Page) Write(dir string) (names []string, err error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("-docs: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("-docs: %s is not a directory", dir)
	}
	charts := filepath.Join(dir, "charts")
	if err := os.MkdirAll(charts, 0o755); err != nil {
		return nil, err
	}
	old, err := filepath.Glob(filepath.Join(charts, "*.svg"))
	if err != nil {
		return nil, err
	}
	for _, name := range old {
		if p.Charts[filepath.Base(name)] == nil {
			if err := os.Remove(name); err != nil {
				return nil, err
			}
		}
	}
	write := func(name string, content []byte) {
		if err == nil {
			err = os.WriteFile(name, content, 0o644)
			names = append(names, name)
		}
	}
	write(filepath.Join(dir, "benchmarks.md"), p.Markdown)
	for _, name := range sortedKeys(p.Charts) {
		write(filepath.Join(charts, name), p.Charts[name])
	}
	return names, err
}
