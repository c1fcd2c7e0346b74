package memory_test

import (
	"testing"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/conformance"
)

// suite is a cache of so many bytes. A location means nothing: each handle is a
// store of its own.
func suite(maxBytes int64) conformance.Suite {
	return conformance.Suite{
		New: func(testing.TB) string { return "memory" },
		Open: func(t testing.TB, _ string) backend.Cache {
			c, err := memory.New(&memory.Options{MaxBytes: maxBytes})
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		Want: backend.Info{
			Atomic:        true,
			SnapshotReads: true,
			MayEvict:      true,
			Capacity:      maxBytes,
			MaxValueBytes: int(maxBytes / 2),
			MaxBatchItems: int(maxBytes / 2 / 32),
			MaxBatchBytes: int(maxBytes / 2),
		},
	}
}

func TestConformance(t *testing.T) { suite(64 << 20).Run(t) }
func TestSoak(t *testing.T)        { suite(64 << 20).Soak(t) }
func BenchmarkCache(b *testing.B)  { suite(1 << 30).Bench(b) }

// A cache that is smaller than what is put into it shows that it evicts only
// what it may.
func TestConformanceSmall(t *testing.T) { suite(256 << 10).Run(t) }
