package bench

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHumanAlignsColumns(t *testing.T) {
	var b strings.Builder
	h := NewHuman(&b)
	require.NoError(t, h.Header(Header{Scenario: "hits", Machine: Machine{OS: "linux", Arch: "amd64", CPU: "Some CPU", Cores: 2}, Versions: map[string]string{"go": "go1.26"}, Seed: 3, Runs: 7, Quick: true}))
	require.NoError(t, h.Skip(Skip{Backend: "redis", Reason: "not there"}))
	require.NoError(t, h.Result(anyResult))
	other := anyResult
	other.Floor, other.Backend, other.Entries, other.Max = 0, "a longer name", 100_000, 1234.5
	require.NoError(t, h.Result(other))
	require.NoError(t, h.Flush())
	text := b.String()
	for _, want := range []string{"Some CPU", "seed 3, 7 runs", "A quick run", "redis is skipped: not there", "go go1.26", "100,000", "1,234"} {
		require.Contains(t, text, want)
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	rows := lines[len(lines)-3:]
	end := strings.Index(rows[0], "median") + len("median")
	for _, row := range rows[1:] {
		// Columns are counted in characters, and there is a µ before.
		require.Equal(t, "2.00", string([]rune(row)[end-4:end]))
	}
}
