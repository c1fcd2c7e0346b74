package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/sqlite"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
	"github.com/embedonce/embedonce/benchmarks/internal/floor"
)

// childVariable is set in the environment of a process that the scenario processes
// starts.
const childVariable = "EMBEDONCE_BENCHMARKS_CHILD"

func isChild() bool { return os.Getenv(childVariable) != "" }

// work is what a child does again and again.
type work string

const (
	workHits    work = "hits"
	workFloor   work = "floor"
	workControl work = "control"
	workWrites  work = "writes"
)

// texts is how many texts, entries or digests one call has.
func (w work) texts() int {
	if w == workControl {
		return 512
	}
	return processTexts
}

// task is the first line that a child reads. Any second one starts it.
type task struct {
	Work    work
	Place   string // the directory of the sqlite file
	Number  int    // of this child
	Seed    uint64
	Dims    int
	Stored  int           // texts that the file has
	Each    time.Duration // how long to go on, at least
	Batches int           // where it writes: how many, instead
	From    int           // and the first of its keys
}

// childAnswer is a line that a child writes: one when it is warm, one when it is
// done. Times are of the clock that all processes of a machine share.
type childAnswer struct {
	Error        string
	Calls        int
	Began, Ended int64 // nanoseconds since 1970
}

// childProcess is a child as its parent sees it.
type childProcess struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *json.Decoder
	stderr bytes.Buffer
}

// startChild starts this program again. The end of ctx kills it.
func startChild(ctx context.Context, t *task) (*childProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &childProcess{cmd: exec.CommandContext(ctx, program)}
	c.cmd.Env = append(os.Environ(), childVariable+"=1")
	c.cmd.Stderr = &c.stderr
	output, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.output = json.NewDecoder(output)
	if c.input, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(c.input).Encode(t); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

func (c *childProcess) begin() error {
	_, err := io.WriteString(c.input, "{}\n")
	return err
}

func (c *childProcess) answer() (a childAnswer, err error) {
	if err := c.output.Decode(&a); err != nil {
		return a, fmt.Errorf("a process that was started gave no answer: %w", err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("in a process that was started: %s", a.Error)
	}
	return a, nil
}

// end waits for the child, which ends when its input does.
func (c *childProcess) end() error {
	_ = c.input.Close() // a child that has ended has closed it
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("a process that was started: %w: %s", err, bytes.TrimSpace(c.stderr.Bytes()))
	}
	return nil
}

// child is the program as a child. It returns the exit code; errors are answers.
func child(ctx context.Context, input io.Reader, output io.Writer) int {
	answers := json.NewEncoder(output)
	lines := json.NewDecoder(input)
	var t task
	err := lines.Decode(&t)
	if err == nil {
		err = t.do(ctx, func() error {
			if err := answers.Encode(childAnswer{}); err != nil {
				return err
			}
			var start struct{}
			return lines.Decode(&start)
		}, func(a childAnswer) error { return answers.Encode(a) })
	}
	if err != nil {
		if answers.Encode(childAnswer{Error: err.Error()}) != nil {
			return 1
		}
	}
	return 0
}

// do warms up, calls wait, works, and tells done what it did.
func (t *task) do(ctx context.Context, wait func() error, done func(childAnswer) error) (err error) {
	call, closed, err := t.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed()) }()
	if err := call(0); err != nil {
		return err
	}
	if err := wait(); err != nil {
		return err
	}
	var a childAnswer
	began := time.Now()
	for more := true; more; {
		a.Calls++
		if err := call(a.Calls); err != nil {
			return err
		}
		if t.Work == workWrites {
			more = a.Calls < t.Batches
		} else {
			more = time.Since(began) < t.Each
		}
	}
	a.Began = began.UnixNano()
	a.Ended = a.Began + time.Since(began).Nanoseconds()
	return done(a)
}

// prepare opens what the work needs. closed closes it.
func (t *task) prepare(ctx context.Context) (call func(i int) error, closed func() error, err error) {
	path := filepath.Join(t.Place, "vectors.db")
	switch t.Work {
	case workControl:
		work := bench.Digester()
		return func(int) error {
			work(workControl.texts())
			return nil
		}, func() error { return nil }, nil
	case workWrites:
		cache, err := sqlite.Open(path, nil)
		if err != nil {
			return nil, nil, err
		}
		return func(i int) error { return cache.SetMany(ctx, t.batch(i)) }, cache.Close, nil
	}
	windows := bench.NewWindows(t.Seed, bench.Texts(t.Seed, 0, t.Stored))
	rows := make([]float32, processTexts*t.Dims)
	switch t.Work {
	case workHits:
		cache, err := sqlite.Open(path, nil)
		if err != nil {
			return nil, nil, err
		}
		client, err := embed.New(bench.LocalProvider(t.Dims), &embed.Options{Cache: cache})
		if err != nil {
			return nil, nil, errors.Join(err, cache.Close())
		}
		return func(i int) error {
			_, err := client.Do(ctx, &embed.Call{Texts: windows.At(t.Number, i, processTexts), CacheOnly: true, Into: rows})
			return err // where one is not cached too
		}, func() error { return errors.Join(client.Close(), cache.Close()) }, nil
	case workFloor:
		store, err := floor.OpenSQLite(path)
		if err != nil {
			return nil, nil, err
		}
		reader, err := store.Reader()
		if err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
		hits := floor.NewHits(reader, processTexts, t.Dims)
		return func(i int) error { return hits.Read(windows.At(t.Number, i, processTexts), rows) },
			func() error { return errors.Join(reader.Close(), store.Close()) }, nil
	}
	return nil, nil, fmt.Errorf("there is no work %q", t.Work)
}

// batch returns the items of write i, which nobody else writes.
func (t *task) batch(i int) []backend.Item {
	items := make([]backend.Item, processTexts)
	value := make([]byte, 64+4*t.Dims) // as long as a record
	for k := range items {
		items[k] = backend.Item{Key: rawKey(t.From + i*processTexts + k), Value: value}
	}
	return items
}
