package backend_test

import (
	"testing"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/conformance"
)

// The example is short, and right.
func TestConformance(t *testing.T) {
	conformance.Suite{
		New:  func(t testing.TB) string { return t.Name() },
		Open: func(t testing.TB, _ string) backend.Cache { return &Map{entries: make(map[backend.Key][]byte)} },
		Want: backend.Info{Atomic: true, SnapshotReads: true},
	}.Run(t)
}
