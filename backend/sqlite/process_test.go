package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	driver "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

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
	// hold PATH holds the write lock until the parent has seen enough.
	children["hold"] = func(args []string) error {
		c, err := driver.OpenConn(args[0], driver.OpenReadWrite)
		if err != nil {
			return err
		}
		if err := sqlitex.ExecuteTransient(c, "BEGIN IMMEDIATE", nil); err != nil {
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
		c, err := Open(args[0], nil)
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

func TestTwoProcessesWriteAtOnce(t *testing.T) {
	path := testPath(t)
	const batches = 20
	writers := []*child{
		startChild(t, "write", path, "0", strconv.Itoa(batches)),
		startChild(t, "write", path, "1000000", strconv.Itoa(batches)),
	}
	// A handle of this process reads meanwhile: what was acknowledged is there.
	c := openTest(t, path, nil)
	var all sync.WaitGroup
	for w, writer := range writers {
		all.Go(func() {
			for b := range batches {
				line, _ := writer.next()
				if line != fmt.Sprint("stored ", b) {
					t.Errorf("writer %d said %q", w, line)
					return
				}
				if n := countBatch(t, c, w*1000000, b); n != batchItems {
					t.Errorf("writer %d: %d of %d items of an acknowledged batch", w, n, batchItems)
				}
			}
		})
	}
	all.Wait()
	for _, writer := range writers {
		require.Empty(t, writer.end(t))
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
	require.Equal(t, "ok", rawText(t, path, "PRAGMA integrity_check"))
	t.Logf("%d kills, %d batches acknowledged, none lost; %d stored without acknowledgement", kills, acknowledged, unacknowledged)
}

func TestAnotherProcessHoldsTheLock(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, &Options{BusyTimeout: 30 * time.Millisecond})
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	holder := startChild(t, "hold", path)
	holder.expect(t, "held")

	err := c.SetMany(ctxb, testItems(0, 1, 'b'))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, path)
	patient := openTest(t, path, &Options{BusyTimeout: time.Hour})
	ctx, cancel := context.WithTimeout(ctxb, 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, patient.SetMany(ctx, testItems(0, 1, 'b')), context.DeadlineExceeded)
	require.Equal(t, testValue(0, 'a'), readAll(t, c, testKeys(1))[0])

	holder.goOn(t)
	holder.end(t)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'c')))
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
		require.NoFileExists(t, path+"-wal")
		require.Len(t, readAll(t, openTest(t, path, nil), testKeys(n)), n)
		require.Equal(t, "2", rawText(t, path, "PRAGMA auto_vacuum"))
	}
}
