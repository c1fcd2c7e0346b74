package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
)

// machine is the first line of the output: what the figures hold for.
type machine struct {
	Scenario string            `json:"scenario"`
	Started  string            `json:"started"` // RFC 3339, UTC
	Machine  string            `json:"machine"`
	CPUs     int               `json:"cpus"`
	Versions map[string]string `json:"versions"`
	Seed     uint64            `json:"seed"`
	Runs     int               `json:"runs"` // turns in each case, at most
	Quick    bool              `json:"quick"`
	// LeftOut is who was not measured, and why.
	LeftOut map[string]string `json:"left_out"`
}

// versionsOfOurs are those of Go and of the modules that the figures depend on.
func versionsOfOurs() map[string]string {
	versions := map[string]string{"go": runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			switch name := module.Path; {
			case module.Replace == nil && (strings.Contains(name, "sqlite") || strings.Contains(name, "bbolt")):
				versions[name] = module.Version
			}
		}
	}
	return versions
}

func writeJSON(w io.Writer, m machine, results []result) error {
	encoder := json.NewEncoder(w)
	if err := encoder.Encode(m); err != nil {
		return err
	}
	for _, r := range results {
		if err := encoder.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// writeTable prints one table a group. Each rate is set against the best of the
// predecessor's in the same case.
func writeTable(w io.Writer, m machine, results []result) error {
	fmt.Fprintf(w, "%s, %d CPUs, seed %d", m.Machine, m.CPUs, m.Seed)
	for _, name := range sortedKeys(m.Versions) {
		fmt.Fprintf(w, ", %s %s", name, m.Versions[name])
	}
	fmt.Fprintln(w)
	for _, name := range sortedKeys(m.LeftOut) {
		fmt.Fprintf(w, "Not measured: %s: %s\n", name, m.LeftOut[name])
	}

	best := make(map[string]float64) // of the predecessor, by case
	calls := make(map[[2]string]result)
	for _, r := range results {
		if r.Metric == "call" {
			calls[[2]string{r.Case, r.Backend}] = r
		} else if strings.HasPrefix(r.contestant, "predecessor") {
			best[r.Case] = max(best[r.Case], r.Median)
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	group := ""
	for _, r := range results {
		if r.Metric == "call" {
			continue
		}
		if r.group != group {
			group = r.group
			fmt.Fprintf(table, "\n%s\n", group)
			fmt.Fprintln(table, "case\tcontestant\ttexts/s\tmin\tmax\truns\tcall p50 ms\tp99 ms\tof floor\tagainst predecessor\t")
		}
		call := calls[[2]string{r.Case, r.Backend}]
		floor := "-"
		if r.Floor != nil {
			floor = fmt.Sprintf("%.0f %%", 100*r.Median / *r.Floor)
		}
		fmt.Fprintf(table, "%s\t%s\t%.0f\t%.0f\t%.0f\t%d\t%.2f\t%.2f\t%s\t%s\t\n", r.Case, r.Backend,
			r.Median, r.Min, r.Max, r.Runs, call.Median, call.P99, floor, against(r, best[r.Case]))
	}
	return table.Flush()
}

// against is the ratio of r to the predecessor's best.
func against(r result, predecessor float64) string {
	switch {
	case predecessor == 0 || strings.HasPrefix(r.contestant, "control"):
		return "-"
	case r.Median < predecessor && !strings.HasPrefix(r.contestant, "predecessor"):
		return fmt.Sprintf("%.2f LOSES", r.Median/predecessor)
	}
	return fmt.Sprintf("%.2f", r.Median/predecessor)
}
