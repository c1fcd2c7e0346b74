package main

import (
	"context"
	"errors"
	"flag"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func runProgram(t *testing.T, args ...string) (lines []string) {
	t.Helper()
	var stdout, stderr strings.Builder
	require.NoError(t, run(t.Context(), args, &stdout, &stderr))
	require.Empty(t, stderr.String())
	spaces := regexp.MustCompile(` +`)
	for line := range strings.Lines(stdout.String()) {
		lines = append(lines, strings.TrimSpace(spaces.ReplaceAllString(line, " ")))
	}
	require.Len(t, lines, 4)
	return lines
}

func TestSecondRunComesFromTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	first := runProgram(t, "-cache", path)
	require.Equal(t, "memory over "+path+", 1000 texts", first[0])
	require.Equal(t, "look-up from memory from sqlite embedded took", first[1])
	require.Regexp(t, `^first 0 0 1000 `, first[2])
	require.Regexp(t, `^second 1000 0 0 `, first[3])

	second := runProgram(t, "-cache", path)
	require.Regexp(t, `^first 0 1000 0 `, second[2])
	require.Regexp(t, `^second 1000 0 0 `, second[3])
}

func TestDefaultPath(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData"} {
		t.Setenv(name, home)
	}
	lines := runProgram(t)
	require.Contains(t, lines[0], home)
	require.Contains(t, lines[0], "tiered.db")
}

func TestWhatCantBeDoneIsSaid(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), []string{"-cache", filepath.Join(t.TempDir(), "missing", "t.db")}, &out, &out)
	require.ErrorContains(t, err, "missing")
	require.ErrorIs(t, run(t.Context(), []string{"-h"}, &out, &out), flag.ErrHelp)
	require.Contains(t, out.String(), "-cache")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err = run(ended, []string{"-cache", filepath.Join(t.TempDir(), "t.db")}, &out, &out)
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
}
