package hashing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/embedonce/embedonce/embed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func vector(t testing.TB, opts *Options, text string) []float32 {
	t.Helper()
	answer, err := New(opts).Embed(t.Context(), []string{text})
	require.NoError(t, err)
	return answer.Vectors[0]
}

func cosine(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// A change here changes vectors that users have in their caches: it needs a new
// identity.
func TestGolden(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "00000000 3f800000 00000000 00000000 00000000 00000000"},
		{"!!!", "00000000 00000000 3f05b10f 00000000 00000000 3f5a514a"},
		{"ReadFile reads the named file.", "3f08442a bf1b8425 3e5e7ea6 3ebdb8f0 3dd2b0a9 bec7f5b5"},
		{"Ünïcödé ΣΊΣΥΦΟΣ Жёлтый", "3edc0770 3ecef809 bee95244 3f07aa46 3ecc8959 3d7d19dc"},
		{"日本語のテキスト 한국어 👍", "be93cd3a 3e93cd3a 3f000000 bf1cc471 be5105ec 3ed105ec"},
		{"\xff\xfe bytes", "beb502d4 00000000 beb502d4 bf1cc781 beb502d4 befffd00"},
	} {
		t.Run(test.text, func(t *testing.T) {
			var bits []string
			for _, x := range vector(t, &Options{Dimensions: 6}, test.text) {
				bits = append(bits, fmt.Sprintf("%08x", math.Float32bits(x)))
			}
			require.Equal(t, test.want, strings.Join(bits, " "))
		})
	}
	// A long text in the default dimensions, and in others.
	var long strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&long, "word%d ЖŁÉ%c%c, ", i*i, rune(0x3040+i%90), rune(0x4e00+i*7))
	}
	for _, test := range []struct {
		opts *Options
		want string
	}{
		{nil, "e97d3d3f828fbae2"},
		{&Options{Dimensions: 100, MinGram: 1, MaxGram: 16}, "0f36d6e81be68ffa"},
	} {
		t.Run(fmt.Sprintf("%+v", test.opts), func(t *testing.T) {
			digest := sha256.New()
			binary.Write(digest, binary.LittleEndian, vector(t, test.opts, long.String()))
			require.Equal(t, test.want, fmt.Sprintf("%x", digest.Sum(nil)[:8]))
		})
	}
}

func TestNormIsOneAndNothingIsZero(t *testing.T) {
	for _, dimensions := range []int{1, 2, 3, 64, 512, maxDimensions} {
		for _, text := range []string{
			"", " ", "\n\t\u3000", "!!!", "...", "?", "a", "the", "a b", "b a", "—", "«»", "\xff", "\x00",
			"日", "👍", "한국어", "word", strings.Repeat("x", 10_000), strings.Repeat("many words ", 5000),
		} {
			v := vector(t, &Options{Dimensions: dimensions}, text)
			require.Len(t, v, dimensions)
			require.InDelta(t, 1, cosine(v, v), 1e-5, "%d dimensions, %.20q", dimensions, text)
		}
	}
}

func TestCloserAndFarther(t *testing.T) {
	for _, test := range []struct{ query, closer, farther string }{
		{"read a JSON file", "reads JSON files from a directory", "sends mail to a list of users"},
		{"read a JSON file", "a file in JSON, to be read", "a song to be sung, in the rain"},
		{"read file", "ReadFile returns the contents", "WriteTo sends the contents"},
		{"HTTP server", "HTTPServer listens on a port", "a port of the library to Windows"},
		{"embedding", "embeddings", "bedding"},
		{"the cat of the house", "a cat in a house", "the dog of the garden"},
		{"GRÜSSE AUS KÖLN", "grüße aus köln", "gruppe auf kiel"},
		{"ΟΔΥΣΣΕΥΣ", "Οδυσσεύς", "Ηρακλής"},
		{"МОСКВА", "москва", "минск"},
		{"東京の天気", "今日の東京は天気がいい", "大阪で電車に乗る"},
		{"数据库", "一个小型数据库系统", "一个小型游戏"},
		{"데이터베이스", "작은 데이터베이스 시스템", "작은 게임"},
		{"ＪＳＯＮ　１２", "json 12", "yaml 34"},
		{"rare", "rare", "rare rare rare rare other other other other"},
	} {
		query := vector(t, nil, test.query)
		closer, farther := cosine(query, vector(t, nil, test.closer)), cosine(query, vector(t, nil, test.farther))
		require.Greater(t, closer, farther, test.query)
		require.Greater(t, closer, 0.2, test.query)
	}
	require.Equal(t, vector(t, nil, "Same Words, same CASE?"), vector(t, nil, "same  words same case"))
	// Lexical, not semantic.
	require.Less(t, cosine(vector(t, nil, "car"), vector(t, nil, "automobile")), 0.2)
}

func TestOptionsChangeVectorsAndSpec(t *testing.T) {
	spec := func(opts *Options) embed.Spec {
		s, err := New(opts).Spec()
		require.NoError(t, err)
		require.Equal(t, *s.Dimensions, s.ModelDimensions)
		return s
	}
	same := spec(nil)
	require.Equal(t, "embedonce/hashing/1", same.Identity)
	require.Equal(t, 512, *same.Dimensions)
	require.Equal(t, map[string]any{"min_gram": 3, "max_gram": 4}, same.Params)
	require.Equal(t, embed.Limits{Items: 1024}, same.Limits)
	require.Equal(t, same, spec(&Options{Dimensions: 512, MinGram: 3, MaxGram: 4}), "a default that is spelled out is the same")

	for _, opts := range []*Options{{MinGram: 2}, {MaxGram: 5}, {MinGram: 6}, {Dimensions: 511}} {
		require.NotEqual(t, same, spec(opts))
		require.NotEqual(t, vector(t, nil, "some words"), vector(t, opts, "some words"))
	}

	p := New(nil)
	first, _ := p.Spec()
	*first.Dimensions = 7
	first.Params["min_gram"] = 7
	second, _ := p.Spec()
	require.Equal(t, same, second, "a caller's change must not reach the provider")
}

func TestOptionsAreChecked(t *testing.T) {
	for _, test := range []struct {
		opts Options
		want []string
	}{
		{Options{Dimensions: -1, MinGram: -2, MaxGram: 17}, []string{
			"Dimensions is -1, must be from 1 to 65536, or 0 for the default",
			"MinGram is -2, must be from 1 to 16", "MaxGram is 17, must be from 1 to 16",
		}},
		{Options{Dimensions: 65537}, []string{"Dimensions is 65537"}},
		{Options{MinGram: 5, MaxGram: 4}, []string{"MinGram is 5, must not be more than MaxGram, 4"}},
	} {
		p := New(&test.opts)
		_, err := p.Spec()
		for _, want := range test.want {
			require.ErrorContains(t, err, want)
		}
		_, err = p.Embed(t.Context(), []string{"text"})
		require.Error(t, err)
	}
}

func TestAnswer(t *testing.T) {
	p := New(nil)
	texts := []string{"two words", "日本", "!!!", "ReadFile's 3 words"}
	answer, err := p.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2, 3}, answer.Index)
	require.Equal(t, 2+2+0+4, answer.Tokens)
	require.Empty(t, answer.Model)
	for i, text := range texts {
		require.Equal(t, vector(t, nil, text), answer.Vectors[i], "alone and in company")
	}
	// The vectors are the caller's, each by itself.
	kept := vector(t, nil, texts[1])
	for i := range answer.Vectors[0] {
		answer.Vectors[0][i] = 9
	}
	_ = append(answer.Vectors[0], 9)
	require.Equal(t, kept, answer.Vectors[1])

	answer, err = p.Embed(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, answer.Vectors)
}

func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answer, err := New(nil).Embed(ctx, []string{"text"})
	require.Nil(t, answer)
	require.ErrorIs(t, err, context.Canceled)
	var failed *embed.ProviderError
	require.ErrorAs(t, err, &failed)
}

func TestConcurrently(t *testing.T) {
	p := New(nil)
	want := vector(t, nil, "the same text")
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 50 {
				answer, err := p.Embed(context.Background(), []string{"another", "the same text"})
				if err != nil || cosine(answer.Vectors[1], want) < 0.9999 {
					t.Error("not the same vector")
				}
			}
		})
	}
	running.Wait()
}

func TestAllocationsDontDependOnTexts(t *testing.T) {
	p := New(nil)
	texts := make([]string, 500)
	for i := range texts {
		texts[i] = fmt.Sprintf("text %d has some WordsInCamelCase and others", i)
	}
	allocations := testing.AllocsPerRun(10, func() { p.Embed(context.Background(), texts) })
	require.LessOrEqual(t, allocations, 20.0)
}

func FuzzEmbed(f *testing.F) {
	for _, text := range []string{
		"", "!!!", "read a JSON file", "ReadFile HTTPServer utf8Decode", "日本語 テキスト 한국어 ไทย", "Ünïcödé", "👍🏽 ✓ →",
		"\xff\xfe", "a\u0301e\u0308", "don't we'll it's", "ﬁ ＡＢＣ１２", strings.Repeat("long", 500),
	} {
		f.Add(text, uint16(512), uint8(3), uint8(4))
	}
	f.Add("x", uint16(1), uint8(1), uint8(16))
	f.Fuzz(func(t *testing.T, text string, dimensions uint16, minGram, maxGram uint8) {
		opts := &Options{
			Dimensions: 1 + int(dimensions)%2048,
			MinGram:    1 + int(minGram)%maxMaxGram,
			MaxGram:    1 + int(maxGram)%maxMaxGram,
		}
		if opts.MinGram > opts.MaxGram {
			opts.MinGram, opts.MaxGram = opts.MaxGram, opts.MinGram
		}
		answer, err := New(opts).Embed(t.Context(), []string{"something before", text})
		require.NoError(t, err)
		v := answer.Vectors[1]
		require.InDelta(t, 1, cosine(v, v), 1e-5) // also: no NaN
		require.Equal(t, vector(t, opts, text), v, "not the same again")
		require.Equal(t, words{}.Count("something before")+words{}.Count(text), answer.Tokens)
	})
}

func BenchmarkEmbed(b *testing.B) {
	text := strings.Repeat("ReadFile reads the named file from the file system and returns its contents. ", 10)
	p := New(nil)
	texts := make([]string, 100)
	for i := range texts {
		texts[i] = text[:700]
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Embed(b.Context(), texts); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(texts)), "µs/text")
}
