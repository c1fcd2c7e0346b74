//go:build linux && !race

package bolt

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The race detector itself needs more of the address space than is left here, so
// that .ci/run runs this test once more without it.
func TestSmallAddressSpace(t *testing.T) {
	path := testPath(t)
	require.Empty(t, startChild(t, "smallspace", path).end(t))
	require.Len(t, readAll(t, openTest(t, path, nil), testKeys(2560)), 2560)
}
