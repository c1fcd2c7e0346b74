package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

func TestAChildTellsWhatIsWrong(t *testing.T) {
	var out bytes.Buffer
	require.Zero(t, child(t.Context(), strings.NewReader(`{"Work":"sleep"}`), &out))
	require.Contains(t, out.String(), `there is no work \"sleep\"`)

	p := &processRun{hitRun: hitRun{Run: &bench.Run{}, dims: 4, texts: make([]string, processTexts)}, batches: 1}
	for _, place := range []string{t.TempDir(), t.TempDir() + "/missing"} {
		// No file, or no records in it: an error, and no child is left.
		_, err := p.apart(place, workHits, 2)(t.Context())
		require.ErrorContains(t, err, "in a process that was started: ")
	}
}

// Children that wait for the start end with their parent's context.
func TestChildrenAreKilled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, err := startChild(ctx, &task{Work: workControl})
	require.NoError(t, err)
	_, err = c.answer()
	require.NoError(t, err)
	cancel()
	_, err = c.answer()
	require.ErrorContains(t, err, "gave no answer")
	require.Error(t, c.end())
}

// What processes and goroutines write are entries of their own: no write is cheaper
// because an entry is there already.
func TestTasksWriteDifferentEntries(t *testing.T) {
	p := &processRun{hitRun: hitRun{Run: &bench.Run{}, dims: 1}, batches: 2}
	seen := make(map[[32]byte]bool)
	for number := range 3 {
		w := p.task("", workWrites, number)
		for i := range 1 + p.batches {
			for _, item := range w.batch(i) {
				require.False(t, seen[item.Key])
				seen[item.Key] = true
			}
		}
	}
}
