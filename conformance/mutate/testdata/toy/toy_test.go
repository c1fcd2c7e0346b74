package toy

import (
	"os"
	"os/exec"
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

func TestConformanceProcess(t *testing.T) {
	const inside = "TOY_INSIDE"
	if os.Getenv(inside) != "" {
		if Answer() != 42 {
			t.Error("not the answer")
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestConformanceProcess$")
	cmd.Env = append(os.Environ(), inside+"=1")
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

func TestTwice(t *testing.T) {
	if Twice(3) != 6 {
		t.Error("not twice")
	}
}

// TestSoak must not be run.
func TestSoak(*testing.T) { os.Exit(9) }
