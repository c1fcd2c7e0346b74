package embed

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/embedonce/embedonce/backend"
)

// mostAges is how many different times of creation are told apart. Vectors come
// hundreds a second, so that it is mostly each second.
const mostAges = 1 << 16

// ages sums up bytes by their time of creation in bounded memory: when there are
// too many different times, neighbours are joined.
type ages struct {
	sums  map[uint32]int64 // by when
	shift uint             // how many bits of the second a time leaves out
	most  int
}

func newAges(most int) *ages {
	return &ages{sums: make(map[uint32]int64), most: most}
}

// when returns the time that the second belongs to. It changes with add.
func (a *ages) when(second uint32) uint32 { return second >> a.shift }

func (a *ages) add(second uint32, size int64) {
	a.sums[a.when(second)] += size
	for len(a.sums) > a.most {
		a.shift++
		joined := make(map[uint32]int64, a.most)
		for when, sum := range a.sums {
			joined[when>>1] += sum
		}
		a.sums = joined
	}
}

// oldest says what goes if size bytes have to, the oldest first: all before edge,
// and rest bytes at edge. rest is 0 if nothing goes.
func (a *ages) oldest(size int64) (edge uint32, rest int64) {
	if size <= 0 {
		return 0, 0
	}
	for _, when := range slices.Sorted(maps.Keys(a.sums)) {
		if a.sums[when] >= size {
			return when, size
		}
		size -= a.sums[when]
	}
	return 0, 0 // nobody asks for more than there is
}

// walk scans the whole cache, and calls after behind each part of it: then the
// cache may be used.
func walk(ctx context.Context, cache backend.Cache, head int, visit func(e backend.Entry) error, after func() error) error {
	at := backend.Position("")
	for {
		next, err := backend.Scan(ctx, cache, at, head, visit)
		if err != nil {
			return fmt.Errorf("scanning the cache: %w", err)
		}
		if err := after(); err != nil {
			return err
		}
		if next == "" {
			return nil
		}
		at = next
	}
}

// canDelete returns an error if the cache has no Delete, so that this is found
// before a long scan.
func canDelete(ctx context.Context, cache backend.Cache) error {
	_, err := backend.Delete(ctx, cache, nil, nil)
	return err
}
