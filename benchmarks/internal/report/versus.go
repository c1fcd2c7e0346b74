package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// work is what contestants did alike.
type work struct {
	name, metric, unit               string
	goroutines, texts, dims, entries int
}

// contestant says who did what. The name of the contestant is the case, or the
// backend where the case names the work; theirs is how the predecessor's begin.
func contestant(r *bench.Result, byBackend bool) (who string, what work) {
	if byBackend {
		return r.Backend, work{name: r.Case, metric: r.Metric, unit: r.Unit}
	}
	who = r.Case
	if r.Backend != "" && r.Case == bench.CaseOurs {
		who = r.Backend
	}
	return who, work{"", r.Metric, r.Unit, r.Goroutines, r.Texts, r.Dims, r.Entries}
}

// versus has a row for each figure of a contestant that is neither the predecessor,
// nor a floor, nor a control; with the best that the predecessor did at the same
// work, in whatever way, and the floor.
func (all *Results) versus(theirs string, filters ...string) (string, error) {
	results, err := all.some(filters)
	if err != nil {
		return "", err
	}
	byBackend := slices.ContainsFunc(results, func(r bench.Result) bool {
		return strings.HasPrefix(r.Backend, theirs) || strings.HasPrefix(r.Backend, bench.CaseControl)
	})
	best := make(map[work]*bench.Result)
	for i := range results {
		r := &results[i]
		who, what := contestant(r, byBackend)
		if !strings.HasPrefix(who, theirs) {
			continue
		}
		if before := best[what]; before == nil || worse(r, before.Median, r.Median) > 1 {
			best[what] = r
		}
	}
	headings := []string{"measured", "goroutines:", "texts a call:", "contestant", "unit", "predecessor:", "floor:", "median:", "times better:"}
	var rows [][]string
	for i := range results {
		r := &results[i]
		who, what := contestant(r, byBackend)
		if strings.HasPrefix(who, theirs) || strings.HasPrefix(who, bench.CaseControl) || strings.HasPrefix(who, bench.CaseFloor) {
			continue
		}
		measured := strings.TrimPrefix(what.name+", "+r.Metric, ", ")
		row := []string{measured, shown(fmt.Sprint(r.Goroutines)), shown(fmt.Sprint(r.Texts)), who, r.Unit, "", "", bench.Format(r.Median), ""}
		if their := best[what]; their != nil {
			row[5], row[8] = bench.Format(their.Median), bench.Format(worse(r, their.Median, r.Median))
		}
		if r.Floor != 0 {
			row[6] = bench.Format(r.Floor)
		}
		rows = append(rows, row)
	}
	if rows == nil {
		return "", fmt.Errorf("%w %q that is of none but %q", errNone, filters, theirs)
	}
	return markdown(headings, rows), nil
}

// worse returns how many times a is worse than b, both in the unit of r; 0 where
// that can't be said.
func worse(r *bench.Result, a, b float64) float64 {
	if r.HigherIsBetter() {
		a, b = b, a
	}
	if b == 0 {
		return 0
	}
	return a / b
}
