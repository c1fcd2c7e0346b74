package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/internal/record"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// breakdownTexts is how many texts a call has.
const breakdownTexts = 512

// breakdownRun is the scenario breakdown: what one repetition on one backend needs.
type breakdownRun struct {
	hitRun
	keys    [][]backend.Key // of each window of texts
	digests [][32]byte      // of all texts
	scope   [8]byte
}

// breakdown takes a call of 512 hits apart: the digests of texts and keys, the lookup
// in the backend, the copying of the vectors, the checks of the records, and what is
// left. The steps are added one by one to a loop and measured each time, so that each
// meets the memory as the call does; a part is the difference that its step made.
func breakdown(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "memory", "sqlite", "bolt", "redis")
	if err != nil {
		return err
	}
	p := &breakdownRun{hitRun: hitRun{
		Run:    r,
		dims:   1536,
		texts:  r.Texts(0, bench.Pick(r.Quick, 2, 32)*breakdownTexts),
		each:   bench.Pick(r.Quick, 10*time.Millisecond, 50*time.Millisecond),
		rounds: bench.Pick(r.Quick, 1, 10),
		table:  r.NewTable(),
	}}
	p.windows = bench.NewWindows(r.Seed, p.texts)
	p.rows = make([]float32, breakdownTexts*p.dims)
	p.digests = make([][32]byte, len(p.texts))
	for i, text := range p.texts {
		p.digests[i] = sha256.Sum256([]byte(text))
	}
	for _, b := range backends {
		provider := bench.LocalProvider(p.dims)
		fill := func(c backend.Cache) error {
			if err := bench.Fill(ctx, c, provider, p.texts); err != nil {
				return err
			}
			return p.learn(ctx, c, provider)
		}
		err := r.Repeat(ctx, b, b.Name, fill, func(repetition int, store *bench.Store) error {
			return store.BesideFloor(ctx, func(copied *bench.Copy, byHand *bench.Floor) error {
				return p.repeat(ctx, repetition, b.Name, copied, byHand, provider)
			})
		})
		if err != nil {
			return err
		}
	}
	return p.table.Emit()
}

// learn notes the keys of each window, in the order in which the Client asks for
// them, and the scope.
func (p *breakdownRun) learn(ctx context.Context, c backend.Cache, provider embed.Provider) error {
	seen := &listener{Cache: c}
	client, err := embed.New(provider, &embed.Options{Cache: seen, CacheReaders: 1})
	if err != nil {
		return err
	}
	defer client.Close()
	p.keys = nil
	for from := 0; from < len(p.texts); from += breakdownTexts {
		seen.keys = nil
		if _, err := client.Do(ctx, &embed.Call{Texts: p.texts[from : from+breakdownTexts], CacheOnly: true}); err != nil {
			return err
		}
		p.keys = append(p.keys, seen.keys)
	}
	return c.GetMany(ctx, p.keys[0][:1], func(_ int, value []byte) error {
		if len(value) < record.HeaderSize {
			return fmt.Errorf("a stored record has %d bytes", len(value))
		}
		p.scope = [8]byte(value[record.HeaderSize-8:]) // the last part of the header
		return nil
	})
}

// listener notes what is asked for, by one goroutine.
type listener struct {
	backend.Cache
	keys []backend.Key
}

func (l *listener) GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	l.keys = append(l.keys, keys...)
	return l.Cache.GetMany(ctx, keys, visit)
}

func (p *breakdownRun) repeat(ctx context.Context, repetition int, name string, copied *bench.Copy, byHand *bench.Floor, provider embed.Provider) (err error) {
	// One reader: with more, the parts run beside each other and don't add up.
	client, err := embed.New(provider, &embed.Options{Cache: copied, CacheReaders: 1})
	if err != nil {
		return err
	}
	defer client.Close()

	steps := []func(context.Context) (float64, error){
		stepDigests:  p.digesting(),
		stepLookup:   p.reading(copied, func(int, int, []byte) bool { return true }),
		stepCopying:  p.reading(copied, p.copied),
		stepChecking: p.reading(copied, p.checked),
		stepWhole:    p.through(client, 1, breakdownTexts),
	}
	readers, err := openReaders(byHand, 1)
	defer func() { err = errors.Join(err, closeReaders(readers)) }()
	if err != nil {
		return err
	}
	floorStep := p.byHand(readers, breakdownTexts)
	for round := range p.rounds {
		if err := p.takeApart(ctx, repetition*p.rounds+round, name, steps, floorStep); err != nil {
			return err
		}
	}
	return nil
}

// The steps of a call; each of the first four has those before it but the digests.
const stepDigests, stepLookup, stepCopying, stepChecking, stepWhole = 0, 1, 2, 3, 4

// takeApart measures each step once, in another order each time.
func (p *breakdownRun) takeApart(ctx context.Context, turn int, name string, steps []func(context.Context) (float64, error), floorStep func(context.Context) (float64, error)) error {
	figures := make([]float64, len(steps))
	cell := bench.Result{Backend: name, Goroutines: 1, Texts: breakdownTexts, Dims: p.dims, Entries: len(p.texts), Metric: "hit", Unit: "µs/text"}
	// The whole is beside its floor; the others follow at once, in another order each time.
	err := p.table.Beside(ctx, turn, cell,
		bench.Side{Case: bench.CaseOurs, Measure: func(ctx context.Context) (_ float64, err error) {
			figures[stepWhole], err = steps[stepWhole](ctx)
			return figures[stepWhole], err
		}},
		bench.Side{Case: bench.CaseFloor, Measure: floorStep})
	if err != nil {
		return err
	}
	for k := range stepWhole {
		step := (k + turn) % stepWhole
		if figures[step], err = steps[step](ctx); err != nil {
			return fmt.Errorf("step %d on %q: %w", step, name, err)
		}
	}
	cell.Metric = "part"
	p.table.Add(cell, "digests", figures[stepDigests])
	p.table.Add(cell, "lookup", figures[stepLookup])
	p.table.Add(cell, "copy", figures[stepCopying]-figures[stepLookup])
	p.table.Add(cell, "checks", figures[stepChecking]-figures[stepCopying])
	p.table.Add(cell, "rest", figures[stepWhole]-figures[stepDigests]-figures[stepChecking])
	return nil
}

// digesting makes the digests of the texts and of the keys.
func (p *breakdownRun) digesting() func(context.Context) (float64, error) {
	keys := make([]backend.Key, breakdownTexts)
	return p.loop(1, breakdownTexts, func(_ context.Context, g, i int) error {
		var of [80]byte // as long as what a key is the digest of
		for k, text := range p.windows.At(g, i, breakdownTexts) {
			digest := sha256.Sum256(unsafe.Slice(unsafe.StringData(text), len(text)))
			copy(of[48:], digest[:])
			keys[k] = sha256.Sum256(of[:])
		}
		return nil
	})
}

// reading looks up the keys and calls visit with the number in the call, that of the
// text, and the value. visit says whether the value is as it should be.
func (p *breakdownRun) reading(c backend.Cache, visit func(k, text int, value []byte) bool) func(context.Context) (float64, error) {
	return p.loop(1, breakdownTexts, func(ctx context.Context, _, i int) error {
		window := p.at(i)
		found := 0
		err := c.GetMany(ctx, p.keys[window], func(k int, value []byte) error {
			if visit(k, window*breakdownTexts+k, value) {
				found++
			}
			return nil
		})
		if err == nil && found != breakdownTexts {
			err = fmt.Errorf("%d of %d records are as they should be", found, breakdownTexts)
		}
		return err
	})
}

// at returns the number of the window that goroutine 0 reads in call i.
func (p *breakdownRun) at(i int) int { return p.windows.Place(0, i, breakdownTexts) }

func (p *breakdownRun) row(k int) []float32 { return p.rows[k*p.dims : (k+1)*p.dims] }

// copied copies the vector.
func (p *breakdownRun) copied(k, _ int, value []byte) bool {
	row := p.row(k)
	return copy(unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), 4*len(row)), value[record.HeaderSize:]) == 4*p.dims
}

// checked copies the vector and checks the copy.
func (p *breakdownRun) checked(k, text int, value []byte) bool {
	_, reason := record.Shape(value, p.dims)
	return reason == record.Valid && record.Load(p.row(k), value, &p.digests[text], &p.scope) == record.Valid
}
