package tiered_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/tiered"
)

const recordSize = 64 + 4*1536

func benchItems(n int) []backend.Item {
	return items(string(bytes.Repeat([]byte("v"), recordSize)), keys(n)...)
}

// BenchmarkHits is what the second layer costs a call that doesn't need it: the
// fast layer alone, below another, and with a maximum age.
func BenchmarkHits(b *testing.B) {
	for _, n := range []int{1, 512, 4096} {
		for _, layer := range []string{"alone", "tiered", "tiered with MaxAge"} {
			b.Run(fmt.Sprintf("%s/n=%d", layer, n), func(b *testing.B) {
				var c backend.Cache = memoryOf(b, 1<<30)
				if layer != "alone" {
					var opts tiered.Options
					if layer == "tiered with MaxAge" {
						opts.MaxAge = 1 << 60
					}
					var err error
					c, err = tiered.New(c, newFake(), &opts)
					require.NoError(b, err)
				}
				defer c.Close()
				require.NoError(b, c.SetMany(b.Context(), benchItems(n)))
				benchReads(b, c, n)
			})
		}
	}
}

// BenchmarkFill reads 512 values of 6 KB from the slow layer: alone, through a
// cache that copies nothing, and through one that copies all of them each time.
func BenchmarkFill(b *testing.B) {
	const n = 512
	for _, layer := range []string{"slow alone", "without fill", "fill"} {
		b.Run(layer, func(b *testing.B) {
			var c backend.Cache = memoryOf(b, 1<<30)
			require.NoError(b, c.SetMany(b.Context(), benchItems(n)))
			if layer != "slow alone" {
				opts := &tiered.Options{MaxAge: 1} // all is old at once
				if layer == "without fill" {
					opts.FillBytes = -1
				}
				var err error
				c, err = tiered.New(memoryOf(b, 1<<30), c, opts)
				require.NoError(b, err)
			}
			defer c.Close()
			benchReads(b, c, n)
		})
	}
}

func benchReads(b *testing.B, c backend.Cache, n int) {
	all := keys(n)
	ctx := context.Background()
	found := 0
	visit := func(_ int, value []byte) error { found += len(value); return nil }
	b.ReportAllocs()
	for b.Loop() {
		found = 0
		if err := c.GetMany(ctx, all, visit); err != nil || found != n*recordSize {
			b.Fatal("not all found")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/key")
}
