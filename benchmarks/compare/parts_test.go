package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/pkoukk/tiktoken-go-loader/assets"
	"github.com/stretchr/testify/require"
)

func TestSummarise(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	r := result{Case: "c"}.summarise(hundred)
	require.Equal(t, result{Case: "c", Median: 50.5, P95: 95, P99: 99, Min: 1, Max: 100, Runs: 100}, r)
	r = result{}.summarise([]float64{3, 1, 2})
	require.Equal(t, result{Median: 2, P95: 3, P99: 3, Min: 1, Max: 3, Runs: 3}, r)
	r = result{}.summarise([]float64{7})
	require.Equal(t, result{Median: 7, P95: 7, P99: 7, Min: 7, Max: 7, Runs: 1}, r)
}

func TestTexts(t *testing.T) {
	texts := makeTexts(2000, 1)
	require.Equal(t, texts, makeTexts(2000, 1))
	require.NotEqual(t, texts, makeTexts(2000, 2))
	distinct := make(map[string]bool)
	bytes := 0
	for _, text := range texts {
		require.Len(t, strings.Fields(text), wordsPerText)
		distinct[text] = true
		bytes += len(text)
	}
	require.Len(t, distinct, len(texts))
	require.InDelta(t, 740, bytes/len(texts), 40)
}

func TestDigests(t *testing.T) {
	texts := makeTexts(3, 1)
	var matrix []float32
	for _, text := range texts {
		matrix = append(matrix, embedtest.Space{Model: model}.Vector(text, dimensions)...)
	}
	require.Equal(t, wanted(texts), digest(matrix))
	require.NotEqual(t, wanted(texts[:2]), digest(matrix))
	matrix[dimensions] *= 2
	require.NotEqual(t, wanted(texts), digest(matrix))
}

func TestPlans(t *testing.T) {
	for _, p := range []plan{fullPlan, quickPlan, tiny} {
		h := &harness{plan: p, contestants: append(newOurs(nil, "", p.normal), &control{}, &predecessor{}, &predecessor{tasks: true})}
		require.Zero(t, p.entries%64)
		require.Zero(t, p.entries%p.perCall)
		seen := make(map[string]bool)
		for _, g := range h.groups() {
			for _, e := range g.entries {
				w := g.work(e.layout)
				require.Len(t, w.starts, e.layout.lanes(), g.title)
				require.LessOrEqual(t, e.layout.processes, processes)
				require.False(t, seen[e.caseName+e.label()], e.caseName+e.label())
				seen[e.caseName+e.label()] = true
				missed := make(map[int]bool)
				for _, starts := range w.starts {
					for _, start := range starts {
						require.LessOrEqual(t, start+w.perCall, p.texts())
						if !g.fresh {
							require.LessOrEqual(t, start+w.perCall, p.entries)
						} else {
							require.False(t, missed[start], "a text is missed once")
							missed[start] = true
						}
					}
				}
			}
		}
	}
}

func TestDrive(t *testing.T) {
	w := work{perCall: 2, checkAll: true, starts: [][]int{{0, 2}, {4}, {6, 8, 10}}}
	call := func(lane, start int) (int, []float32, error) { return 1, []float32{float32(start)}, nil }
	out, err := drive(t.Context(), w, call)
	require.NoError(t, err)
	require.Positive(t, out.elapsed)
	require.Len(t, out.calls, 6)
	require.Equal(t, 12, out.texts)
	require.Equal(t, 6, out.hits)
	var right []answer
	for start := 0; start <= 10; start += 2 {
		right = append(right, answer{start, digest([]float32{float32(start)})})
	}
	require.Equal(t, right, out.answers)

	// With a limit a lane goes round, makes one call at least, and keeps the last.
	w.checkAll, w.limit = false, time.Nanosecond
	out, err = drive(t.Context(), w, func(lane, start int) (int, []float32, error) {
		time.Sleep(time.Microsecond)
		return call(lane, start)
	})
	require.NoError(t, err)
	require.Len(t, out.calls, 3)
	require.Equal(t, []answer{right[0], right[2], right[3]}, out.answers)
	require.True(t, work{limit: time.Second}.more(5, 2, time.Millisecond))
	require.False(t, work{limit: time.Second}.more(5, 2, 2*time.Second))

	broken := errors.New("broken")
	_, err = drive(t.Context(), w, func(lane, _ int) (int, []float32, error) {
		if lane == 2 {
			return 0, nil, broken
		}
		return 0, nil, nil
	})
	require.ErrorIs(t, err, broken)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = drive(ctx, w, call)
	require.ErrorIs(t, err, context.Canceled)
}

func TestVocabulary(t *testing.T) {
	// tiktoken refuses, and asks the network for, any file but the one with this sum.
	data, err := assets.Assets.ReadFile(vocabulary)
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	require.Equal(t, "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7", hex.EncodeToString(sum[:]))

	dir := filepath.Join(t.TempDir(), "tokens")
	for _, damage := range []bool{false, false, true} {
		path := filepath.Join(dir, "9b5ad71b2ce5302211f9c61530b329a4922fc6a4")
		if damage {
			require.NoError(t, os.WriteFile(path, data[:1000], 0o644))
		}
		require.NoError(t, writeVocabulary(dir))
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, files, 1)
		there, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, there))
	}
}

func TestWorkerEnvironment(t *testing.T) {
	env := workerEnvironment([]string{"PATH=/bin", "OPENAI_API_KEY=k", "HTTPS_PROXY=http://proxy", "http_proxy=x", "HOME=/h", "PYTHONPATH=/p"}, "/tokens")
	require.Equal(t, []string{"TIKTOKEN_CACHE_DIR=/tokens", "NO_PROXY=*", "PYTHONUTF8=1", "PATH=/bin", "HOME=/h"}, env)
}

func TestInstallRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir)
	t.Setenv("LocalAppData", dir)
	for answer, problem := range map[string]string{
		`echo '[[3, 10, 1], "/usr/bin/python3"]'`: "is Python 3.10, the predecessor needs 3.11 or later",
		`echo '[[2, 7, 18], "/usr/bin/python"]'`:  "is Python 2.7",
		`echo hello`:                              "does not answer as Python 3 does",
		`echo "no such thing" >&2; exit 1`:        "no such thing",
		// A Python whose venv can't be made is one line too.
		`case "$1" in -c) echo '[[3, 12, 0], "/x"]';; *) echo "pip: no network" >&2; exit 1;; esac`: "install with pip: exit status 1: pip: no network",
	} {
		python := filepath.Join(t.TempDir(), "python")
		require.NoError(t, os.WriteFile(python, []byte("#!/bin/sh\n"+answer+"\n"), 0o755))
		_, err := install(t.Context(), python, &bytes.Buffer{})
		require.ErrorContains(t, err, problem)
		venvs, err := filepath.Glob(filepath.Join(dir, "*", "*", "venv-*"))
		require.NoError(t, err)
		require.Empty(t, venvs, "nothing is left of an installation that failed")
	}
}

func TestTable(t *testing.T) {
	floor := 200.0
	row := func(name, caseName string, rate float64, floor *float64) []result {
		r := result{Case: caseName, Backend: name, contestant: name, group: "Group", Floor: floor}
		throughput, call := r, r
		throughput.Metric, call.Metric = "throughput", "call"
		return []result{throughput.summarise([]float64{rate}), call.summarise([]float64{1})}
	}
	var results []result
	results = append(results, row("predecessor", "a", 50, &floor)...)
	results = append(results, row("predecessor async", "a", 100, &floor)...)
	results = append(results, row("sqlite", "a", 150, &floor)...)
	results = append(results, row("bolt", "a", 90, &floor)...)
	results = append(results, row("sqlite", "b", 7, nil)...)
	var out bytes.Buffer
	require.NoError(t, writeTable(&out, machine{LeftOut: map[string]string{"x": "why"}}, results))
	require.Contains(t, out.String(), "Not measured: x: why\n")
	var cells []string
	for line := range strings.Lines(out.String()) {
		if f := strings.Fields(line); len(f) > 6 && (f[0] == "a" || f[0] == "b") {
			cells = append(cells, strings.Join(f[len(f)-3:], " "))
		}
	}
	require.Equal(t, []string{"25 % 0.50", "50 % 1.00", "75 % 1.50", "% 0.90 LOSES", "1.00 - -"}, cells)
}
