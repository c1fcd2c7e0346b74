package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const rootModule = "github.com/embedonce/embedonce"

// target is the backend that is changed.
type target struct {
	name  string
	pkg   string   // import path
	root  string   // paths are shown relative to it
	files []string // the sources of this system, absolute
	tests []string // the folders of packages whose tests are run
}

// findTarget finds the backend of that name, or in that folder if it has a slash.
func findTarget(ctx context.Context, name string) (*target, error) {
	out, err := goCommand(ctx, "", "list", "-m", "-f", "{{.Dir}}", rootModule)
	if err != nil {
		return nil, fmt.Errorf("find the module %s: run this in its checkout: %w", rootModule, err)
	}
	t := &target{name: name, root: strings.TrimSpace(string(out))}
	dir := filepath.Join(t.root, "backend", name)
	if strings.ContainsAny(name, `/\`) {
		if dir, err = filepath.Abs(name); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("no backend %q: it must be the name of a folder in backend, or a path with a slash: %w", name, err)
	}
	out, err = goCommand(ctx, dir, "list", "-json=Dir,ImportPath,GoFiles,CgoFiles", ".")
	if err != nil {
		return nil, err
	}
	var pkg struct {
		Dir, ImportPath   string
		GoFiles, CgoFiles []string
	}
	if err := json.Unmarshal(out, &pkg); err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	t.pkg = pkg.ImportPath
	for _, f := range append(pkg.GoFiles, pkg.CgoFiles...) {
		t.files = append(t.files, filepath.Join(pkg.Dir, f))
	}
	// A backend over others is also tested together with them, in a module that may
	// depend on them all.
	t.tests = []string{pkg.Dir}
	examples := filepath.Join(t.root, "examples", filepath.Base(dir))
	if examples != pkg.Dir {
		has, err := hasConformance(examples)
		if err != nil {
			return nil, err
		}
		if has {
			t.tests = append(t.tests, examples)
		}
	}
	return t, nil
}

var conformanceTest = regexp.MustCompile(`(?m)^func TestConformance`)

func hasConformance(dir string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			return false, err
		}
		if conformanceTest.Match(src) {
			return true, nil
		}
	}
	return false, err
}

// mutants returns every mutant of the target and the content of its files.
func (t *target) mutants() ([]mutant, map[string][]byte, error) {
	var all []mutant
	sources := make(map[string][]byte)
	for _, f := range t.files {
		src, err := os.ReadFile(f)
		if err != nil {
			return nil, nil, err
		}
		sources[f] = src
		found, err := mutantsOf(f, src)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, found...)
	}
	return all, sources, nil
}

// where returns "backend/memory/memory.go:12".
func (t *target) where(m *mutant) string {
	return fmt.Sprintf("%s:%d", t.relative(m.File), m.Line)
}

func (t *target) relative(path string) string {
	if relative, err := filepath.Rel(t.root, path); err == nil {
		path = relative
	}
	return filepath.ToSlash(path)
}

func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}
