package main

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/pkoukk/tiktoken-go-loader/assets"
)

//go:embed requirements.txt
var requirements []byte

const (
	// installLimit is how long pip may take.
	installLimit = 10 * time.Minute
	// vocabularyURL is where tiktoken loads the vocabulary of text-embedding-3-small
	// from, unless it finds it under its SHA-1 in TIKTOKEN_CACHE_DIR.
	vocabularyURL = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
	vocabulary    = "cl100k_base.tiktoken"
)

// installation is a virtual environment that has the predecessor.
type installation struct {
	python string // the interpreter
	script string // worker.py
	env    []string
}

// install makes the virtual environment in the user's cache directory, or finds
// the one of an earlier run. python is the name or path of Python 3.11 or later.
func install(ctx context.Context, python string, progress io.Writer) (*installation, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the user's cache directory: %w", err)
	}
	root := filepath.Join(cache, "embedonce", "compare")

	version, err := output(ctx, python, "-c", "import json, sys; print(json.dumps([sys.version_info[:3], sys.executable]))")
	if err != nil {
		return nil, fmt.Errorf("no Python: %w", err)
	}
	var found struct {
		version    [3]int
		executable string
	}
	if err := json.Unmarshal([]byte(version), &[]any{&found.version, &found.executable}); err != nil {
		return nil, fmt.Errorf("%s does not answer as Python 3 does", python)
	}
	if v := found.version; v[0] != 3 || v[1] < 11 {
		return nil, fmt.Errorf("%s is Python %d.%d, the predecessor needs 3.11 or later", python, v[0], v[1])
	}

	// Another interpreter or other versions are another environment.
	sum := sha256.Sum256(append([]byte(version), requirements...))
	venv := filepath.Join(root, "venv-"+hex.EncodeToString(sum[:6]))
	i := &installation{python: filepath.Join(venv, "bin", "python"), script: filepath.Join(venv, "worker.py")}
	if runtime.GOOS == "windows" {
		i.python = filepath.Join(venv, "Scripts", "python.exe")
	}
	done := filepath.Join(venv, "installed")
	if _, err := os.Stat(done); err != nil {
		fmt.Fprintf(progress, "installing the predecessor into %s\n", venv)
		if err := i.make(ctx, python, venv); err != nil {
			return nil, err
		}
		if err := os.WriteFile(done, nil, 0o644); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(i.script, workerScript, 0o644); err != nil {
		return nil, err
	}
	tokens := filepath.Join(root, "tiktoken")
	if err := writeVocabulary(tokens); err != nil {
		return nil, err
	}
	i.env = workerEnvironment(os.Environ(), tokens)
	return i, nil
}

// make fills the folder venv, or removes it.
func (i *installation) make(ctx context.Context, python, venv string) error {
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	if err := os.RemoveAll(venv); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(venv), 0o755); err != nil {
		return err
	}
	_, err := output(ctx, python, "-m", "venv", venv)
	list := filepath.Join(venv, "requirements.txt")
	if err == nil {
		err = os.WriteFile(list, requirements, 0o644)
	}
	if err == nil {
		_, err = output(ctx, i.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"--no-input", "--retries", "1", "--timeout", "20", "--requirement", list)
	}
	if err != nil {
		os.RemoveAll(venv)
		return fmt.Errorf("install with pip: %w", err)
	}
	return nil
}

// start starts n processes of the predecessor and gives them the texts. Those that
// run must be stopped, also beside an error.
func (i *installation) start(ctx context.Context, n int, texts []string) (workers []*worker, versions map[string]string, err error) {
	for range n {
		w, err := startWorker(ctx, i.env, i.python, i.script)
		if err != nil {
			return workers, nil, err
		}
		workers = append(workers, w)
	}
	for _, w := range workers { // all load their modules by now
		hello, err := w.ask(request{Op: "hello"})
		if err == nil {
			_, err = w.ask(request{Op: "texts", Texts: texts})
		}
		if err != nil {
			return workers, nil, err
		}
		versions = hello.Versions
	}
	return workers, versions, nil
}

// output runs a program and returns what it printed. Its error has the last line
// that the program complained with.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	var stderr tail
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return strings.TrimSpace(string(out)), nil
	case stderr.lastLine() != "":
		return "", fmt.Errorf("%w: %s", err, stderr.lastLine())
	}
	return "", err
}

// writeVocabulary puts the vocabulary where tiktoken looks before it asks the
// network.
func writeVocabulary(dir string) error {
	data, err := assets.Assets.ReadFile(vocabulary)
	if err != nil {
		return err
	}
	name := sha1.Sum([]byte(vocabularyURL))
	path := filepath.Join(dir, hex.EncodeToString(name[:]))
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, data) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Another run may do the same: each writes its own file, and renames it.
	file, err := os.CreateTemp(dir, "vocabulary")
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}

// workerEnvironment is what a worker's process sees of environment: no proxy and no
// key, for it has to talk to loopback only.
func workerEnvironment(environment []string, tokens string) []string {
	env := []string{"TIKTOKEN_CACHE_DIR=" + tokens, "NO_PROXY=*", "PYTHONUTF8=1"}
	for _, pair := range environment {
		switch name, _, _ := strings.Cut(pair, "="); strings.ToUpper(name) {
		case "PATH", "HOME", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "USERPROFILE", "LD_LIBRARY_PATH", "LANG":
			env = append(env, pair)
		}
	}
	return env
}
