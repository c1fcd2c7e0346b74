package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/bolt"
	"github.com/embedonce/embedonce/backend/sqlite"
	"github.com/embedonce/embedonce/embed"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
	"github.com/embedonce/embedonce/benchmarks/internal/floor"
)

// shards is how many files the entries are divided among in that variant.
const shards = 4

// variant is a way to read a store of one backend with so many goroutines: by the
// library, or by hand.
type variant struct {
	name string
	// open opens the store at a place for n goroutines, which share the caches; those
	// that it returns beside an error must be closed too.
	open func(r *collapseRun, place string, n int) (caches []backend.Cache, err error)
	// byHand opens it for the floor's loop instead.
	byHand func(place string) (floor.Store, error)
}

// collapseVariants are the suspects, by backend: what could make many goroutines slower
// than one.
var collapseVariants = map[string][]variant{
	"sqlite": {
		{name: bench.CaseOurs, open: oneHandle(openSQLite(nil))},
		{name: "a handle and a Client for each goroutine", open: handleEach(openSQLite(&sqlite.Options{Readers: 1}))},
		{name: "a reader for each goroutine", open: func(_ *collapseRun, place string, n int) ([]backend.Cache, error) {
			return oneHandle(openSQLite(&sqlite.Options{Readers: n}))(nil, place, n)
		}},
		{name: "no memory map", open: oneHandle(openSQLite(&sqlite.Options{DisableMmap: true}))},
		{name: "four shards", open: sharded(openSQLite(nil))},
		{name: bench.CaseFloor, byHand: sqliteByHand()},
		{name: "by hand, page cache of 256 KB, no map", byHand: sqliteByHand("mmap_size = 0", "cache_size = -256")},
		{name: "by hand, page cache of 256 MB, no map", byHand: sqliteByHand("mmap_size = 0", "cache_size = -256000")},
		{name: "by hand, rollback journal", byHand: sqliteByHand("journal_mode = DELETE")},
	},
	"bolt": {
		{name: bench.CaseOurs, open: oneHandle(openBolt(nil))},
		{name: "a handle and a Client for each goroutine", open: handleEach(openBolt(&bolt.Options{ReadOnly: true}))},
		{name: "four shards", open: sharded(openBolt(nil))},
		{name: bench.CaseFloor, byHand: func(place string) (floor.Store, error) {
			return floor.OpenBolt(filepath.Join(place, "vectors.db"))
		}},
	},
}

type opener func(path string) (backend.Cache, error)

func openSQLite(opts *sqlite.Options) opener {
	return func(path string) (backend.Cache, error) { return sqlite.Open(path, opts) }
}

func openBolt(opts *bolt.Options) opener {
	return func(path string) (backend.Cache, error) { return bolt.Open(path, opts) }
}

func sqliteByHand(pragmas ...string) func(string) (floor.Store, error) {
	return func(place string) (floor.Store, error) {
		return floor.OpenSQLite(filepath.Join(place, "vectors.db"), pragmas...)
	}
}

func oneHandle(open opener) func(*collapseRun, string, int) ([]backend.Cache, error) {
	return func(_ *collapseRun, place string, n int) ([]backend.Cache, error) {
		c, err := open(filepath.Join(place, "vectors.db"))
		if err != nil {
			return nil, err
		}
		return []backend.Cache{c}, nil
	}
}

func handleEach(open opener) func(*collapseRun, string, int) ([]backend.Cache, error) {
	return func(_ *collapseRun, place string, n int) (caches []backend.Cache, err error) {
		for range n {
			c, err := open(filepath.Join(place, "vectors.db"))
			if err != nil {
				return caches, err
			}
			caches = append(caches, c)
		}
		return caches, nil
	}
}

// sharded divides the entries among files by their keys.
func sharded(open opener) func(*collapseRun, string, int) ([]backend.Cache, error) {
	return func(r *collapseRun, place string, n int) ([]backend.Cache, error) {
		all, err := openShards(open, place)
		if err == nil {
			err = errors.Join(bench.Fill(r.ctx, all, r.provider, r.texts), all.Close())
		}
		if err != nil {
			return nil, err
		}
		// Closed and opened again, as the store is that the others copy.
		if all, err = openShards(open, place); err != nil {
			return nil, err
		}
		return []backend.Cache{all}, nil
	}
}

func openShards(open opener, place string) (*shardedCache, error) {
	all := &shardedCache{}
	for i := range shards {
		c, err := open(filepath.Join(place, fmt.Sprintf("shard%d.db", i)))
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all.shards = append(all.shards, c)
	}
	return all, nil
}

// shardedCache divides each call among its shards, one after the other.
type shardedCache struct{ shards []backend.Cache }

func (s *shardedCache) Info() backend.Info { return s.shards[0].Info() }

func (s *shardedCache) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	var of [shards][]backend.Key
	var at [shards][]int
	for i, key := range keys {
		k := key[0] % shards
		of[k], at[k] = append(of[k], key), append(at[k], i)
	}
	for k, c := range s.shards {
		if err := c.GetMany(ctx, of[k], func(i int, value []byte) error { return visit(at[k][i], value) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *shardedCache) SetMany(ctx context.Context, items []backend.Item) error {
	var of [shards][]backend.Item
	for _, item := range items {
		of[item.Key[0]%shards] = append(of[item.Key[0]%shards], item)
	}
	for k, c := range s.shards {
		if err := c.SetMany(ctx, of[k]); err != nil {
			return err
		}
	}
	return nil
}

// Txn is not needed by a Client.
func (s *shardedCache) Txn(context.Context, func(backend.Txn) error) error {
	return backend.ErrUnsupported
}

func (s *shardedCache) Close() error {
	var errs []error
	for _, c := range s.shards {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// collapseRun is the scenario collapse.
type collapseRun struct {
	concurrentRun
	ctx        context.Context
	provider   embed.Provider
	goroutines []int
}

// collapse measures how hits scale with goroutines, and whether anything that could
// keep them from it does: whatever it is, changing it would show.
func collapse(ctx context.Context, r *bench.Run) error {
	backends, err := r.Backends(ctx, "sqlite", "bolt")
	if err != nil {
		return err
	}
	c := &collapseRun{
		concurrentRun: concurrentRun{
			Run:   r,
			dims:  1536,
			each:  bench.Pick(r.Quick, 10*time.Millisecond, 400*time.Millisecond),
			texts: r.Texts(0, bench.Pick(r.Quick, 512, 4*4096)),
			// Many connections have many page caches and maps, and none must be cold.
			warmAll: true,
			table:   r.NewTable(),
		},
		ctx:        ctx,
		goroutines: bench.Pick(r.Quick, []int{1, 16}, []int{1, 2, 8, 16, 32}),
	}
	c.windows = bench.NewWindows(r.Seed, c.texts)
	c.rows = make([]float32, c.goroutines[len(c.goroutines)-1]*concurrentTexts*c.dims)
	c.provider = bench.LocalProvider(c.dims)
	for _, b := range backends {
		fill := func(cache backend.Cache) error { return bench.Fill(ctx, cache, c.provider, c.texts) }
		err := r.Repeat(ctx, b, b.Name, fill, func(repetition int, store *bench.Store) error {
			return c.repeat(repetition, b.Name, store)
		})
		if err != nil {
			return err
		}
	}
	return c.table.Emit()
}

// repeat measures each variant with each number of goroutines on one fresh copy. The
// variants take turns, and another one is first in each repetition.
func (c *collapseRun) repeat(repetition int, name string, store *bench.Store) (err error) {
	one := make(map[string]float64)
	for _, n := range c.goroutines {
		cell := bench.Result{Backend: name, Goroutines: n, Texts: concurrentTexts, Dims: c.dims, Entries: len(c.texts), Metric: "hit", Unit: "µs/text"}
		figures := make(map[string]float64)
		var sides []bench.Side
		for _, v := range collapseVariants[name] {
			sides = append(sides, bench.Side{Case: v.name, Measure: func(context.Context) (float64, error) {
				figure, err := c.measure(&v, store, n)
				figures[v.name] = figure
				return figure, err
			}})
		}
		if err := c.table.Beside(c.ctx, repetition, cell, sides...); err != nil {
			return err
		}
		if figures[bench.CaseControl], err = c.table.Control(c.ctx, bench.Result{Backend: name, Goroutines: n}, c.each); err != nil {
			return err
		}
		cell.Metric, cell.Unit = "throughput / that of one goroutine", "ratio"
		for _, v := range append([]variant{{name: bench.CaseControl}}, collapseVariants[name]...) {
			if n == c.goroutines[0] {
				one[v.name] = figures[v.name]
			}
			c.table.Add(cell, v.name, one[v.name]/figures[v.name])
		}
	}
	return nil
}

// measure measures a variant on a fresh copy.
func (c *collapseRun) measure(v *variant, store *bench.Store, n int) (_ float64, err error) {
	place, err := store.Files()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(place)) }()
	if v.byHand != nil {
		byHand, err := v.byHand(place)
		if err != nil {
			return 0, err
		}
		pass, err := c.byHand(byHand)(c.ctx, n)
		return pass.PerText(concurrentTexts), errors.Join(err, byHand.Close())
	}
	caches, err := v.open(c, place, n)
	defer func() {
		for _, cache := range caches {
			err = errors.Join(err, cache.Close())
		}
	}()
	if err != nil {
		return 0, err
	}
	var clients []*embed.Client
	for _, cache := range caches {
		client, err := embed.New(c.provider, &embed.Options{Cache: cache})
		if err != nil {
			return 0, err
		}
		defer client.Close()
		clients = append(clients, client)
	}
	pass, err := c.through(clients)(c.ctx, n)
	return pass.PerText(concurrentTexts), err
}
