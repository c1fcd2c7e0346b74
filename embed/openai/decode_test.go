package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/embed"
)

// base64Of returns vectors as the API sends them.
func base64Of(vector ...float32) string {
	var b []byte
	for _, f := range vector {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// decodeWithJSON does with encoding/json what decodeAnswer does. It decodes into
// maps, because with structs the names of members would match in any case.
func decodeWithJSON(body []byte) (answer *embed.Answer, failed bool, err error) {
	if !json.Valid(body) {
		return nil, false, errors.New("not JSON")
	}
	answer = &embed.Answer{Tokens: -1}
	var root map[string]json.RawMessage
	_ = json.Unmarshal(body, &root) // nil unless it is an object
	failed = root["error"] != nil && string(root["error"]) != "null"
	if json.Unmarshal(root["model"], &answer.Model) != nil {
		answer.Model = ""
	}
	var usage map[string]json.RawMessage
	_ = json.Unmarshal(root["usage"], &usage)
	for _, name := range []string{"total_tokens", "prompt_tokens"} {
		if n, ok := naturalWithJSON(usage[name]); ok {
			answer.Tokens = n
		}
	}
	var items []json.RawMessage
	if err := json.Unmarshal(root["data"], &items); err != nil || items == nil {
		return nil, failed, errNoData
	}
	answer.Vectors = make([][]float32, len(items))
	answer.Index = make([]int, len(items))
	indexed := false
	for i, raw := range items {
		var item map[string]json.RawMessage
		if err := json.Unmarshal(raw, &item); err != nil || item == nil {
			return nil, failed, errBadItem
		}
		answer.Index[i] = -1
		if given := item["index"]; given != nil && string(given) != "null" {
			n, ok := naturalWithJSON(given)
			if !ok {
				return nil, failed, errBadIndex
			}
			answer.Index[i], indexed = n, true
		}
		vector, err := vectorWithJSON(item["embedding"])
		if err != nil {
			return nil, failed, err
		}
		answer.Vectors[i] = vector
	}
	if !indexed {
		answer.Index = nil
	}
	return answer, failed, nil
}

func naturalWithJSON(raw json.RawMessage) (int, bool) {
	var n int
	err := json.Unmarshal(raw, &n)
	return n, err == nil && n >= 0 && string(raw) != "null"
}

func vectorWithJSON(raw json.RawMessage) ([]float32, error) {
	var text string
	if len(raw) > 0 && raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(b)%4 != 0 {
			return nil, errBadBase64
		}
		vector := make([]float32, len(b)/4)
		for i := range vector {
			vector[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		return vector, nil
	}
	var numbers []*float32
	if err := json.Unmarshal(raw, &numbers); err != nil || numbers == nil {
		return nil, errBadVector
	}
	vector := make([]float32, len(numbers))
	for i, n := range numbers {
		if n == nil {
			return nil, errBadVector
		}
		vector[i] = *n
	}
	return vector, nil
}

// requireSame fails unless decodeAnswer and encoding/json agree on body.
func requireSame(t testing.TB, body []byte) {
	t.Helper()
	want, wantFailed, wantErr := decodeWithJSON(bytes.Clone(body))
	before := bytes.Clone(body)
	got, gotFailed, gotErr := decodeAnswer(body)
	require.Equal(t, before, body, "the body was written to")
	require.Equal(t, wantErr == nil, gotErr == nil, "encoding/json: %v; here: %v\n%q", wantErr, gotErr, body)
	if !json.Valid(body) {
		var syntax *syntaxError
		require.ErrorAs(t, gotErr, &syntax)
		return
	}
	require.Equal(t, wantFailed, gotFailed)
	if gotErr != nil {
		require.ErrorIs(t, gotErr, embed.ErrBadAnswer)
		return
	}
	require.Equal(t, want.Model, got.Model)
	require.Equal(t, want.Tokens, got.Tokens)
	require.Equal(t, want.Index, got.Index)
	require.Len(t, got.Vectors, len(want.Vectors))
	for i := range want.Vectors {
		require.Len(t, got.Vectors[i], len(want.Vectors[i]))
		require.Equal(t, len(got.Vectors[i]), cap(got.Vectors[i]), "a vector can grow into the next")
		for j := range want.Vectors[i] {
			require.Equal(t, math.Float32bits(want.Vectors[i][j]), math.Float32bits(got.Vectors[i][j]), "vector %d, number %d", i, j)
		}
	}
}

// answers are bodies with what becomes of them; they are the fuzz target's seeds
// too.
var answers = []struct {
	name string
	body string
	want *embed.Answer // nil: an error
	err  error         // which; nil with want nil: it is not JSON
}{
	{"OpenAI", `{"object":"list","data":[{"object":"embedding","index":0,"embedding":"` + base64Of(1, -2.5) + `"},` +
		`{"object":"embedding","index":1,"embedding":"` + base64Of(0.25, 3) + `"}],` +
		`"model":"text-embedding-3-small","usage":{"prompt_tokens":5,"total_tokens":6}}`,
		&embed.Answer{Vectors: [][]float32{{1, -2.5}, {0.25, 3}}, Index: []int{0, 1}, Model: "text-embedding-3-small", Tokens: 5}, nil},
	{"numbers", `{"data":[{"embedding":[1,-2.5,0.1,1e-3,1E+2,-0,0.0,12345678901234567890]}]}`,
		&embed.Answer{Vectors: [][]float32{{1, -2.5, 0.1, 1e-3, 100, float32(math.Copysign(0, -1)), 0, 12345678901234567890}}, Tokens: -1}, nil},
	{"tiny numbers", `{"data":[{"embedding":[1e-45,1e-46,3.4028235e38,1.17549435e-38,0.000000000000000000000000000000000000000000001401298464324817]}]}`,
		&embed.Answer{Vectors: [][]float32{{1e-45, 0, math.MaxFloat32, 1.17549435e-38, 1e-45}}, Tokens: -1}, nil},
	{"Voyage gives total_tokens alone", `{"object":"list","data":[{"object":"embedding","embedding":"` + base64Of(7) + `","index":0}],"model":"voyage-4","usage":{"total_tokens":9}}`,
		&embed.Answer{Vectors: [][]float32{{7}}, Index: []int{0}, Model: "voyage-4", Tokens: 9}, nil},
	{"Gemini leaves out index 0", `{"object":"list","data":[{"object":"embedding","embedding":[1]},{"object":"embedding","index":1,"embedding":[2]}],"model":"gemini-embedding-001"}`,
		&embed.Answer{Vectors: [][]float32{{1}, {2}}, Index: []int{-1, 1}, Model: "gemini-embedding-001", Tokens: -1}, nil},
	{"any order of keys", ` { "usage" : { "total_tokens" : 2 , "prompt_tokens" : 1 } , "data" : [ { "embedding" : [ 1 , 2 ] , "index" : 3 } ] , "model" : "m" } `,
		&embed.Answer{Vectors: [][]float32{{1, 2}}, Index: []int{3}, Model: "m", Tokens: 1}, nil},
	{"unknown keys of any shape", `{"a":null,"b":[1,[2,{"c":"\u00e9\n"}],true,false],"data":[{"x":{"embedding":[9]},"embedding":[1],"y":[[]]}],"z":{"data":[]}}`,
		&embed.Answer{Vectors: [][]float32{{1}}, Tokens: -1}, nil},
	{"escapes in keys and strings", `{"\u0064ata":[{"embeddin\u0067":"AACA\u0050w=="},{"embedding":"\/\/9\/fw=="}],"model":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\ud83dx\udc00"}`,
		&embed.Answer{Vectors: [][]float32{{1}, {math.MaxFloat32}}, Model: "\"\\/\b\f\n\r\té😀\uFFFDx\uFFFD", Tokens: -1}, nil},
	{"the last of equal keys", `{"data":[{"embedding":[5]}],"data":[{"embedding":null,"embedding":[1],"index":"x","index":2},{"embedding":[2],"index":1}],"model":"a","model":"b","usage":{"prompt_tokens":1},"usage":{"prompt_tokens":2,"prompt_tokens":3}}`,
		&embed.Answer{Vectors: [][]float32{{1}, {2}}, Index: []int{2, 1}, Model: "b", Tokens: 3}, nil},
	{"the last data is null", `{"data":[{"embedding":[5]}],"data":null}`, nil, errNoData},
	{"the last embedding is null", `{"data":[{"embedding":[5],"embedding":null}]}`, nil, errBadVector},
	{"index null is no index", `{"data":[{"embedding":[5],"index":null}]}`, &embed.Answer{Vectors: [][]float32{{5}}, Tokens: -1}, nil},
	{"no vectors", `{"data":[]}`, &embed.Answer{Vectors: [][]float32{}, Tokens: -1}, nil},
	{"empty vectors", `{"data":[{"embedding":[]},{"embedding":""}]}`, &embed.Answer{Vectors: [][]float32{nil, nil}, Tokens: -1}, nil},
	{"vectors of different lengths", `{"data":[{"embedding":[1]},{"embedding":[1,2,3]},{"embedding":"` + base64Of(4, 5) + `"}]}`,
		&embed.Answer{Vectors: [][]float32{{1}, {1, 2, 3}, {4, 5}}, Tokens: -1}, nil},
	{"usage of wrong kinds", `{"data":[],"usage":{"prompt_tokens":"5","total_tokens":1.5},"model":7}`, &embed.Answer{Vectors: [][]float32{}, Tokens: -1}, nil},
	{"negative usage", `{"data":[],"usage":{"prompt_tokens":-5,"total_tokens":4}}`, &embed.Answer{Vectors: [][]float32{}, Tokens: 4}, nil},
	{"usage is no object", `{"data":[],"usage":[1]}`, &embed.Answer{Vectors: [][]float32{}, Tokens: -1}, nil},
	{"usage larger than an int", `{"data":[],"usage":{"prompt_tokens":92233720368547758080}}`, &embed.Answer{Vectors: [][]float32{}, Tokens: -1}, nil},
	{"no usage and zero usage differ", `{"data":[],"usage":{"prompt_tokens":0}}`, &embed.Answer{Vectors: [][]float32{}, Tokens: 0}, nil},

	{"no data", `{"model":"m"}`, nil, errNoData},
	{"data is an object", `{"data":{"embedding":[1]}}`, nil, errNoData},
	{"an array", `[]`, nil, errNoData},
	{"null", `null`, nil, errNoData},
	{"an item is null", `{"data":[null]}`, nil, errBadItem},
	{"an item without embedding", `{"data":[{"embedding":[1]},{"index":1}]}`, nil, errNoEmbedding},
	{"embedding null", `{"data":[{"embedding":null}]}`, nil, errBadVector},
	{"embedding true", `{"data":[{"embedding":true}]}`, nil, errBadVector},
	{"embedding an object", `{"data":[{"embedding":{}}]}`, nil, errBadVector},
	{"a number is null", `{"data":[{"embedding":[1,null]}]}`, nil, errBadVector},
	{"a number is a string", `{"data":[{"embedding":["1"]}]}`, nil, errBadVector},
	{"nested vectors", `{"data":[{"embedding":[[1]]}]}`, nil, errBadVector},
	{"a number is too large", `{"data":[{"embedding":[1e39]}]}`, nil, errBadNumber},
	{"base64 of 3 bytes", `{"data":[{"embedding":"AAAA"}]}`, nil, errBadBase64},
	{"base64 without its end", `{"data":[{"embedding":"AACAPw"}]}`, nil, errBadBase64},
	{"no base64", `{"data":[{"embedding":"hello!!!"}]}`, nil, errBadBase64},
	{"index is a string", `{"data":[{"embedding":[1],"index":"0"}]}`, nil, errBadIndex},
	{"index is no integer", `{"data":[{"embedding":[1],"index":0.5}]}`, nil, errBadIndex},
	{"index is negative", `{"data":[{"embedding":[1],"index":-1}]}`, nil, errBadIndex},
	{"index is too large", `{"data":[{"embedding":[1],"index":99999999999999999999}]}`, nil, errBadIndex},

	{"nothing", ``, nil, nil},
	{"white space", " \n", nil, nil},
	{"cut in a key", `{"da`, nil, nil},
	{"cut in base64", `{"data":[{"embedding":"AACA`, nil, nil},
	{"cut in a number", `{"data":[{"embedding":[1.`, nil, nil},
	{"cut after the last item", `{"data":[{"embedding":[1]}`, nil, nil},
	{"cut before the last brace", `{"data":[{"embedding":[1]}]`, nil, nil},
	{"cut in an escape", `{"model":"\u00`, nil, nil},
	{"something behind it", `{"data":[]} x`, nil, nil},
	{"two answers", `{"data":[]}{"data":[]}`, nil, nil},
	{"a trailing comma", `{"data":[],}`, nil, nil},
	{"a trailing comma in a vector", `{"data":[{"embedding":[1,]}]}`, nil, nil},
	{"a key without value", `{"data"}`, nil, nil},
	{"a key that is no string", `{1:2}`, nil, nil},
	{"a leading zero", `{"data":[{"embedding":[01]}]}`, nil, nil},
	{"a leading plus", `{"data":[{"embedding":[+1]}]}`, nil, nil},
	{"a leading point", `{"data":[{"embedding":[.5]}]}`, nil, nil},
	{"a trailing point", `{"data":[{"embedding":[5.]}]}`, nil, nil},
	{"an empty exponent", `{"data":[{"embedding":[1e]}]}`, nil, nil},
	{"hexadecimal", `{"data":[{"embedding":[0x1]}]}`, nil, nil},
	{"NaN as a number", `{"data":[{"embedding":[NaN]}]}`, nil, nil},
	{"Infinity as a number", `{"data":[{"embedding":[-Infinity]}]}`, nil, nil},
	{"a line break in a string", "{\"model\":\"a\nb\"}", nil, nil},
	{"a wrong escape", `{"model":"\x41"}`, nil, nil},
	{"a wrong literal", `{"a":nul}`, nil, nil},
	{"a byte of zero", "{\"data\":[\x00]}", nil, nil},
	{"HTML", `<html><body>502 Bad Gateway</body></html>`, nil, nil},
}

func TestDecode(t *testing.T) {
	for _, test := range answers {
		t.Run(test.name, func(t *testing.T) {
			requireSame(t, []byte(test.body))
			got, _, err := decodeAnswer([]byte(test.body))
			switch {
			case test.want != nil:
				require.NoError(t, err)
				require.Equal(t, test.want, got)
			case test.err != nil:
				require.Equal(t, test.err, err)
			default:
				var syntax *syntaxError
				require.ErrorAs(t, err, &syntax)
				require.NotContains(t, err.Error(), "Bad Gateway")
			}
		})
	}
}

func TestDecodePassesNonFinite(t *testing.T) {
	want := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	body := `{"data":[{"embedding":"` + base64Of(want...) + `"}]}`
	requireSame(t, []byte(body))
	got, _, err := decodeAnswer([]byte(body))
	require.NoError(t, err)
	require.True(t, math.IsNaN(float64(got.Vectors[0][0])))
	require.Equal(t, want[1:], got.Vectors[0][1:])
}

// A cut anywhere must be an error: half an answer is none.
func TestDecodeEveryCut(t *testing.T) {
	for _, test := range answers {
		if test.want == nil {
			continue
		}
		body := strings.TrimSpace(test.body)
		for i := range len(body) {
			_, _, err := decodeAnswer([]byte(body[:i]))
			var syntax *syntaxError
			require.ErrorAs(t, err, &syntax, "%s cut at %d", test.name, i)
			require.True(t, syntax.cutOff(), "%s cut at %d", test.name, i)
		}
	}
}

func TestDecodeDepth(t *testing.T) {
	for _, depth := range []int{9_998, 9_999, 10_000, 10_001, 100_000} {
		for _, format := range []string{`{"data":[],"x":%s%s}`, `%s%s`} {
			body := fmt.Sprintf(format, strings.Repeat("[", depth), strings.Repeat("]", depth))
			requireSame(t, []byte(body))
		}
		requireSame(t, []byte(strings.Repeat(`{"a":`, depth)+"1"+strings.Repeat("}", depth)))
		requireSame(t, []byte(strings.Repeat("[", depth)))
	}
}

// Random answers: numbers in any spelling, base64, shuffled keys, white space.
func TestDecodeRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		body := randomAnswer(r, 1+r.IntN(5), r.IntN(40))
		requireSame(t, body)
		// One damaged byte.
		damaged := bytes.Clone(body)
		damaged[r.IntN(len(damaged))] = byte(r.IntN(128))
		requireSame(t, damaged)
	}
}

func randomAnswer(r *rand.Rand, n, dimensions int) []byte {
	space := func() string { return []string{"", "", " ", "\n\t"}[r.IntN(4)] }
	var items []string
	for i := range n {
		var vector string
		if r.IntN(2) == 0 {
			numbers := make([]float32, dimensions)
			for j := range numbers {
				numbers[j] = math.Float32frombits(r.Uint32())
			}
			vector = `"` + base64Of(numbers...) + `"`
		} else {
			var numbers []string
			for range dimensions {
				f := math.Float32frombits(r.Uint32())
				if f-f != 0 {
					f = 0.5
				}
				numbers = append(numbers, strconv.FormatFloat(float64(f), "efg"[r.IntN(3)], []int{-1, 9, 17, 30}[r.IntN(4)], 64))
			}
			vector = "[" + space() + strings.Join(numbers, space()+","+space()) + "]"
		}
		members := []string{`"object":"embedding"`, `"embedding":` + space() + vector, `"index":` + space() + strconv.Itoa(i)}
		r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		items = append(items, "{"+space()+strings.Join(members, space()+",")+space()+"}")
	}
	members := []string{`"data":[` + strings.Join(items, ",") + `]`, `"model":"m"`, `"usage":{"prompt_tokens":3}`, `"id":null`}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return []byte("{" + strings.Join(members, space()+","+space()) + "}")
}

// The scan of eight bytes at once must see a special byte wherever it stands.
func TestStringScan(t *testing.T) {
	for length := range 40 {
		for at := range length {
			for _, c := range []byte{0, 1, 0x1f, 0x20, 0x21, '"', '#', '[', '\\', ']', 0x7f, 0x80, 0xa2, 0xdc, 0xff} {
				body := bytes.Repeat([]byte("a"), length)
				body[at] = c
				requireSame(t, []byte(`{"data":[],"model":"`+string(body)+`"}`))
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, test := range answers {
		f.Add([]byte(test.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) { requireSame(t, body) })
}

func TestDecodeAllocations(t *testing.T) {
	body := largeAnswer(512, 1536, true)
	allocations := testing.AllocsPerRun(5, func() {
		if _, _, err := decodeAnswer(body); err != nil {
			t.Fatal(err)
		}
	})
	// The answer, its vectors and indexes, one array for all numbers, the model,
	// the buffer for base64, and a few to grow them from the first item on.
	require.LessOrEqual(t, allocations, 20.0)
	numbers := largeAnswer(64, 256, false)
	allocations = testing.AllocsPerRun(5, func() {
		if _, _, err := decodeAnswer(numbers); err != nil {
			t.Fatal(err)
		}
	})
	require.LessOrEqual(t, allocations, 40.0)
}

// The memory for vectors is bounded by the body, whatever the first item
// promises.
func TestDecodeMemory(t *testing.T) {
	first := `{"embedding":[` + strings.Repeat("0,", 9_999) + `0]}`
	body := []byte(`{"data":[` + first + strings.Repeat(`,{"embedding":[]}`, 10_000) + `]}`)
	answer, _, err := decodeAnswer(body)
	require.NoError(t, err)
	require.Len(t, answer.Vectors, 10_001)
	d := decoder{scanner: scanner{b: body}, prompt: -1, total: -1}
	require.NoError(t, d.object(1, d.member))
	require.LessOrEqual(t, 4*cap(d.floats), 4*len(body))
}
