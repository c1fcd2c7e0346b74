// Tiered shows where vectors come from when a cache in memory lies over one in a
// file. Each run looks the same texts up twice: at first, what the file doesn't have
// is embedded, and the rest is copied from there into memory; then everything comes
// from memory. A second run pays for nothing.
//
//	go run ./examples/tiered
//
// It needs no network: the vectors are those of embed/hashing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/backend/sqlite"
	"github.com/embedonce/embedonce/backend/tiered"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/hashing"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "tiered:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("tiered", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("cache", "", "the sqlite `file` of the slow layer (default embedonce/tiered.db in the user's cache directory)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *path == "" {
		if *path, err = defaultPath(); err != nil {
			return err
		}
	}

	cache, err := open(*path, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cache.Close()) }() // closes both layers
	client, err := embed.New(hashing.New(nil), &embed.Options{Cache: cache})
	if err != nil {
		return err
	}
	defer client.Close()

	fmt.Fprintf(stdout, "memory over %s, %d texts\n", *path, len(texts()))
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "look-up\tfrom memory\tfrom sqlite\tembedded\ttook\t")
	for _, name := range []string{"first", "second"} {
		before, start := cache.Counts(), time.Now()
		res, err := client.Embed(ctx, texts())
		if err != nil {
			return err
		}
		if res.CacheErr != nil {
			return res.CacheErr
		}
		took, now := time.Since(start), cache.Counts()
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%v\t\n", name, now.Fast-before.Fast, now.Slow-before.Slow, res.Usage.Misses, took.Round(10*time.Microsecond))
	}
	return table.Flush()
}

// open puts 64 MiB of memory over a file.
func open(path string, stderr io.Writer) (*tiered.Cache, error) {
	slow, err := sqlite.Open(path, nil)
	if err != nil {
		return nil, err
	}
	fast, err := memory.New(&memory.Options{MaxBytes: 64 << 20})
	if err != nil {
		return nil, errors.Join(err, slow.Close())
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	cache, err := tiered.New(fast, slow, &tiered.Options{
		OnFault: func(ctx context.Context, err error) { log.WarnContext(ctx, err.Error()) },
	})
	if err != nil {
		return nil, errors.Join(err, fast.Close(), slow.Close())
	}
	return cache, nil
}

func defaultPath() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the cache, name one with -cache: %w", err)
	}
	dir := filepath.Join(base, "embedonce")
	return filepath.Join(dir, "tiered.db"), os.MkdirAll(dir, 0o700)
}

// texts are 1,000 sentences.
func texts() []string {
	var all []string
	for _, who := range strings.Fields("kite fox heron child clerk smith sailor baker owl mayor") {
		for _, does := range strings.Fields("finds sells paints forgets repairs counts hides lends weighs follows") {
			for _, what := range strings.Fields("map lamp drum letter ladder anchor mirror basket whistle compass") {
				all = append(all, fmt.Sprintf("The %s %s a %s that nobody asked for.", who, does, what))
			}
		}
	}
	return all
}
