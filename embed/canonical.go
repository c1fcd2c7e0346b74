package embed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// canonicalJSON spells request parameters in one way, whatever the order of
// keys and the spelling of numbers: it is what the scope digests. Numbers are
// compared as decimals, not as float64, which can't tell 9007199254740993 from
// 9007199254740992.
func canonicalJSON(params map[string]any) ([]byte, error) {
	if len(params) == 0 {
		return []byte("{}"), nil
	}
	spelled, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(spelled))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not JSON: something follows the value")
	}
	return appendCanonical(nil, value)
}

func appendCanonical(b []byte, value any) ([]byte, error) {
	var err error
	switch v := value.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, key)
			b = append(b, ':')
			if b, err = appendCanonical(b, v[key]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []any:
		b = append(b, '[')
		for i, element := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendCanonical(b, element); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case json.Number:
		number, err := canonicalNumber(v.String())
		return append(b, number...), err
	case string:
		return appendString(b, v), nil
	default: // nil, true, false
		spelled, err := json.Marshal(v)
		return append(b, spelled...), err
	}
}

// appendString spells a string as JSON; it comes from a decoder, so it can't fail.
func appendString(b []byte, s string) []byte {
	spelled, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return append(b, spelled...)
}

// canonicalNumber spells a JSON number as digits without zeros at either end,
// "e", and an exponent: 1, 1.0 and 10e-1 are all "1e0", and zero is "0". It
// never writes an exponent out, so 1e999999999 costs nothing.
func canonicalNumber(s string) (string, error) {
	rest, negative := strings.CutPrefix(s, "-")
	mantissa, exponentText, hasExponent := strings.Cut(strings.ToLower(rest), "e")
	exponent := new(big.Int)
	if hasExponent {
		if _, ok := exponent.SetString(strings.TrimPrefix(exponentText, "+"), 10); !ok {
			return "", fmt.Errorf("number with an exponent that can't be read")
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0", nil
	}
	trimmed := strings.TrimRight(digits, "0")
	exponent.Add(exponent, big.NewInt(int64(len(digits)-len(trimmed)-len(fraction))))
	sign := ""
	if negative {
		sign = "-"
	}
	return sign + trimmed + "e" + exponent.String(), nil
}
