package toy

import (
	"os"
	"testing"
)

func TestConformance(t *testing.T) {
	if Half(10) != 5 || Half(-4) != 0 {
		t.Error("not half")
	}
	t.Run("join", func(t *testing.T) {
		if Join("a", "b") != "ab" {
			t.Error("not both")
		}
	})
}

func TestConformanceSteps(t *testing.T) {
	if Steps(3) != 3 || os.Getenv("TOY_FAILS") != "" {
		t.Error("not so many steps")
	}
}

func TestTwice(t *testing.T) {
	if Twice(3) != 6 {
		t.Error("not twice")
	}
}

// TestSoak must not be run.
func TestSoak(*testing.T) { os.Exit(9) }
