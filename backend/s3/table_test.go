package s3

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var ctxTime = time.Unix(1_700_000_000, 0)

func TestSizeClasses(t *testing.T) {
	last := uint8(0)
	for _, n := range []uint32{1, 7, 8, 9, 15, 16, 17, 31, 36, 37, 6244, 65535, 65536, 65537, 1 << 20, 1<<26 + 36, 1<<32 - 1} {
		class := sizeClass(n)
		require.GreaterOrEqual(t, classSize(class), uint64(n))
		require.GreaterOrEqual(t, class, last)
		if n > 16 {
			require.LessOrEqual(t, classSize(class), uint64(n)+uint64(n)/8)
		}
		last = class
	}
	for n := uint32(1); n < 100_000; n++ {
		class := sizeClass(n)
		require.True(t, classSize(class) >= uint64(n) && (class == 0 || classSize(class-1) < uint64(n)), "%d", n)
	}
}

func TestPlaces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		segment, offset, size := random.Uint32N(maxSegments), random.Uint32(), frameHead+int(random.Uint32N(1<<26))
		p := makePlace(segment, offset, uint32(size))
		require.Equal(t, segment, p.segment())
		require.Equal(t, offset, p.offset())
		require.GreaterOrEqual(t, p.atMost(), uint64(size))
		require.NotZero(t, p)
	}
	require.NotZero(t, makePlace(0, 0, uint32(frameHead)))
}

// TestTable compares with a map, through growth and purges, with hashes that collide.
func TestTable(t *testing.T) {
	for _, spread := range []uint64{3, 50, 1 << 40} {
		random := rand.New(rand.NewPCG(spread, 2))
		table := newTable()
		truth := make(map[uint64][]place)
		n := 0
		for range 20_000 {
			hash := random.Uint64N(spread) * 0x9e3779b97f4a7c15
			if len(truth[hash]) > 50 {
				continue
			}
			p := makePlace(random.Uint32N(100), random.Uint32(), 100)
			table.insert(hash, p)
			truth[hash] = append(truth[hash], p)
			n++
			if random.IntN(4000) == 0 {
				drop := random.Uint32N(100)
				table.purge(func(p place) bool { return p.segment() != drop })
				n = 0
				for hash, places := range truth {
					truth[hash] = slices.DeleteFunc(places, func(p place) bool { return p.segment() == drop })
					if n += len(truth[hash]); len(truth[hash]) == 0 {
						delete(truth, hash)
					}
				}
			}
		}
		require.Equal(t, n, table.used)
		for hash, places := range truth {
			require.ElementsMatch(t, places, table.find(hash, nil))
		}
		require.Empty(t, table.find(12345, nil))
		seen := make(map[uint64]bool)
		table.distinct(func(hash uint64, places []place) {
			require.False(t, seen[hash])
			seen[hash] = true
			require.ElementsMatch(t, truth[hash], places)
		})
		require.Len(t, seen, len(truth))
	}
}

// TestTableBytes: never more than 25 bytes a key, at whatever number of keys.
func TestTableBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table := newTable()
	sum, n, most := 0.0, 0, 0.0
	for i := 1; i <= 1_000_000; i++ {
		table.insert(random.Uint64(), makePlace(1, uint32(i), 100))
		if i >= 50_000 && i%5000 == 0 {
			each := float64(table.bytes()) / float64(i)
			sum, n, most = sum+each, n+1, max(most, each)
		}
	}
	t.Logf("bytes a key from 50,000 to 1,000,000 keys: %.1f on average, %.1f at most", sum/float64(n), most)
	require.LessOrEqual(t, most, 25.0)
}

func BenchmarkTableFind(b *testing.B) {
	table := newTable()
	keys := make([]uint64, 1_000_000)
	for i := range keys {
		keys[i] = rand.Uint64()
		table.insert(keys[i], makePlace(1, uint32(i), 6244))
	}
	var places []place
	i := 0
	for b.Loop() {
		places = table.find(keys[i*7919%len(keys)], places[:0])
		i++
	}
	if len(places) != 1 {
		b.Fatal("not found")
	}
}
