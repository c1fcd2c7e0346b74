package consumerproof

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "github.com/embedonce/embedonce" // the root module

// A backend is what a scratch program has to know of a published module.
type backend struct {
	folder string // of the package, in the module
	call   string // makes a cache
	driver string // the module it is there for; "" is none
}

// backends has one for each published module, by the folder of the module.
var backends = map[string]backend{
	".":              {folder: "backend/memory", call: `memory.New(nil)`},
	"backend/bolt":   {call: `bolt.Open("bolt.db", nil)`, driver: "go.etcd.io/bbolt"},
	"backend/redis":  {call: `redis.Open("REDIS_URL", nil)`, driver: "github.com/redis/go-redis/v9"},
	"backend/s3":     {call: `s3.Open("s3://S3_PREFIX", nil)`, driver: "github.com/aws/aws-sdk-go-v2/service/s3"},
	"backend/sqlite": {call: `sqlite.Open("vectors.db", nil)`, driver: "zombiezen.com/go/sqlite"},
}

// TestConsumersCanUseEachModule gets each published module alone into a program
// of its own, and all of them into another one, and runs them.
func TestConsumersCanUseEachModule(t *testing.T) {
	checkout, err := filepath.Abs("../..")
	require.NoError(t, err)
	all, err := Modules(checkout)
	require.NoError(t, err)
	version, err := Version(all)
	require.NoError(t, err)

	var published []Module
	for _, m := range all {
		if m.Published {
			published = append(published, m)
		}
	}
	proxyDir := t.TempDir()
	for _, m := range published {
		require.Contains(t, backends, m.Dir, "how does a program open a cache of the module in %s?", m.Dir)
		require.NoError(t, Pack(checkout, m, version, proxyDir))
		fillModuleCache(t, filepath.Join(checkout, m.Dir))
	}
	nextS3Prefix := s3Server(t)
	env := consumerEnv(t, proxyDir)
	nextRedisURL, ok := redisServer(t)
	if !ok {
		t.Log("no redis-server is installed: the proof leaves backend/redis out")
		published = slices.DeleteFunc(published, func(m Module) bool { return m.Dir == "backend/redis" })
		nextRedisURL = func() string { return "" }
	}

	for _, m := range published {
		t.Run("alone/"+m.Dir, func(t *testing.T) {
			used := consume(t, env, version, nextRedisURL, nextS3Prefix, m)
			for _, other := range published {
				driver := backends[other.Dir].driver
				switch {
				case other.Dir == m.Dir && driver != "":
					require.Contains(t, used, driver)
				case other.Dir != m.Dir && driver != "":
					require.NotContains(t, used, driver)
					require.NotContains(t, used, other.Path)
				}
			}
		})
	}
	t.Run("together", func(t *testing.T) {
		consume(t, env, version, nextRedisURL, nextS3Prefix, published...)
	})
}

// consume writes a program that uses modules, gets them, builds it and runs it.
// It returns the paths of the modules that became part of the program.
func consume(t *testing.T, env []string, version string, nextRedisURL, nextS3Prefix func() string, modules ...Module) []string {
	dir := t.TempDir()
	imports, calls, want := "", "", ""
	// By package, not by module: go get then also notes the checksums of what these
	// import, and go build needs no go mod tidy before it.
	gets := []string{"get", root + "/embed@" + version, root + "/embed/hashing@" + version}
	for _, m := range modules {
		importPath := path.Join(m.Path, backends[m.Dir].folder)
		gets = append(gets, importPath+"@"+version)
		name := path.Base(importPath)
		imports += fmt.Sprintf("import %q\n", importPath)
		calls += fmt.Sprintf("\t{ cache, err := %s; consume(%q, cache, err) }\n", strings.NewReplacer("REDIS_URL", nextRedisURL(), "S3_PREFIX", nextS3Prefix()).Replace(backends[m.Dir].call), name)
		want += fmt.Sprintf("%s: 3 vectors, 0 hits\n%s: 3 vectors, 3 hits\n", name, name)
	}
	consumeSource, err := os.ReadFile("testdata/consume.go")
	require.NoError(t, err)
	for name, content := range map[string]string{
		"go.mod":     "module scratch\n\ngo 1.26.0\n",
		"main.go":    "package main\n\n" + imports + "\nfunc main() {\n" + calls + "}\n",
		"consume.go": string(consumeSource),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}

	run(t, dir, env, "go", gets...)
	binary := filepath.Join(dir, "scratch.exe")
	run(t, dir, env, "go", "build", "-o", binary, ".")
	got := run(t, dir, env, binary)
	require.Equal(t, want, got)
	t.Logf("%s\n%s", strings.Join(gets, " "), got)

	info, err := buildinfo.ReadFile(binary)
	require.NoError(t, err)
	var used []string
	for _, dependency := range info.Deps {
		used = append(used, dependency.Path)
	}
	for _, m := range modules {
		require.Contains(t, used, m.Path)
	}
	return used
}

// fillModuleCache downloads what the module in dir needs and the machine doesn't
// have yet, as any build of it would.
func fillModuleCache(t *testing.T, dir string) {
	run(t, dir, append(os.Environ(), "GOWORK=off"), "go", "list", "-deps", "./...")
}

// consumerEnv is the environment of a consumer who gets our modules from
// proxyDir, and all others from what this machine has downloaded: no network.
// Its module cache is its own, so that what is packed here never gets into the
// user's.
func consumerEnv(t *testing.T, proxyDir string) []string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	downloaded := strings.TrimSpace(run(t, dir, os.Environ(), "go", "env", "GOMODCACHE"))
	buildCache := strings.TrimSpace(run(t, dir, os.Environ(), "go", "env", "GOCACHE"))
	return append(os.Environ(),
		"GOENV=off",
		"GOWORK=off",
		"GOPROXY="+fileURL(proxyDir)+","+fileURL(filepath.Join(downloaded, "cache", "download")),
		// What was downloaded was checked then; ours is in no checksum database.
		"GOSUMDB=off",
		"GOPRIVATE=", "GONOPROXY=", "GONOSUMDB=",
		"GOMODCACHE="+t.TempDir(),
		"GOCACHE="+buildCache,
		// -trimpath: a dependency compiled once is known again in another module cache.
		"GOFLAGS=-mod=readonly -modcacherw -trimpath",
		"GOTOOLCHAIN=local",
		"CGO_ENABLED=0",
	)
}

func fileURL(dir string) string {
	return "file:///" + strings.TrimPrefix(filepath.ToSlash(dir), "/")
}

// run runs a command, fails the test with its output if it fails, and returns
// what it printed on standard output.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir, command.Env = dir, env
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", command, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}
