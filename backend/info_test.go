package backend_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

func TestFit(t *testing.T) {
	items := make([]backend.Item, 5)
	for i := range items {
		items[i].Value = make([]byte, 10)
	}
	for want, info := range map[int]backend.Info{
		5: {},
		3: {MaxBatchItems: 3},
		2: {MaxBatchBytes: 29},
		1: {MaxBatchBytes: 9, MaxBatchItems: 4}, // it is too large anyway
	} {
		require.Equal(t, want, info.Fit(items), "%+v", info)
	}
	require.Equal(t, 4, backend.Info{MaxBatchBytes: 40}.Fit(items))
	require.Zero(t, backend.Info{MaxBatchItems: 3}.Fit(nil))
}
