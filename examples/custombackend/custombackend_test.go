package custombackend_test

import (
	"os"
	"strings"
	"testing"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/conformance"
	"github.com/embedonce/embedonce/examples/custombackend"
)

func suite() conformance.Suite {
	return conformance.Suite{
		New: func(t testing.TB) string { return t.TempDir() },
		Open: func(t testing.TB, location string) backend.Cache {
			c, err := custombackend.Open(location)
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		Want: backend.Info{Atomic: true, SnapshotReads: true, Durability: backend.SurvivesCrash,
			Reach: backend.ReachHost, MaxValueBytes: 64 << 20},
		Fault: fault,
	}
}

func TestConformance(t *testing.T) { suite().Run(t) }
func TestSoak(t *testing.T)        { suite().Soak(t) }

// fault can take the directory away, and nothing else.
func fault(t testing.TB, location string, f conformance.Fault) (undo func()) {
	if f.Kind != conformance.Cut {
		return nil
	}
	away := location + ".away"
	if err := os.Rename(location, away); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Rename(away, location); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTutorial: what the tutorial shows is what is compiled here.
func TestTutorial(t *testing.T) {
	tutorial, err := os.ReadFile("../../docs/backends.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(tutorial), "## Write your own backend")
	if !ok {
		t.Fatal("the tutorial is gone from docs/backends.md")
	}
	var sources string
	for _, name := range []string{"custombackend.go", "custombackend_test.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(source), "\n"); name == "custombackend.go" && lines >= 120 {
			t.Errorf("the backend has %d lines, and the tutorial says fewer than 120", lines)
		}
		sources += string(source)
	}
	blocks := strings.Split(text, "```go\n")[1:]
	if len(blocks) < 8 {
		t.Errorf("the tutorial has %d blocks of code", len(blocks))
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(sources, code) {
			t.Errorf("the tutorial shows code that is not in the example:\n%s", code)
		}
	}
}
