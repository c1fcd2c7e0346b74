package bolt

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// batchItems is how many entries each batch of the children has.
const batchItems = 64

// childBatch is batch number b of the writer whose keys begin at first.
func childBatch(first, b int) []backend.Item {
	return testItems(first+b*batchItems, batchItems, byte(b))
}

func init() {
	// write PATH FIRST BATCHES writes batches and says so after each.
	children["write"] = func(args []string) error {
		first, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		batches, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		c, err := Open(args[0], nil)
		if err != nil {
			return err
		}
		for b := range batches {
			if err := c.SetMany(context.Background(), childBatch(first, b)); err != nil {
				return err
			}
			fmt.Println("stored", b)
		}
		return c.Close()
	}
	// hold PATH has the file open, as a third argument says, until the parent has
	// seen enough.
	children["hold"] = func(args []string) error {
		c, err := Open(args[0], &Options{ReadOnly: args[1] == "read"})
		if err != nil {
			return err
		}
		fmt.Println("held")
		awaitParent()
		return c.Close()
	}
	// open PATH KEY opens the file when the parent says so and stores one entry.
	children["open"] = func(args []string) error {
		key, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		fmt.Println("ready")
		awaitParent()
		c, err := Open(args[0], &Options{LockTimeout: time.Minute})
		if err != nil {
			return err
		}
		if err := c.SetMany(context.Background(), testItems(key, 1, 'p')); err != nil {
			return err
		}
		fmt.Println("stored")
		return c.Close()
	}
}

// countBatch returns how many items of a child's batch are stored, each right.
func countBatch(t testing.TB, c *Cache, first, b int) int {
	items := childBatch(first, b)
	keys := make([]backend.Key, len(items))
	for i := range items {
		keys[i] = items[i].Key
	}
	n := 0
	err := c.GetMany(ctxb, keys, func(i int, value []byte) error {
		if !slices.Equal(value, items[i].Value) {
			return fmt.Errorf("item %d of batch %d has another value", i, b)
		}
		n++
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return n
}

// TestKilledWriters: SIGKILL at random moments. Whole batches only, and every
// acknowledged one. EMBEDONCE_SOAK, a duration, makes it go on for so long.
func TestKilledWriters(t *testing.T) {
	until := time.Now()
	if soak := os.Getenv("EMBEDONCE_SOAK"); soak != "" {
		d, err := time.ParseDuration(soak)
		require.NoError(t, err, "EMBEDONCE_SOAK")
		until = until.Add(d)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := testPath(t)
	kills, acknowledged, unacknowledged := 0, 0, 0
	var history []int // how many batches are stored of each round
	for kills < 5 || time.Now().Before(until) {
		first := kills * 1_000_000
		writer := startChild(t, "write", path, strconv.Itoa(first), "100000")
		acks := 0
		hear := func() bool {
			line, ok := writer.next()
			if ok {
				require.Equal(t, fmt.Sprint("stored ", acks), line)
				acks++
			}
			return ok
		}
		for range random.IntN(6) {
			require.True(t, hear(), "the writer ended by itself")
		}
		for range random.IntN(200_000) {
			// Some of the time that the next batch takes.
			_ = random.Uint64()
		}
		require.NoError(t, writer.cmd.Process.Kill())
		for hear() {
		}
		_ = writer.cmd.Wait() // it says that it was killed

		c, err := Open(path, nil)
		require.NoError(t, err)
		for b := range acks {
			require.Equal(t, batchItems, countBatch(t, c, first, b), "an acknowledged batch, kill %d of seed %d", kills, seed)
		}
		next := countBatch(t, c, first, acks)
		require.Contains(t, []int{0, batchItems}, next, "half a batch, kill %d of seed %d", kills, seed)
		require.Zero(t, countBatch(t, c, first, acks+1))
		stored := acks
		if next > 0 {
			stored++
			unacknowledged++
		}
		history = append(history, stored)
		require.NoError(t, c.Close())
		kills++
		acknowledged += acks
	}
	// And none was lost by a later kill.
	c := openTest(t, path, nil)
	for round, stored := range history {
		for b := range stored {
			require.Equal(t, batchItems, countBatch(t, c, round*1_000_000, b))
		}
	}
	checkWhole(t, path)
	t.Logf("%d kills, %d batches acknowledged, none lost; %d stored without acknowledgement", kills, acknowledged, unacknowledged)
}

func TestAnotherProcessHasTheFileOpen(t *testing.T) {
	path := testPath(t)
	require.NoError(t, openTest(t, path, nil).Close())
	for _, how := range []string{"write", "read"} {
		holder := startChild(t, "hold", path, how)
		holder.expect(t, "held")
		start := time.Now()
		_, err := Open(path, &Options{LockTimeout: 120 * time.Millisecond})
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "another process")
		require.Less(t, time.Since(start), 30*time.Second)
		r, err := Open(path, &Options{LockTimeout: time.Nanosecond, ReadOnly: true})
		if how == "read" {
			require.NoError(t, err, "readers share the file")
			require.NoError(t, r.Close())
		} else {
			require.ErrorIs(t, err, backend.ErrUnavailable)
			require.ErrorContains(t, err, path)
		}
		// It comes free while Open waits.
		got := make(chan error)
		go func() {
			c, err := Open(path, &Options{LockTimeout: time.Minute})
			if err == nil {
				err = c.Close()
			}
			got <- err
		}()
		holder.goOn(t)
		holder.end(t)
		require.NoError(t, <-got)
	}
}

func TestProcessesOpenANewFileAtOnce(t *testing.T) {
	const n = 4
	for range 3 {
		path := testPath(t)
		openers := make([]*child, n)
		for i := range openers {
			openers[i] = startChild(t, "open", path, strconv.Itoa(i))
		}
		for _, o := range openers {
			o.expect(t, "ready")
		}
		for _, o := range openers {
			o.goOn(t)
		}
		for _, o := range openers {
			require.Equal(t, "stored", o.end(t))
		}
		require.Len(t, readAll(t, openTest(t, path, nil), testKeys(n)), n)
		left, err := filepath.Glob(path + "?*")
		require.NoError(t, err)
		require.Empty(t, left)
	}
}
