package bench

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/bolt"
	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/backend/redis"
	"github.com/embedonce/embedonce/backend/sqlite"
	"github.com/embedonce/embedonce/benchmarks/internal/floor"
)

// Backend is a kind of store by name. A place is where one store of it is: a
// directory, or a prefix on a server.
type Backend struct {
	Name string
	// files says that a store is the files of its directory: it is copied by
	// copying them. Any other is copied entry by entry.
	files bool
	// needs starts what the backend needs. why says why it can't be measured here;
	// nil needs nothing.
	needs func(ctx context.Context, r *Run) (why string, err error)
	// open opens the store at a place, which may be empty.
	open func(ctx context.Context, r *Run, place string) (backend.Cache, error)
	// floor opens the same store by hand. from is a cache that has it open, for
	// what is in memory alone.
	floor func(ctx context.Context, r *Run, place string, from backend.Cache) (floor.Store, error)
	// drop removes what the closing of the store and the end of its directory leave
	// behind; nil where that is nothing.
	drop func(ctx context.Context, r *Run, c backend.Cache) error
}

// backends is the table to which more can be added.
var backends = []Backend{
	{
		Name: "memory",
		open: func(context.Context, *Run, string) (backend.Cache, error) {
			return memory.New(&memory.Options{MaxBytes: 1 << 40}) // never evicts
		},
		floor: func(ctx context.Context, _ *Run, _ string, from backend.Cache) (floor.Store, error) {
			return floor.OpenMap(ctx, from)
		},
	},
	{
		Name:  "sqlite",
		files: true,
		open: func(_ context.Context, _ *Run, place string) (backend.Cache, error) {
			return sqlite.Open(filepath.Join(place, "vectors.db"), nil)
		},
		floor: func(_ context.Context, _ *Run, place string, _ backend.Cache) (floor.Store, error) {
			return floor.OpenSQLite(filepath.Join(place, "vectors.db"))
		},
	},
	{
		Name:  "bolt",
		files: true,
		open: func(_ context.Context, _ *Run, place string) (backend.Cache, error) {
			return bolt.Open(filepath.Join(place, "vectors.db"), nil)
		},
		floor: func(_ context.Context, _ *Run, place string, _ backend.Cache) (floor.Store, error) {
			return floor.OpenBolt(filepath.Join(place, "vectors.db"))
		},
	},
	{
		Name:  "redis",
		needs: func(ctx context.Context, r *Run) (string, error) { return r.startRedis(ctx) },
		open: func(_ context.Context, r *Run, place string) (backend.Cache, error) {
			return redis.Open(r.redis.url, &redis.Options{Prefix: redisPrefix(place)})
		},
		floor: func(_ context.Context, r *Run, place string, _ backend.Cache) (floor.Store, error) {
			u, err := url.Parse(r.redis.url)
			if err != nil || u.Scheme != "redis" || u.User != nil || strings.Trim(u.Path, "/0") != "" {
				return nil, fmt.Errorf("the floor of redis takes a URL such as redis://127.0.0.1:6379 alone, without password and database")
			}
			return floor.OpenRedis(u.Host, redisPrefix(place))
		},
		drop: dropEntries,
	},
}

// redisPrefix keeps the stores of a run apart on one server.
func redisPrefix(place string) string { return "bench-" + filepath.Base(place) + ":" }

// BackendNames returns all names, in the order of the table.
func BackendNames() []string {
	names := make([]string, len(backends))
	for i, b := range backends {
		names[i] = b.Name
	}
	return names
}

func isBackend(name string) bool { return slices.Contains(BackendNames(), name) }

// Backends returns those of the names that can be measured here and that the user
// wants. It says of each other why it is skipped.
func (r *Run) Backends(ctx context.Context, names ...string) ([]*Backend, error) {
	var usable []*Backend
	for i := range backends {
		b := &backends[i]
		if !slices.Contains(names, b.Name) || len(r.Settings.Backends) > 0 && !slices.Contains(r.Settings.Backends, b.Name) {
			continue
		}
		if b.needs != nil {
			why, err := b.needs(ctx, r)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.Name, err)
			}
			if why != "" {
				if err := r.Skip(b.Name, why); err != nil {
					return nil, err
				}
				continue
			}
		}
		usable = append(usable, b)
	}
	return usable, nil
}

// dropEntries deletes every entry of a cache.
func dropEntries(ctx context.Context, _ *Run, c backend.Cache) error {
	deleter, ok := c.(backend.Deleter)
	if !ok {
		return fmt.Errorf("the entries of a copy can't be removed: %w", backend.ErrUnsupported)
	}
	keys, err := floor.Keys(ctx, c)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(keys, 1024) {
		if _, err := deleter.Delete(ctx, chunk, nil); err != nil {
			return err
		}
	}
	return nil
}
