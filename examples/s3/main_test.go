package main

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The workers of the tests are this binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "worker" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

func TestSecondWavePaysForNothing(t *testing.T) {
	if lookPath("versitygw") == "" && lookPath("minio") == "" {
		required := strings.FieldsFunc(os.Getenv("EMBEDONCE_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' })
		if slices.Contains(required, "s3") {
			t.Fatal("no S3 server is installed, and EMBEDONCE_REQUIRE names s3")
		}
		t.Skip("no S3 server is installed")
	}
	var stdout, stderr strings.Builder
	require.Equal(t, 0, run(t.Context(), []string{"-workers", "3"}, &stdout, &stderr), "%s", &stderr)
	require.Empty(t, stderr.String())
	first, second, found := strings.Cut(stdout.String(), "second wave of 3 workers:\n")
	require.True(t, found, stdout.String())
	require.Contains(t, first, "first wave of 3 workers:\n")
	require.Len(t, regexp.MustCompile(`(?m)^  worker [123]: 1800 lookups, \d+ hits, [1-9]\d* misses; [1-9]\d* PUTs, `).FindAllString(first, -1), 3, first)
	require.Len(t, regexp.MustCompile(`(?m)^  worker [123]: 1800 lookups, 1800 hits, 0 misses; 0 PUTs, `).FindAllString(second, -1), 3, second)
}

func TestWithoutServerItSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var stdout, stderr strings.Builder
	require.Equal(t, 1, run(t.Context(), nil, &stdout, &stderr))
	require.Contains(t, stderr.String(), "go install github.com/versity/versitygw")
	require.Contains(t, stderr.String(), "-url")
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-workers", "0"}, {"-workers", "65"}, {"-nonsense"}, {"argument"}} {
		var stdout, stderr strings.Builder
		require.Equal(t, 2, run(t.Context(), args, &stdout, &stderr), "%q", args)
		require.NotEmpty(t, stderr.String())
	}
	var stdout, stderr strings.Builder
	require.Equal(t, 0, run(t.Context(), []string{"-h"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "-workers")
	stderr.Reset()
	require.Equal(t, 1, run(t.Context(), []string{"-url", "http://not-a-bucket"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "s3://BUCKET")
}
