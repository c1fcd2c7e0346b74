package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBadFlagsAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"dimensions 0":       {[]string{"-dimensions", "0"}, []string{"-dimensions", "allowed are whole numbers from 1"}},
		"dimensions -1":      {[]string{"-dimensions=-1"}, []string{"-dimensions", "allowed are whole numbers from 1"}},
		"dimensions 1.5":     {[]string{"-dimensions", "1.5"}, []string{"-dimensions", "allowed are whole numbers from 1"}},
		"unknown provider":   {[]string{"-provider", "x"}, []string{`-provider is "x"; allowed are hashing and openai`}},
		"model of hashing":   {[]string{"-model", "x"}, []string{"-base-url and -model are for -provider openai"}},
		"URL of hashing":     {[]string{"-base-url", "http://x"}, []string{"-base-url and -model are for -provider openai"}},
		"empty in":           {[]string{"-in", ""}, []string{"-in is empty"}},
		"empty cache":        {[]string{"-cache", ""}, []string{"-cache is empty"}},
		"empty model":        {[]string{"-provider", "openai", "-model", " "}, []string{"-model is empty"}},
		"blank query":        {[]string{"-q", " "}, []string{"-q is empty"}},
		"unknown flag":       {[]string{"-x"}, []string{"-x"}},
		"an argument":        {[]string{"docs"}, []string{`unexpected argument "docs"`, "-in"}},
		"all are listed":     {[]string{"-provider", "x", "-q", "", "y"}, []string{"-provider", "-q is empty", `"y"`}},
		"a query not quoted": {[]string{"-q", "read", "a", "file"}, []string{`unexpected argument "a"`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := runProgram(t.Context(), test.args...)
			require.Equal(t, 2, got.code)
			require.Empty(t, got.stdout)
			for _, want := range test.want {
				require.Contains(t, got.stderr, want)
			}
		})
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	got := runProgram(t.Context(), "-h")
	require.Equal(t, 0, got.code)
	require.Empty(t, got.stderr)
	for _, flag := range []string{"-in", "-provider", "-base-url", "-model", "-dimensions", "-cache", "-q"} {
		require.Contains(t, got.stdout, "  "+flag+" ")
	}
}

func TestDimensionsAreUnsetByDefault(t *testing.T) {
	s, err := parseSettings([]string{"-cache", "x"}, io.Discard)
	require.NoError(t, err)
	require.Nil(t, s.dimensions)
	s, err = parseSettings([]string{"-cache", "x", "-dimensions", "256"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 256, *s.dimensions)
}
