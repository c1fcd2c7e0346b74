// Redis lets several worker processes share one cache on a Redis server: what one of
// them paid for, none pays for again. A first wave of workers fills the cache; a
// second one, new processes with the same texts, pays for nothing.
//
//	go run ./examples/redis
//	go run ./examples/redis -url redis://user:password@host:6379/0
//
// Without -url it starts a redis-server of its own, if one is installed, and stops it
// at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// urlVariable tells a worker where the cache is: other users of the machine can read
// a command line, and a URL may have a password.
const urlVariable = "EMBEDONCE_EXAMPLE_REDIS_URL"

// run is the program, or with the argument worker one of its workers. It returns the
// exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 2 && args[0] == "worker" {
		return exitCode(stderr, work(ctx, args[1], os.Getenv(urlVariable), stdout))
	}
	flags := flag.NewFlagSet("redis", flag.ContinueOnError)
	flags.SetOutput(stderr)
	url := flags.String("url", "", "a Redis `URL`; without it, a redis-server is started")
	workers := flags.Int("workers", 4, "how many worker processes a wave has")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if *workers < 1 || *workers > 64 || flags.NArg() > 0 {
		fmt.Fprintf(stderr, "redis: -workers is %d and there are %d arguments; 1 to 64 workers and no arguments are allowed\n", *workers, flags.NArg())
		return 2
	}
	return exitCode(stderr, runWaves(ctx, *url, *workers, stdout, stderr))
}

func exitCode(stderr io.Writer, err error) int {
	if err != nil {
		fmt.Fprintln(stderr, "redis:", err)
		return 1
	}
	return 0
}

func runWaves(ctx context.Context, url string, workers int, stdout, stderr io.Writer) error {
	if url == "" {
		server, err := startServer(ctx)
		if err != nil {
			return err
		}
		defer server.stop()
		url = server.url
		fmt.Fprintf(stdout, "started %s\n", server.program)
	}
	for _, wave := range []string{"first", "second"} {
		fmt.Fprintf(stdout, "%s wave of %d workers:\n", wave, workers)
		if err := runWave(ctx, url, workers, stdout, stderr); err != nil {
			return fmt.Errorf("%s wave: %w", wave, err)
		}
	}
	return nil
}

// runWave runs workers at the same time, each a process of its own.
func runWave(ctx context.Context, url string, workers int, stdout, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	failures := make([]error, workers)
	out, errOut := &lines{w: stdout}, &lines{w: stderr}
	for n := range workers {
		running.Go(func() {
			cmd := exec.CommandContext(ctx, self, "worker", fmt.Sprint(n+1))
			cmd.Env = append(os.Environ(), urlVariable+"="+url)
			cmd.Stdout, cmd.Stderr = out, errOut
			if err := cmd.Run(); err != nil {
				failures[n] = fmt.Errorf("worker %d: %w", n+1, err)
			}
		})
	}
	running.Wait()
	return errors.Join(failures...)
}

// lines lets several processes write to one writer.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
