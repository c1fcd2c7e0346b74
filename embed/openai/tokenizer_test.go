package openai

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
	"github.com/stretchr/testify/require"
)

// library returns tiktoken-go over the same vocabulary, without its global
// loader.
var library = sync.OnceValue(func() *tiktoken.Tiktoken {
	ranks, err := loader.NewOfflineLoader().LoadTiktokenBpe("cl100k_base.tiktoken")
	if err != nil {
		panic(err)
	}
	encoding := &tiktoken.Encoding{
		Name:           tiktoken.MODEL_CL100K_BASE,
		PatStr:         `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		MergeableRanks: ranks,
		SpecialTokens:  map[string]int{tiktoken.ENDOFTEXT: 100257},
	}
	core, err := tiktoken.NewCoreBPE(ranks, encoding.SpecialTokens, encoding.PatStr)
	if err != nil {
		panic(err)
	}
	return tiktoken.NewTiktoken(core, encoding, map[string]any{})
})

// tokensOf returns the tokens of text, as the encoder finds them.
func tokensOf(text string) []string {
	v := loadVocabulary()
	var tokens []string
	for text != "" {
		size := pieceSize(text)
		piece, start := text[:size], 0
		n := v.encode(piece, func(end int) {
			tokens = append(tokens, piece[start:end])
			start = end
		})
		if count := v.encode(piece, nil); count != n {
			panic("encode counts differently when it isn't asked for the tokens")
		}
		text = text[size:]
	}
	return tokens
}

// requireLibrarysTokens fails unless text has the same tokens as tiktoken-go
// finds.
func requireLibrarysTokens(t testing.TB, text string) {
	t.Helper()
	ranks := loadVocabulary()
	var got []int
	for _, token := range tokensOf(text) {
		rank, ok := ranks[token]
		require.True(t, ok, "%q is no token", token)
		got = append(got, rank)
	}
	want := library().EncodeOrdinary(text)
	require.Equal(t, len(want), CL100K().Count(text), "count of %q", text)
	if len(want) > 0 {
		require.Equal(t, want, got, "tokens of %q", text)
	}
}

var tokenTexts = []string{
	"", " ", "a", "  ", "hello world", "Hello,   world!\n\n  It's fine.", "I'll we've you'RE he'D it'S can'T I'm",
	"'s 'x '' 'll'll 'llama 'Tis 'é", "don't 123 1234567 3.14159e10 ١٢٣٤ Ⅷ ½", "tabs\t\tand\r\nlines\r\r\n\n x  \n  y   ",
	"naïve café Ünïcödé 東京都 の 天気 は Привет мир שלום العربية हिन्दी ไทยภาษา", "emoji 😀👩‍👩‍👧‍👦🇩🇪 ok",
	"<|endoftext|> and <|fim_prefix|>", "func main() { fmt.Println(\"x\") }\n\t// done\n", "a\u00a0b\u2003c\u3000d\u0085e\u2028f",
	"https://example.com/a?b=c&d=%20#e", strings.Repeat("ab", 60), strings.Repeat("=", 200), strings.Repeat(" ", 300),
	strings.Repeat("\n", 50), " \n \n x", "x \u00a0\n y", "'", "' a", "\u00a0'a", "\x00\x01", "ſ's 'ſ K'", "e\u0301e\u0301", "\n'll", ".\n\n.\r\r", "! \n",
}

func TestTokensAreTiktokens(t *testing.T) {
	require.Len(t, loadVocabulary(), 100_256)
	longest := 0
	for token := range loadVocabulary() {
		longest = max(longest, len(token))
	}
	require.Equal(t, maxTokenBytes, longest)
	for _, text := range tokenTexts {
		requireLibrarysTokens(t, text)
	}
	// Known counts of tiktoken's, so that the library here isn't alone.
	require.Equal(t, 2, CL100K().Count("hello world"))
	require.Equal(t, 6, CL100K().Count("tiktoken is great!"))
	require.Equal(t, "cl100k_base", CL100K().Name())
	require.True(t, CL100K().Exact())
}

// randomText draws from alphabets in which pieces and merges differ.
func randomText(r *rand.Rand, length int) string {
	alphabets := []string{
		"ab", "abcdefghij ", "etaoin shrdlu.,'", " \n\r\t\u00a0", "0123456789 .", "éüßñçÅ ", "日本語中文한국어", "😀🎉👍🏽\u200d", "=-_#*/ \n",
		"'sStTmMdDlLrReEvV ", "\u0301\u0302abc", "ab12 \n,'é日😀",
	}
	var b strings.Builder
	for b.Len() < length {
		letters := []rune(alphabets[r.IntN(len(alphabets))])
		for range 1 + r.IntN(20) {
			b.WriteRune(letters[r.IntN(len(letters))])
		}
	}
	return b.String()
}

// Parts of generated texts and of real ones, such as the program text of this package,
// have the tokens that tiktoken-go finds, and are cut on their borders. By hand:
//
//	EMBEDONCE_TOKEN_TEXTS=1000000 EMBEDONCE_TOKEN_FILE=texts.jsonl go test -run TokensOfManyTexts ./embed/openai
func TestTokensOfManyTexts(t *testing.T) {
	n := 10_000
	if given := os.Getenv("EMBEDONCE_TOKEN_TEXTS"); given != "" {
		var err error
		n, err = strconv.Atoi(given)
		require.NoError(t, err)
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	if more := os.Getenv("EMBEDONCE_TOKEN_FILE"); more != "" {
		files = append(files, more)
	}
	real := proseText
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		real += strings.ToValidUTF8(string(text), "")
	}
	seed := rand.Uint64()
	t.Logf("seed %d, %d texts", seed, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range n {
		text := ""
		if i%2 == 0 {
			text = randomText(r, r.IntN(300))
		} else {
			at := r.IntN(len(real))
			text = strings.ToValidUTF8(real[at:min(at+r.IntN(300), len(real))], "")
		}
		requireLibrarysTokens(t, text)
		requireCut(t, text, r.IntN(60))
	}
}

// Both ways to merge must find the same tokens, for pieces of any length.
func TestLargePieces(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	v := loadVocabulary()
	ends := func(encode func(string, func(int)) int, piece string) (ends []int) {
		n := encode(piece, func(end int) { ends = append(ends, end) })
		require.Len(t, ends, n)
		return ends
	}
	for range 500 {
		piece := randomText(r, 1+r.IntN(smallPiece-20))
		piece = piece[:min(len(piece), smallPiece)]
		require.Equal(t, ends(v.encodeSmall, piece), ends(v.encodeLarge, piece), "%q", piece)
	}
	for _, letters := range []string{"a", "ab", "aab", "é", "日本", "acgt", "="} {
		var b strings.Builder
		for b.Len() < 1_500 {
			b.WriteString(letters)
			if r.IntN(3) == 0 {
				b.WriteString(letters[:1])
			}
		}
		requireLibrarysTokens(t, strings.ToValidUTF8(b.String(), "x"))
	}
}

func FuzzTokens(f *testing.F) {
	for _, text := range tokenTexts {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if len(text) > 1_000 {
			return // the library is quadratic
		}
		require.LessOrEqual(t, CL100K().Count(text), len(text))
		requireCut(t, text, limit)
		if utf8.ValidString(text) { // the library counts U+FFFD for what is not
			requireLibrarysTokens(t, text)
		}
	})
}

// requireCut checks what embed.Tokenizer says of Cut.
func requireCut(t testing.TB, text string, limit int) {
	t.Helper()
	prefix, tokens := CL100K().Cut(text, limit)
	require.True(t, strings.HasPrefix(text, prefix))
	require.Equal(t, CL100K().Count(prefix), tokens)
	require.LessOrEqual(t, tokens, max(limit, 0))
	if utf8.ValidString(text) {
		require.True(t, utf8.ValidString(prefix), "%q was cut within a character: %q", text, prefix)
	}
	all := tokensOf(text)
	if len(all) <= limit {
		require.Equal(t, text, prefix)
		return
	}
	// The longest such prefix: it ends on a border, and with any later border of
	// the first limit tokens it would count too much.
	border, found := 0, prefix == ""
	for i, token := range all {
		border += len(token)
		found = found || border == len(prefix)
		if i < limit && border > len(prefix) && utf8.RuneStart(text[border]) {
			require.Greater(t, CL100K().Count(text[:border]), limit, "%q could be longer: %q", prefix, text[:border])
		}
	}
	require.True(t, found, "%q is not cut on a border of tokens: %q", text, prefix)
}

func TestCut(t *testing.T) {
	prefix, tokens := CL100K().Cut("The quick brown fox", 2)
	require.Equal(t, "The quick", prefix)
	require.Equal(t, 2, tokens)
	for _, limit := range []int{-1, 0, 1, 2, 3, 4, 5, 7, 10, 100, math.MaxInt - 1, math.MaxInt} {
		for _, text := range tokenTexts {
			requireCut(t, text, limit)
		}
	}
	// Tokens of one byte each: no border within a character counts.
	emoji := strings.Repeat("👩🏽‍🚀", 5)
	for limit := range 40 {
		requireCut(t, emoji, limit)
	}
}

func TestCutRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 500 {
		requireCut(t, randomText(r, r.IntN(200)), r.IntN(80))
	}
}

// Texts without a break took the library a quadratic time; here they must be no
// worse than others. There is no clock in the test: it would run into its
// time-out.
func TestHostileTexts(t *testing.T) {
	const size = 128 << 10
	for name, unit := range map[string]string{
		"letters": "a", "two letters": "ab", "spaces": " ", "line breaks": "\n", "rulers": "=", "digits": "1", "han": "日", "apostrophes": "'",
		"spaces and lines": " \n", "marks": "\u0301", "zero bytes": "\x00",
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat(unit, size/len(unit))
			tokens := CL100K().Count(text)
			require.Positive(t, tokens)
			require.LessOrEqual(t, tokens, len(text))
			prefix, n := CL100K().Cut(text, 8_192)
			require.LessOrEqual(t, n, 8_192)
			require.Equal(t, n, CL100K().Count(prefix))
			require.NotEmpty(t, prefix)
		})
	}
}

func TestTokenizerIsConcurrent(t *testing.T) {
	want := CL100K().Count(tokenTexts[6])
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				if got := CL100K().Count(tokenTexts[6]); got != want {
					t.Errorf("count is %d, was %d", got, want)
				}
				CL100K().Cut(tokenTexts[6], 5)
			}
		})
	}
	group.Wait()
}

func TestCountAllocatesNothing(t *testing.T) {
	tokenizer := CL100K()
	tokenizer.Count("once")
	require.Zero(t, testing.AllocsPerRun(100, func() { tokenizer.Count(proseText) }))
}

var proseText = strings.Repeat("Package json implements encoding and decoding of JSON as defined in RFC 7159, "+
	"the mapping between JSON and Go values is described in the documentation. ", 5)[:743]

func BenchmarkTokens(b *testing.B) {
	tokenizer := CL100K()
	b.Run("prose743/here", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tokenizer.Count(proseText)
		}
	})
	b.Run("prose743/tiktoken-go", func(b *testing.B) {
		b.ReportAllocs()
		library()
		for b.Loop() {
			library().EncodeOrdinary(proseText)
		}
	})
	for _, size := range []int{4 << 10, 16 << 10} {
		run := strings.Repeat("a", size)
		b.Run("letters/"+sizeName(size)+"/here", func(b *testing.B) {
			for b.Loop() {
				tokenizer.Count(run)
			}
		})
		b.Run("letters/"+sizeName(size)+"/tiktoken-go", func(b *testing.B) {
			for b.Loop() {
				library().EncodeOrdinary(run)
			}
		})
	}
	run := strings.Repeat("a", 1<<20)
	b.Run("letters/1MB/here", func(b *testing.B) {
		for b.Loop() {
			tokenizer.Count(run)
		}
	})
	b.Run("cut/1MB", func(b *testing.B) {
		text := strings.Repeat(proseText, 1<<20/len(proseText))
		for b.Loop() {
			tokenizer.Cut(text, 8_192)
		}
	})
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			if _, err := loader.NewOfflineLoader().LoadTiktokenBpe("cl100k_base.tiktoken"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func sizeName(n int) string { return map[int]string{4 << 10: "4KB", 16 << 10: "16KB"}[n] }
