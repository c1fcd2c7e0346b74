package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// Result is one figure with its spread: one line of a file of raw results.
//
// The fields down to Unit say what was measured, and no two lines of a run may agree
// in all of them. A unit that ends in "/s" is better when it is higher; every other
// one when it is lower.
type Result struct {
	Scenario string `json:"scenario"`
	// Case is who or what was measured: CaseOurs, CaseFloor, CaseControl, or
	// another way to do the same.
	Case       string `json:"case"`
	Backend    string `json:"backend"`    // "" where none takes part
	Goroutines int    `json:"goroutines"` // that call at the same time
	Texts      int    `json:"texts"`      // or keys, or items, of one call
	Dims       int    `json:"dims"`       // of one vector; 0 where it doesn't matter
	Entries    int    `json:"entries"`    // of the store before the first call
	Metric     string `json:"metric"`
	Unit       string `json:"unit"`
	Summary
	// Floor is the median of CaseFloor beside this one, in the same unit; 0 where
	// there is none.
	Floor float64 `json:"floor"`
}

// Cases that mean the same in every scenario.
const (
	CaseOurs    = "embedonce" // the library as a user calls it
	CaseFloor   = "floor"     // the same steps written by hand, and nothing else
	CaseControl = "control"   // work for the processor alone
	CaseNoCache = "no cache"  // the library without a cache
)

// Identity is what was measured, without the figures.
func (r *Result) Identity() Result {
	id := *r
	id.Summary, id.Floor = Summary{}, 0
	return id
}

// HigherIsBetter says which way the figure is better.
func (r *Result) HigherIsBetter() bool { return strings.HasSuffix(r.Unit, "/s") }

// Header is the first line of a run: where and of what its results are.
type Header struct {
	Scenario string            `json:"scenario"`
	Started  string            `json:"started"` // RFC 3339, UTC
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // of Go, the modules and the servers
	Seed     uint64            `json:"seed"`
	Runs     int               `json:"runs"`
	Quick    bool              `json:"quick"` // a trial, whose figures are not to be published
}

// Skip is a line that says what was not measured, and why.
type Skip struct {
	Scenario string `json:"scenario"`
	Backend  string `json:"backend"`
	Reason   string `json:"skipped"`
}

// Sink takes the lines of a run as they come.
type Sink interface {
	Header(Header) error
	Result(Result) error
	Skip(Skip) error
	// Flush ends the run.
	Flush() error
}

// Lines writes each line as JSON.
type Lines struct{ W io.Writer }

func (l Lines) write(line any) error {
	return json.NewEncoder(l.W).Encode(line) // ends with a newline
}

// Header implements Sink.
func (l Lines) Header(h Header) error { return l.write(h) }

// Result implements Sink.
func (l Lines) Result(r Result) error { return l.write(r) }

// Skip implements Sink.
func (l Lines) Skip(s Skip) error { return l.write(s) }

// Flush implements Sink.
func (l Lines) Flush() error { return nil }

// RunLines is one run of a scenario, as it was written by Lines.
type RunLines struct {
	Header  Header
	Results []Result
	Skips   []Skip
}

// ReadLines reads the runs of one file. name stands in errors.
func ReadLines(name string, r io.Reader) ([]RunLines, error) {
	var runs []RunLines
	decoder := json.NewDecoder(r)
	for n := 1; ; n++ {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: line %d is not JSON: %w", name, n, err)
		}
		var kind struct {
			Machine *json.RawMessage `json:"machine"`
			Skipped *string          `json:"skipped"`
		}
		if err := json.Unmarshal(raw, &kind); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, n, err)
		}
		var err error
		switch {
		case kind.Machine != nil:
			runs = append(runs, RunLines{})
			err = runs[len(runs)-1].header(raw)
		case len(runs) == 0:
			err = errors.New(`the first line must tell the machine`)
		case kind.Skipped != nil:
			run := &runs[len(runs)-1]
			run.Skips = append(run.Skips, Skip{})
			err = strictly(raw, &run.Skips[len(run.Skips)-1])
		default:
			var result Result
			if err = strictly(raw, &result); err == nil {
				err = result.check()
			}
			run := &runs[len(runs)-1]
			run.Results = append(run.Results, result)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, n, err)
		}
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s has no results", name)
	}
	return runs, nil
}

// header reads a header. Benchmarks in another module describe the machine in one
// string, and what they left out in the header too.
func (run *RunLines) header(raw []byte) error {
	var other struct {
		Header
		Machine any               `json:"machine"`
		CPUs    int               `json:"cpus"`
		LeftOut map[string]string `json:"left_out"`
	}
	if err := json.Unmarshal(raw, &other); err != nil {
		return err
	}
	run.Header = other.Header
	if name, isString := other.Machine.(string); isString {
		run.Header.Machine = Machine{CPU: name, Cores: other.CPUs}
	} else if err := json.Unmarshal(raw, &run.Header); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(other.LeftOut)) {
		run.Skips = append(run.Skips, Skip{run.Header.Scenario, name, other.LeftOut[name]})
	}
	return nil
}

// strictly refuses members that nobody would read.
func strictly(raw []byte, to any) error {
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.DisallowUnknownFields()
	return decoder.Decode(to)
}

func (r *Result) check() error {
	for _, required := range []struct{ name, value string }{
		{"scenario", r.Scenario}, {"case", r.Case}, {"metric", r.Metric}, {"unit", r.Unit},
	} {
		if required.value == "" {
			return fmt.Errorf("%q is missing or empty", required.name)
		}
	}
	if r.Runs < 1 {
		return fmt.Errorf("%q is %d; at least 1 is allowed", "runs", r.Runs)
	}
	for _, figure := range []float64{r.Median, r.P95, r.P99, r.Min, r.Max, r.Floor} {
		if math.IsNaN(figure) || math.IsInf(figure, 0) {
			return errors.New("a figure is not finite")
		}
	}
	return nil
}
