package backend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/memory"
	"github.com/stretchr/testify/require"
)

func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func requireSettled(t *testing.T, report backend.CopyReport) {
	t.Helper()
	require.Equal(t, report.Entries, report.Copied+report.Skipped+report.Unreadable+report.TooLarge+report.Gone, "%+v", report)
}

func TestCopyRefuses(t *testing.T) {
	m := newScanMap()
	for _, pair := range [][2]backend.Cache{{nil, m}, {m, nil}} {
		_, err := backend.Copy(t.Context(), pair[0], pair[1], nil)
		require.ErrorContains(t, err, "a cache is nil")
	}
	for _, pair := range [][2]backend.Cache{{m, m}, {over{newScanMap(), m}, m}, {m, over{newScanMap(), m}}} {
		_, err := backend.Copy(t.Context(), pair[0], pair[1], nil)
		require.ErrorContains(t, err, "the same store")
	}
	// Not comparable: nothing can be told, and nothing panics.
	_, err := backend.Copy(t.Context(), odd{Cache: m}, odd{Cache: m}, nil)
	require.ErrorIs(t, err, backend.ErrUnsupported)

	_, err = backend.Copy(t.Context(), m.Map, newScanMap(), nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	report, err := backend.Copy(t.Context(), m, newScanMap(), &backend.CopyOptions{Position: "elsewhere"})
	require.ErrorIs(t, err, errPosition)
	require.ErrorContains(t, err, "CopyOptions.Position")
	require.Equal(t, backend.CopyReport{Position: "elsewhere"}, report)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = backend.Copy(ended, m, newScanMap(), nil)
	require.ErrorIs(t, err, context.Canceled)
}

// over is a layer over another cache.
type over struct {
	backend.Cache
	under backend.Cache
}

func (o over) Authoritative() backend.Cache { return o.under }

// odd is a cache whose type has no ==.
type odd struct {
	backend.Cache
	_ []func()
}

func TestCopyWithoutOverwrite(t *testing.T) {
	r := seeded(t)
	from, to := newScanMap(), newScanMap()
	from.fill(r, 95, 100)
	all := maps.Clone(from.entries)
	kept, healed := 0, 0
	for key := range from.entries {
		if kept++; kept <= 30 {
			to.entries[key] = []byte("already here")
		} else if healed++; healed <= 5 {
			to.entries[key] = nil
		}
	}
	want := maps.Clone(all)
	for key, value := range to.entries {
		if value != nil {
			want[key] = value
		}
	}
	report, err := backend.Copy(t.Context(), from, to, nil)
	require.NoError(t, err)
	require.Equal(t, 95, report.Entries)
	require.Equal(t, 30, report.Skipped)
	require.Equal(t, 65, report.Copied)
	require.Empty(t, report.Position)
	requireSettled(t, report)
	require.Equal(t, want, to.entries)
	require.Equal(t, all, from.entries)
	require.Equal(t, 65, from.values, "what is there already was read")

	lent := from.values
	report, err = backend.Copy(t.Context(), from, to, nil)
	require.NoError(t, err)
	require.Equal(t, backend.CopyReport{Entries: 95, Skipped: 95}, report)
	require.Equal(t, lent, from.values)

	to.gets = 0
	report, err = backend.Copy(t.Context(), from, to, &backend.CopyOptions{Overwrite: true})
	require.NoError(t, err)
	require.Equal(t, 95, report.Copied)
	require.Zero(t, to.gets)
	require.Equal(t, all, to.entries)
}

// What only a layer over the store has isn't stored.
func TestCopyAsksTheStoreItself(t *testing.T) {
	from, below, layer := newScanMap(), newScanMap(), newScanMap()
	from.fill(seeded(t), 3, 10)
	for key, value := range from.entries {
		layer.entries[key] = value
	}
	report, err := backend.Copy(t.Context(), from, overLayer{layer, below}, nil)
	require.NoError(t, err)
	require.Equal(t, 3, report.Copied)
	require.Equal(t, from.entries, below.entries)
}

// overLayer reads from one cache and writes to another, which counts.
type overLayer struct {
	backend.Cache
	store backend.Cache
}

func (o overLayer) Authoritative() backend.Cache { return o.store }

func (o overLayer) SetMany(ctx context.Context, items []backend.Item) error {
	return o.store.SetMany(ctx, items)
}

// TestCopyProperty copies random stores to stores with random limits, some declared
// and some not, interrupts it at random moments, and goes on from there.
func TestCopyProperty(t *testing.T) {
	r := seeded(t)
	failure := errors.New("broken")
	for range 60 {
		from, to := newScanMap(), newScanMap()
		from.part = 1 + r.IntN(80)
		from.fill(r, r.IntN(200), 50)
		to.info = backend.Info{Atomic: true, MaxValueBytes: r.IntN(2) * (20 + r.IntN(40)), MaxBatchItems: r.IntN(2) * (1 + r.IntN(30)), MaxBatchBytes: r.IntN(2) * (60 + r.IntN(300))}
		if r.IntN(4) == 0 {
			to.hiddenLimit = 20 + r.IntN(100)
		}
		want := make(map[backend.Key][]byte)
		var sum backend.CopyReport
		for key, value := range from.entries {
			fits := (to.info.MaxValueBytes == 0 || len(value) <= to.info.MaxValueBytes) && (to.hiddenLimit == 0 || len(value) <= to.hiddenLimit)
			switch r.IntN(20) {
			case 0:
				from.entries[key] = nil
				sum.Unreadable++
			case 1:
				from.entries[key] = []byte{}
				sum.Unreadable++
			case 2:
				to.entries[key] = []byte("here")
				want[key] = to.entries[key]
				if to.info.MaxValueBytes > 0 && len(value) > to.info.MaxValueBytes {
					sum.TooLarge++ // not even asked for
				}
			default:
				if fits {
					want[key] = value
				} else {
					sum.TooLarge++
				}
			}
		}
		break_ := func() error {
			if r.IntN(12) == 0 {
				return failure
			}
			return nil
		}
		to.onGet, to.onSet, from.onGet = break_, break_, break_
		position := backend.Position("")
		var report backend.CopyReport
		for tries := 0; ; tries++ {
			var told backend.CopyReport
			var err error
			report, err = backend.Copy(t.Context(), from, to, &backend.CopyOptions{Position: position, Progress: func(report backend.CopyReport) { told = report }})
			if position == "" && err == nil {
				require.Equal(t, report, told)
				require.Equal(t, len(from.entries), report.Entries)
				require.Equal(t, sum.Unreadable, report.Unreadable)
				require.Equal(t, sum.TooLarge, report.TooLarge)
			}
			if errors.Is(err, failure) {
				position = report.Position
				continue
			}
			require.Equal(t, report.TooLarge > 0, errors.Is(err, backend.ErrTooLarge), "%v", err)
			if report.TooLarge == 0 {
				require.NoError(t, err)
			}
			break
		}
		requireSettled(t, report)
		require.Empty(t, report.Position)
		require.Equal(t, want, to.entries)
		require.Zero(t, to.refused)
	}
}

// TestCopyGoesOnWhereItWas: what lies before the position of an interrupted copy
// is not seen again.
func TestCopyGoesOnWhereItWas(t *testing.T) {
	from, to := newScanMap(), newScanMap()
	from.part = 1000
	from.fill(seeded(t), 10_000, 1)
	failure := errors.New("broken")
	sets := 0
	to.onSet = func() error {
		if sets++; sets == 2 {
			return failure
		}
		return nil
	}
	first, err := backend.Copy(t.Context(), from, to, nil)
	require.ErrorIs(t, err, failure)
	require.NotEmpty(t, first.Position)
	require.Equal(t, first.Copied, len(to.entries))
	require.GreaterOrEqual(t, first.Copied, 4096)
	rest, err := backend.Copy(t.Context(), from, to, &backend.CopyOptions{Position: first.Position})
	require.NoError(t, err)
	require.Zero(t, rest.Skipped)
	require.Equal(t, 10_000, first.Copied+rest.Copied)
	require.Equal(t, from.entries, to.entries)
}

// TestCopyBoundsWhatItHolds: a batch has at most 8 MiB, or one value.
func TestCopyBoundsWhatItHolds(t *testing.T) {
	from, to := newScanMap(), newScanMap()
	from.part = 1000
	for i := range 30 {
		from.entries[backend.Key{byte(i)}] = make([]byte, 1<<20)
	}
	from.entries[backend.Key{30}] = make([]byte, 9<<20)
	var told []int
	report, err := backend.Copy(t.Context(), from, to, &backend.CopyOptions{Progress: func(report backend.CopyReport) { told = append(told, report.Copied) }})
	require.NoError(t, err)
	require.Equal(t, 31, report.Copied)
	require.Equal(t, int64(31*32+39<<20), report.Bytes)
	require.Equal(t, 9<<20, to.largest)
	require.Equal(t, []int{8, 16, 24, 30, 31}, told)

	// Small parts of a scan make no small batches.
	from.part, to.sets = 1, 0
	_, err = backend.Copy(t.Context(), from, to, &backend.CopyOptions{Overwrite: true})
	require.NoError(t, err)
	require.Equal(t, 5, to.sets)
}

// TestCopyOfWhatChanges: an entry that grows, goes or loses its bytes between being
// seen and being read.
func TestCopyOfWhatChanges(t *testing.T) {
	from, to := newScanMap(), newScanMap()
	from.fill(seeded(t), 9, 100)
	keys := slices.Collect(maps.Keys(from.entries))
	from.onGet = func() error {
		from.entries[keys[0]] = bytes.Repeat([]byte("grown"), 1000)
		from.entries[keys[1]] = []byte{}
		delete(from.entries, keys[2])
		return nil
	}
	report, err := backend.Copy(t.Context(), from, to, nil)
	require.NoError(t, err)
	require.Equal(t, 7, report.Copied)
	require.Equal(t, 1, report.Unreadable)
	require.Equal(t, 1, report.Gone)
	requireSettled(t, report)
	delete(from.entries, keys[1])
	require.Equal(t, from.entries, to.entries)
}

// TestCopyFromADamagedStore: what can be read is copied, the error comes last.
func TestCopyFromADamagedStore(t *testing.T) {
	from, to := newScanMap(), newScanMap()
	from.fill(seeded(t), 25, 100)
	damaged := damagedMap{from, 5}
	report, err := backend.Copy(t.Context(), damaged, to, nil)
	require.ErrorIs(t, err, backend.ErrCorrupt)
	require.Equal(t, 20, report.Copied)
	require.Equal(t, 5, report.Unreadable)
	require.Empty(t, report.Position)
	require.Len(t, to.entries, 20)
	requireSettled(t, report)

	ctx, cancel := context.WithCancel(t.Context())
	from.onGet = func() error {
		cancel()
		return backend.ErrCorrupt
	}
	_, err = backend.Copy(ctx, damaged, newScanMap(), nil)
	require.ErrorIs(t, err, backend.ErrCorrupt)
	require.NotErrorIs(t, err, context.Canceled)
}

// What was seen before the damage that ends a scan is saved.
func TestCopyOfADamagedScan(t *testing.T) {
	from, to := newScanMap(), newScanMap()
	from.fill(seeded(t), 25, 100)
	report, err := backend.Copy(t.Context(), damagedScan{from}, to, nil)
	require.ErrorIs(t, err, backend.ErrCorrupt)
	require.Equal(t, 10, report.Copied)
	require.Len(t, to.entries, 10)
	requireSettled(t, report)
}

// damagedScan can't be scanned behind its first part.
type damagedScan struct{ *scanMap }

func (m damagedScan) Scan(ctx context.Context, from backend.Position, head int, visit func(e backend.Entry) error) (backend.Position, error) {
	if from != "" {
		return from, fmt.Errorf("a page is damaged: %w", backend.ErrCorrupt)
	}
	return m.scanMap.Scan(ctx, from, head, visit)
}

// damagedMap can't read the last entries of a call.
type damagedMap struct {
	*scanMap
	damaged int
}

func (m damagedMap) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	if err := m.scanMap.GetMany(ctx, keys[:len(keys)-m.damaged], visit); err != nil {
		return err
	}
	return fmt.Errorf("a page is damaged: %w", backend.ErrCorrupt)
}

// TestCopyOfMemory copies a store whose scan is one part.
func TestCopyOfMemory(t *testing.T) {
	from, err := memory.New(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, from.Close()) })
	filled, to := newScanMap(), newScanMap()
	filled.fill(seeded(t), 10_000, 20)
	for key, value := range filled.entries {
		require.NoError(t, from.SetMany(t.Context(), []backend.Item{{Key: key, Value: value}}))
	}
	report, err := backend.Copy(t.Context(), from, to, nil)
	require.NoError(t, err)
	require.Equal(t, 10_000, report.Copied)
	require.Equal(t, filled.entries, to.entries)
}

// What is there already isn't copied again.
func ExampleCopy() {
	ctx := context.Background()
	from, _ := memory.New(nil) // any two stores
	to, _ := memory.New(nil)
	err := from.SetMany(ctx, []backend.Item{{Key: backend.Key{1}, Value: []byte("a vector")}, {Key: backend.Key{2}, Value: []byte("another")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		report, err := backend.Copy(ctx, from, to, nil)
		fmt.Println("seen:", report.Entries, "copied:", report.Copied, "there already:", report.Skipped, err)
	}
	// Output:
	// seen: 2 copied: 2 there already: 0 <nil>
	// seen: 2 copied: 0 there already: 2 <nil>
}
