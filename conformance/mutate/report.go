package main

import (
	"bufio"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// report prints survivors as they are found, and sums up.
type report struct {
	target  *target
	options *options
	all     int // mutants, before -run and -sample
	judged  map[judgementKey]string
	out     io.Writer

	mu    sync.Mutex
	ended []ended
}

// ended is a mutant with its outcome.
type ended struct {
	mutant
	verdict
	Judgement string `json:"judgement,omitempty"`
}

// add may be called by several goroutines.
func (r *report) add(m *mutant, v verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := ended{mutant: *m, verdict: v}
	e.File = r.target.relative(m.File)
	const most = 4000
	if v.Outcome == survived {
		e.Output = ""
	} else if len(e.Output) > most {
		e.Output = e.Output[:most]
	}
	note := e.By
	if v.Outcome == survived {
		e.Judgement = judgementOf(r.judged, &e.mutant)
		note = cmp.Or(e.Judgement, e.By)
	}
	r.ended = append(r.ended, e)
	if v.Outcome != survived && v.Outcome != timedOut && !r.options.verbose {
		return
	}
	if note != "" {
		note = " (" + note + ")"
	}
	fmt.Fprintf(r.out, "%s %s: %s%s\n", v.Outcome, r.target.where(m), m.Change, note)
}

// finish prints the score and writes the JSON file.
func (r *report) finish() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := make(map[outcome]int)
	kinds := make(map[string]int) // of judgements
	unreached := 0
	for _, e := range r.ended {
		count[e.Outcome]++
		if e.By == notReached {
			unreached++
		}
		if kind, _, ok := strings.Cut(e.Judgement, ":"); ok {
			kinds[kind]++
		}
	}
	dead := count[killed] + count[timedOut]
	counted := dead + count[survived]
	fmt.Fprintf(r.out, "%d mutants of %d in all: %d killed, %d timed out, %d survived; %d more don't compile\n",
		counted, r.all, count[killed], count[timedOut], count[survived], count[noCompile])
	if count[survived] > 0 {
		fmt.Fprintf(r.out, "of the survivors: %d equivalent, %d outside of the suite's rules, %d not judged\n",
			kinds["equivalent"], kinds["outside"], count[survived]-kinds["equivalent"]-kinds["outside"])
	}
	reached := counted - unreached
	fmt.Fprintf(r.out, "of the %d that a test may get to: %s %% (%d/%d)\n", reached, percent(dead, reached), dead, reached)
	note := ""
	if r.options.sample > 0 && len(r.ended) < r.all {
		note = fmt.Sprintf(", a sample with seed %d", r.options.seed)
	}
	switch r.options.tests {
	case "all":
		note += ", by all tests of the package"
	case "rest":
		note += ", by the package's tests that are not of the suite"
	}
	fmt.Fprintf(r.out, "mutation score %s: %s %% (%d/%d)%s\n", r.options.backend, percent(dead, counted), dead, counted, note)
	if r.options.jsonFile == "" {
		return nil
	}
	text, err := json.MarshalIndent(struct {
		Backend string  `json:"backend"`
		Tests   string  `json:"tests"`
		Killed  int     `json:"killed"`
		Counted int     `json:"counted"`
		Mutants []ended `json:"mutants"`
	}{r.options.backend, r.options.tests, dead, counted, r.ended}, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(r.options.jsonFile, append(text, '\n'), 0o644)
}

// readSurvivors returns the mutants that survived according to a file of finish.
func readSurvivors(file string) (map[judgementKey]bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("-survivors: %w", err)
	}
	var result struct{ Mutants []ended }
	if err := json.Unmarshal(text, &result); err != nil {
		return nil, fmt.Errorf("-survivors %s: %w", file, err)
	}
	survivors := make(map[judgementKey]bool)
	for _, e := range result.Mutants {
		if e.Outcome == survived {
			survivors[keyOf(&e.mutant)] = true
		}
	}
	return survivors, nil
}

// percent rounds down: 100.0 is none left.
func percent(part, whole int) string {
	if whole == 0 {
		return "-"
	}
	tenths := part * 1000 / whole
	return fmt.Sprintf("%d.%d", tenths/10, tenths%10)
}

// A judgement says of a surviving mutant that it is equivalent, or outside of the
// suite's rules, and why. It is found by function and change, since lines move.
type judgementKey struct{ file, fn, change string }

// anyChange stands for every change of its function.
const anyChange = "*"

func keyOf(m *mutant) judgementKey {
	return judgementKey{filepath.Base(m.File), m.Func, m.Change}
}

// judgementOf returns what was judged of m: of its change, else of its function.
func judgementOf(judged map[judgementKey]string, m *mutant) string {
	key := keyOf(m)
	if why, ok := judged[key]; ok {
		return why
	}
	key.change = anyChange
	return judged[key]
}

//go:embed verdicts
var verdicts embed.FS

func readJudgements(backend string) (map[judgementKey]string, error) {
	f, err := verdicts.Open("verdicts/" + filepath.Base(backend) + ".txt")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseJudgements(f)
}

// parseJudgements reads lines "FILE FUNC | CHANGE | KIND: WHY"; KIND is equivalent
// or outside. FUNC is - outside of functions, CHANGE is * for every one of a function
// outside of the rules that has no line of its own.
func parseJudgements(r io.Reader) (map[judgementKey]string, error) {
	judged := make(map[judgementKey]string)
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		place, rest, _ := strings.Cut(line, " | ")
		at := strings.LastIndex(rest, " | ")
		file, fn, ok := strings.Cut(place, " ")
		if at < 0 || !ok {
			return nil, fmt.Errorf("verdicts, line %d: want FILE FUNC | CHANGE | KIND: WHY", n)
		}
		change, why := rest[:at], rest[at+len(" | "):]
		if kind, _, ok := strings.Cut(why, ": "); !ok || kind != "equivalent" && kind != "outside" {
			return nil, fmt.Errorf("verdicts, line %d: a verdict begins with %q or %q", n, "equivalent: ", "outside: ")
		}
		if change == anyChange && !strings.HasPrefix(why, "outside: ") {
			return nil, fmt.Errorf("verdicts, line %d: only what is outside may be judged by function", n)
		}
		if fn == "-" {
			fn = ""
		}
		judged[judgementKey{file, fn, change}] = why
	}
	return judged, lines.Err()
}

// stale lists what the judgements name and the backend no longer has.
func stale(judged map[judgementKey]string, mutants []mutant) (lines []string) {
	has := make(map[judgementKey]bool)
	for i := range mutants {
		key := keyOf(&mutants[i])
		has[key] = true
		key.change = anyChange
		has[key] = true
	}
	for key := range judged {
		if !has[key] {
			lines = append(lines, fmt.Sprintf("%s %s | %s", key.file, cmp.Or(key.fn, "-"), key.change))
		}
	}
	slices.Sort(lines)
	return lines
}
