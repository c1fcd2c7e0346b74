package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
	"github.com/embedonce/embedonce/benchmarks/internal/floor"
)

// lifecycleTexts is how many texts a call has.
const lifecycleTexts = 16

// lifecycleRun is the scenario lifecycle for one size of store.
type lifecycleRun struct {
	hitRun
	cell bench.Result
}

// lifecycle measures what a program pays once: the opening of a store, its first call
// beside its second, and the closing. The files are in the system's cache.
func lifecycle(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt", "redis")
	if err != nil {
		return err
	}
	for _, b := range backends {
		sizes := bench.Pick(r.Quick, []int{100, 1000}, []int{1000, 10_000, 100_000})
		if !r.Quick && (b.Name == "memory" || b.Name == "redis") {
			sizes = sizes[:2] // the third one three times is too much for most memories
		}
		for _, entries := range sizes {
			l := &lifecycleRun{hitRun: hitRun{Run: r, dims: 1536, texts: r.Texts(0, entries), table: r.NewTable()}}
			l.windows = bench.NewWindows(r.Seed, l.texts)
			l.rows = make([]float32, lifecycleTexts*l.dims)
			l.cell = bench.Result{Backend: b.Name, Goroutines: 1, Texts: lifecycleTexts, Dims: l.dims, Entries: entries, Unit: "ms"}
			if err := l.measure(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lifecycleRun) measure(ctx context.Context, b *bench.Backend) error {
	provider := bench.LocalProvider(l.dims)
	fill := func(c backend.Cache) error { return bench.Fill(ctx, c, provider, l.texts) }
	what := fmt.Sprintf("%s, %d entries", b.Name, len(l.texts))
	err := l.Repeat(ctx, b, what, fill, func(repetition int, store *bench.Store) error {
		sides := []func() error{
			func() error { return l.ours(ctx, store, provider) },
			func() error { return l.byHand(ctx, store) },
		}
		for k := range sides {
			if err := sides[(k+repetition)%len(sides)](); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return l.table.Emit()
}

func (l *lifecycleRun) add(of, metric string, took time.Duration) {
	cell := l.cell
	cell.Metric = metric
	l.table.Add(cell, of, bench.Micros(took)/1000)
}

// calls makes two calls and adds what each took.
func (l *lifecycleRun) calls(of string, call func(texts []string) error) error {
	for i, metric := range []string{"first call", "second call"} {
		begun := time.Now()
		if err := call(l.windows.At(0, i, lifecycleTexts)); err != nil {
			return err
		}
		l.add(of, metric, time.Since(begun))
	}
	return nil
}

func (l *lifecycleRun) ours(ctx context.Context, store *bench.Store, provider embed.Provider) (err error) {
	copied, err := store.Fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Remove(ctx)) }()
	_, opening, err := copied.Reopen(ctx)
	if err != nil {
		return err
	}
	l.add(bench.CaseOurs, "open", opening)
	var client *embed.Client
	err = l.calls(bench.CaseOurs, func(texts []string) (err error) {
		if client == nil { // a program's first call makes it too
			if client, err = embed.New(provider, &embed.Options{Cache: copied}); err != nil {
				return err
			}
		}
		response, err := client.Do(ctx, &embed.Call{Texts: texts, CacheOnly: true, Into: l.rows})
		if err == nil && response.Usage.Hits != len(texts) {
			err = fmt.Errorf("%d hits in a call of %d texts", response.Usage.Hits, len(texts))
		}
		return err
	})
	if client != nil {
		err = errors.Join(err, client.Close())
	}
	if err != nil {
		return err
	}
	// Removing the copy needs it open.
	closing, _, err := copied.Reopen(ctx)
	if err != nil {
		return err
	}
	l.add(bench.CaseOurs, "close", closing)
	return nil
}

func (l *lifecycleRun) byHand(ctx context.Context, store *bench.Store) (err error) {
	byHand, err := store.Floor(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, byHand.Remove(ctx)) }()
	_, opening, err := byHand.Reopen(ctx)
	if errors.Is(err, bench.ErrInMemory) {
		return nil // there is nothing to open
	}
	if err != nil {
		return err
	}
	l.add(bench.CaseFloor, "open", opening)
	var reader floor.Reader
	var hits *floor.Hits
	err = l.calls(bench.CaseFloor, func(texts []string) (err error) {
		if reader == nil {
			if reader, err = byHand.Reader(); err != nil {
				return err
			}
			hits = floor.NewHits(reader, lifecycleTexts, l.dims)
		}
		return hits.Read(texts, l.rows)
	})
	begun := time.Now()
	if reader != nil {
		err = errors.Join(err, reader.Close())
	}
	closingReader := time.Since(begun)
	if err != nil {
		return err
	}
	closing, _, err := byHand.Reopen(ctx)
	if err != nil {
		return err
	}
	l.add(bench.CaseFloor, "close", closingReader+closing)
	return nil
}
