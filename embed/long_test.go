package embed_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// countingTokenizer counts how often it counts.
type countingTokenizer struct {
	embed.Tokenizer
	counted atomic.Int64
}

func (c *countingTokenizer) Count(text string) int {
	c.counted.Add(1)
	return c.Tokenizer.Count(text)
}

// renamed is a tokenizer under another name.
type renamed struct {
	embed.Tokenizer
	name string
}

func (r renamed) Name() string { return r.name }

// limited returns a provider of which one text may have limit tokens.
func limited(limit int, tokenizer embed.Tokenizer) *embedtest.Provider {
	return embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) {
		s.Limits.TextTokens, s.Tokenizer = limit, tokenizer
	}})
}

// TestTruncate cuts a long text at the limit, counts it, and caches what it got
// under the whole text.
func TestTruncate(t *testing.T) {
	provider := limited(100, embedtest.Words)
	client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
	texts := []string{"short", ofTokens("long", 101), ofTokens("fits", 100), ofTokens("long", 500)}
	plan, err := client.Plan(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, 2, plan.Truncated)
	require.Equal(t, int64(301), plan.Tokens)

	response, err := client.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, 2, response.Usage.Truncated)
	require.Equal(t, int64(301), response.Usage.BilledTokens)
	cut := ofTokens("long", 100) + " "
	for i, text := range []string{"short", cut, texts[2], cut} {
		require.True(t, embedtest.IsVectorOf(text, response.Vector(i)), "text %d", i)
	}
	again, err := client.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, 4, again.Usage.Hits)
	require.Zero(t, again.Usage.Truncated)
	require.Equal(t, response.Matrix(), again.Matrix())
}

// TestTruncateKeepsAMargin: a tokenizer that estimates cuts at 85 %.
func TestTruncateKeepsAMargin(t *testing.T) {
	provider := limited(100, embed.Estimate)
	client := newClient(t, provider, nil)
	_, err := client.Embed(t.Context(), []string{ofTokens("long", 500)})
	require.NoError(t, err)
	require.Equal(t, 85, embed.Estimate.Count(provider.History()[0].Texts[0]))

	provider = limited(1, embed.Estimate)
	_, err = newClient(t, provider, nil).Embed(t.Context(), []string{"some words"})
	require.NoError(t, err)
	require.Equal(t, "some", provider.History()[0].Texts[0], "a limit of 1 token became none")
}

// TestTruncateProperty: whatever the text, what is sent is its longest prefix
// that a tokenizer allows: valid UTF-8, within the limit when measured again, and
// no character could be added but for those without tokens.
func TestTruncateProperty(t *testing.T) {
	r := random(t)
	alphabet := []rune("ab zß é日本語😀👩‍👩‍👧\u0301\u200b\n\t.,!0123456789\ufffd\U0010ffff")
	for _, tokenizer := range []embed.Tokenizer{embedtest.Words, embed.Estimate} {
		for range 500 {
			runes := make([]rune, 1+r.IntN(60))
			for i := range runes {
				runes[i] = alphabet[r.IntN(len(alphabet))]
			}
			text := "x" + string(runes)
			limit := 2 + r.IntN(20)
			provider := limited(limit, tokenizer)
			response, err := newClient(t, provider, nil).Embed(t.Context(), []string{text})
			require.NoError(t, err)
			sent := provider.History()[0].Texts[0]
			require.True(t, strings.HasPrefix(text, sent), "%q of %q", sent, text)
			require.True(t, utf8.ValidString(sent), "%q of %q", sent, text)
			most := limit
			if !tokenizer.Exact() {
				most = limit * 85 / 100
			}
			require.LessOrEqual(t, tokenizer.Count(sent), most, "%q of %q", sent, text)
			require.Equal(t, tokenizer.Count(text) > most, len(sent) < len(text), "%q of %q", sent, text)
			require.Equal(t, len(sent) < len(text), response.Usage.Truncated == 1)
			require.True(t, embedtest.IsVectorOf(sent, response.Vector(0)))
		}
	}
}

// TestRefuseLongTexts: a long text fails, its neighbours don't, and nothing of
// it is paid for.
func TestRefuseLongTexts(t *testing.T) {
	provider := limited(100, embedtest.Words)
	client := newClient(t, provider, &embed.Options{Cache: newTestCache(), LongTexts: embed.RefuseLongTexts})
	texts := []string{"short", ofTokens("long", 101), ofTokens("fits", 100), ofTokens("long", 101)}
	response, err := client.Embed(t.Context(), texts)
	require.ErrorIs(t, err, embed.ErrTextTooLong)
	require.ErrorContains(t, err, "more than 100 tokens")
	require.Len(t, failures(t, err), 2)
	requireVectors(t, texts, response, err)
	require.Equal(t, 1, response.Usage.Refused)
	require.Equal(t, 1, response.Usage.Deduplicated)
	require.Zero(t, response.Usage.Truncated)
	requireSum(t, response.Usage)
	require.Equal(t, []string{"short", texts[2]}, provider.History()[0].Texts)
}

// TestSendLongTexts sends the text whole and warns.
func TestSendLongTexts(t *testing.T) {
	var faults atomic.Int64
	provider := limited(100, embedtest.Words)
	client := newClient(t, provider, &embed.Options{
		LongTexts: embed.SendLongTexts, Observer: countFaults(&faults),
	})
	texts := []string{"short", ofTokens("long", 101)}
	response, err := client.Embed(t.Context(), texts)
	requireVectors(t, texts, response, err)
	require.NoError(t, err)
	require.Zero(t, response.Usage.Truncated)
	require.Equal(t, int64(1), faults.Load())
}

// TestLongTextScope: limit, policy and tokenizer are part of the keys of texts
// that could be cut, and of no others.
func TestLongTextScope(t *testing.T) {
	cache := newTestCache()
	short := "123456789012345678901234567890" // as long as the lowest limit
	long := ofTokens("this could be over the limit,", 20)
	settings := []struct {
		limit     int
		tokenizer embed.Tokenizer
		policy    embed.LongTexts
	}{
		{30, embedtest.Words, embed.TruncateLongTexts},
		{31, embedtest.Words, embed.TruncateLongTexts},
		{30, embedtest.Words, embed.RefuseLongTexts},
		{30, embedtest.Words, embed.SendLongTexts},
		{30, renamed{embedtest.Words, "other"}, embed.TruncateLongTexts},
		{40, embed.Estimate, embed.TruncateLongTexts},
	}
	for i, s := range settings {
		provider := limited(s.limit, s.tokenizer)
		client := newClient(t, provider, &embed.Options{Cache: cache, LongTexts: s.policy})
		response, err := client.Embed(t.Context(), []string{short, long})
		require.NoError(t, err)
		if i == 0 {
			require.Equal(t, 2, response.Usage.Misses)
			continue
		}
		require.Equal(t, 1, response.Usage.Hits, "%+v", s)
		require.Equal(t, []string{long}, provider.History()[0].Texts, "%+v", s)
		response, err = client.Embed(t.Context(), []string{short, long})
		require.NoError(t, err)
		require.Equal(t, 2, response.Usage.Hits)
	}
	// Without a limit nothing can be cut.
	response, err := newClient(t, limited(0, nil), &embed.Options{Cache: cache}).Embed(t.Context(), []string{short, long})
	require.NoError(t, err)
	require.Equal(t, 1, response.Usage.Hits)
}

// TestCutToBlank: a text of which only white space fits is refused, and was not
// cut; Plan says the same.
func TestCutToBlank(t *testing.T) {
	provider := limited(10, embed.Estimate)
	client := newClient(t, provider, nil)
	texts := []string{strings.Repeat(" ", 20) + "word", "ok"}
	plan, err := client.Plan(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, 1, plan.Refused)
	require.Zero(t, plan.Truncated)
	response, err := client.Embed(t.Context(), texts)
	require.ErrorIs(t, err, embed.ErrTextTooLong)
	requireVectors(t, texts, response, err)
	require.Equal(t, 1, response.Usage.Refused)
	require.Zero(t, response.Usage.Truncated)
}

// TestPrefix: it is sent before each text, counts against the limits, and is not
// what makes a blank text one.
func TestPrefix(t *testing.T) {
	provider := embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) {
		s.Prefix, s.Limits = "query: ", embed.Limits{TextTokens: 10, Tokens: 12}
	}})
	client := newClient(t, provider, &embed.Options{Cache: newTestCache(), ConcurrentRequests: 1})
	texts := []string{"short", ofTokens("long", 50), " "}
	response, err := client.Embed(t.Context(), texts)
	require.ErrorIs(t, err, embed.ErrBlankText)
	require.Len(t, failures(t, err), 1)
	cut := ofTokens("long", 9) + " "
	require.True(t, provider.Space().IsVectorOf("short", response.Vector(0)))
	require.True(t, provider.Space().IsVectorOf(cut, response.Vector(1)))
	require.Equal(t, int64(12), response.Usage.BilledTokens)
	require.Equal(t, []string{"query: short", "query: " + cut}, provider.History()[0].Texts)
	again, err := client.Embed(t.Context(), texts[:2])
	require.NoError(t, err)
	require.Equal(t, 2, again.Usage.Hits)
}

// TestPrefixAloneIsNotSent: where the limit leaves no room after the prefix, the
// text is refused; what would be left is the prefix's vector, not the text's.
func TestPrefixAloneIsNotSent(t *testing.T) {
	for _, limit := range []int{10, 11} {
		provider := embedtest.NewProvider(&embedtest.Options{EditSpec: func(s *embed.Spec) {
			s.Prefix, s.Limits, s.Tokenizer = "#########", embed.Limits{TextTokens: limit}, embed.Estimate
		}})
		client := newClient(t, provider, nil)
		response, err := client.Embed(t.Context(), []string{"some long text", "other text"})
		require.ErrorIs(t, err, embed.ErrTextTooLong, fmt.Sprint(limit))
		require.Nil(t, response.Vector(0))
		require.Zero(t, provider.Requests())
	}
}

// hugeTokenizer fails the test if a long text is counted instead of cut.
type hugeTokenizer struct {
	embed.Tokenizer
	t *testing.T
}

func (h hugeTokenizer) Count(text string) int {
	require.Less(h.t, len(text), 1<<20, "a long text was counted whole")
	return h.Tokenizer.Count(text)
}

// TestHugeTextIsNotCounted: what is over the limit is cut, however much of it
// there is.
func TestHugeTextIsNotCounted(t *testing.T) {
	provider := limited(100, hugeTokenizer{embedtest.Words, t})
	for _, policy := range []embed.LongTexts{embed.TruncateLongTexts, embed.RefuseLongTexts} {
		client := newClient(t, provider, &embed.Options{LongTexts: policy})
		response, err := client.Embed(t.Context(), []string{ofTokens("huge", 1<<19)})
		require.Equal(t, policy == embed.TruncateLongTexts, err == nil)
		require.Equal(t, policy == embed.TruncateLongTexts, response.Vector(0) != nil)
	}
}
