package embed_test

import (
	"context"
	"math"
	"testing"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// TestAnswerIsBound: whatever the order of the vectors and the state of their
// indexes, each text gets its own.
func TestAnswerIsBound(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault embedtest.Fault
	}{
		{"shuffled", embedtest.Fault{Shuffle: true}},
		{"without any index", embedtest.Fault{Index: embedtest.IndexNone}},
		{"without the first index", embedtest.Fault{Index: embedtest.IndexMissingAt, At: 0}},
		{"without the first index, shuffled", embedtest.Fault{Index: embedtest.IndexMissingAt, At: 0, Shuffle: true}},
		{"another model's name", embedtest.Fault{Model: "alias"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, n := range []int{1, 2, 3, 7, 100} {
				provider := embedtest.NewProvider(&embedtest.Options{Faults: embedtest.Repeat(3, test.fault)})
				client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
				texts := numbered(n)
				for range 2 {
					response, err := client.Embed(t.Context(), texts)
					requireVectors(t, texts, response, err)
				}
				require.Equal(t, 1, provider.Requests())
			}
		})
	}
}

// TestAnswerIsRefused: an answer that can't be bound as a whole gives no text a
// vector, caches nothing, is not asked for again, and stays on the bill.
func TestAnswerIsRefused(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault embedtest.Fault
	}{
		{"one too few", embedtest.Fault{Count: -1}},
		{"one too many", embedtest.Fault{Count: 1}},
		{"one too few, no index", embedtest.Fault{Count: -1, Index: embedtest.IndexNone}},
		{"one too many, no index", embedtest.Fault{Count: 1, Index: embedtest.IndexNone}},
		{"none at all", embedtest.Fault{Count: -100}},
		{"second index missing", embedtest.Fault{Index: embedtest.IndexMissingAt, At: 1}},
		{"last index missing", embedtest.Fault{Index: embedtest.IndexMissingAt, At: 99}},
		{"an index twice", embedtest.Fault{Index: embedtest.IndexTwice}},
		{"an index too high", embedtest.Fault{Index: embedtest.IndexTooHigh, At: 2}},
		{"an index below 0", embedtest.Fault{Index: embedtest.IndexNegative}},
		{"another length", embedtest.Fault{Dimensions: 32}},
		{"one shorter", embedtest.Fault{Vector: embedtest.VectorShort, At: 1}},
		{"the first shorter", embedtest.Fault{Vector: embedtest.VectorShort}},
		{"one empty", embedtest.Fault{Vector: embedtest.VectorEmpty, At: 1}},
		{"malformed", embedtest.Fault{Malformed: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, known := range []int{64, 0} {
				provider := embedtest.NewProvider(&embedtest.Options{
					Faults:   []embedtest.Fault{test.fault},
					EditSpec: func(s *embed.Spec) { s.ModelDimensions = known },
				})
				if test.name == "another length" && known == 0 {
					continue // nobody can tell
				}
				cache := newTestCache()
				client := newClient(t, provider, &embed.Options{Cache: cache})
				texts := numbered(4)
				response, err := client.Embed(t.Context(), texts)
				require.ErrorIs(t, err, embed.ErrBadAnswer)
				require.Len(t, failures(t, err), 4)
				requireVectors(t, texts, response, err)
				require.Zero(t, cache.len())
				require.Equal(t, 1, provider.Requests())
				if test.name != "malformed" { // its count can't be read
					require.Equal(t, provider.BilledTokens(), response.Usage.BilledTokens)
				}
				requireSum(t, response.Usage)

				response, err = client.Embed(t.Context(), texts)
				requireVectors(t, texts, response, err)
				require.NoError(t, err)
			}
		})
	}
}

// TestUnusableVector: one vector that is no vector fails its own text; the
// neighbours are paid for, kept and cached.
func TestUnusableVector(t *testing.T) {
	for name, fault := range map[string]embedtest.VectorFault{
		"NaN": embedtest.VectorNaN, "infinite": embedtest.VectorInf, "zero": embedtest.VectorZero,
	} {
		t.Run(name, func(t *testing.T) {
			for at := range 3 {
				provider := embedtest.NewProvider(&embedtest.Options{Faults: []embedtest.Fault{{Vector: fault, At: at, Shuffle: true}}})
				client := newClient(t, provider, &embed.Options{Cache: newTestCache()})
				texts := numbered(3)
				response, err := client.Embed(t.Context(), texts)
				require.ErrorIs(t, err, embed.ErrBadAnswer)
				require.Len(t, failures(t, err), 1)
				require.Contains(t, failures(t, err), at)
				requireVectors(t, texts, response, err)

				response, err = client.Embed(t.Context(), texts)
				require.NoError(t, err)
				requireVectors(t, texts, response, err)
				require.Equal(t, 2, response.Usage.Hits)
				require.Equal(t, []string{texts[at]}, provider.History()[1].Texts)
			}
		})
	}
}

// TestUnusableVectorsTeachNoDimensions: an answer without any usable vector says
// nothing of the model.
func TestUnusableVectorsTeachNoDimensions(t *testing.T) {
	provider := embedtest.NewProvider(&embedtest.Options{
		Faults:   []embedtest.Fault{{Dimensions: 16, Vector: embedtest.VectorZero}},
		EditSpec: func(s *embed.Spec) { s.ModelDimensions = 0 },
	})
	client := newClient(t, provider, nil)
	_, err := client.Embed(t.Context(), []string{"a"})
	require.ErrorIs(t, err, embed.ErrBadAnswer)
	response, err := client.Embed(t.Context(), []string{"a"})
	requireVectors(t, []string{"a"}, response, err)
	require.Equal(t, 64, response.Dimensions())
}

// TestDimensionsNeverMix: the first answer fixes the dimensions of a model that
// doesn't say; a later answer with others is refused.
func TestDimensionsNeverMix(t *testing.T) {
	provider := embedtest.NewProvider(&embedtest.Options{
		Limits:   embed.Limits{Items: 1},
		Faults:   []embedtest.Fault{{}, {Dimensions: 63}},
		EditSpec: func(s *embed.Spec) { s.ModelDimensions = 0 },
	})
	client := newClient(t, provider, &embed.Options{ConcurrentRequests: 1, Cache: newTestCache()})
	texts := numbered(3)
	response, err := client.Embed(t.Context(), texts)
	require.ErrorIs(t, err, embed.ErrBadAnswer)
	require.Len(t, failures(t, err), 1)
	requireVectors(t, texts, response, err)
	require.Equal(t, 64, response.Dimensions())
}

// TestMissingUsage: what the answer doesn't bill is counted here, and marked.
func TestMissingUsage(t *testing.T) {
	provider := embedtest.NewProvider(&embedtest.Options{
		Limits: embed.Limits{Items: 2},
		Faults: []embedtest.Fault{{Usage: embedtest.UsageNone}},
	})
	client := newClient(t, provider, &embed.Options{ConcurrentRequests: 1})
	response, err := client.Embed(t.Context(), numbered(4))
	require.NoError(t, err)
	require.Equal(t, int64(12), response.Usage.BilledTokens)
	require.Equal(t, int64(6), response.Usage.EstimatedTokens)
	require.Equal(t, response.Usage, client.Usage())
}

// TestModelChange: an answer that names another model is counted, and refused in
// strict mode.
func TestModelChange(t *testing.T) {
	script := []embedtest.Fault{{}, {Model: "other-model-2"}, {}}
	for _, strict := range []bool{false, true} {
		provider := embedtest.NewProvider(&embedtest.Options{Faults: script})
		cache := newTestCache()
		client := newClient(t, provider, &embed.Options{Strict: strict, Cache: cache})
		_, err := client.Embed(t.Context(), []string{"a"})
		require.NoError(t, err)
		response, err := client.Embed(t.Context(), []string{"b"})
		require.Equal(t, 1, response.Usage.ModelChanges)
		require.Equal(t, 1, client.Usage().ModelChanges)
		if strict {
			require.ErrorIs(t, err, embed.ErrModelChanged)
			require.ErrorContains(t, err, "other-model-2")
			require.Nil(t, response.Vector(0))
			require.Equal(t, 1, cache.len(), "the other model's vector was cached")
		} else {
			requireVectors(t, []string{"b"}, response, err)
		}
		response, err = client.Embed(t.Context(), []string{"c"})
		requireVectors(t, []string{"c"}, response, err)
		require.Zero(t, response.Usage.ModelChanges)
	}
}

// oddProvider answers as its function says.
type oddProvider struct {
	spec  embed.Spec
	embed func(ctx context.Context, texts []string) (*embed.Answer, error)
}

func (p *oddProvider) Spec() (embed.Spec, error) { return p.spec, nil }

func (p *oddProvider) Embed(ctx context.Context, texts []string) (*embed.Answer, error) {
	return p.embed(ctx, texts)
}

// TestOddProviders: answers that no honest provider gives are errors, no panics.
func TestOddProviders(t *testing.T) {
	vector := []float32{1, 2}
	for name, answer := range map[string]*embed.Answer{
		"nothing":                 nil,
		"an empty answer":         {},
		"vectors of no length":    {Vectors: [][]float32{{}, {}}},
		"nil vectors":             {Vectors: [][]float32{nil, nil}},
		"fewer indexes":           {Vectors: [][]float32{vector, vector}, Index: []int{0}},
		"no indexes, but a slice": {Vectors: [][]float32{vector, vector}, Index: []int{}},
		"more indexes":            {Vectors: [][]float32{vector, vector}, Index: []int{0, 1, 2}},
		"a huge index":            {Vectors: [][]float32{vector, vector}, Index: []int{0, math.MaxInt}},
		"the least index":         {Vectors: [][]float32{vector, vector}, Index: []int{math.MinInt, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			provider := &oddProvider{
				spec:  embed.Spec{Identity: "odd"},
				embed: func(context.Context, []string) (*embed.Answer, error) { return answer, nil },
			}
			cache := newTestCache()
			client := newClient(t, provider, &embed.Options{Cache: cache})
			response, err := client.Embed(t.Context(), []string{"a", "b"})
			require.ErrorIs(t, err, embed.ErrBadAnswer)
			require.Len(t, failures(t, err), 2)
			require.Zero(t, response.Dimensions())
			require.Empty(t, response.Matrix())
			require.Zero(t, cache.len())
		})
	}
}
