package embed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testCache is a Cache in a map that can be made to fail, and that spoils each
// value it lent as soon as visit has returned.
type testCache struct {
	info backend.Info
	// Called before anything is read or written, without the lock; an error ends
	// the call.
	onGet func(ctx context.Context, keys []backend.Key) error
	onSet func(ctx context.Context, items []backend.Item) error
	// Called instead of storing, with the lock held.
	store func(entries map[backend.Key][]byte, items []backend.Item) error

	mu      sync.Mutex
	entries map[backend.Key][]byte
	more    map[backend.Key][]byte // offered after ErrForeign
	gets    int                    // GetMany calls
	read    int                    // keys asked for
	sets    []int                  // the items of each SetMany call, in order
}

func newTestCache() *testCache {
	return &testCache{
		info:    backend.Info{Atomic: true, Reach: backend.ReachHandle},
		entries: make(map[backend.Key][]byte),
	}
}

func (c *testCache) GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	c.mu.Lock()
	c.gets++
	c.read += len(keys)
	c.mu.Unlock()
	if c.onGet != nil {
		if err := c.onGet(ctx, keys); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, key := range keys {
		c.mu.Lock()
		value, stored := c.entries[key]
		next, another := c.more[key]
		c.mu.Unlock()
		if !stored {
			continue
		}
		lent := bytes.Clone(value)
		err := visit(i, lent)
		for at := range lent {
			lent[at] = 0xff
		}
		if errors.Is(err, backend.ErrForeign) {
			if another {
				err = visit(i, bytes.Clone(next))
			}
			if errors.Is(err, backend.ErrForeign) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("visit: %w", err)
		}
	}
	return nil
}

func (c *testCache) SetMany(ctx context.Context, items []backend.Item) error {
	c.mu.Lock()
	c.sets = append(c.sets, len(items))
	c.mu.Unlock()
	if c.onSet != nil {
		if err := c.onSet(ctx, items); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.info.Check(items); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.store != nil {
		return c.store(c.entries, items)
	}
	for _, item := range items {
		c.entries[item.Key] = bytes.Clone(item.Value)
	}
	return nil
}

func (c *testCache) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	return backend.BufferedTxn(ctx, c, fn)
}

func (c *testCache) Info() backend.Info { return c.info }

func (c *testCache) Close() error { return nil }

// snapshot returns a copy of what is stored.
func (c *testCache) snapshot() map[backend.Key][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := maps.Clone(c.entries)
	for key, value := range entries {
		entries[key] = bytes.Clone(value)
	}
	return entries
}

func (c *testCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

func (c *testCache) writes() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]int(nil), c.sets...)
}

// newClient returns a Client that is closed when the test ends.
func newClient(t testing.TB, provider embed.Provider, opts *embed.Options) *embed.Client {
	t.Helper()
	client, err := embed.New(provider, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// numbered returns n distinct texts of three tokens each.
func numbered(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("text number %d", i)
	}
	return texts
}

// ofTokens returns a text of n tokens, as embedtest.Words counts them, that
// begins with the word name.
func ofTokens(name string, n int) string {
	return name + strings.Repeat(" word", n-1)
}

// random returns a source of random numbers, and prints its seed.
func random(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// requireSum fails unless every text was counted once.
func requireSum(t testing.TB, u embed.Usage) {
	t.Helper()
	require.Equal(t, u.Texts, u.Hits+u.Misses+u.Deduplicated+u.Joined+u.Refused, "%+v", u)
	require.GreaterOrEqual(t, u.BilledTokens, u.EstimatedTokens)
	require.GreaterOrEqual(t, u.LogicalTokens, u.BilledTokens)
}

// failures returns the failures of err by index.
func failures(t testing.TB, err error) map[int]error {
	t.Helper()
	if err == nil {
		return nil
	}
	var partial *embed.PartialError
	require.ErrorAs(t, err, &partial)
	byIndex := make(map[int]error)
	for _, failure := range partial.Failures {
		byIndex[failure.Index] = failure.Err
	}
	return byIndex
}

// requireVectors fails unless response has the right vector for each of texts,
// but for those that err excuses, which must have none.
func requireVectors(t testing.TB, texts []string, response *embed.Response, err error) {
	t.Helper()
	require.NotNil(t, response)
	require.Equal(t, len(texts), response.Len())
	failed := failures(t, err)
	for i, text := range texts {
		if failed[i] != nil {
			require.Nil(t, response.Vector(i), "text %d failed and has a vector", i)
			continue
		}
		require.True(t, embedtest.IsVectorOf(text, response.Vector(i)), "text %d has a wrong vector", i)
	}
}
