package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// field is one of those that filters, rows and columns go by.
type field struct {
	name    string
	heading string
	of      func(r *bench.Result) string
}

var fields = []field{
	{"scenario", "scenario", func(r *bench.Result) string { return r.Scenario }},
	{"backend", "backend", func(r *bench.Result) string { return r.Backend }},
	{"goroutines", "goroutines", func(r *bench.Result) string { return strconv.Itoa(r.Goroutines) }},
	{"texts", "texts a call", func(r *bench.Result) string { return strconv.Itoa(r.Texts) }},
	{"dims", "dimensions", func(r *bench.Result) string { return strconv.Itoa(r.Dims) }},
	{"entries", "entries", func(r *bench.Result) string { return strconv.Itoa(r.Entries) }},
	{"metric", "metric", func(r *bench.Result) string { return r.Metric }},
	{"case", "case", func(r *bench.Result) string { return r.Case }},
	{"unit", "unit", func(r *bench.Result) string { return r.Unit }},
}

func fieldOf(name string) (field, error) {
	var names []string
	for _, f := range fields {
		if f.name == name {
			return f, nil
		}
		names = append(names, f.name)
	}
	return field{}, fmt.Errorf("there is no field %q; there are %s", name, strings.Join(names, ", "))
}

// choose returns the results that fit all filters.
func (all *Results) choose(filters []string) ([]bench.Result, error) {
	type test struct {
		field
		values []string
	}
	var tests []test
	for _, filter := range filters {
		name, values, ok := strings.Cut(filter, "=")
		if !ok {
			return nil, fmt.Errorf("%q is no filter; FIELD=VALUE is one", filter)
		}
		f, err := fieldOf(name)
		if err != nil {
			return nil, err
		}
		tests = append(tests, test{f, strings.Split(values, "|")})
	}
	var chosen []bench.Result
	for i := range all.results {
		r := &all.results[i]
		if !slices.ContainsFunc(tests, func(t test) bool { return !slices.Contains(t.values, t.of(r)) }) {
			chosen = append(chosen, *r)
		}
	}
	return chosen, nil
}

var errNone = errors.New("no result fits")

// some is choose, and an error where it finds nothing.
func (all *Results) some(filters []string) ([]bench.Result, error) {
	chosen, err := all.choose(filters)
	if err == nil && len(chosen) == 0 {
		err = fmt.Errorf("%w %q", errNone, filters)
	}
	return chosen, err
}

func (all *Results) has(filters ...string) (bool, error) {
	chosen, err := all.choose(filters)
	return len(chosen) > 0, err
}

// values returns the different values of a field: numbers in their order, anything
// else in the order of the results.
func values(results []bench.Result, f field) []string {
	var all []string
	numbers := true
	for i := range results {
		value := f.of(&results[i])
		if _, err := strconv.Atoi(value); err != nil {
			numbers = false
		}
		if !slices.Contains(all, value) {
			all = append(all, value)
		}
	}
	if numbers {
		slices.SortFunc(all, func(a, b string) int {
			x, _ := strconv.Atoi(a)
			y, _ := strconv.Atoi(b)
			return cmp.Compare(x, y)
		})
	}
	return all
}

// grid has the one result for each pair of values of two fields.
type grid struct {
	rows, columns []string
	cells         map[[2]string]bench.Result
	unit          string
}

func gridOf(results []bench.Result, row, column field, filters []string) (*grid, error) {
	g := &grid{
		rows: values(results, row), columns: values(results, column),
		cells: make(map[[2]string]bench.Result), unit: results[0].Unit,
	}
	for i := range results {
		r := &results[i]
		if r.Unit != g.unit {
			return nil, fmt.Errorf("%q fits results in %s and in %s; more filters are needed", filters, g.unit, r.Unit)
		}
		at := [2]string{row.of(r), column.of(r)}
		if other, twice := g.cells[at]; twice {
			return nil, fmt.Errorf("%q fits more than one result for %s %s and %s %s: %s, and %s; more filters are needed",
				filters, row.name, at[0], column.name, at[1], describe(&other), describe(r))
		}
		g.cells[at] = *r
	}
	return g, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
