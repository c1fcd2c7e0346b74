package bench

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var anyResult = Result{
	Scenario: "hits", Case: CaseOurs, Backend: "memory", Goroutines: 1, Texts: 16, Dims: 8, Entries: 9,
	Metric: "hit", Unit: "µs/text", Summary: Summary{2, 3, 4, 1, 4, 7}, Floor: 1.5,
}

// The names are those that other programs write and read too.
func TestLinesAreWhatTheyAreSaidToBe(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Lines{&b}.Result(anyResult))
	require.Equal(t, `{"scenario":"hits","case":"embedonce","backend":"memory","goroutines":1,"texts":16,"dims":8,"entries":9,`+
		`"metric":"hit","unit":"µs/text","median":2,"p95":3,"p99":4,"min":1,"max":4,"runs":7,"floor":1.5}`+"\n", b.String())
}

func TestReadLinesReadsWhatLinesWrites(t *testing.T) {
	header := Header{Scenario: "hits", Started: "2026-01-02T03:04:05Z", Machine: ThisMachine(), Versions: map[string]string{"go": "go1.26"}, Seed: 5, Runs: 7}
	skip := Skip{Scenario: "hits", Backend: "redis", Reason: "none"}
	var b bytes.Buffer
	lines := Lines{&b}
	require.NoError(t, lines.Header(header))
	require.NoError(t, lines.Result(anyResult))
	require.NoError(t, lines.Skip(skip))
	require.NoError(t, lines.Header(header))
	require.NoError(t, lines.Flush())

	runs, err := ReadLines("file", &b)
	require.NoError(t, err)
	require.Equal(t, []RunLines{{header, []Result{anyResult}, []Skip{skip}}, {Header: header}}, runs)
}

func TestReadLinesReadsAMachineInOneString(t *testing.T) {
	runs, err := ReadLines("file", strings.NewReader(`{"scenario":"compare","machine":"linux/amd64","cpus":2,"versions":{"go":"1"},"seed":1,"quick":true,"left_out":{"b":"gone","a":"lost"}}
{"scenario":"compare","case":"hits","backend":"predecessor","goroutines":1,"texts":1,"dims":1,"entries":1,"metric":"m","unit":"u","median":1,"p95":1,"p99":1,"min":1,"max":1,"runs":1,"floor":null}`))
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.Equal(t, Machine{CPU: "linux/amd64", Cores: 2}, runs[0].Header.Machine)
	require.True(t, runs[0].Header.Quick)
	require.Equal(t, []Skip{{"compare", "a", "lost"}, {"compare", "b", "gone"}}, runs[0].Skips)
	require.Zero(t, runs[0].Results[0].Floor)
}

const machineLine = `{"scenario":"s","machine":{}}` + "\n"

func TestReadLinesNamesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":          {"", "file has no results"},
		"no machine":     {`{"scenario":"s"}`, "line 1: the first line must tell the machine"},
		"no JSON":        {machineLine + "median", "line 2 is not JSON"},
		"cut off":        {machineLine + `{"scenario":`, "line 2 is not JSON"},
		"unknown member": {machineLine + `{"scenario":"s","speed":1}`, `line 2: json: unknown field "speed"`},
		"no case":        {machineLine + `{"scenario":"s","metric":"m","unit":"u","runs":1}`, `"case" is missing`},
		"no runs":        {machineLine + `{"scenario":"s","case":"c","metric":"m","unit":"u"}`, `"runs" is 0`},
		"a list":         {machineLine + `[]`, "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadLines("file", strings.NewReader(c.text))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "file")
		})
	}
}

func FuzzReadLines(f *testing.F) {
	var b bytes.Buffer
	_ = Lines{&b}.Result(anyResult)
	f.Add([]byte(machineLine + b.String()))
	f.Add([]byte(machineLine + `{"scenario":"s","backend":"b","skipped":"why"}`))
	f.Add([]byte(`{"machine":"m","left_out":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		runs, err := ReadLines("file", bytes.NewReader(text))
		if err != nil {
			return
		}
		// What was read can be written, and is the same when it is read again.
		var again bytes.Buffer
		lines := Lines{&again}
		for _, run := range runs {
			require.NoError(t, lines.Header(run.Header))
			for _, result := range run.Results {
				require.NoError(t, lines.Result(result))
			}
			for _, skip := range run.Skips {
				require.NoError(t, lines.Skip(skip))
			}
		}
		second, err := ReadLines("file", &again)
		require.NoError(t, err)
		require.Equal(t, runs, second)
	})
}

func TestHigherIsBetter(t *testing.T) {
	require.True(t, (&Result{Unit: "texts/s"}).HigherIsBetter())
	require.False(t, (&Result{Unit: "µs/text"}).HigherIsBetter())
}
