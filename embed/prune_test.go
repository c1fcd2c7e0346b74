package embed_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/embedonce/embedonce/internal/record"
	"github.com/stretchr/testify/require"
)

func TestPruneRefusesWrongOptions(t *testing.T) {
	cache, _ := filled(t, 1)
	for name, opts := range map[string]*embed.PruneOptions{
		"neither OlderThan nor MaxBytes": nil,
		"at least one must be set":       {DryRun: true},
		"OlderThan is -1ns":              {OlderThan: -1},
		"MaxBytes is -1":                 {OlderThan: day, MaxBytes: -1},
	} {
		report, err := embed.Prune(t.Context(), cache, opts)
		require.ErrorContains(t, err, name)
		require.Nil(t, report)
	}
	_, err := embed.Prune(t.Context(), nil, &embed.PruneOptions{OlderThan: -1, MaxBytes: -1})
	for _, problem := range []string{"cache is nil", "OlderThan", "MaxBytes"} {
		require.ErrorContains(t, err, problem)
	}
	require.Zero(t, cache.parts)
}

// TestPruneByAge: a record goes only when all of its second is too old.
func TestPruneByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache, client := filled(t, 20)
		time.Sleep(time.Hour)
		_, err := client.Embed(t.Context(), []string{"later"})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		prune := func(age time.Duration) *embed.PruneReport {
			report, err := embed.Prune(t.Context(), cache, &embed.PruneOptions{OlderThan: age})
			require.NoError(t, err)
			return report
		}
		require.Zero(t, prune(2*time.Hour).Removed)
		report := prune(2*time.Hour - time.Second)
		require.Equal(t, 20, report.Removed)
		require.Equal(t, 21, report.Records)
		require.Equal(t, report.Bytes*20/21, report.RemovedBytes)
		require.Equal(t, 1, cache.len())
		require.Zero(t, prune(time.Hour).Removed)
		time.Sleep(time.Second)
		require.Equal(t, 1, prune(time.Hour).Removed)
		require.Zero(t, cache.len())
		require.Equal(t, embed.PruneReport{}, *prune(time.Hour))

		_, err = client.Embed(t.Context(), numbered(20))
		require.NoError(t, err)
		require.Equal(t, 41, client.Usage().Misses, "what was pruned is paid for again")
	})
}

// TestPruneBelievesTimes: a time of creation counts as it stands.
func TestPruneBelievesTimes(t *testing.T) {
	cache, _ := filled(t, 3)
	seconds := []uint32{0, uint32(time.Now().Unix()), 1<<32 - 1}
	byTime := make(map[uint32]backend.Key)
	for key, value := range cache.snapshot() {
		second := seconds[len(byTime)]
		byTime[second] = key
		cache.entries[key] = redate(value, second)
	}
	one := bytesOf(cache.snapshot()) / 3
	for i, opts := range []*embed.PruneOptions{{OlderThan: day}, {MaxBytes: one}} {
		report, err := embed.Prune(t.Context(), cache, opts)
		require.NoError(t, err)
		require.Equal(t, 1, report.Removed)
		require.NotContains(t, cache.snapshot(), byTime[seconds[i]])
	}
	require.Contains(t, cache.snapshot(), byTime[seconds[2]])
}

// TestPruneLeavesWhatIsNotItsOwn: foreign entries and later versions' stay,
// however old they look, and take no part in MaxBytes.
func TestPruneLeavesWhatIsNotItsOwn(t *testing.T) {
	cache, _ := filled(t, len(foreignEntries)+1)
	want := make(map[backend.Key][]byte)
	wantForeign, wantFuture := 0, 0
	i := 0
	for key, good := range cache.snapshot() {
		good = redate(good, 1)
		cache.entries[key] = good
		if i == len(foreignEntries) {
			break
		}
		other := bytes.Clone(good)
		other[24] ^= 1
		record.Seal(other)
		planted := foreignEntries[i].make(good, other)
		i++
		// By its header alone a record may look whole.
		if _, reason := record.Glance(planted, len(planted)); reason == record.Valid {
			delete(cache.entries, key)
			continue
		}
		if len(planted) > 4 && planted[0] == '1' && planted[4] > 1 {
			wantFuture++
		} else {
			wantForeign++
		}
		cache.entries[key] = planted
		want[key] = planted
	}
	for _, opts := range []*embed.PruneOptions{{MaxBytes: 1 << 20}, {OlderThan: day, MaxBytes: 1}} {
		report, err := embed.Prune(t.Context(), cache, opts)
		require.NoError(t, err)
		require.Equal(t, wantForeign, report.Foreign)
		require.Equal(t, wantFuture, report.Future)
		require.Equal(t, 1, report.Records)
		require.Equal(t, opts.OlderThan > 0, report.Removed == 1)
	}
	require.Equal(t, want, cache.snapshot())
	require.Greater(t, wantForeign, 10)
	require.Greater(t, wantFuture, 2)
}

// TestPruneLeavesWhatWasRewritten: what was written between the scan and the
// removal stays, whether or not another one has to go in its place.
func TestPruneLeavesWhatWasRewritten(t *testing.T) {
	now := uint32(time.Now().Unix())
	for _, opts := range []*embed.PruneOptions{{OlderThan: day}, {MaxBytes: 1}, {OlderThan: day, MaxBytes: 1}} {
		cache, _ := filled(t, 20)
		for key, value := range cache.snapshot() {
			cache.entries[key] = redate(value, 1000)
		}
		rewritten := make(map[backend.Key][]byte)
		cache.onDelete = func(int) error {
			for key, value := range cache.snapshot() { // one that is still old
				if createdAt(value) == 1000 {
					rewritten[key] = redate(value, now)
					return cache.SetMany(t.Context(), []backend.Item{{Key: key, Value: rewritten[key]}})
				}
			}
			return nil
		}
		report, err := embed.Prune(t.Context(), cache, opts)
		require.NoError(t, err)
		left := cache.snapshot()
		for key, value := range rewritten {
			require.Equal(t, value, left[key])
		}
		require.Equal(t, 20, report.Removed+len(left))
	}
}

// TestPruneFindsAnotherInItsPlace: what was rewritten still takes room, so another
// one of its age goes.
func TestPruneFindsAnotherInItsPlace(t *testing.T) {
	cache, _ := filled(t, 20)
	for key, value := range cache.snapshot() {
		cache.entries[key] = redate(value, 1000)
	}
	half := bytesOf(cache.snapshot()) / 2
	rewritten := false
	cache.onDelete = func(int) error {
		if rewritten {
			return nil
		}
		rewritten = true
		keys := slices.SortedFunc(maps.Keys(cache.snapshot()), func(a, b backend.Key) int { return bytes.Compare(a[:], b[:]) })
		for _, key := range keys[:3] { // of the first part
			cache.entries[key] = redate(cache.entries[key], 2000)
		}
		return nil
	}
	report, err := embed.Prune(t.Context(), cache, &embed.PruneOptions{MaxBytes: half})
	require.NoError(t, err)
	require.Equal(t, 10, report.Removed)
	require.Equal(t, half, bytesOf(cache.snapshot()))
}

// TestPruneProperty compares what Prune does with what its options say, for any
// sizes and times.
func TestPruneProperty(t *testing.T) {
	r := random(t)
	for range 200 {
		// In a bubble the clock stands still between two calls.
		synctest.Test(t, func(t *testing.T) { pruneOnce(t, r) })
	}
}

func pruneOnce(t *testing.T, r *rand.Rand) {
	now := time.Now().Unix()
	cache := newScanCache()
	cache.part = 1 + r.IntN(20)
	spans := []int64{1, 5, 100, 100_000_000}
	span := spans[r.IntN(len(spans))]
	foreign := 0
	for i := range r.IntN(60) {
		key := backend.Key{byte(r.Uint32()), byte(i)}
		if r.IntN(8) == 0 {
			cache.entries[key] = []byte("another program's")
			foreign++
			continue
		}
		created := now - 1000 - r.Int64N(span)
		cache.entries[key] = record.Append(nil, make([]float32, 1+r.IntN(9)), &record.Origin{Created: time.Unix(created, 0)})
	}
	all := cache.snapshot()
	records := maps.Clone(all)
	maps.DeleteFunc(records, func(_ backend.Key, value []byte) bool { return len(value) < record.HeaderSize })
	total := bytesOf(records)

	var opts embed.PruneOptions
	if r.IntN(2) == 0 {
		opts.OlderThan = time.Duration(1000+r.Int64N(span)) * time.Second
	}
	if opts.OlderThan == 0 || r.IntN(2) == 0 {
		opts.MaxBytes = 1 + r.Int64N(total+100)
	}
	dry := opts
	dry.DryRun = true
	var told embed.PruneReport
	dry.Progress = func(report embed.PruneReport) { told = report }
	planned, err := embed.Prune(t.Context(), cache, &dry)
	require.NoError(t, err)
	require.Equal(t, all, cache.snapshot(), "a dry run removed something")
	require.Equal(t, *planned, told)

	report, err := embed.Prune(t.Context(), cache, &opts)
	require.NoError(t, err)
	require.Equal(t, planned, report)
	kept := cache.snapshot()
	gone := maps.Clone(all)
	maps.DeleteFunc(gone, func(key backend.Key, _ []byte) bool { _, stays := kept[key]; return stays })
	about := fmt.Sprintf("%+v of %d records, %d bytes: %+v", opts, len(records), total, *report)
	require.Equal(t, len(all), len(kept)+len(gone), about)
	require.Equal(t, embed.PruneReport{Records: len(records), Bytes: total, Foreign: foreign,
		Removed: len(gone), RemovedBytes: bytesOf(gone)}, *report, about)
	for key, value := range all {
		if _, removed := gone[key]; removed {
			require.Contains(t, records, key, about)
		} else {
			require.Equal(t, value, kept[key], about)
		}
	}

	keptBytes := total - bytesOf(gone)
	cutoff := now - int64(opts.OlderThan/time.Second)
	newestGone, largest := uint32(0), int64(0) // of those that only their size removed
	for _, value := range gone {
		created := createdAt(value)
		if opts.OlderThan > 0 && int64(created) < cutoff {
			continue
		}
		if created > newestGone {
			newestGone, largest = created, 0
		}
		if created == newestGone {
			largest = max(largest, int64(32+len(value)))
		}
	}
	for key, value := range kept {
		if _, ours := records[key]; !ours {
			continue
		}
		require.GreaterOrEqual(t, createdAt(value), newestGone, "an older one stayed: "+about)
		if opts.OlderThan > 0 {
			require.GreaterOrEqual(t, int64(createdAt(value)), cutoff, about)
		}
	}
	if opts.MaxBytes > 0 {
		require.LessOrEqual(t, keptBytes, opts.MaxBytes, about)
	}
	if largest > 0 {
		require.Greater(t, keptBytes+largest, opts.MaxBytes, "more went than had to: "+about)
	}
}

// manyRecords is a cache of n records that exist only while they are scanned: one
// was created in each second.
type manyRecords struct {
	backend.Cache
	n int
}

func (m manyRecords) Scan(_ context.Context, from backend.Position, _ int, visit func(e backend.Entry) error) (backend.Position, error) {
	const part = 1000
	start := 0
	if from != "" {
		if _, err := fmt.Sscan(string(from), &start); err != nil {
			return from, err
		}
	}
	value := record.Append(nil, make([]float32, 256), &record.Origin{})
	for i := start; i < min(start+part, m.n); i++ {
		e := backend.Entry{Key: backend.Key{byte(i), byte(i >> 8), byte(i >> 16)}, Value: redateInPlace(value, uint32(i)), Size: len(value)}
		if err := visit(e); err != nil {
			return from, err
		}
	}
	if start+part >= m.n {
		return "", nil
	}
	return backend.Position(fmt.Sprint(start + part)), nil
}

func redateInPlace(value []byte, second uint32) []byte {
	value[12], value[13], value[14], value[15] = byte(second), byte(second>>8), byte(second>>16), byte(second>>24)
	return value[:record.HeaderSize]
}

// TestPruneOfManyTimes: with more times of creation than are told apart, what has
// to go is still exact in bytes.
func TestPruneOfManyTimes(t *testing.T) {
	const n = 70_000 // more than are told apart
	for _, goes := range []int{1, 55_555} {
		size := int64(32 + record.Size(256))
		report, err := embed.Prune(t.Context(), manyRecords{n: n}, &embed.PruneOptions{MaxBytes: int64(n-goes) * size, DryRun: true})
		require.NoError(t, err)
		require.Equal(t, embed.PruneReport{Records: n, Bytes: n * size, Removed: goes, RemovedBytes: int64(goes) * size}, *report)
	}
}

func BenchmarkPruneBySize(b *testing.B) {
	const n = 1_000_000
	b.ReportAllocs()
	for b.Loop() {
		report, err := embed.Prune(b.Context(), manyRecords{n: n}, &embed.PruneOptions{MaxBytes: n / 2 * int64(32+record.Size(256)), DryRun: true})
		if err != nil || report.Removed != n/2 {
			b.Fatal(report, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
}

// TestPruneOfASharedStore: whoever wrote the records, and under whatever settings,
// they are pruned alike.
func TestPruneOfASharedStore(t *testing.T) {
	cache, _ := filled(t, 5)
	other := newClient(t, embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) { s.Model = "another" }}), &embed.Options{Cache: cache})
	_, err := other.Embed(t.Context(), numbered(5))
	require.NoError(t, err)
	report, err := embed.Prune(t.Context(), cache, &embed.PruneOptions{MaxBytes: 1})
	require.NoError(t, err)
	require.Equal(t, 10, report.Removed)
	require.Zero(t, cache.len())
}
