//go:build !race

package embed_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/embedonce/embedonce/embed"
	"github.com/stretchr/testify/require"
)

const raceEnabled = false

// TestObservingIsFree: a logger and an observer without functions cost a hit
// nothing.
func TestObservingIsFree(t *testing.T) {
	off := allocations(t, 128, embed.Options{})
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	require.Equal(t, off, allocations(t, 128, embed.Options{Logger: logger}))
	require.Equal(t, off, allocations(t, 128, embed.Options{Observer: &embed.Observer{}}))
}
