package embed

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func small() *Spec {
	return &Spec{Identity: "https://api.openai.com/v1", Model: "text-embedding-3-small"}
}

func mustScope(t *testing.T, spec *Spec, generation uint64) digest {
	t.Helper()
	scope, err := scopeOf(spec, generation)
	require.NoError(t, err)
	return scope
}

// A key that changes here makes every cached vector of every user a miss, and
// costs them money. It is a breaking change.
func TestGoldenKeys(t *testing.T) {
	full := &Spec{
		Identity: "https://api.voyageai.com/v1", Model: "voyage-3.5", Dimensions: new(256), Role: "query",
		Prefix: "search: ", Params: map[string]any{"truncation": false, "b": 1.50, "a": []any{"x", nil}},
	}
	for _, c := range []struct {
		name       string
		spec       *Spec
		generation uint64
		secret     string
		text       string
		long       bool
		want       string
	}{
		{"plain", small(), 0, "", "hello world", false, "24fe32cdbd3fbbd13dd4dac54164e4c02b8b1e4fd6b001a8b6d97ac5aa188ece"},
		{"every field set", full, 7, "", "hello world", false, "ea82ca659981074f49ab004ca9377f1e6d6cce95dd4a4121ef808dbcbdf854b4"},
		{"with a secret", small(), 0, "pepper", "hello world", false, "84470e01e05f9d91a573ee3758f7407c9a0513860bc2fd8f0a0dd78a84c6036f"},
		{"a long text", small(), 0, "", "hello world", true, "eb822b8275fdc80c1127d0be8aac7da0ad8dc61a08e92ffc6180cbc806c144e5"},
		{"bytes that are no characters", small(), 0, "", "a\xff\xc3\x28\xed\xa0\x80z", false, "3f326a60019ffe117d4779247e0e271064b4a5378207505e02585c588bbc57ff"},
	} {
		scope := mustScope(t, c.spec, c.generation)
		if c.long {
			scope = longScopeOf(scope, 8192, TruncateLongTexts, "cl100k_base")
		}
		text := newTextDigester([]byte(c.secret)).sum(validUTF8(c.text))
		key := keyOf(&scope, &text)
		require.Equal(t, c.want, hex.EncodeToString(key[:]), c.name)
	}
}

func TestTextDigest(t *testing.T) {
	require.Equal(t, sha256.Sum256([]byte("text")), newTextDigester(nil).sum("text"))
	require.Equal(t, sha256.Sum256(nil), newTextDigester(nil).sum(""))
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte("text"))
	d := newTextDigester([]byte("secret"))
	for range 3 { // the state of a pooled one must not leak into the next
		got := d.sum("text")
		require.Equal(t, mac.Sum(nil), got[:])
	}
}

func TestFieldsAreInjective(t *testing.T) {
	require.NotEqual(t, digestFields("ab", "c"), digestFields("a", "bc"))
	require.NotEqual(t, digestFields("abc"), digestFields("a", "bc"))
	require.NotEqual(t, digestFields("a", ""), digestFields("a"))
	require.NotEqual(t, digestFields("", "a"), digestFields("a", ""))
}

// Whatever can change a vector changes the scope, and nothing else does.
func TestScopes(t *testing.T) {
	params := func(s string) map[string]any {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(s), &m))
		return m
	}
	raw := func(s string) map[string]any { return map[string]any{"n": json.RawMessage(s)} }
	edit := func(change func(*Spec)) *Spec {
		s := small()
		change(s)
		return s
	}
	different := map[string]*Spec{
		"plain":                small(),
		"no model":             edit(func(s *Spec) { s.Model = "" }),
		"model unknown":        edit(func(s *Spec) { s.Model = "unknown" }),
		"model default":        edit(func(s *Spec) { s.Model = "default" }),
		"identity":             edit(func(s *Spec) { s.Identity = "mine" }),
		"0 dimensions":         edit(func(s *Spec) { s.Dimensions = new(0) }),
		"256 dimensions":       edit(func(s *Spec) { s.Dimensions = new(256) }),
		"role":                 edit(func(s *Spec) { s.Role = "query" }),
		"prefix":               edit(func(s *Spec) { s.Prefix = "query" }),
		"prefix with a space":  edit(func(s *Spec) { s.Prefix = "query " }),
		"parameter":            edit(func(s *Spec) { s.Params = params(`{"a":1}`) }),
		"its string":           edit(func(s *Spec) { s.Params = params(`{"a":"1"}`) }),
		"its null":             edit(func(s *Spec) { s.Params = params(`{"a":null}`) }),
		"its truth":            edit(func(s *Spec) { s.Params = params(`{"a":true}`) }),
		"order in a list":      edit(func(s *Spec) { s.Params = params(`{"a":[1,2]}`) }),
		"other order in it":    edit(func(s *Spec) { s.Params = params(`{"a":[2,1]}`) }),
		"nested":               edit(func(s *Spec) { s.Params = params(`{"a":{"b":1}}`) }),
		"a number over 2^53":   edit(func(s *Spec) { s.Params = raw("9007199254740993") }),
		"its neighbour":        edit(func(s *Spec) { s.Params = raw("9007199254740992") }),
		"a number with digits": edit(func(s *Spec) { s.Params = raw("0.1") }),
		"one more digit":       edit(func(s *Spec) { s.Params = raw("0.1000000000000000000001") }),
		"negative":             edit(func(s *Spec) { s.Params = raw("-0.1") }),
		"a large exponent":     edit(func(s *Spec) { s.Params = raw("1e400") }),
		"a larger one":         edit(func(s *Spec) { s.Params = raw("1e999999999999999999999") }),
	}
	seen := map[digest]string{}
	for name, spec := range different {
		scope := mustScope(t, spec, 0)
		require.Empty(t, seen[scope], "%q and %q share vectors", name, seen[scope])
		seen[scope] = name
	}
	require.Empty(t, seen[mustScope(t, small(), 1)], "generations share vectors")

	for _, same := range [][]*Spec{
		{small(), edit(func(s *Spec) { s.Params = map[string]any{} })},
		{edit(func(s *Spec) { s.Params = params(`{"a":1,"b":2}`) }), edit(func(s *Spec) { s.Params = params(`{"b":2,"a":1}`) })},
		{edit(func(s *Spec) { s.Params = raw("1.50") }), edit(func(s *Spec) { s.Params = raw("15e-1") }), edit(func(s *Spec) { s.Params = map[string]any{"n": 1.5} })},
		{edit(func(s *Spec) { s.Params = raw("100") }), edit(func(s *Spec) { s.Params = raw("1E+2") }), edit(func(s *Spec) { s.Params = map[string]any{"n": 100} })},
		{edit(func(s *Spec) { s.Params = raw("0") }), edit(func(s *Spec) { s.Params = raw("-0.0e7") })},
		{edit(func(s *Spec) { s.Params = raw(`"\u0041"`) }), edit(func(s *Spec) { s.Params = raw(`"A"`) })},
		// What describes limits and prices changes no vector.
		{small(), edit(func(s *Spec) {
			s.ModelDimensions, s.Limits, s.Tokenizer, s.DollarsPerMillion = 1536, Limits{Items: 3}, Estimate, 0.02
		})},
	} {
		for i := range same {
			require.Equal(t, mustScope(t, same[0], 0), mustScope(t, same[i], 0), "%+v", same[i].Params)
		}
	}

	_, err := scopeOf(edit(func(s *Spec) { s.Params = map[string]any{"f": func() {}} }), 0)
	require.Error(t, err)
}

func TestLongScopes(t *testing.T) {
	scope := mustScope(t, small(), 0)
	seen := map[digest]bool{scope: true}
	for _, long := range []digest{
		longScopeOf(scope, 8192, TruncateLongTexts, "a"),
		longScopeOf(scope, 8191, TruncateLongTexts, "a"),
		longScopeOf(scope, 8192, RefuseLongTexts, "a"),
		longScopeOf(scope, 8192, SendLongTexts, "a"),
		longScopeOf(scope, 8192, TruncateLongTexts, "b"),
		longScopeOf(mustScope(t, small(), 1), 8192, TruncateLongTexts, "a"),
	} {
		require.False(t, seen[long])
		seen[long] = true
	}
}

// FuzzValidUTF8 compares with what encoding/json sends.
func FuzzValidUTF8(f *testing.F) {
	for _, seed := range []string{"", "plain", "a\xffb", "\xed\xa0\x80", "\xf0\x9f\x98", "é\xc3", "\xc0\x80", "\xf4\x90\x80\x80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spelled, err := json.Marshal(text)
		require.NoError(t, err)
		var sent string
		require.NoError(t, json.Unmarshal(spelled, &sent))
		require.Equal(t, sent, validUTF8(text))
	})
}
