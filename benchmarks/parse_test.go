package main

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// All sides make the same vectors of an answer: none does less work.
func TestParsersAgree(t *testing.T) {
	for _, asBase64 := range []bool{true, false} {
		p := &parseRun{Run: &bench.Run{Settings: bench.Settings{Seed: 3}}, dims: 256, vectors: 5, asBase64: asBase64}
		p.body = p.answer()
		client := &http.Client{Transport: canned(p.body)}
		body, err := p.read(t.Context(), client)
		require.NoError(t, err)
		require.Equal(t, p.body, body)

		answer, err := p.provider(client).Embed(t.Context(), slices.Repeat([]string{"x"}, p.vectors))
		require.NoError(t, err)
		require.Len(t, answer.Vectors, p.vectors)
		require.Equal(t, []int{0, 1, 2, 3, 4}, answer.Index)
		matrix, err := p.byHand(p.body)
		require.NoError(t, err)
		require.Equal(t, slices.Concat(answer.Vectors...), matrix)
		require.NotEqual(t, answer.Vectors[0], answer.Vectors[1])
		vectors, err := p.standard(p.body)
		require.NoError(t, err)
		require.Equal(t, answer.Vectors, vectors)
	}
}
