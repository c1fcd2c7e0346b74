package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWindowsReachEveryText(t *testing.T) {
	texts := Texts(1, 0, 64)
	windows := NewWindows(9, texts)
	again := NewWindows(9, texts)
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
	for i := range 3 {
		require.Equal(t, texts[i*16:(i+1)*16], WindowsInOrder(texts).At(0, i, 16))
	}
	require.NotEqual(t, windows.At(0, 0, 1), windows.At(128, 0, 1), "goroutines begin apart")
}
