package openai

import (
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireNearest fails unless plainNumber leaves number alone or reads it as
// strconv.ParseFloat does. It returns whether it read it.
func requireNearest(t testing.TB, number string) bool {
	t.Helper()
	f, end := plainNumber([]byte(number), 0)
	if end == 0 {
		return false
	}
	want, err := strconv.ParseFloat(number[:end], 32)
	require.NoError(t, err, number)
	require.Equal(t, math.Float32bits(float32(want)), math.Float32bits(f), number)
	return true
}

// Numbers as a provider writes them are read in one pass, whatever wrote them.
func TestPlainNumbersAreTaken(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const n = 20_000
	for _, form := range []struct {
		name string
		of   func(float32) string
	}{
		{"shortest of a float32", func(f float32) string { return strconv.FormatFloat(float64(f), 'g', -1, 32) }},
		{"shortest of a float64", func(f float32) string { return strconv.FormatFloat(float64(f), 'g', -1, 64) }},
		{"eight decimals", func(f float32) string { return strconv.FormatFloat(float64(f), 'f', 8, 64) }},
		{"exponent", func(f float32) string { return strconv.FormatFloat(float64(f), 'E', 8, 64) }},
	} {
		taken := 0
		for range n {
			if requireNearest(t, form.of(float32(r.NormFloat64()/40))) {
				taken++
			}
		}
		require.Greater(t, taken, n*99/100, form.name)
	}
}

// A number beside the middle between two float32 values is what the sum of roundings
// gets wrong.
func TestNumbersBesideMiddles(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3_000 {
		f := math.Float32frombits(r.Uint32N(0x7f7fffff))
		middle := (float64(f) + float64(math.Nextafter32(f, math.MaxFloat32))) / 2
		for step := range 13 {
			x := math.Float64frombits(math.Float64bits(middle) + uint64(step) - 6)
			for digits := 15; digits <= 19; digits++ {
				requireNearest(t, strconv.FormatFloat(x, 'e', digits-1, 64))
				requireNearest(t, strconv.FormatFloat(-x, 'g', digits, 64))
			}
		}
	}
}

func TestNumbersThatAreNotPlain(t *testing.T) {
	for _, number := range []string{"", "-", "+1", ".5", "1.", "01", "-01", "00", "1e", "1e+", "1.e1", "1e100", "NaN", "null",
		"1e23", "1e-23", "12345678901234567890", "1e-50", "1.0000000596046448", "340282356779733661637539395458142568448"} {
		_, end := plainNumber([]byte(number), 0)
		require.Zero(t, end, number)
	}
	// A multiple of 2^64 is 0 in the integer that overflows.
	requireNearest(t, strconv.FormatFloat(0x1p90, 'f', 3, 64))
	for number, want := range map[string]float32{"0": 0, "-0": float32(math.Copysign(0, -1)), "0.0": 0, "1": 1, "-1.5e+1": -15, "1E-2": 0.01, "0e5": 0, "0.000012": 0.000012} {
		f, end := plainNumber([]byte(number+"x1"), 0)
		require.Equal(t, len(number), end, number)
		require.Equal(t, math.Float32bits(want), math.Float32bits(f), number)
	}
}

func FuzzPlainNumber(f *testing.F) {
	for _, number := range []string{"0.0123", "-1.2345678901234567e-5", "16777217", "1.00000017881393432617187499", "9007199254740993", "1e22", "5e-324", "0e22x"} {
		f.Add(number)
	}
	f.Fuzz(func(t *testing.T, number string) { requireNearest(t, number) })
}

// FuzzBase64 compares an embedding that is a string with encoding/json and the
// standard base64.
func FuzzBase64(f *testing.F) {
	whole := base64Of(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
	f.Add(whole)
	f.Add(strings.ReplaceAll(whole, "/", `\/`))
	f.Add(whole[:60] + `\n` + whole[60:])
	f.Add(whole[:60] + "\n\n\n\n" + whole[60:])
	f.Add("AAAA")
	f.Add("AAAAAA==")
	f.Add("AAA\n=")
	f.Fuzz(func(t *testing.T, text string) {
		requireSame(t, []byte(fmt.Sprintf(`{"data":[{"embedding":"%s","index":0},{"embedding":"%s"}]}`, whole, text)))
	})
}

// Each byte of a string is checked, in whichever part of it the library decodes many
// at once.
func TestEveryByteOfBase64IsChecked(t *testing.T) {
	for _, n := range []int{1, 11, 12, 13, 33, 34, 35, 48, 64, 100} {
		raw := make([]byte, 4*n)
		for i := range raw {
			raw[i] = byte(37*i + n)
		}
		text := base64.StdEncoding.EncodeToString(raw)
		for at := range len(text) {
			for _, c := range []string{"\x00", "\n", "\r", " ", "=", "-", "_", "\x7f", "\x80", "\xff", `\"`, `\/`, `\n`, `"`, "A"} {
				requireSame(t, []byte(`{"data":[{"embedding":"`+text[:at]+c+text[at+1:]+`"}]}`))
			}
		}
		for cut := range len(text) {
			requireSame(t, []byte(`{"data":[{"embedding":"`+text[:cut]+`"}]}`))
		}
	}
}
