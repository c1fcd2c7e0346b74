package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// markdown writes a table. Columns whose heading ends in ":" are aligned to the right.
func markdown(headings []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("|")
		for _, cell := range cells {
			b.WriteString(" " + strings.ReplaceAll(cell, "|", `\|`) + " |")
		}
		b.WriteString("\n")
	}
	names := make([]string, len(headings))
	rule := "|"
	for i, heading := range headings {
		name, right := strings.CutSuffix(heading, ":")
		names[i] = name
		rule += "---"
		if right {
			rule += ":"
		}
		rule += "|"
	}
	line(names)
	b.WriteString(rule + "\n")
	for _, row := range rows {
		line(row)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// shown prints the value of a field.
func shown(value string) string {
	if _, err := strconv.Atoi(value); err == nil {
		return bench.Grouped(value)
	}
	return value
}

// machines has a row for all runs of one machine, day and setting, and below it the
// versions of each.
func (all *Results) machines() string {
	headings := []string{"scenarios", "date", "machine", "cores:", "memory:", "seed:", "runs:"}
	var keys []string
	rows := make(map[string][]string)
	scenarios := make(map[string][]string)
	var versionLines []string
	for _, run := range all.runs {
		h := run.Header
		var versions []string
		for _, name := range sortedKeys(h.Versions) {
			versions = append(versions, name+" "+strings.TrimPrefix(h.Versions[name], "go"))
		}
		if line := strings.Join(versions, ", ") + "."; !slices.Contains(versionLines, line) {
			versionLines = append(versionLines, line)
		}
		date, _, _ := strings.Cut(h.Started, "T")
		machine, memory, runs := h.Machine.CPU, "", ""
		if h.Machine.OS != "" {
			machine += ", " + h.Machine.OS + "/" + h.Machine.Arch
		}
		if h.Machine.MemoryMiB > 0 {
			memory = bench.Grouped(strconv.Itoa(h.Machine.MemoryMiB)) + " MiB"
		}
		if h.Runs > 0 {
			runs = strconv.Itoa(h.Runs)
		}
		row := []string{date, machine, strconv.Itoa(h.Machine.Cores), memory, strconv.FormatUint(h.Seed, 10), runs}
		key := strings.Join(row, "\x00")
		if rows[key] == nil {
			keys = append(keys, key)
			rows[key] = row
		}
		scenario := h.Scenario
		if h.Quick {
			scenario += " (quick)"
		}
		if !slices.Contains(scenarios[key], scenario) {
			scenarios[key] = append(scenarios[key], scenario)
		}
	}
	var table [][]string
	for _, key := range keys {
		table = append(table, append([]string{strings.Join(scenarios[key], ", ")}, rows[key]...))
	}
	return markdown(headings, table) + "\n\nVersions: " + strings.Join(versionLines, "\n\nVersions: ")
}

// skips has a line for each backend that could not be measured.
func (all *Results) skips() string {
	var lines []string
	for _, run := range all.runs {
		for _, skip := range run.Skips {
			lines = append(lines, fmt.Sprintf("- %s, %s: %s", skip.Scenario, skip.Backend, skip.Reason))
		}
	}
	if lines == nil {
		return "No scenario left out a backend that it measures."
	}
	return strings.Join(lines, "\n")
}

// table has a row for each result, and a column for each field in which they differ.
func (all *Results) table(filters ...string) (string, error) {
	results, err := all.some(filters)
	if err != nil {
		return "", err
	}
	var columns []field
	var headings []string
	unit := results[0].Unit
	for _, f := range fields {
		found := values(results, f)
		if len(found) < 2 {
			continue
		}
		columns = append(columns, f)
		heading := f.heading
		if _, err := strconv.Atoi(found[0]); err == nil {
			heading += ":"
		}
		headings = append(headings, heading)
		if f.name == "unit" {
			unit = ""
		}
	}
	withFloor := slices.ContainsFunc(results, func(r bench.Result) bool { return r.Floor != 0 && r.Case != bench.CaseFloor })
	headings = append(headings, strings.TrimSuffix("median, "+unit, ", ")+":", "min to max:", "p95:", "p99:", "runs:")
	if withFloor {
		headings = append(headings, "floor:", "times the floor:")
	}
	var rows [][]string
	for i := range results {
		r := &results[i]
		var row []string
		for _, f := range columns {
			row = append(row, shown(f.of(r)))
		}
		row = append(row, bench.Format(r.Median), bench.Format(r.Min)+" to "+bench.Format(r.Max),
			bench.Format(r.P95), bench.Format(r.P99), bench.Grouped(strconv.Itoa(r.Runs)))
		if withFloor {
			floor, times := "", ""
			if r.Floor != 0 && r.Case != bench.CaseFloor {
				floor, times = bench.Format(r.Floor), bench.Format(r.Median/r.Floor)
			}
			row = append(row, floor, times)
		}
		rows = append(rows, row)
	}
	return markdown(headings, rows), nil
}

// pivot has the medians, with a row and a column for each value of two fields.
func (all *Results) pivot(row, column string, filters ...string) (string, error) {
	g, rowField, columnField, err := all.grid(row, column, filters)
	if err != nil {
		return "", err
	}
	headings := []string{rowField.heading + " \\ " + columnField.heading + ", in " + g.unit}
	for _, c := range g.columns {
		headings = append(headings, shown(c)+":")
	}
	var rows [][]string
	for _, r := range g.rows {
		cells := []string{shown(r)}
		for _, c := range g.columns {
			cell := ""
			if result, ok := g.cells[[2]string{r, c}]; ok {
				cell = bench.Format(result.Median)
			}
			cells = append(cells, cell)
		}
		rows = append(rows, cells)
	}
	return markdown(headings, rows), nil
}

// grid is gridOf what fits the filters.
func (all *Results) grid(row, column string, filters []string) (g *grid, rowField, columnField field, err error) {
	if rowField, err = fieldOf(row); err != nil {
		return
	}
	if columnField, err = fieldOf(column); err != nil {
		return
	}
	results, err := all.some(filters)
	if err != nil {
		return
	}
	g, err = gridOf(results, rowField, columnField, filters)
	return
}

// figure is the median of one result.
func (all *Results) figure(filters ...string) (string, error) {
	results, err := all.some(filters)
	if err != nil {
		return "", err
	}
	if len(results) > 1 {
		return "", fmt.Errorf("%q fits %d results, among them %s, and %s; more filters are needed",
			filters, len(results), describe(&results[0]), describe(&results[1]))
	}
	r := &results[0]
	if r.Unit == "ratio" {
		return bench.Format(r.Median), nil
	}
	return bench.Format(r.Median) + " " + r.Unit, nil
}
