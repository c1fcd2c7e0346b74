package report

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

var update = flag.Bool("update", false, "write the golden files anew")

var testFiles = []string{"testdata/a.jsonl", "testdata/b.jsonl", "testdata/c.jsonl"}

func testResults(t *testing.T) *Results {
	t.Helper()
	all, err := Read(testFiles, false)
	require.NoError(t, err)
	return all
}

// The page, to the last byte. "go test ./internal/report -update" writes it anew.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/page.tmpl")
	require.NoError(t, err)
	page, err := testResults(t).Render(string(text))
	require.NoError(t, err)
	got := map[string][]byte{"page.md": page.Markdown}
	for name, svg := range page.Charts {
		got[name] = svg
	}
	require.Len(t, got, 4)
	for name, content := range got {
		golden := filepath.Join("testdata", "golden", name)
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
			require.NoError(t, os.WriteFile(golden, content, 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), string(content), name)
	}
}

// The order in which files are named doesn't matter, and neither does chance.
func TestSameResultsMakeTheSamePage(t *testing.T) {
	text, err := os.ReadFile("testdata/page.tmpl")
	require.NoError(t, err)
	first, err := testResults(t).Render(string(text))
	require.NoError(t, err)
	for range 5 {
		again, err := Read([]string{testFiles[2], testFiles[0], testFiles[1]}, false)
		require.NoError(t, err)
		page, err := again.Render(string(text))
		require.NoError(t, err)
		require.Equal(t, first, page)
	}
}

func TestTemplatesThatAskForWhatIsNotThereAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{{table "scenario=hit"}}`:   "no result fits [\"scenario=hit\"]",
		`{{table "senario=hits"}}`:   `there is no field "senario"; there are scenario,`,
		`{{table "hits"}}`:           `"hits" is no filter`,
		`{{has "hits"}}`:             `"hits" is no filter`,
		`{{figure "scenario=hits"}}`: "more filters are needed",
		`{{pivot "backend" "texts" "scenario=hits" "case=embedonce"}}`:                  "more filters are needed",
		`{{pivot "backend" "goroutines" "scenario=hits" "case=embedonce" "texts=512"}}`: "more filters are needed",
		`{{pivot "back" "texts" "scenario=hits"}}`:                                      `there is no field "back"`,
		`{{pivot "backend" "text" "scenario=hits"}}`:                                    `there is no field "text"`,
		`{{chart "../x" "T" "texts" "backend" "scenario=hits"}}`:                        "small letters",
		`{{chart "x" "T" "texts" "backend" "scenario=hits"}}`:                           "chart x.svg",
		`{{versus "predecessor" "backend=predecessor 1 x 1 threads"}}`:                  "that is of none but",
		`{{nothing}}`: "nothing",
		`{{chart "x" "T" "backend" "case" "scenario=hits" "metric=hit" "texts=512" "goroutines=1"}}{{chart "x" "T" "backend" "case" "scenario=hits" "metric=hit" "texts=512" "goroutines=1"}}`: "there twice",
	} {
		_, err := testResults(t).Render(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	a, err := os.ReadFile(testFiles[0])
	require.NoError(t, err)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	twice := write("twice.jsonl", string(a))
	_, err = Read([]string{testFiles[0], twice}, false)
	require.ErrorContains(t, err, "both measure scenario=hits backend=memory goroutines=1 texts=1")
	require.ErrorContains(t, err, twice)

	quick := write("quick.jsonl", strings.Replace(string(a), `"quick":false`, `"quick":true`, 1))
	_, err = Read([]string{quick}, false)
	require.ErrorContains(t, err, "quick.jsonl is of a quick run")
	_, err = Read([]string{quick}, true)
	require.NoError(t, err)

	_, err = Read([]string{filepath.Join(dir, "missing.jsonl")}, false)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The contestant may be named by the case: then the work is told by the numbers.
func TestVersusByCase(t *testing.T) {
	result := func(who, backend string, median, floor float64) bench.Result {
		return bench.Result{
			Scenario: "compare", Case: who, Backend: backend, Goroutines: 1, Texts: 512, Metric: "hit", Unit: "µs/text",
			Summary: bench.Summary{Median: median, Runs: 1}, Floor: floor,
		}
	}
	other := result("embedonce", "bolt", 3, 0)
	other.Texts = 16 // nobody else did this
	all := &Results{results: []bench.Result{
		result("predecessor", "diskcache", 42, 0), result("predecessor, processes", "diskcache", 21, 0),
		result("embedonce", "sqlite", 7, 6), result("floor", "sqlite", 6, 0), result("eino", "", 84, 0), other,
	}}
	got, err := all.versus("predecessor")
	require.NoError(t, err)
	require.Equal(t, `| measured | goroutines | texts a call | contestant | unit | predecessor | floor | median | times better |
|---|---:|---:|---|---|---:|---:|---:|---:|
| hit | 1 | 512 | sqlite | µs/text | 21.0 | 6.00 | 7.00 | 3.00 |
| hit | 1 | 512 | eino | µs/text | 21.0 |  | 84.0 | 0.25 |
| hit | 1 | 16 | bolt | µs/text |  |  | 3.00 |  |`, got)
}

func TestWriteReplacesTheChartsOfAnEarlierPage(t *testing.T) {
	dir := t.TempDir()
	page := &Page{Markdown: []byte("one\n"), Charts: map[string][]byte{"a.svg": []byte("a"), "b.svg": []byte("b")}}
	names, err := page.Write(dir)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "benchmarks.md"), filepath.Join(dir, "charts", "a.svg"), filepath.Join(dir, "charts", "b.svg")}, names)
	page = &Page{Markdown: []byte("two\n"), Charts: map[string][]byte{"b.svg": []byte("b")}}
	_, err = page.Write(dir)
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(dir, "charts", "a.svg"))
	require.FileExists(t, filepath.Join(dir, "charts", "b.svg"))

	_, err = page.Write(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = page.Write(filepath.Join(dir, "benchmarks.md"))
	require.ErrorContains(t, err, "not a directory")
}
