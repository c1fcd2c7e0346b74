package embed_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/embedonce/embedonce/internal/record"
	"github.com/stretchr/testify/require"
)

func TestVerifyRefusesWrongOptions(t *testing.T) {
	cache, client := filled(t, 1)
	report, err := embed.Verify(t.Context(), cache, &embed.VerifyOptions{Clients: []*embed.Client{client, nil}})
	require.ErrorContains(t, err, "Clients[1] is nil")
	require.Nil(t, report)
	_, err = embed.Verify(t.Context(), nil, &embed.VerifyOptions{Clients: []*embed.Client{nil}})
	require.ErrorContains(t, err, "cache is nil")
	require.ErrorContains(t, err, "Clients[0] is nil")
	require.Zero(t, cache.parts)
}

// TestVerifyEveryForeignEntry plants each kind of foreign entry among good ones:
// Verify names the reason that a lookup would count it under, and drops it alone.
func TestVerifyEveryForeignEntry(t *testing.T) {
	texts := numbered(5)
	keys := keysOf(t, embedtest.NewProvider(nil), embed.Options{}, texts)
	for _, test := range foreignEntries {
		cache, client := filled(t, len(texts))
		good := cache.snapshot()
		planted := test.make(bytes.Clone(good[keys[2]]), bytes.Clone(good[keys[3]]))
		cache.entries[keys[2]] = planted
		before := cache.snapshot()
		for _, drop := range []bool{false, true} {
			report, err := embed.Verify(t.Context(), cache, &embed.VerifyOptions{Clients: []*embed.Client{client}, Drop: drop})
			require.NoError(t, err, test.name)
			want := embed.VerifyReport{Entries: 5, Valid: 4, Bytes: bytesOf(before)}
			switch {
			case test.reason == "future":
				want.Future = 1
			case test.name == "other dimensions":
				want.Valid = 5 // whole: a lookup decides
			default:
				want.Bad = map[string]int{test.reason: 1}
				if drop {
					want.Dropped = 1
				}
			}
			require.Equal(t, want, *report, test.name)
			if want.Dropped > 0 {
				delete(before, keys[2])
			}
			require.Equal(t, before, cache.snapshot(), test.name)
		}
	}
}

// TestVerifyKnowsItsClients: records of other models and settings are unknown,
// and good; those that lie under a key that one of the Clients could ask for, or
// that say they are one of the Clients', are checked.
func TestVerifyKnowsItsClients(t *testing.T) {
	cache := newScanCache()
	clientOf := func(model string, limit int, opts embed.Options) *embed.Client {
		opts.Cache = cache
		client := newClient(t, embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) {
			s.Model, s.Limits.TextTokens = model, limit
		}}), &opts)
		_, err := client.Embed(t.Context(), []string{"short", ofTokens("long", 90), "text " + model})
		require.NoError(t, err)
		return client
	}
	a, b := clientOf("a", 100, embed.Options{}), clientOf("b", 100, embed.Options{Secret: []byte("s")})
	require.NoError(t, b.Close())
	longer := clientOf("a", 300, embed.Options{}) // a's plain scope, its own long one
	require.Equal(t, 6+1, cache.len(), "the long text of the longer limit")

	for _, test := range []struct {
		clients []*embed.Client
		valid   int
	}{
		{nil, 0}, {[]*embed.Client{a}, 3}, {[]*embed.Client{b}, 3}, {[]*embed.Client{longer}, 3},
		{[]*embed.Client{a, longer}, 4}, {[]*embed.Client{a, b, longer, a}, 7},
	} {
		report, err := embed.Verify(t.Context(), cache, &embed.VerifyOptions{Clients: test.clients, Drop: true})
		require.NoError(t, err)
		require.Equal(t, embed.VerifyReport{Entries: 7, Bytes: bytesOf(cache.snapshot()), Valid: test.valid, Unknown: 7 - test.valid}, *report)
	}

	// Any record in the place of any other.
	all := cache.snapshot()
	scopeOf := func(key backend.Key) string { return string(all[key][56:64]) }
	digestOf := func(key backend.Key) string { return string(all[key][24:56]) }
	wrong := make(map[string]int)
	for _, clients := range [][]*embed.Client{nil, {a}, {b}, {longer}, {a, b, longer}} {
		known := scopesOf(t, clients, all)
		for one := range all {
			for two := range all {
				if one == two {
					continue
				}
				cache.entries = maps.Clone(all)
				cache.entries[one] = all[two]
				report, err := embed.Verify(t.Context(), cache, &embed.VerifyOptions{Clients: clients})
				require.NoError(t, err)
				switch {
				case digestOf(one) == digestOf(two) && known[scopeOf(one)]:
					require.Equal(t, map[string]int{"scope": 1}, report.Bad)
					wrong["scope"]++
				case known[scopeOf(two)]:
					require.Equal(t, map[string]int{"digest": 1}, report.Bad)
					wrong["digest"]++
				default:
					require.Empty(t, report.Bad, "of a model that isn't known nothing can be told")
					wrong[""]++
				}
			}
		}
	}
	require.Len(t, wrong, 3)
}

// scopesOf returns the scopes of the records in all that are valid to the clients.
func scopesOf(t *testing.T, clients []*embed.Client, all map[backend.Key][]byte) map[string]bool {
	scopes := make(map[string]bool)
	for key, value := range all {
		cache := newScanCache()
		cache.entries[key] = value
		report, err := embed.Verify(t.Context(), cache, &embed.VerifyOptions{Clients: clients})
		require.NoError(t, err)
		if report.Valid == 1 {
			scopes[string(value[56:64])] = true
		}
	}
	return scopes
}

// TestVerifyAgreesWithLookups: a random store is good to Verify where it is a hit
// to the client, entry by entry, and what Drop left is hits and later versions.
func TestVerifyAgreesWithLookups(t *testing.T) {
	r := random(t)
	texts := numbered(30)
	for range 20 {
		cache, client := filled(t, len(texts))
		cache.part = 1 + r.IntN(40)
		good := cache.snapshot()
		keys := slices.Collect(maps.Keys(good))
		want := make(map[string]int)
		for i, key := range keys[1:] {
			kind := foreignEntries[r.IntN(len(foreignEntries))]
			if r.IntN(2) == 0 || kind.name == "other dimensions" {
				continue
			}
			cache.entries[key] = kind.make(bytes.Clone(good[key]), bytes.Clone(good[keys[i]]))
		}
		response, err := client.Do(t.Context(), &embed.Call{Texts: texts, CacheOnly: true})
		if err != nil {
			require.ErrorIs(t, err, embed.ErrNotCached)
		}
		maps.Copy(want, response.Usage.Foreign)

		var told embed.VerifyReport
		report, err := embed.Verify(t.Context(), cache, &embed.VerifyOptions{Clients: []*embed.Client{client}, Drop: true,
			Progress: func(report embed.VerifyReport) { told = report }})
		require.NoError(t, err)
		require.Equal(t, *report, told)
		require.Equal(t, response.Usage.Hits, report.Valid)
		require.Zero(t, report.Unknown)
		require.Equal(t, want["future"], report.Future)
		delete(want, "future")
		if len(want) == 0 {
			want = nil
		}
		require.Equal(t, want, report.Bad)
		require.Equal(t, report.Entries-report.Valid-report.Future, report.Dropped)
		require.Equal(t, report.Dropped, cache.asked)
		require.Equal(t, report.Valid+report.Future, cache.len())
		again, err := client.Do(t.Context(), &embed.Call{Texts: texts, CacheOnly: true})
		require.Equal(t, report.Valid, again.Usage.Hits, "%v", err)
	}
}

// TestVerifyRechecksWhatItDrops: an entry that became good, or a later version's,
// between the scan and the removal stays; one that became bad in another way goes.
func TestVerifyRechecksWhatItDrops(t *testing.T) {
	for _, test := range []struct {
		name    string
		become  func(good []byte) []byte
		dropped int
	}{
		{"good", func(good []byte) []byte { return good }, 0},
		{"future", edit2(func(b []byte) { b[4] = 9 }), 0},
		{"other", func(good []byte) []byte { return good[:70] }, 1},
		{"nothing", nil, 0},
	} {
		cache, client := filled(t, 1)
		var key backend.Key
		var good []byte
		for key, good = range cache.snapshot() {
			cache.entries[key] = []byte("torn")
		}
		cache.onDelete = func(int) error {
			if test.become == nil {
				delete(cache.entries, key)
				return nil
			}
			cache.entries[key] = test.become(good)
			return nil
		}
		report, err := embed.Verify(t.Context(), cache, &embed.VerifyOptions{Drop: true, Clients: []*embed.Client{client}})
		require.NoError(t, err)
		require.Equal(t, map[string]int{"unreadable": 1}, report.Bad)
		require.Equal(t, test.dropped, report.Dropped, test.name)
		if test.become != nil {
			require.Equal(t, 1-test.dropped, cache.len(), test.name)
		}
	}
}

func edit2(change func(b []byte)) func(good []byte) []byte {
	return func(good []byte) []byte { return edit(change, true)(good, nil) }
}

// TestVerifyReportsAreTheCallers: what Progress was told doesn't change afterwards.
func TestVerifyReportsAreTheCallers(t *testing.T) {
	cache := newScanCache()
	for i := range 20 {
		cache.entries[backend.Key{byte(i)}] = []byte("torn")
	}
	var told []embed.VerifyReport
	_, err := embed.Verify(t.Context(), cache, &embed.VerifyOptions{Progress: func(report embed.VerifyReport) { told = append(told, report) }})
	require.NoError(t, err)
	require.Len(t, told, 3)
	for i, entries := range []int{7, 14, 20} {
		require.Equal(t, entries, told[i].Entries)
		require.Equal(t, map[string]int{"unreadable": entries}, told[i].Bad)
	}
}

// FuzzVerify: any bytes are counted once, and never dropped when a lookup would
// take them.
func FuzzVerify(f *testing.F) {
	cache := newScanCache()
	client, err := embed.New(embedtest.NewProvider(nil), &embed.Options{Cache: cache})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, client.Close()) })
	_, err = client.Embed(f.Context(), []string{"a"})
	require.NoError(f, err)
	for _, good := range cache.snapshot() {
		for _, kind := range foreignEntries {
			f.Add(kind.make(bytes.Clone(good), bytes.Clone(good)), false)
		}
		f.Add(good, true)
	}
	f.Fuzz(func(t *testing.T, value []byte, seal bool) {
		if seal && len(value) >= record.HeaderSize {
			value = bytes.Clone(value)
			record.Seal(value)
		}
		for key := range cache.snapshot() {
			fuzzed := newScanCache()
			fuzzed.entries[key] = value
			asking := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: fuzzed})
			plan, err := asking.Plan(t.Context(), []string{"a"})
			require.NoError(t, err)
			report, err := embed.Verify(t.Context(), fuzzed, &embed.VerifyOptions{Drop: true, Clients: []*embed.Client{client}})
			require.NoError(t, err)
			if plan.Hits == 1 {
				require.Equal(t, 1, report.Valid)
				require.Zero(t, report.Dropped)
			}
			require.Equal(t, 1, report.Valid+report.Future+report.Dropped)
		}
	})
}
