package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/embedonce/embedonce/embed/embedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is what a run of the program left.
type outcome struct {
	code           int
	stdout, stderr string
}

func runProgram(ctx context.Context, args ...string) outcome {
	var stdout, stderr strings.Builder
	code := run(ctx, args, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

// corpus writes a file with n passages, and returns its name and a free name for
// a cache.
func corpus(t *testing.T, n int, more ...string) (in, cache string) {
	t.Helper()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"id":"p%d","text":"passage %d of many, about the number %d"}`+"\n", i, i, i*i)
	}
	for _, line := range more {
		lines.WriteString(line + "\n")
	}
	dir := writeFiles(t, map[string]string{"in.jsonl": lines.String()})
	return filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "cache.db")
}

// server starts an API and lets the environment point to it.
func server(t *testing.T, opts *embedtest.Options) *embedtest.Server {
	t.Helper()
	s := embedtest.NewServer(opts)
	t.Cleanup(s.Close)
	// The default transport keeps connections, which the server waits for.
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	t.Setenv("OPENAI_BASE_URL", s.BaseURL)
	t.Setenv("OPENAI_API_KEY", "sk-test")
	return s
}

func TestSecondRunMakesNoRequest(t *testing.T) {
	in, cache := corpus(t, 300,
		`{"id":"json","text":"ReadFile reads a JSON file and decodes it"}`,
		`{"id":"again","text":"passage 7 of many, about the number 49"}`)

	first := runProgram(t.Context(), "-in", in, "-cache", cache)
	require.Equal(t, 0, first.code, first.stderr)
	require.Contains(t, first.stdout, "302 passages of "+in)
	require.Contains(t, first.stdout, "lexical, not semantic")
	require.Contains(t, first.stdout, "302 passages (301 unique): 0 hits, 301 misses\n")
	require.NotContains(t, first.stdout, "\n0 requests")
	require.Contains(t, first.stdout, "cache "+cache+", ")
	require.Contains(t, first.stderr, "302 of 302 passages, ", "plain progress where there is no terminal")
	require.Equal(t, 10, strings.Count(first.stderr, "\n"))

	second := runProgram(t.Context(), "-in", in, "-cache", cache, "-q", "read a JSON file")
	require.Equal(t, 0, second.code, second.stderr)
	require.Contains(t, second.stdout, "302 passages (301 unique): 302 hits, 0 misses\n0 requests, 0 tokens: every vector came from the cache\n")
	_, closest, found := strings.Cut(second.stdout, `closest to "read a JSON file" (requests for the query: 1):`+"\n")
	require.True(t, found, second.stdout)
	lines := strings.Split(strings.TrimSpace(closest), "\n")
	require.Len(t, lines, closestShown)
	require.Contains(t, lines[0], "json  ReadFile reads a JSON file and decodes it")

	third := runProgram(t.Context(), "-in", in, "-cache", cache, "-q", "read a JSON file")
	require.Contains(t, third.stdout, "(requests for the query: 0)")
	require.Contains(t, third.stdout, closest)
}

func TestOpenAIOfTheEnvironment(t *testing.T) {
	in, cache := corpus(t, 100)
	s := server(t, &embedtest.Options{APIKey: "sk-test", Model: defaultModel, Dimensions: 1536})

	first := runProgram(t.Context(), "-in", in, "-cache", cache, "-provider", "openai", "-q", "number 49")
	require.Equal(t, 0, first.code, first.stderr)
	require.Contains(t, first.stdout, "provider openai, model text-embedding-3-small\n")
	require.Contains(t, first.stdout, "(requests for the query: 1)")
	require.Equal(t, 101, s.Texts())
	require.NotContains(t, first.stdout+first.stderr, "sk-test")
	requests := s.Requests()

	second := runProgram(t.Context(), "-in", in, "-cache", cache, "-provider", "openai", "-q", "number 49")
	require.Equal(t, 0, second.code, second.stderr)
	require.Contains(t, second.stdout, "\n0 requests, 0 tokens: every vector came from the cache\n")
	require.Equal(t, requests, s.Requests())
}

func TestFlagsReachTheAPI(t *testing.T) {
	in, cache := corpus(t, 3)
	s := server(t, nil)
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/not-this-one")

	got := runProgram(t.Context(), "-in", in, "-cache", cache, "-provider", "openai",
		"-base-url", s.BaseURL, "-model", "m", "-dimensions", "7")
	require.Equal(t, 0, got.code, got.stderr)
	request := s.History()[0]
	require.Equal(t, "m", request.Model)
	require.Equal(t, 7, request.Dimensions)
	require.Equal(t, "Bearer sk-test", request.Header.Get("Authorization"))
}

func TestPassagesWithoutVectorAreListed(t *testing.T) {
	in, cache := corpus(t, 100, `{"id":"blank","text":" \n "}`, `{"id":"poison","text":"this one is refused"}`)
	poisoned := true
	s := server(t, &embedtest.Options{FaultFunc: func(_ int, r embedtest.Request) embedtest.Fault {
		if poisoned && slices.Contains(r.Texts, "this one is refused") {
			return embedtest.Fault{Status: http.StatusBadRequest}
		}
		return embedtest.Fault{}
	}})
	args := []string{"-in", in, "-cache", cache, "-provider", "openai", "-model", "m", "-q", "passage 1"}

	first := runProgram(t.Context(), args...)
	require.Equal(t, 1, first.code)
	require.Contains(t, first.stdout, "of 102 passages got no vector; the others are in the cache:\n")
	require.Contains(t, first.stdout, "  1: text is blank (blank)\n")
	require.Contains(t, first.stdout, "provider answered status 400")
	require.Contains(t, first.stdout, "closest to", "of those that have a vector")
	require.Contains(t, first.stderr, "of 102 passages got no vector\n")
	var failed, of int
	_, line, _ := strings.Cut(first.stderr, "quickstart: ")
	_, err := fmt.Sscanf(line, "%d of %d", &failed, &of)
	require.NoError(t, err)
	require.Greater(t, failed, 1)
	require.Less(t, failed, 102)

	poisoned = false
	paid := s.Texts()
	second := runProgram(t.Context(), args...)
	require.Equal(t, 1, second.code, "the blank one")
	require.Contains(t, second.stdout, "\n1 of 102 passages got no vector; the others are in the cache:\n  1: text is blank (blank)\n")
	require.Equal(t, failed-1, s.Texts()-paid, "what got a vector was kept")
	require.Contains(t, second.stdout, fmt.Sprintf(": %d hits, %d misses\n", 102-failed, failed-1))
}

func TestRefusedKeyEndsTheRun(t *testing.T) {
	in, cache := corpus(t, 2000)
	server(t, &embedtest.Options{APIKey: "another"})
	got := runProgram(t.Context(), "-in", in, "-cache", cache, "-provider", "openai", "-model", "m", "-q", "passage")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stdout, "\n2000 of 2000 passages got no vector")
	require.Contains(t, got.stdout, "status 401")
	require.Contains(t, got.stderr, "status 401")
	require.NotContains(t, got.stdout+got.stderr, "sk-test")
	require.NotContains(t, got.stdout, "closest to")
	require.NotContains(t, got.stdout, "the others are in the cache", "there are no others")
	require.Contains(t, got.stdout, "-q was left out: no passage has a vector")
}

func TestRetriesAreShown(t *testing.T) {
	in, cache := corpus(t, 3)
	server(t, &embedtest.Options{FaultFunc: func(number int, _ embedtest.Request) embedtest.Fault {
		if number == 1 {
			return embedtest.Fault{Status: http.StatusServiceUnavailable}
		}
		return embedtest.Fault{}
	}})
	got := runProgram(t.Context(), "-in", in, "-cache", cache, "-provider", "openai", "-model", "m")
	require.Equal(t, 0, got.code, got.stderr)
	require.Regexp(t, `(?m)^retrying in \d+(\.\d+)?m?s: provider answered status 503`, got.stderr)
}

func TestInterruptBeforeTheFirstVector(t *testing.T) {
	in, cache := corpus(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := runProgram(ctx, "-in", in, "-cache", cache, "-q", "passage")
	require.Equal(t, 130, got.code)
	require.Contains(t, got.stderr, "interrupted; run it again to go on")
	require.Contains(t, got.stdout, "\n3 of 3 passages got no vector:\n")
	require.NotContains(t, got.stdout+got.stderr, "in the cache")
}

func TestEqualPassagesAreShownOnce(t *testing.T) {
	again := `{"id":"again","text":"passage 7 of many, about the number 49"}`
	in, cache := corpus(t, 10, again, again, again)
	got := runProgram(t.Context(), "-in", in, "-cache", cache, "-q", "passage 7 number 49")
	require.Equal(t, 0, got.code, got.stderr)
	_, closest, _ := strings.Cut(got.stdout, "closest to")
	require.Equal(t, 1, strings.Count(closest, "about the number 49"), closest)
	require.Equal(t, closestShown, strings.Count(closest, "passage ")-1, "and five all the same")
}

func TestInterruptKeepsWhatWasEmbedded(t *testing.T) {
	in, cache := corpus(t, 400)
	ctx, cancel := context.WithCancel(t.Context())
	s := server(t, &embedtest.Options{FaultFunc: func(number int, _ embedtest.Request) embedtest.Fault {
		if number == 3 {
			cancel() // while requests are under way, which may be billed
		}
		return embedtest.Fault{}
	}})
	args := []string{"-in", in, "-cache", cache, "-provider", "openai", "-model", "m"}

	first := runProgram(ctx, args...)
	require.Equal(t, 130, first.code)
	require.Contains(t, first.stderr, "interrupted; run it again to go on")
	require.Contains(t, first.stdout, "of 400 passages got no vector")
	paid := s.Texts()
	require.Less(t, paid, 400)

	second := runProgram(t.Context(), args...)
	require.Equal(t, 0, second.code, second.stderr)
	require.Contains(t, second.stdout, fmt.Sprintf(": %d hits, %d misses\n", paid, 400-paid))
	require.Equal(t, 400, s.Texts(), "nothing was paid for twice")
}

func TestWhatCantBeOpenedIsNamed(t *testing.T) {
	in, _ := corpus(t, 1)
	dir := writeFiles(t, map[string]string{"text.db": "this is no database, but a text of some length"})

	got := runProgram(t.Context(), "-in", in, "-cache", filepath.Join(dir, "missing", "x.db"))
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "missing")

	got = runProgram(t.Context(), "-in", in, "-cache", filepath.Join(dir, "text.db"))
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "text.db")

	t.Setenv("OPENAI_API_KEY", "")
	t.Setenv("OPENAI_BASE_URL", "")
	got = runProgram(t.Context(), "-in", in, "-cache", filepath.Join(dir, "new.db"), "-provider", "openai")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "OPENAI_API_KEY")
}

func TestDefaultCacheIsInTheUsersCacheDirectory(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData"} {
		t.Setenv(name, home)
	}
	in, _ := corpus(t, 1)
	got := runProgram(t.Context(), "-in", in)
	require.Equal(t, 0, got.code, got.stderr)
	base, err := os.UserCacheDir()
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(base, "embedonce", "quickstart.db"))
	require.True(t, strings.HasPrefix(base, home))
}
