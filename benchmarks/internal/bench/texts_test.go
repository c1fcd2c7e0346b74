package bench

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextsAreDistinctAndOfAParagraph(t *testing.T) {
	const n = 5000
	seen := make(map[string]bool)
	bytes := 0
	for _, text := range append(Texts(1, 0, n), Texts(2, 0, n)...) {
		require.False(t, seen[text])
		seen[text] = true
		bytes += len(text)
		require.InDelta(t, wordsOfText, len(strings.Fields(text)), 7)
	}
	require.InDelta(t, 800, bytes/(2*n), 150, "bytes of a text")
}

func TestTextsDependOnSeedAndNumberAlone(t *testing.T) {
	all := Texts(7, 0, 30)
	require.Equal(t, all[10:20], Texts(7, 10, 10))
	require.Equal(t, all, Texts(7, 0, 30))
}
