package embed_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/embedonce/embedonce/internal/record"
	"github.com/stretchr/testify/require"
)

// keysOf returns the key of each text for a client of provider with opts.
func keysOf(t *testing.T, provider embed.Provider, opts embed.Options, texts []string) []backend.Key {
	cache := newTestCache()
	opts.Cache = cache
	client := newClient(t, provider, &opts)
	var keys []backend.Key
	for _, text := range texts {
		before := cache.snapshot()
		_, err := client.Embed(t.Context(), []string{text})
		require.NoError(t, err)
		for key := range cache.snapshot() {
			if _, old := before[key]; !old {
				keys = append(keys, key)
			}
		}
	}
	require.Len(t, keys, len(texts))
	return keys
}

// foreignEntries are the ways in which an entry can be somebody else's, each by
// the reason it is counted under. good is the right record, other that of
// another text.
var foreignEntries = []struct {
	name, reason string
	make         func(good, other []byte) []byte
}{
	{"nil", "unreadable", func(good, other []byte) []byte { return nil }},
	{"empty", "unreadable", func(good, other []byte) []byte { return []byte{} }},
	{"one byte", "unreadable", func(good, other []byte) []byte { return good[:1] }},
	{"cut in the header", "unreadable", func(good, other []byte) []byte { return good[:63] }},
	{"JSON", "magic", func(good, other []byte) []byte {
		return append([]byte(`{"vector":[`), bytes.Repeat([]byte("0.25,"), 64)...)
	}},
	{"bare floats", "magic", func(good, other []byte) []byte { return good[record.HeaderSize:] }},
	{"version 0", "version", edit(func(b []byte) { b[4] = 0 }, true)},
	{"higher version, not whole", "version", edit(func(b []byte) { b[4] = 2 }, false)},
	{"future", "future", edit(func(b []byte) { b[4] = 2 }, true)},
	{"future and longer", "future", func(good, other []byte) []byte {
		return edit(func(b []byte) { b[4] = 255 }, true)(append(bytes.Clone(good), "more"...), other)
	}},
	{"other element type", "element", edit(func(b []byte) { b[5] = 2 }, true)},
	{"other dimensions", "dimensions", func(good, other []byte) []byte {
		half := bytes.Clone(good[:record.Size(32)])
		return edit(func(b []byte) { b[8] = 32 }, true)(half, nil)
	}},
	{"no dimensions", "dimensions", edit(func(b []byte) { b[8] = 0 }, true)},
	{"dimensions beyond memory", "dimensions", edit(func(b []byte) { copy(b[8:], "\xff\xff\xff\xff") }, true)},
	{"torn", "length", func(good, other []byte) []byte { return good[:len(good)-1] }},
	{"header alone", "length", func(good, other []byte) []byte { return good[:record.HeaderSize] }},
	{"longer", "length", func(good, other []byte) []byte { return append(bytes.Clone(good), 0) }},
	{"bit flipped in the vector", "checksum", edit(func(b []byte) { b[len(b)-1] ^= 1 }, false)},
	{"bit flipped in the digest", "checksum", edit(func(b []byte) { b[24] ^= 1 }, false)},
	{"zeros after the header", "checksum", edit(func(b []byte) { clear(b[record.HeaderSize:]) }, false)},
	{"another text's record", "digest", func(good, other []byte) []byte { return other }},
	{"another scope's record", "scope", edit(func(b []byte) { b[56] ^= 1 }, true)},
	{"NaN", "not finite", edit(func(b []byte) {
		binary.LittleEndian.PutUint32(b[len(b)-4:], math.Float32bits(float32(math.NaN())))
	}, true)},
	{"-Inf", "not finite", edit(func(b []byte) {
		binary.LittleEndian.PutUint32(b[record.HeaderSize:], math.Float32bits(float32(math.Inf(-1))))
	}, true)},
}

// edit returns a function that changes a copy of the record, and seals it.
func edit(change func(b []byte), seal bool) func(good, other []byte) []byte {
	return func(good, _ []byte) []byte {
		b := bytes.Clone(good)
		change(b)
		if seal {
			record.Seal(b)
		}
		return b
	}
}

// TestForeignEntries plants each kind of foreign entry among good ones.
func TestForeignEntries(t *testing.T) {
	texts := numbered(5)
	keys := keysOf(t, embedtest.NewProvider(nil), embed.Options{}, texts)
	for _, test := range foreignEntries {
		t.Run(test.name, func(t *testing.T) {
			provider := embedtest.NewProvider(nil)
			cache := newTestCache()
			client := newClient(t, provider, &embed.Options{Cache: cache})
			_, err := client.Embed(t.Context(), texts)
			require.NoError(t, err)
			good := cache.snapshot()
			planted := test.make(bytes.Clone(good[keys[2]]), bytes.Clone(good[keys[3]]))
			cache.entries[keys[2]] = planted

			// A client that doesn't know the dimensions yet finds the same.
			fresh := newClient(t, provider, &embed.Options{Cache: cache})
			plan, err := fresh.Plan(t.Context(), texts)
			require.NoError(t, err)
			require.Equal(t, 1, plan.Misses)
			require.Equal(t, 4, plan.Hits)

			doubled := append(append([]string(nil), texts...), texts[2])
			response, err := client.Embed(t.Context(), doubled)
			requireVectors(t, doubled, response, err)
			require.Equal(t, map[string]int{test.reason: 1}, response.Usage.Foreign)
			require.Equal(t, map[string]int{test.reason: 1}, client.Usage().Foreign)
			require.Equal(t, 4, response.Usage.Hits)
			require.Equal(t, 1, response.Usage.Misses)
			require.Equal(t, 1, response.Usage.Deduplicated)
			require.NoError(t, response.CacheErr)
			require.Equal(t, []string{texts[2]}, provider.History()[1].Texts)
			requireSum(t, response.Usage)

			response, err = client.Embed(t.Context(), texts)
			requireVectors(t, texts, response, err)
			if test.reason == "future" {
				require.Equal(t, planted, cache.snapshot()[keys[2]], "a later version's record was overwritten")
				require.Equal(t, 4, response.Usage.Hits)
				return
			}
			require.Equal(t, 5, response.Usage.Hits, "the entry was not healed")
			require.Empty(t, response.Usage.Foreign)
		})
	}
}

// TestForeignEntriesInStream: the same entries all at once, through a stream.
func TestForeignEntriesInStream(t *testing.T) {
	texts := numbered(len(foreignEntries) + 1)
	keys := keysOf(t, embedtest.NewProvider(nil), embed.Options{}, texts)
	provider := embedtest.NewProvider(nil)
	cache := newTestCache()
	client := newClient(t, provider, &embed.Options{Cache: cache})
	_, err := client.Embed(t.Context(), texts)
	require.NoError(t, err)
	good := cache.snapshot()
	want := make(map[string]int)
	for i, test := range foreignEntries {
		cache.entries[keys[i]] = test.make(bytes.Clone(good[keys[i]]), bytes.Clone(good[keys[i+1]]))
		want[test.reason]++
	}
	stream := client.Stream(t.Context(), pairs(texts), nil)
	requireStreamed(t, stream, texts)
	require.Equal(t, want, stream.Usage().Foreign)
	require.Equal(t, 1, stream.Usage().Hits)
}

// TestForeignThenValid: a cache that holds several values under a key is asked
// for the next one.
func TestForeignThenValid(t *testing.T) {
	for _, first := range foreignEntries {
		provider := embedtest.NewProvider(nil)
		cache := newTestCache()
		client := newClient(t, provider, &embed.Options{Cache: cache})
		_, err := client.Embed(t.Context(), []string{"a"})
		require.NoError(t, err)
		cache.more = make(map[backend.Key][]byte)
		for key, good := range cache.entries {
			cache.more[key] = good
			other := bytes.Clone(good)
			other[24] ^= 1
			record.Seal(other)
			cache.entries[key] = first.make(bytes.Clone(good), other)
		}
		response, err := client.Embed(t.Context(), []string{"a"})
		requireVectors(t, []string{"a"}, response, err)
		require.Equal(t, 1, response.Usage.Hits, first.name)
		require.Empty(t, response.Usage.Foreign, first.name)
	}
}

// TestForeignCandidatesKeepFuture: of several foreign values one is a later
// version's, which stays whatever its place.
func TestForeignCandidatesKeepFuture(t *testing.T) {
	for _, futureFirst := range []bool{true, false} {
		cache := newTestCache()
		client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
		_, err := client.Embed(t.Context(), []string{"a"})
		require.NoError(t, err)
		cache.more = make(map[backend.Key][]byte)
		for key, good := range cache.entries {
			future := edit(func(b []byte) { b[4] = 9 }, true)(good, nil)
			cache.entries[key], cache.more[key] = future, []byte("torn")
			if !futureFirst {
				cache.entries[key], cache.more[key] = []byte("torn"), future
			}
		}
		before := len(cache.writes())
		response, err := client.Embed(t.Context(), []string{"a"})
		requireVectors(t, []string{"a"}, response, err)
		require.Equal(t, map[string]int{"future": 1}, response.Usage.Foreign)
		require.Len(t, cache.writes(), before, "a later version's record was overwritten")
	}
}

// TestDimensionsFromCache: a client that is told no dimensions takes them from
// the first valid record, and never mixes.
func TestDimensionsFromCache(t *testing.T) {
	unknown := func(s *embed.Spec) { s.ModelDimensions = 0 }
	cache := newTestCache()
	texts := numbered(6)
	for _, part := range []struct{ dimensions, from, to int }{{64, 0, 2}, {48, 2, 4}} {
		provider := embedtest.NewProvider(&embedtest.Options{Dimensions: part.dimensions, EditSpec: unknown})
		_, err := newClient(t, provider, &embed.Options{Cache: cache}).Embed(t.Context(), texts[part.from:part.to])
		require.NoError(t, err)
	}
	provider := embedtest.NewProvider(&embedtest.Options{Dimensions: 64, EditSpec: unknown})
	client := newClient(t, provider, &embed.Options{Cache: cache})
	response, err := client.Embed(t.Context(), texts)
	requireVectors(t, texts, response, err)
	require.Equal(t, 64, response.Dimensions())
	require.Equal(t, map[string]int{"dimensions": 2}, response.Usage.Foreign)
	require.Equal(t, 2, response.Usage.Hits)
}
