package s3

import (
	"context"
	"errors"
	"time"
)

const parallelDeletes = 8

// sweep deletes segments that something replaces: when that is older than the grace,
// by the server's clock, and when what they replaced themselves is gone. Otherwise
// that would count again.
func (c *Cache) sweep(ctx context.Context) error {
	if err := c.freshen(ctx, time.Now(), true); err != nil {
		return err
	}
	listed, now := c.fresh.listing()
	if now.IsZero() {
		return nil // a server without a clock
	}
	there := make(map[string]object, len(listed))
	for name, o := range listed {
		there[name] = o
	}
	for {
		names, err := c.deletable(ctx, there, now)
		if err != nil || len(names) == 0 {
			return err
		}
		err = inParallel(ctx, parallelDeletes, len(names), func(ctx context.Context, i int) error {
			return c.remote.remove(ctx, names[i])
		})
		if err != nil {
			return err
		}
		for _, name := range names {
			delete(there, name)
			c.view.gone(name)
		}
	}
}

// deletable returns the names in there that may be deleted now.
func (c *Cache) deletable(ctx context.Context, there map[string]object, now time.Time) (names []string, err error) {
	for name := range c.view.replacedBefore(there, now.Add(-c.options.Grace)) {
		parsed, _ := parseName(name)
		children := false
		if parsed.compacted {
			t, err := c.loadTail(ctx, parsed, there[name].bytes)
			switch {
			case errors.Is(err, errMissing):
				continue
			case errors.Is(err, errForeignObject), errors.Is(err, errFuture):
				continue // it can't say what it replaced
			case err != nil:
				return nil, err
			}
			for _, child := range t.replaced {
				if _, still := there[child]; still {
					children = true
				}
			}
		}
		if !children {
			names = append(names, name)
		}
	}
	return names, nil
}

// replacedBefore returns the names in there that a segment replaces which is listed
// and not younger than before.
func (v *view) replacedBefore(there map[string]object, before time.Time) map[string]bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	names := make(map[string]bool)
	for _, s := range v.byName {
		own, listed := there[s.name]
		if !listed || own.modified.IsZero() || own.modified.After(before) {
			continue
		}
		for _, name := range s.replaces {
			if _, still := there[name]; still {
				names[name] = true
			}
		}
	}
	return names
}
