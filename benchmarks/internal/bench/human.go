package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Human is a Sink that prints an aligned table when the run ends.
type Human struct {
	w    io.Writer
	rows *tabwriter.Writer
	last error
}

// NewHuman returns a Human that writes to w.
func NewHuman(w io.Writer) *Human {
	return &Human{w: w, rows: tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)}
}

// Header implements Sink.
func (h *Human) Header(header Header) error {
	m := header.Machine
	h.printf("%s on %s/%s, %s, %d cores, GOMAXPROCS %d, %d MiB\n",
		header.Scenario, m.OS, m.Arch, m.CPU, m.Cores, m.GOMAXPROCS, m.MemoryMiB)
	for _, name := range slices.Sorted(maps.Keys(header.Versions)) {
		h.printf("%s %s\n", name, header.Versions[name])
	}
	h.printf("seed %d, %d runs\n", header.Seed, header.Runs)
	if header.Quick {
		h.printf("A quick run: too short for figures that count.\n")
	}
	h.row("case", "backend", "goroutines", "texts", "dims", "entries", "metric", "unit", "median", "p95", "p99", "min", "max", "runs", "floor")
	return h.last
}

// Result implements Sink.
func (h *Human) Result(r Result) error {
	floor := ""
	if r.Floor != 0 {
		floor = Format(r.Floor)
	}
	h.row(r.Case, r.Backend, count(r.Goroutines), count(r.Texts), count(r.Dims), count(r.Entries), r.Metric, r.Unit,
		Format(r.Median), Format(r.P95), Format(r.P99), Format(r.Min), Format(r.Max), strconv.Itoa(r.Runs), floor)
	return h.last
}

// Skip implements Sink.
func (h *Human) Skip(s Skip) error {
	h.printf("%s is skipped: %s\n", s.Backend, s.Reason)
	return h.last
}

// Flush implements Sink.
func (h *Human) Flush() error {
	if h.last == nil {
		h.last = h.rows.Flush()
	}
	return h.last
}

func (h *Human) printf(format string, args ...any) {
	if h.last == nil {
		_, h.last = fmt.Fprintf(h.w, format, args...)
	}
}

func (h *Human) row(cells ...string) {
	if h.last == nil {
		_, h.last = fmt.Fprintln(h.rows, strings.Join(cells, "\t")+"\t")
	}
}

// count prints n with separators, and nothing for none.
func count(n int) string {
	if n == 0 {
		return ""
	}
	return Grouped(strconv.Itoa(n))
}

// Grouped puts a comma between each three digits of the whole part of a number.
func Grouped(number string) string {
	sign := ""
	if strings.HasPrefix(number, "-") {
		sign, number = "-", number[1:]
	}
	whole, fraction, isFraction := strings.Cut(number, ".")
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if isFraction {
		whole += "." + fraction
	}
	return sign + whole
}

// Format prints a figure with three digits: a measurement has no more.
func Format(x float64) string {
	magnitude := max(x, -x)
	switch {
	case magnitude >= 100:
		return Grouped(strconv.FormatFloat(x, 'f', 0, 64))
	case magnitude >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case magnitude >= 1, magnitude == 0:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}
