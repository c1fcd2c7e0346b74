// Quickstart embeds real texts, each of them once: the documentation of Go's
// standard library, or with -in texts of your own. A second run pays for
// nothing; with -q it shows the passages closest to a query.
//
//	go run ./examples/quickstart -q "read a JSON file"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/embedonce/embedonce/backend/sqlite"
	"github.com/embedonce/embedonce/embed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. It returns the exit code: 0 if every passage got its
// vector, 2 for a bad flag, 130 after Ctrl-C, and else 1.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseSettings(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "quickstart: %v\nquickstart -h lists the flags\n", err)
		return 2
	}
	result, err := embedAll(ctx, s, stdout, stderr)
	if result != nil {
		result.print(stdout)
		err = errors.Join(result.err(), err)
	}
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "quickstart: interrupted; run it again to go on where it stopped")
		return 130
	}
	fmt.Fprintln(stderr, "quickstart:", err)
	return 1
}

// embedAll embeds the passages, and the query. What goes wrong on the way is in the
// result; the error says that the work could not begin, or the cache not be closed.
func embedAll(ctx context.Context, s *settings, stdout, stderr io.Writer) (_ *result, err error) {
	passages, err := readPassages(ctx, s.in)
	if err != nil {
		return nil, err
	}

	// A cache, a provider, and the client that joins them.
	cache, err := sqlite.Open(s.cache, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cache.Close()) }()
	progress := newProgress(stderr, len(passages))
	logger := slog.New(warnings{progress})
	client, err := embed.New(s.newProvider(), &embed.Options{Cache: cache, Logger: logger})
	if err != nil {
		return nil, err
	}
	defer client.Close() // waits for what was sent, so that it gets into the cache
	fmt.Fprintf(stdout, "%d passages of %s\nprovider %s\n", len(passages), s.source(), s.providerNote())

	// Texts go in, vectors come out in the same order, in bounded memory.
	r := &result{settings: s, passages: passages}
	start := time.Now()
	progress.start()
	stream := client.Stream(ctx, pairs(passages), nil)
	for item, err := range stream.All() {
		switch {
		case item.Index < 0: // the stream itself ended early
			r.ended = err
			continue
		case err != nil:
			r.addFailure(item.ID, err)
		case s.query != "":
			r.found = append(r.found, found{passages[item.Index], item.Vector})
		}
		r.done++
		progress.step(err != nil)
	}
	progress.finish()
	r.usage, r.took = stream.Usage(), time.Since(start)

	if len(r.found) > 0 && r.ended == nil {
		// Client.Rank would embed passages and query in one call; here the vectors
		// of the passages are at hand.
		r.query, r.queryErr = client.Embed(ctx, []string{s.query})
	}
	return r, nil
}

// pairs yields what a stream takes: the id and the text of each passage.
func pairs(passages []passage) iter.Seq2[string, string] {
	return func(yield func(id, text string) bool) {
		for _, p := range passages {
			if !yield(p.id, p.text) {
				return
			}
		}
	}
}
