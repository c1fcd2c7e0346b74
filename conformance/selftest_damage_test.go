package conformance

import (
	"errors"
	"hash/crc32"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// summing is a cache that keeps a checksum of each value beside it, and does what
// found says with a value that doesn't fit. One without bytes is a foreign entry.
func summing(found func(k backend.Key, i int, value []byte, visit visitT) error) func() Suite {
	return overMap(func(c *mapCache, b *broken) {
		var mu sync.Mutex
		sums := make(map[backend.Key]uint32)
		b.set = func(ctx ctxT, items itemsT) error {
			mu.Lock()
			defer mu.Unlock()
			err := c.SetMany(ctx, items)
			if err == nil {
				for _, item := range items {
					sums[item.Key] = crc32.ChecksumIEEE(item.Value)
				}
			}
			return err
		}
		b.get = func(ctx ctxT, keys keysT, visit visitT) error {
			mu.Lock() // for the moment of the values
			wrong := make(map[int]bool)
			for i, value := range c.found(keys) {
				sum, known := sums[keys[i]]
				wrong[i] = len(value) > 0 && known && sum != crc32.ChecksumIEEE(value)
			}
			mu.Unlock()
			return c.GetMany(ctx, keys, func(i int, value []byte) error {
				if wrong[i] {
					return found(keys[i], i, value, visit)
				}
				return visit(i, value)
			})
		}
	})
}

var damageMutants = []mutant{
	{name: "takes a damaged entry for missing", must: []string{"damage/read", "damage/to-client"}, may: []string{"damage/*", "batch/*"},
		suite: summing(func(backend.Key, int, []byte, visitT) error { return nil })},
	{name: "panics at a damaged entry", must: []string{"damage/read", "damage/to-client"}, may: []string{"damage/*"},
		suite: summing(func(backend.Key, int, []byte, visitT) error { panic("a sum that doesn't fit") })},
	{name: "waits for a damaged entry to get well", hangs: []string{"damage/read"}, may: []string{"damage/*"},
		suite: func() Suite {
			var once sync.Once // for a test it is long enough
			return summing(func(_ backend.Key, i int, value []byte, visit visitT) error {
				once.Do(func() { asleep(6 * time.Second) })
				return visit(i, value)
			})()
		}},
	{name: "never reads again what was damaged", must: []string{"damage/written-over"}, may: []string{"damage/*"},
		suite: func() Suite {
			return mapSuite(mapInfo, func(c *mapCache) backend.Cache {
				var mu sync.Mutex
				sums := make(map[backend.Key]uint32)
				bad := make(map[backend.Key]bool)
				b := &broken{Cache: c, m: c}
				b.set = func(ctx ctxT, items itemsT) error {
					mu.Lock()
					defer mu.Unlock()
					for k, value := range c.all() {
						if sum, known := sums[k]; known && len(value) > 0 && sum != crc32.ChecksumIEEE(value) {
							bad[k] = true
						}
					}
					err := c.SetMany(ctx, items)
					for _, item := range items {
						if err == nil {
							sums[item.Key] = crc32.ChecksumIEEE(item.Value)
						}
					}
					return err
				}
				b.get = func(ctx ctxT, keys keysT, visit visitT) error {
					return c.GetMany(ctx, keys, func(i int, value []byte) error {
						mu.Lock()
						out := bad[keys[i]]
						mu.Unlock()
						if out {
							value = nil
						}
						return visit(i, value)
					})
				}
				return b
			})
		}},
}

func init() {
	oddCaches = append(oddCaches,
		mutant{name: "gives nil for what is damaged", suite: summing(func(_ backend.Key, i int, _ []byte, visit visitT) error { return visit(i, nil) })},
		mutant{name: "ends with an error for what is damaged", suite: summing(func(backend.Key, int, []byte, visitT) error {
			return errors.Join(backend.ErrCorrupt, errors.New("a sum that doesn't fit"))
		})},
	)
}
