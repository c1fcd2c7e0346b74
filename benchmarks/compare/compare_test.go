package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var tiny = plan{
	seed: 1, entries: 64, perCall: 16, turns: 2, limit: time.Millisecond, missCalls: 1,
	missCases: []int{2}, rates: []int{50}, normal: true,
}

// TestWithoutPredecessor measures what this machine can without Python.
func TestWithoutPredecessor(t *testing.T) {
	var out, progress bytes.Buffer
	python := t.TempDir() + "/no-such-python"
	require.NoError(t, compare(t.Context(), tiny, false, true, python, &out, &progress))
	require.Contains(t, progress.String(), "the predecessor is not measured: no Python: ")

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var m machine
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &m))
	require.Contains(t, m.LeftOut["predecessor"], "no Python")
	require.Len(t, m.LeftOut, 1)
	require.NotEmpty(t, m.Versions["go"])

	backends := make(map[string]map[string]bool) // by case
	for _, line := range lines[1:] {
		var r result
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&r))
		require.Equal(t, "compare", r.Scenario)
		require.Equal(t, dimensions, r.Dims)
		require.Positive(t, r.Min, line)
		require.True(t, r.Min <= r.Median && r.Median <= r.P95 && r.P95 <= r.P99 && r.P99 <= r.Max, line)
		require.GreaterOrEqual(t, r.Runs, 2)
		if r.Metric == "throughput" {
			if backends[r.Case] == nil {
				backends[r.Case] = make(map[string]bool)
			}
			backends[r.Case][r.Backend] = true
			require.Equal(t, strings.HasPrefix(r.Case, "misses"), r.Floor != nil, line)
		}
	}
	reads := map[string]bool{"sqlite": true, "bolt": true, "memory": true, "control (CPU only)": true}
	writes := map[string]bool{"sqlite": true, "bolt": true, "memory": true, "sqlite (Normal)": true}
	require.Equal(t, map[string]map[string]bool{
		"hits/callers=1": reads, "hits/callers=2": reads, "hits/callers=4": reads, "hits/callers=8": reads,
		"hits/callers=16": reads, "hits/callers=32": reads, "clients/clients=1": reads, "clients/clients=4": reads,
		"mixed/hits=50%": writes, "misses/callers=2": writes,
	}, backends)
}

func TestArguments(t *testing.T) {
	var out, errs bytes.Buffer
	require.ErrorContains(t, run(t.Context(), []string{"fast"}, &out, &errs), `unexpected argument "fast"`)
	require.Error(t, run(t.Context(), []string{"-seed", "x"}, &out, &errs))
	require.ErrorContains(t, run(t.Context(), []string{"-turns", "-1"}, &out, &errs), "-turns is -1: it must be at least 1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, compare(ctx, tiny, true, true, "", &out, &errs), context.Canceled)
	require.Empty(t, out.String())
}

// fake is a contestant whose answers a test decides.
type fake struct {
	label  string
	answer func(run int, o *outcome) error
	log    *[]string
	texts  []string
	runs   int
}

func (f *fake) name() string                                          { return f.label }
func (f *fake) open(context.Context, string, layout) (session, error) { return f, nil }
func (f *fake) copyStore(_ context.Context, from, to string) error    { return copyFolder(from, to) }
func (f *fake) dropStore(string)                                      {}
func (f *fake) close() error                                          { return nil }
func (f *fake) run(_ context.Context, w work) (outcome, error) {
	f.runs++
	*f.log = append(*f.log, f.label)
	o := outcome{elapsed: time.Second}
	for _, starts := range w.starts {
		for _, start := range starts {
			o.calls = append(o.calls, time.Millisecond)
			o.texts += w.perCall
			o.answers = append(o.answers, answer{start, wanted(f.texts[start : start+w.perCall])})
		}
	}
	o.hits = o.texts
	err := f.answer(f.runs, &o)
	return o, err
}

func TestWhoFailsIsOut(t *testing.T) {
	for reason, spoil := range map[string]func(run int, o *outcome) error{
		"wrong vectors for the 16 texts from number ": func(run int, o *outcome) error {
			if run == 4 {
				o.answers[0].digest = wanted([]string{"another text"})
			}
			return nil
		},
		"texts came from the cache, not ": func(run int, o *outcome) error {
			if run == 4 {
				o.hits--
			}
			return nil
		},
		"broken": func(run int, _ *outcome) error {
			if run == 4 {
				return errors.New("broken")
			}
			return nil
		},
	} {
		var order []string
		h := &harness{
			plan: tiny, texts: makeTexts(tiny.texts(), 1), api: newAPI(), root: t.TempDir(),
			progress: &bytes.Buffer{}, dropped: make(map[string]string), right: make(map[[2]int]string),
		}
		fine := func(int, *outcome) error { return nil }
		for label, answer := range map[string]func(int, *outcome) error{"good": fine, "spoiled": spoil} {
			h.contestants = append(h.contestants, &fake{label: label, answer: answer, log: &order, texts: h.texts})
		}
		for range 2 {
			require.NoError(t, h.measure(t.Context(), h.hits(layout{1, 1, 1}), time.Time{}))
		}
		h.api.Close()

		require.Len(t, h.dropped, 1)
		require.Contains(t, h.dropped["spoiled"], reason)
		require.Len(t, h.results, 4, "two metrics of two groups")
		for _, r := range h.results {
			require.Equal(t, "good", r.Backend)
			require.Equal(t, map[string]int{"throughput": 2, "call": 8}[r.Metric], r.Runs)
		}
		// A run to warm up and one that counts, in turns, until one is out.
		first, second := order[0], order[2]
		require.Equal(t, []string{first, first, second, second, first, first, second, second}, order[:8])
		require.Equal(t, []string{"good", "good", "good", "good"}, order[8:])
	}
}

func TestPrepareReadsBack(t *testing.T) {
	var order []string
	h := &harness{
		plan: tiny, texts: makeTexts(tiny.texts(), 1), root: t.TempDir(),
		progress: &bytes.Buffer{}, dropped: make(map[string]string), right: make(map[[2]int]string),
	}
	h.contestants = []contestant{
		&fake{label: "good", log: &order, texts: h.texts, answer: func(run int, o *outcome) error {
			if run == 1 {
				o.hits = 0
			}
			return nil
		}},
		&fake{label: "forgets", log: &order, texts: h.texts, answer: func(_ int, o *outcome) error {
			o.hits = 0
			return nil
		}},
	}
	require.NoError(t, h.prepare(t.Context()))
	require.Equal(t, map[string]string{"forgets": "0 of 64 texts came from the cache, not 64"}, h.dropped)
}

func TestQuickStops(t *testing.T) {
	var order []string
	h := &harness{
		plan: tiny, texts: makeTexts(tiny.texts(), 1), api: newAPI(), root: t.TempDir(),
		progress: &bytes.Buffer{}, dropped: make(map[string]string), right: make(map[[2]int]string),
	}
	defer h.api.Close()
	f := &fake{label: "one", log: &order, texts: h.texts, answer: func(int, *outcome) error { return nil }}
	h.contestants = []contestant{f}

	// A group that is late has one turn.
	require.NoError(t, h.measure(t.Context(), h.hits(layout{1, 1, 1}), time.Now().Add(-time.Hour)))
	require.Equal(t, 2, f.runs)
	// Groups that would begin too late are named instead.
	h.lastCase = time.Now().Add(-time.Hour)
	require.NoError(t, h.all(t.Context()))
	require.Equal(t, 2, f.runs)
	require.Len(t, h.skipped, len(h.groups()))
}
