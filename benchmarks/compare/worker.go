package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// askLimit is how long one answer of a worker may take before it is killed.
const askLimit = 5 * time.Minute

//go:embed worker.py
var workerScript []byte

// request is one line to a worker, reply one line from it; worker.py says what
// they mean.
type request struct {
	Op       string   `json:"op"`
	Texts    []string `json:"texts,omitempty"`
	Dir      string   `json:"dir,omitempty"`
	BaseURL  string   `json:"base_url,omitempty"`
	Model    string   `json:"model,omitempty"`
	Clients  int      `json:"clients,omitempty"`
	Tasks    bool     `json:"tasks"`
	PerCall  int      `json:"per_call,omitempty"`
	Starts   [][]int  `json:"starts,omitempty"`
	LimitNS  int64    `json:"limit_ns,omitempty"`
	CheckAll bool     `json:"check_all,omitempty"`
}

type reply struct {
	Error    string            `json:"error"`
	Versions map[string]string `json:"versions"`
	Ready    bool              `json:"ready"`
	Begin    int64             `json:"begin"`
	End      int64             `json:"end"`
	Calls    []int64           `json:"calls"`
	Hits     int               `json:"hits"`
	Answers  []struct {
		Start  int    `json:"start"`
		Digest string `json:"digest"`
	} `json:"answers"`
}

// worker is one process of the predecessor. It ends with the context that it was
// started with.
type worker struct {
	ctx    context.Context
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr tail
	ended  sync.Once
}

func startWorker(ctx context.Context, environment []string, name string, args ...string) (*worker, error) {
	w := &worker{ctx: ctx, cmd: exec.CommandContext(ctx, name, args...)}
	w.cmd.Env = environment
	w.cmd.Stderr = &w.stderr
	w.cmd.WaitDelay = time.Second
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.in, w.out = in, bufio.NewReader(out)
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the predecessor's process: %w", err)
	}
	return w, nil
}

// send writes one request, which receive answers.
func (w *worker) send(r request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		return w.gone(err)
	}
	return nil
}

func (w *worker) receive() (reply, error) {
	timeout := time.AfterFunc(askLimit, func() { w.cmd.Process.Kill() })
	defer timeout.Stop()
	line, err := w.out.ReadBytes('\n')
	if err != nil {
		return reply{}, w.gone(err)
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		return reply{}, fmt.Errorf("the predecessor's process answered what is no reply: %w", err)
	}
	if r.Error != "" {
		return reply{}, fmt.Errorf("the predecessor failed: %s", r.Error)
	}
	return r, nil
}

func (w *worker) ask(r request) (reply, error) {
	if err := w.send(r); err != nil {
		return reply{}, err
	}
	return w.receive()
}

// gone explains err, which a pipe to the process gave.
func (w *worker) gone(err error) error {
	if w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	w.stop() // so that its last words are there
	if last := w.stderr.lastLine(); last != "" {
		return fmt.Errorf("the predecessor's process ended: %w: %s", err, last)
	}
	return fmt.Errorf("the predecessor's process ended: %w", err)
}

// stop ends the process: by the end of its input, or else by force.
func (w *worker) stop() {
	w.ended.Do(func() {
		w.in.Close()
		timeout := time.AfterFunc(5*time.Second, func() { w.cmd.Process.Kill() })
		defer timeout.Stop()
		w.cmd.Wait()
	})
}

// tail keeps the last 4 KiB of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - 4096; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.kept)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
