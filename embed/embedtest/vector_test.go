package embedtest

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/embed"
)

var _ Vectors = (*embed.Response)(nil)

// What is pinned here is in golden files of other tests too, perhaps our users'.
func TestVectorGolden(t *testing.T) {
	bits := func(v []float32) string {
		var b strings.Builder
		for _, x := range v {
			fmt.Fprintf(&b, "%08x ", math.Float32bits(x))
		}
		return strings.TrimSpace(b.String())
	}
	for _, test := range []struct {
		name       string
		space      Space
		text       string
		dimensions int
		want       string
	}{
		{"one", Space{Model: DefaultModel}, "hello", 1, "bf800000"},
		{"four", Space{Model: DefaultModel}, "hello", 4, "3f36af36 beed3cdc beab01a0 becfaa37"},
		{"five", Space{Model: DefaultModel}, "hello", 5, "3f0fb5f5 3f2729cb 3ef1275a bd2556cd be3f9642"},
		{"empty", Space{Model: DefaultModel}, "", 4, "bdc27736 be5152a4 3f784dba bdbbf1cb"},
		{"unicode", Space{Model: DefaultModel}, "日本語 é", 4, "3f7daeb2 bdbdc191 3d112c76 bdb943cd"},
		{"no model", Space{}, "hello", 4, "3f0a1258 3f1e50d0 3ee56a60 beb5aa1d"},
		{"role", Space{Model: "m", Role: "query"}, "hello", 4, "bd8d6a0f 3d50cf3b bf2af8d4 bf3d4437"},
		{"params", Space{Model: "m", Params: map[string]any{"a": 1.5, "b": []any{"x", nil, true}}}, "hello", 4, "3f333c1a beb07de8 3e7108be 3f144c6f"},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, bits(test.space.Vector(test.text, test.dimensions)))
		})
	}
}

func TestVectorHasNormOneAndNoZeros(t *testing.T) {
	for _, dimensions := range []int{1, 2, 3, 4, 5, 63, 64, 1536, 3072} {
		for i := range 50 {
			v := Vector(fmt.Sprint("text ", i), dimensions)
			require.Len(t, v, dimensions)
			var norm float64
			for _, x := range v {
				require.NotZero(t, x)
				norm += float64(x) * float64(x)
			}
			require.InDelta(t, 1, norm, 1e-6)
		}
	}
}

func TestVectorSurvivesJSONByWayOfEitherFloat(t *testing.T) {
	v := Vector("some text", 3072)
	spelled := appendFloats(nil, v)
	var single []float32
	require.NoError(t, json.Unmarshal(spelled, &single))
	require.Equal(t, v, single)
	var double []float64
	require.NoError(t, json.Unmarshal(spelled, &double))
	for i, x := range double {
		require.Equal(t, v[i], float32(x), i)
	}
}

// Whatever differs, the first three numbers differ.
func TestVectorsDiffer(t *testing.T) {
	seen := make(map[[3]float32]string)
	add := func(what string, v []float32) {
		start := [3]float32(v)
		require.Empty(t, seen[start], what)
		seen[start] = what
	}
	for i := range 100_000 {
		text := strings.Repeat("a", i%100) + fmt.Sprint(i)
		add("text "+text, Vector(text, 8))
	}
	for _, dimensions := range []int{3, 4, 7, 9, 16, 1536} {
		add(fmt.Sprint("dimensions ", dimensions), Vector("a text", dimensions))
	}
	for i, space := range []Space{
		{},
		{Model: "m"},
		{Model: "m2"},
		{Model: "m", Role: "query"},
		{Model: "m", Role: "document"},
		{Model: "m", Prefix: "query: "},
		{Model: "m", Params: map[string]any{"task": "query"}},
		{Model: "m", Params: map[string]any{"n": 1}},
		{Model: "m", Params: map[string]any{"n": "1"}},
		{Model: "m", Params: map[string]any{"n": "n1"}},
		{Model: "m", Params: map[string]any{"n": true}},
		{Model: "m", Params: map[string]any{"n": map[string]any{}}},
		{Model: "m", Params: map[string]any{"n": []any{}}},
		{Model: "m", Params: map[string]any{"n": []any{1, 2}}},
		{Model: "m", Params: map[string]any{"n": []any{2, 1}}},
		{Model: "m", Params: map[string]any{"n": json.Number("9007199254740992")}},
		{Model: "m", Params: map[string]any{"n": json.Number("9007199254740993")}},
		{Model: "m", Params: map[string]any{"n": json.Number("1e99999")}},
		{Model: "m", Params: map[string]any{"n": json.Number("1e99998")}},
	} {
		add(fmt.Sprint("space ", i), space.Vector("another text", 8))
	}
}

func TestSpacesThatAreTheSame(t *testing.T) {
	for _, same := range [][]Space{
		{{Role: "query"}, {Params: map[string]any{"input_type": "query"}}},
		{{}, {Params: map[string]any{}}, {Params: map[string]any{"x": nil}}},
		{
			{Params: map[string]any{"x": 1, "y": 100}},
			{Params: map[string]any{"y": json.Number("1e2"), "x": json.Number("1.0")}},
			{Params: map[string]any{"y": json.Number("100.00"), "x": json.RawMessage(" 10e-1")}},
		},
		{
			{Params: map[string]any{"x": json.Number("9007199254740993")}},
			{Params: map[string]any{"x": json.Number("9007199254740993.0")}},
		},
	} {
		for _, other := range same[1:] {
			require.Equal(t, same[0].Vector("text", 8), other.Vector("text", 8))
		}
	}
	require.Equal(t, Space{Prefix: "query: "}.Vector("text", 8), Space{}.Vector("query: text", 8))
	require.Equal(t, Vector("a\ufffd\ufffdb", 8), Vector("a\xff\xfeb", 8))
}

func TestSpaceDoesNotChangeParams(t *testing.T) {
	params := map[string]any{"b": 1, "a": nil}
	Space{Role: "query", Params: params}.Vector("text", 3)
	require.Equal(t, map[string]any{"b": 1, "a": nil}, params)
}

func TestVectorPanicsOnWhatCantBe(t *testing.T) {
	require.PanicsWithValue(t, "embedtest: dimensions are 0, must be positive", func() { Vector("text", 0) })
	require.Panics(t, func() { Space{Params: map[string]any{"f": func() {}}}.Vector("text", 3) })
}

func TestIsVectorOf(t *testing.T) {
	v := Vector("text", 8)
	require.True(t, IsVectorOf("text", v))
	require.False(t, IsVectorOf("other", v))
	require.False(t, IsVectorOf("text", v[:7]))
	require.False(t, IsVectorOf("text", nil))
	require.False(t, Space{Model: "m"}.IsVectorOf("text", v))
	v[7] = math.Nextafter32(v[7], 2)
	require.False(t, IsVectorOf("text", v), "one bit")
}

type vectors [][]float32

func (v vectors) Len() int               { return len(v) }
func (v vectors) Vector(i int) []float32 { return v[i] }

// recorder is a testing.TB that keeps what a check complains of.
type recorder struct {
	testing.TB
	complaints []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.complaints = append(r.complaints, fmt.Sprintf(format, args...))
}

func TestCheckVectors(t *testing.T) {
	texts := []string{"zero", "one", "two", "three"}
	right := func() vectors {
		v := make(vectors, len(texts))
		for i, text := range texts {
			v[i] = Vector(text, 8)
		}
		return v
	}
	CheckVectors(t, texts, right())
	CheckVectors(t, nil, vectors{})

	for _, test := range []struct {
		name  string
		spoil func(v vectors) vectors
		want  []string
	}{
		{"swapped", func(v vectors) vectors { v[1], v[2] = v[2], v[1]; return v },
			[]string{"vector 1 is that of text 2", "vector 2 is that of text 1"}},
		{"missing", func(v vectors) vectors { v[3] = nil; return v }, []string{"vector 3 is missing"}},
		{"first missing", func(v vectors) vectors { v[0] = nil; return v }, []string{"vector 0 is missing"}},
		{"too few", func(v vectors) vectors { return v[:3] }, []string{"3 vectors for 4 texts"}},
		{"changed", func(v vectors) vectors { v[0][5] = 0; return v }, []string{"vector 0 is that of no text of the call"}},
		{"other length", func(v vectors) vectors { v[2] = Vector("two", 9); return v },
			[]string{"vector 2 has 9 dimensions, the first one has 8"}},
		{"other model", func(v vectors) vectors { v[2] = Space{Model: "m"}.Vector("two", 8); return v },
			[]string{"vector 2 is that of no text of the call"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &recorder{TB: t}
			CheckVectors(r, texts, test.spoil(right()))
			require.Equal(t, test.want, r.complaints)
		})
	}

	r := &recorder{TB: t}
	CheckVectors(r, make([]string, 9), make(vectors, 9))
	require.Len(t, r.complaints, 6, "five, and how many there are")
	require.Equal(t, "9 of 9 vectors are wrong", r.complaints[5])
}

func BenchmarkVector(b *testing.B) {
	v := make([]float32, 1536)
	text := strings.Repeat("some words ", 70)
	seed := Space{Model: DefaultModel}.seed(len(v))
	b.ReportAllocs()
	for b.Loop() {
		fill(v, seed, "", text)
	}
}
