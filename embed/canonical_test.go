package embed

import (
	"encoding/json"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCanonicalNumber(t *testing.T) {
	for spelled, want := range map[string]string{
		"0": "0", "-0": "0", "0.000": "0", "0e99999999999999999999": "0",
		"1": "1e0", "1.0": "1e0", "10": "1e1", "10e-1": "1e0", "1E+2": "1e2", "-1.50": "-15e-1",
		"0.001": "1e-3", "100.0010": "100001e-3", "123e-2": "123e-2", "1.23": "123e-2",
		"9007199254740993": "9007199254740993e0", "1e999999999999999999999999": "1e999999999999999999999999",
	} {
		got, err := canonicalNumber(spelled)
		require.NoError(t, err)
		require.Equal(t, want, got, spelled)
	}
}

// FuzzCanonicalNumber: two spellings are one exactly when the numbers are equal.
func FuzzCanonicalNumber(f *testing.F) {
	f.Add("1.50", "15e-1")
	f.Add("9007199254740993", "9007199254740992")
	f.Add("-0", "0.0")
	f.Add("1e-3", "0.001")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a) > 40 || len(b) > 40 || !isNumber(a) || !isNumber(b) {
			return
		}
		x, ok := new(big.Rat).SetString(a)
		if !ok {
			return // an exponent that big.Rat refuses to write out
		}
		y, ok := new(big.Rat).SetString(b)
		if !ok {
			return
		}
		ca, err := canonicalNumber(a)
		require.NoError(t, err)
		cb, err := canonicalNumber(b)
		require.NoError(t, err)
		require.Equal(t, x.Cmp(y) == 0, ca == cb, "%s is %s, %s is %s", a, ca, b, cb)
	})
}

// isNumber says whether s is a JSON number whose exponent can be written out.
func isNumber(s string) bool {
	var number json.Number
	if json.Unmarshal([]byte(s), &number) != nil || s[0] == '"' {
		return false
	}
	digits := 0
	for i := len(s) - 1; i >= 0 && '0' <= s[i] && s[i] <= '9'; i-- {
		digits++
	}
	return digits <= 3 || !json.Valid([]byte(s)) || !hasExponent(s)
}

func hasExponent(s string) bool {
	for _, c := range s {
		if c == 'e' || c == 'E' {
			return true
		}
	}
	return false
}

func TestCanonicalJSON(t *testing.T) {
	got, err := canonicalJSON(map[string]any{"b": []any{1, 2.50, "x<y"}, "a": map[string]any{"z": nil, "y": true}})
	require.NoError(t, err)
	require.Equal(t, `{"a":{"y":true,"z":null},"b":[1e0,25e-1,"x\u003cy"]}`, string(got))

	none, err := canonicalJSON(nil)
	require.NoError(t, err)
	empty, err := canonicalJSON(map[string]any{})
	require.NoError(t, err)
	require.Equal(t, empty, none)
}
