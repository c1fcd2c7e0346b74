// S3 lets stateless workers share one cache in a bucket, each with a small cache in
// its memory over it: what one of them paid for, none pays for again. A first wave of
// workers fills the bucket; a second one, new processes with the same texts and
// nothing on their disks, pays for nothing.
//
//	go run ./examples/s3
//	go run ./examples/s3 -url s3://bucket/prefix
//
// Without -url it starts an S3 server of its own, if one is installed, and stops it at
// the end. With -url, region, credentials and endpoint are those of the AWS SDK: the
// environment (AWS_REGION, AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL_S3, ...), the shared
// configuration files, or the role of the machine.
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
	"strings"
	"sync"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program, or with the argument worker one of its workers. It returns the
// exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 3 && args[0] == "worker" {
		return exitCode(stderr, work(ctx, args[1], args[2], stdout))
	}
	flags := flag.NewFlagSet("s3", flag.ContinueOnError)
	flags.SetOutput(stderr)
	url := flags.String("url", "", "a `URL` s3://bucket/prefix; without it, a server is started")
	workers := flags.Int("workers", 4, "how many worker processes a wave has")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if *workers < 1 || *workers > 64 || flags.NArg() > 0 {
		fmt.Fprintf(stderr, "s3: -workers is %d and there are %d arguments; 1 to 64 workers and no arguments are allowed\n", *workers, flags.NArg())
		return 2
	}
	return exitCode(stderr, runWaves(ctx, *url, *workers, stdout, stderr))
}

func exitCode(stderr io.Writer, err error) int {
	if err != nil {
		fmt.Fprintln(stderr, "s3:", err)
		return 1
	}
	return 0
}

func runWaves(ctx context.Context, url string, workers int, stdout, stderr io.Writer) error {
	env := os.Environ()
	if url == "" {
		server, err := startServer(ctx)
		if err != nil {
			return err
		}
		defer server.stop()
		fmt.Fprintf(stdout, "started %s\n", server.program)
		url, env = server.url, append(env, server.env...)
	}
	for _, wave := range []string{"first", "second"} {
		fmt.Fprintf(stdout, "%s wave of %d workers:\n", wave, workers)
		if err := runWave(ctx, url, env, workers, stdout, stderr); err != nil {
			return fmt.Errorf("%s wave: %w", wave, err)
		}
	}
	return nil
}

// runWave runs workers at the same time, each a process of its own.
func runWave(ctx context.Context, url string, env []string, workers int, stdout, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	failures := make([]error, workers)
	out, errOut := &lines{w: stdout}, &lines{w: stderr}
	for n := range workers {
		running.Go(func() {
			cmd := exec.CommandContext(ctx, self, "worker", fmt.Sprint(n+1), url)
			cmd.Env = env
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

// installHint says what to install where there is no server.
var installHint = strings.TrimSpace(`
no S3 server is installed. Install one:
  any system with Go   go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
  or MinIO             see its documentation; the program is called minio
or name a bucket that there is: -url s3://bucket/prefix`)
