package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Match is one text as Rank and Nearest order them.
type Match struct {
	Index int     // the text's position
	Score float64 // cosine similarity, -1 to 1
}

// Rank embeds query and docs and returns the topK docs that are closest to the
// query by cosine similarity, the closest first; all of them, if topK is more.
//
// # Errors
//
// Docs without a vector are left out, and the error wraps a *PartialError with
// their reasons beside the ranking of the others; in it the query is the text
// after the last of docs. Without a vector for the query there is no ranking.
func (c *Client) Rank(ctx context.Context, query string, docs []string, topK int) ([]Match, error) {
	var problems []error
	if len(docs) == 0 {
		problems = append(problems, errors.New("docs is empty; at least 1 text is needed"))
	}
	if topK < 1 {
		problems = append(problems, fmt.Errorf("topK is %d; allowed are 1 and more", topK))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	texts := append(slices.Clip(docs), query)
	response, err := c.Embed(ctx, texts)
	if response == nil {
		return nil, err
	}
	vector := response.Vector(len(docs))
	if vector == nil {
		return nil, err
	}
	return response.nearest(vector, len(docs), topK), err
}

// Nearest returns the topK texts of r that are closest to the query vector by
// cosine similarity, the closest first. Texts without a vector are left out.
//
// It panics if query is not of r.Dimensions.
func (r *Response) Nearest(query []float32, topK int) []Match {
	return r.nearest(query, r.texts, topK)
}

// nearest looks at the first n texts only.
func (r *Response) nearest(query []float32, n, topK int) []Match {
	matches := make([]Match, 0, n)
	for i := range n {
		if vector := r.Vector(i); vector != nil {
			matches = append(matches, Match{Index: i, Score: Cosine(query, vector)})
		}
	}
	slices.SortFunc(matches, compareMatches)
	return matches[:max(0, min(topK, len(matches)))]
}

// compareMatches puts higher scores first, scores that are NaN last, and equals
// in the order of the texts.
func compareMatches(a, b Match) int {
	// cmp.Compare puts NaN below every number.
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Index, b.Index))
}

// Cosine returns the cosine similarity of a and b, from -1 to 1. It is 0 if one of
// them is zero, and NaN if one of them has a number that is not finite. It is
// computed in float64.
//
// It panics if a and b are not of one length.
func Cosine(a, b []float32) float64 {
	if len(a) != len(b) {
		panic(fmt.Sprintf("embed: Cosine: vectors of %d and of %d dimensions", len(a), len(b)))
	}
	var dot, aa, bb float64
	for i, x := range a {
		x, y := float64(x), float64(b[i])
		dot += x * y
		aa += x * x
		bb += y * y
	}
	switch {
	case math.IsNaN(dot + aa + bb):
		return math.NaN()
	case aa == 0 || bb == 0:
		return 0
	}
	// Rounding may leave it just outside.
	return max(-1, min(1, dot/(math.Sqrt(aa)*math.Sqrt(bb))))
}
