package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWindowsReachEveryText(t *testing.T) {
	texts := Texts(1, 0, 64)
	windows := (&Run{Settings: Settings{Seed: 9}}).NewWindows(texts)
	again := (&Run{Settings: Settings{Seed: 9}}).NewWindows(texts)
	for _, n := range []int{1, 16, 24, 64} {
		seen := make(map[string]bool)
		for i := range len(texts) {
			window := windows.At(3, i, n)
			require.Len(t, window, n)
			require.Equal(t, window, again.At(3, i, n), "they depend on the seed alone")
			for _, text := range window {
				seen[text] = true
			}
		}
		require.Len(t, seen, len(texts)/n*n)
	}
	require.NotEqual(t, windows.At(0, 0, 1), windows.At(128, 0, 1), "goroutines begin apart")
}
