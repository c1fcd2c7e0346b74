package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

func TestMain(m *testing.M) {
	if isChild() { // the scenario processes starts the test's own program
		os.Exit(child(context.Background(), os.Stdin, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}

// program runs the program as the command line does.
func program(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestListNamesEachScenarioWithOneSentence(t *testing.T) {
	code, stdout, _ := program(t, "list")
	require.Zero(t, code)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.Len(t, lines, len(scenarios))
	for i, s := range scenarios {
		require.Regexp(t, "^"+s.name+` +[A-Z].*\.$`, lines[i])
	}
}

func TestWrongArguments(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":              {nil, "usage:"},
		"unknown scenario":     {[]string{"hit"}, `there is no scenario "hit"; there are hits, raw`},
		"unknown flag":         {[]string{"hits", "-fast"}, "-fast"},
		"an argument too many": {[]string{"hits", "raw"}, `"raw" is one too many`},
		"no files":             {[]string{"report"}, "report needs files"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program(t, c.args...)
			require.Equal(t, 2, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.want)
		})
	}
}

func TestWrongSettingsAreRefusedBeforeAnythingStarts(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown backend": {[]string{"-backends", "memory,oracle"}, `"oracle"; allowed are memory, sqlite, bolt, redis`},
		"another machine": {[]string{"-redis", "redis://user:secret@192.0.2.1:6379"}, "loopback"},
		"runs":            {[]string{"-runs", "-1"}, "-runs is -1; 1 to 1000 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program(t, append([]string{"hits", "-quick"}, c.args...)...)
			require.Equal(t, 1, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.want)
			require.NotContains(t, stderr, "secret")
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	require.Equal(t, 130, run(ctx, []string{"raw", "-quick", "-backends", "memory"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "interrupted")
}

// Each scenario runs through, what it prints can be read, and all of it makes the page
// that is published. Quick runs on two backends, once, are what the race detector
// gets done in a minute.
func TestScenariosMakeThePage(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			code, stdout, stderr := program(t, s.name, "-quick", "-json", "-runs", "1", "-backends", "memory,sqlite")
			require.Zero(t, code, stderr)
			runs, err := bench.ReadLines(s.name, strings.NewReader(stdout))
			require.NoError(t, err)
			require.Len(t, runs, 1)
			require.Equal(t, s.name, runs[0].Header.Scenario)
			require.True(t, runs[0].Header.Quick)
			require.NotEmpty(t, runs[0].Results)
			seen := make(map[bench.Result]bool)
			for _, r := range runs[0].Results {
				require.Equal(t, s.name, r.Scenario)
				require.False(t, seen[r.Identity()], "measured twice: %+v", r.Identity())
				seen[r.Identity()] = true
			}
			files = append(files, filepath.Join(dir, s.name+".jsonl"))
			require.NoError(t, os.WriteFile(files[len(files)-1], []byte(stdout), 0o600))
		})
	}
	require.Len(t, files, len(scenarios))

	code, _, stderr := program(t, append([]string{"report", "-docs", dir}, files...)...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is of a quick run")

	code, stdout, stderr := program(t, append([]string{"report", "-quick", "-docs", dir}, files...)...)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "benchmarks.md")
	page, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	require.NoError(t, err)
	for _, name := range []string{"hits-texts", "hits-goroutines", "raw-entries"} {
		require.Contains(t, string(page), "charts/"+name+".svg")
		require.FileExists(t, filepath.Join(dir, "charts", name+".svg"))
	}
}

// The page that is published is what the published results make.
func TestPublishedPageIsOfThePublishedResults(t *testing.T) {
	files, err := filepath.Glob("results/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	dir := t.TempDir()
	code, _, stderr := program(t, append([]string{"report", "-docs", dir}, files...)...)
	require.Zero(t, code, stderr)
	made, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	require.NoError(t, err)
	published, err := os.ReadFile("../docs/benchmarks.md")
	require.NoError(t, err)
	require.Equal(t, strings.Split(string(made), "\n"), strings.Split(string(published), "\n"), "run: go run ./benchmarks report benchmarks/results/*.jsonl")
}
