package embed_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/embedonce/embedonce/internal/record"
	"github.com/stretchr/testify/require"
)

// scanCache is a testCache that can be scanned, a few entries at a time in the
// order of keys, and removed from.
type scanCache struct {
	*testCache
	part int // entries in a part of a scan
	// Called before each part, and before each Delete with keys, without the lock.
	onPart, onDelete func(n int) error
	parts, deletes   int // how many there were
	asked            int // keys of all Deletes
}

func newScanCache() *scanCache {
	return &scanCache{testCache: newTestCache(), part: 7}
}

func (c *scanCache) Scan(ctx context.Context, from backend.Position, head int, visit func(e backend.Entry) error) (backend.Position, error) {
	if err := ctx.Err(); err != nil {
		return from, err
	}
	after, err := hex.DecodeString(string(from))
	if err != nil || from != "" && len(after) != len(backend.Key{}) {
		return from, errors.New("a position of another store")
	}
	c.parts++
	if c.onPart != nil {
		if err := c.onPart(c.parts - 1); err != nil {
			return from, err
		}
	}
	entries := c.snapshot()
	keys := slices.SortedFunc(maps.Keys(entries), func(a, b backend.Key) int { return bytes.Compare(a[:], b[:]) })
	seen, last := 0, backend.Key{}
	for _, key := range keys {
		if from != "" && bytes.Compare(key[:], after) <= 0 {
			continue
		}
		if seen == c.part {
			return backend.Position(hex.EncodeToString(last[:])), nil
		}
		seen++
		last = key
		e := backend.Entry{Key: key, Size: -1}
		if value := entries[key]; value != nil {
			e.Size = len(value)
			e.Value = bytes.Clone(value[:min(head, len(value))])
		}
		err := visit(e)
		for i := range e.Value {
			e.Value[i] = 0xff
		}
		if err != nil {
			return from, fmt.Errorf("visit: %w", err)
		}
	}
	return "", nil
}

func (c *scanCache) Delete(ctx context.Context, keys []backend.Key, match func(i int, value []byte) bool) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if len(keys) > 0 {
		c.deletes++
		c.asked += len(keys)
		if c.onDelete != nil {
			if err := c.onDelete(c.deletes - 1); err != nil {
				return 0, err
			}
		}
	}
	removed := 0
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, key := range keys {
		value, stored := c.entries[key]
		if !stored {
			continue
		}
		if match != nil {
			lent := bytes.Clone(value)
			same := match(i, lent)
			for at := range lent {
				lent[at] = 0xff
			}
			if !same {
				continue
			}
		}
		delete(c.entries, key)
		removed++
	}
	return removed, nil
}

// filled returns a cache with the records of n texts, and the client that stored
// them.
func filled(t testing.TB, n int) (*scanCache, *embed.Client) {
	t.Helper()
	cache := newScanCache()
	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: cache})
	_, err := client.Embed(t.Context(), numbered(n))
	require.NoError(t, err)
	require.Equal(t, n, cache.len())
	return cache, client
}

// redate gives a whole record another second of creation.
func redate(value []byte, second uint32) []byte {
	dated := bytes.Clone(value)
	binary.LittleEndian.PutUint32(dated[12:], second)
	record.Seal(dated)
	return dated
}

// createdAt returns the second of a record's creation.
func createdAt(value []byte) uint32 { return binary.LittleEndian.Uint32(value[12:]) }

// bytesOf returns the bytes of keys and values.
func bytesOf(entries map[backend.Key][]byte) int64 {
	total := int64(0)
	for key, value := range entries {
		total += int64(len(key) + len(value))
	}
	return total
}

// unscannable is a cache that can neither be scanned nor removed from.
func unscannable() backend.Cache { return newTestCache() }

// undeletable is a cache that can only be scanned.
type undeletable struct {
	backend.Cache
	backend.Scanner
}

const day = 24 * time.Hour

// TestMaintenanceUnsupported: what a cache can't do is said before it is scanned.
func TestMaintenanceUnsupported(t *testing.T) {
	ctx := t.Context()
	_, err := embed.Prune(ctx, unscannable(), &embed.PruneOptions{OlderThan: day})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorIs(t, err, backend.ErrUnsupported)
	_, err = embed.Verify(ctx, unscannable(), nil)
	require.ErrorIs(t, err, backend.ErrUnsupported)

	cache, _ := filled(t, 3)
	half := undeletable{cache.testCache, cache}
	_, err = embed.Prune(ctx, half, &embed.PruneOptions{MaxBytes: 1})
	require.ErrorIs(t, err, backend.ErrUnsupported)
	_, err = embed.Verify(ctx, half, &embed.VerifyOptions{Drop: true})
	require.ErrorIs(t, err, backend.ErrUnsupported)
	require.Zero(t, cache.parts)

	pruned, err := embed.Prune(ctx, half, &embed.PruneOptions{MaxBytes: 1, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, 3, pruned.Removed)
	verified, err := embed.Verify(ctx, half, nil)
	require.NoError(t, err)
	require.Equal(t, 3, verified.Unknown)

	client := newClient(t, embedtest.NewProvider(nil), &embed.Options{Cache: unscannable()})
	_, err = client.Forget(ctx, []string{"a"})
	require.ErrorIs(t, err, backend.ErrUnsupported)
}

// TestMaintenanceContexts: a context that has ended, or ends during a scan, ends
// the call with its error.
func TestMaintenanceContexts(t *testing.T) {
	for _, endsBefore := range []int{0, 1, 2} {
		cache, client := filled(t, 30)
		calls := map[string]func(ctx context.Context) error{
			"Prune by age": func(ctx context.Context) error {
				_, err := embed.Prune(ctx, cache, &embed.PruneOptions{OlderThan: day})
				return err
			},
			"Prune by size": func(ctx context.Context) error {
				_, err := embed.Prune(ctx, cache, &embed.PruneOptions{MaxBytes: 1 << 40})
				return err
			},
			"Verify": func(ctx context.Context) error {
				_, err := embed.Verify(ctx, cache, &embed.VerifyOptions{Drop: true, Clients: []*embed.Client{client}})
				return err
			},
		}
		for name, call := range calls {
			ctx, cancel := context.WithCancel(t.Context())
			cache.parts = 0
			cache.onPart = func(n int) error {
				if n == endsBefore {
					cancel()
				}
				return ctx.Err()
			}
			require.ErrorIs(t, call(ctx), context.Canceled, name)
			require.Equal(t, endsBefore+1, cache.parts, name)
			require.ErrorIs(t, call(ctx), context.Canceled, name)
			require.Equal(t, 30, cache.len(), name)
		}
	}
}

// TestMaintenanceErrorsAreWrapped: the store's error is kept, and the report
// says what was done before it.
func TestMaintenanceErrorsAreWrapped(t *testing.T) {
	cache, _ := filled(t, 30)
	for key, value := range cache.snapshot() {
		cache.entries[key] = redate(value, 1000)
	}
	cache.onDelete = func(n int) error {
		if n == 2 {
			return errDisk
		}
		return nil
	}
	pruned, err := embed.Prune(t.Context(), cache, &embed.PruneOptions{OlderThan: day})
	require.ErrorIs(t, err, errDisk)
	require.Equal(t, 14, pruned.Removed)
	require.Equal(t, 21, pruned.Records)
	require.Equal(t, 16, cache.len())
	require.Equal(t, pruned.Bytes*2/3, pruned.RemovedBytes)

	for key := range cache.snapshot() {
		cache.entries[key] = []byte("torn")
	}
	cache.deletes = 0
	verified, err := embed.Verify(t.Context(), cache, &embed.VerifyOptions{Drop: true})
	require.ErrorIs(t, err, errDisk)
	require.Equal(t, 14, verified.Dropped)
	require.Equal(t, map[string]int{"unreadable": 16}, verified.Bad)

	cache.onPart = func(int) error { return errDisk }
	_, err = embed.Verify(t.Context(), cache, nil)
	require.ErrorIs(t, err, errDisk)
	_, err = embed.Prune(t.Context(), cache, &embed.PruneOptions{MaxBytes: 1})
	require.ErrorIs(t, err, errDisk)
}

// TestMaintenanceUnderWrites: while a writer rewrites the entries that Prune and
// Verify want to remove, no record is lost that was acknowledged.
func TestMaintenanceUnderWrites(t *testing.T) {
	t.Run("scanned in parts", func(t *testing.T) {
		cache := newScanCache()
		maintainUnderWrites(t, cache, func() backend.Cache { return &scanCache{testCache: cache.testCache, part: 5} })
	})
	t.Run("memory", func(t *testing.T) {
		cache, err := memory.New(nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cache.Close()) })
		maintainUnderWrites(t, cache, func() backend.Cache { return cache })
	})
}

// maintainUnderWrites does it on cache; another gives each maintainer a handle.
func maintainUnderWrites(t *testing.T, cache backend.Cache, another func() backend.Cache) {
	stored, client := filled(t, 60)
	var items []backend.Item
	for key, value := range stored.snapshot() {
		items = append(items, backend.Item{Key: key, Value: value})
	}
	r := random(t)
	spoiled := func(good []byte) []byte {
		if r.IntN(2) == 0 {
			return redate(good, 1000+r.Uint32N(1000))
		}
		return good[:1+r.IntN(len(good)-1)]
	}
	var stop atomic.Bool
	removed := make([]int, 2)
	var wg sync.WaitGroup
	for i, run := range []func(c backend.Cache) (int, error){
		func(c backend.Cache) (int, error) {
			report, err := embed.Prune(t.Context(), c, &embed.PruneOptions{OlderThan: day, MaxBytes: 1 << 30})
			return report.Removed, err
		},
		func(c backend.Cache) (int, error) {
			report, err := embed.Verify(t.Context(), c, &embed.VerifyOptions{Drop: true, Clients: []*embed.Client{client}})
			return report.Dropped, err
		},
	} {
		c := another()
		wg.Go(func() {
			for !stop.Load() {
				n, err := run(c)
				if err != nil {
					t.Error(err)
					return
				}
				removed[i] += n
			}
		})
	}
	for range 6 {
		for i := range items {
			if r.IntN(2) == 0 {
				require.NoError(t, cache.SetMany(t.Context(), []backend.Item{{Key: items[i].Key, Value: spoiled(items[i].Value)}}))
				runtime.Gosched()
			}
			require.NoError(t, cache.SetMany(t.Context(), items[i:i+1]))
		}
		keys := make([]backend.Key, len(items))
		for i, item := range items {
			keys[i] = item.Key
		}
		there := 0
		require.NoError(t, cache.GetMany(t.Context(), keys, func(i int, value []byte) error {
			there++
			require.Equal(t, items[i].Value, value)
			return nil
		}))
		require.Equal(t, len(items), there, "an acknowledged record was removed")
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("pruned %d, dropped %d meanwhile", removed[0], removed[1])
}
