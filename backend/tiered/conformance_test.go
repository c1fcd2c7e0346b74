package tiered_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/backend/tiered"
	"github.com/embedonce/embedonce/conformance"
)

var locations atomic.Int64

func memoryOf(t testing.TB, maxBytes int64) backend.Cache {
	c, err := memory.New(&memory.Options{MaxBytes: maxBytes})
	require.NoError(t, err)
	return c
}

const slowBytes = 128 << 20

// suite is memory over memory: a fast layer of so many bytes, of which each call
// in every fails.
func suite(fastBytes int64, every int, opts tiered.Options) conformance.Suite {
	opts.OnFault = func(context.Context, error) {}
	return conformance.Suite{
		New: func(t testing.TB) string { return newPlace(t, fmt.Sprint("place ", locations.Add(1))) },
		Open: func(t testing.TB, location string) backend.Cache {
			at := placeAt(location)
			c, err := tiered.New(fastLayer{memoryOf(t, fastBytes), at, every}, at.below(memoryOf(t, slowBytes)), &opts)
			require.NoError(t, err)
			return c
		},
		Want: backend.Info{
			Atomic:        true,
			MayEvict:      true,
			Capacity:      slowBytes,
			MaxValueBytes: slowBytes / 2,
			MaxBatchItems: slowBytes / 2 / 32,
			MaxBatchBytes: slowBytes / 2,
		},
		Plant: plant,
		Fault: inject,
	}
}

func TestConformance(t *testing.T) { suite(64<<20, 0, tiered.Options{}).Run(t) }
func TestSoak(t *testing.T)        { suite(64<<20, 0, tiered.Options{}).Soak(t) }

// The fast layer is full all the time, and evicts.
func TestConformanceFull(t *testing.T) { suite(16<<10, 0, tiered.Options{}).Run(t) }
func TestSoakFull(t *testing.T)        { suite(16<<10, 0, tiered.Options{}).Soak(t) }

// The fast layer takes most batches only in pieces or not at all.
func TestConformanceTiny(t *testing.T) { suite(4<<10, 0, tiered.Options{}).Run(t) }

// Each third call of the fast layer fails, before or after it did its work.
func TestConformanceFailing(t *testing.T) { suite(64<<20, 3, tiered.Options{}).Run(t) }
func TestSoakFailing(t *testing.T)        { suite(1<<20, 3, tiered.Options{}).Soak(t) }

// The fast layer is filled by writes alone, and forgotten after a moment.
func TestConformanceWithoutFills(t *testing.T) {
	suite(64<<20, 0, tiered.Options{FillBytes: -1, MaxAge: 1}).Run(t)
}
