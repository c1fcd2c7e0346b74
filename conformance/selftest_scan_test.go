package conformance

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

type visitEntryT = func(backend.Entry) error

var errQuiet = errors.New("not for the caller")

var scanMutants = []mutant{
	{name: "takes a cancelled walk for a whole one", must: []string{"scan/ends-at-each-look"}, may: []string{"scan/*"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit func(backend.Entry) error) (backend.Position, error) {
				if err := ctx.Err(); err != nil {
					return from, err
				}
				next, err := c.Scan(ctx, from, head, visit)
				if errors.Is(err, context.Canceled) {
					return "", nil
				}
				return next, err
			}
		})},
	{name: "scans without the first entry of a part", must: []string{"scan/one", "scan/complete", "scan/sizes"}, may: []string{"scan/*", "compact/*"},
		suite: onEntries(func(e backend.Entry, n int, visit visitEntryT) error {
			if n == 1 {
				return nil
			}
			return visit(e)
		})},
	{name: "scans what isn't stored", must: []string{"scan/empty", "scan/one", "scan/complete", "scan/while-deleted"}, may: []string{"scan/*"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				next, err := c.Scan(ctx, from, head, visit)
				if err == nil && next == "" {
					err = visit(backend.Entry{Key: backend.Key{1, 2, 3}})
				}
				if err != nil {
					next = from
				}
				return next, err
			}
		})},
	{name: "ends a walk after its first part", must: []string{"scan/complete", "scan/used-between"}, may: []string{"scan/*", "compact/*"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				_, err := c.Scan(ctx, from, head, visit)
				return "", err
			}
		})},
	{name: "never ends a walk", must: []string{"scan/empty", "scan/one"}, may: []string{"scan/*", "compact/*"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				next, err := c.Scan(ctx, from, head, visit)
				if next == "" && err == nil {
					next = "end"
				}
				return next, err
			}
		})},
	{name: "scans one byte too few", must: []string{"scan/one", "scan/complete", "scan/sizes"}, may: []string{"scan/*", "compact/*"},
		suite: onEntries(func(e backend.Entry, _ int, visit visitEntryT) error {
			e.Value = e.Value[:max(0, len(e.Value)-1)]
			return visit(e)
		})},
	{name: "scans the size of what it lends", must: []string{"scan/one", "scan/complete", "scan/sizes"}, may: []string{"scan/*", "compact/*"},
		suite: onEntries(func(e backend.Entry, _ int, visit visitEntryT) error {
			if e.Size > 0 {
				e.Size = len(e.Value)
			}
			return visit(e)
		})},
	{name: "scans a neighbour's value", must: []string{"scan/complete"}, may: []string{"scan/*", "compact/*"},
		suite: func() Suite {
			return onEntries(func(e backend.Entry, n int, visit visitEntryT) error {
				if n%2 == 0 && len(e.Value) > 0 {
					e.Value = append([]byte{e.Value[0] ^ 1}, e.Value[1:]...)
				}
				return visit(e)
			})()
		}},
	{name: "swallows visit's error in a scan", must: []string{"scan/visit-error"}, may: []string{"scan/*"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				next, err := c.Scan(ctx, from, head, func(e backend.Entry) error {
					if visit(e) != nil {
						return errQuiet
					}
					return nil
				})
				if errors.Is(err, errQuiet) {
					return "", nil
				}
				return next, err
			}
		})},
	{name: "goes on after visit's error in a scan", must: []string{"scan/visit-error"}, may: []string{"scan/ends-at-each-look"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				var first error
				next, err := c.Scan(ctx, from, head, func(e backend.Entry) error {
					if err := visit(e); err != nil && first == nil {
						first = err
					}
					return nil
				})
				if first != nil {
					return from, first
				}
				return next, err
			}
		})},
	{name: "takes ErrForeign of a scan's visit for good", must: []string{"scan/visit-error"},
		suite: onEntries(func(e backend.Entry, _ int, visit visitEntryT) error {
			if err := visit(e); !errors.Is(err, backend.ErrForeign) {
				return err
			}
			return nil
		})},
	{name: "skips a part that failed", must: []string{"scan/visit-error", "scan/ends-at-each-look"}, may: []string{"scan/*"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				_, next := part(c.all(), from, mapPart)
				_, err := c.Scan(ctx, from, head, visit)
				return next, err
			}
		})},
	{name: "scans on another goroutine", must: []string{"scan/callers-goroutine"}, may: []string{"scan/close-waits"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (next backend.Position, err error) {
				var done sync.WaitGroup
				done.Go(func() { next, err = c.Scan(ctx, from, head, visit) })
				done.Wait()
				return next, err
			}
		})},
	{name: "holds its lock for a whole walk", hangs: []string{"scan/used-between"}, may: []string{"scan/*", "compact/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			turn := make(chan struct{}, 1)
			b.scan = func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				next, err := c.Scan(ctx, from, head, visit)
				if next != "" {
					select {
					case turn <- struct{}{}:
					default:
					}
				} else {
					select {
					case <-turn:
					default:
					}
				}
				return next, err
			}
			b.set = func(ctx ctxT, items itemsT) error {
				select {
				case turn <- struct{}{}:
					defer func() { <-turn }()
				case <-ctx.Done():
				case <-time.After(3 * time.Second): // not for ever: this is a test
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "counts its way through a walk", must: []string{"scan/place-deleted"}, may: []string{"scan/*"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				n, _ := strconv.Atoi(string(from))
				seen := 0
				_, err := c.Scan(ctx, "", 0, func(backend.Entry) error { return nil })
				if err != nil {
					return from, err
				}
				all, _ := part(c.all(), "", 1<<30)
				for _, item := range all[min(n, len(all)):min(n+mapPart, len(all))] {
					if err := ctx.Err(); err != nil {
						return from, err
					}
					if err := visit(entryOf(item, head)); err != nil {
						return from, err
					}
					seen++
				}
				if n+seen >= len(all) {
					return "", nil
				}
				return backend.Position(strconv.Itoa(n + seen)), nil
			}
		})},
	{name: "walks through what there was when it began", must: []string{"scan/while-written"}, may: []string{"scan/*"},
		suite: onScan(func(c *mapCache) scanT {
			var mu sync.Mutex
			var then map[backend.Key][]byte
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				if err := c.SetMany(ctx, nil); err != nil {
					return from, err
				}
				mu.Lock()
				if from == "" {
					then = c.all()
				}
				entries, next := part(then, from, 50)
				mu.Unlock()
				if from != "" {
					asleep(200 * time.Microsecond)
				}
				for _, item := range entries {
					if err := visit(entryOf(item, head)); err != nil {
						return from, err
					}
				}
				return next, ctx.Err()
			}
		})},
	{name: "loses what is overwritten during a walk", must: []string{"scan/while-written"}, may: []string{"scan/*"},
		suite: overMap(func(c *mapCache, b *broken) {
			// An entry that is written moves to the end, where a walk that knows its end has
			// passed.
			var mu sync.Mutex
			moved := make(map[backend.Key]bool)
			walking := false
			b.set = func(ctx ctxT, items itemsT) error {
				mu.Lock()
				if walking {
					for i := range c.found(keysOf(items)) {
						moved[items[i].Key] = true
					}
				}
				mu.Unlock()
				return c.SetMany(ctx, items)
			}
			b.scan = func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				mu.Lock()
				if from == "" {
					clear(moved)
				}
				walking = true
				mu.Unlock()
				next, err := c.Scan(ctx, from, head, func(e backend.Entry) error {
					mu.Lock()
					gone := moved[e.Key]
					mu.Unlock()
					if gone {
						return nil
					}
					return visit(e)
				})
				mu.Lock()
				walking = next != ""
				mu.Unlock()
				asleep(300 * time.Microsecond)
				return next, err
			}
		})},
	{name: "scans a wrong type as an empty value", must: []string{"scan/foreign"},
		suite: onEntries(func(e backend.Entry, _ int, visit visitEntryT) error { e.Size = max(e.Size, 0); return visit(e) })},
	{name: "scans past what it can't read", must: []string{"scan/foreign"},
		suite: onEntries(func(e backend.Entry, _ int, visit visitEntryT) error {
			if e.Size < 0 {
				return nil
			}
			return visit(e)
		})},
	{name: "writes into what a scan lends", must: []string{"scan/borrowed-while-written"}, may: anywhere,
		suite: overMap(func(c *mapCache, b *broken) {
			b.set = func(ctx ctxT, items itemsT) error {
				old := c.found(keysOf(items))
				for i, item := range items {
					if len(old[i]) > 1000 && len(old[i]) == len(item.Value) {
						copy(old[i], item.Value)
					}
				}
				return c.SetMany(ctx, items)
			}
		})},
	{name: "scans whatever its context says", must: []string{"scan/ended-context"}, may: []string{"scan/*"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				return c.Scan(context.WithoutCancel(ctx), from, head, visit)
			}
		})},
	{name: "hides in a scan that its context has ended", must: []string{"scan/ended-context", "scan/ends-at-each-look"}, may: []string{"scan/*"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				next, err := c.Scan(ctx, from, head, visit)
				if ctx.Err() != nil {
					err = errors.New("interrupted")
				}
				return next, err
			}
		})},
	{name: "scans after Close", must: []string{"scan/closed"},
		suite: overMap(func(c *mapCache, b *broken) {
			var closed atomic.Bool
			b.close = func() error { closed.Store(true); return c.Close() }
			b.scan = func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				if !closed.Load() {
					return c.Scan(ctx, from, head, visit)
				}
				for _, item := range c.all() {
					if err := visit(entryOf(backend.Item{Value: item}, head)); err != nil {
						return from, err
					}
				}
				return "", nil
			}
		})},
	{name: "closes under a scan", must: []string{"scan/close-waits"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				if err := c.SetMany(ctx, nil); err != nil {
					return from, err
				}
				entries, next := part(c.all(), from, mapPart)
				for _, item := range entries {
					if err := ctx.Err(); err != nil {
						return from, err
					}
					if err := visit(entryOf(item, head)); err != nil {
						return from, err
					}
				}
				return next, nil
			}
		})},
	{name: "says nil in a scan when it is cut off", must: []string{"scan/under-faults"},
		suite: onScan(func(c *mapCache) scanT {
			return func(ctx ctxT, from backend.Position, head int, visit visitEntryT) (backend.Position, error) {
				next, err := c.Scan(ctx, from, head, visit)
				if errors.Is(err, backend.ErrUnavailable) {
					return "", nil
				}
				return next, err
			}
		})},
}
