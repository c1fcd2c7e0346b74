package embed

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/embedonce/embedonce/internal/record"
)

// bind gives each miss of r its vector from the answer. Its error means that the
// answer as a whole is of no use, and then nothing of it is stored now. A vector
// that is unusable by itself fails only its own text. store says whether the answer
// is to be stored.
func (c *Client) bind(ctx context.Context, r *request, answer *Answer, store bool) error {
	if err := c.checkModel(ctx, r, answer.Model); err != nil {
		return err
	}
	order, err := answer.order(len(r.misses))
	if err != nil {
		return err
	}
	dimensions := 0
	for at, vector := range answer.Vectors {
		if at == 0 {
			dimensions = len(vector)
		}
		if len(vector) != dimensions || dimensions == 0 {
			return fmt.Errorf("%w: vectors of %d and of %d dimensions", ErrBadAnswer, dimensions, len(vector))
		}
	}
	if dimensions > record.MaxDimensions {
		return fmt.Errorf("%w: vectors of %d dimensions; at most %d are taken", ErrBadAnswer, dimensions, record.MaxDimensions)
	}
	before := c.knownDimensions()
	usable := make([]*miss, 0, len(r.misses))
	for at, vector := range answer.Vectors {
		m := r.misses[order[at]]
		switch {
		case !record.Finite(vector):
			m.err = fmt.Errorf("%w: the vector has a number that is not finite", ErrBadAnswer)
		case isZero(vector):
			m.err = fmt.Errorf("%w: the vector is zero", ErrBadAnswer)
		default:
			m.vector = vector
			usable = append(usable, m)
		}
	}
	if len(usable) == 0 {
		return r.misses[0].err
	}
	var keep []*miss
	if store {
		keep = usable
	}
	verdict, held := c.learnFromAnswer(dimensions, keep)
	switch verdict {
	case disputed:
		return fmt.Errorf("%w: its vectors have %d dimensions, the cached ones %d; if it was replaced, raise Options.Generation or set its dimensions", ErrModelChanged, dimensions, before)
	case wrong:
		return fmt.Errorf("%w: vectors of %d dimensions, not %d as asked for, known of the model or seen before", ErrBadAnswer, dimensions, c.knownDimensions())
	}
	r.held = held
	if before != 0 && before != dimensions {
		c.fault(ctx, "provider's vectors have other dimensions than the cached ones, which no longer count", nil,
			slog.Int("dimensions", dimensions), slog.Int("cached", before))
	}
	return nil
}

// order returns which text each vector belongs to, as the answer's indexes say;
// without any, it is the order of arrival. Only an index of 0 may be left out, as
// Gemini does, whose encoder omits zeros.
func (a *Answer) order(texts int) ([]int, error) {
	if len(a.Vectors) != texts {
		return nil, fmt.Errorf("%w: %d vectors for %d texts", ErrBadAnswer, len(a.Vectors), texts)
	}
	if a.Index != nil && len(a.Index) != texts {
		return nil, fmt.Errorf("%w: %d indexes for %d texts", ErrBadAnswer, len(a.Index), texts)
	}
	order := make([]int, texts)
	absent := 0
	for at := range order {
		order[at] = -1
		if a.Index != nil {
			order[at] = a.Index[at]
		}
		if order[at] == -1 {
			absent++
		}
	}
	if absent == texts {
		for at := range order {
			order[at] = at
		}
		return order, nil
	}
	taken := make([]bool, texts)
	for at, index := range order {
		if index == -1 && absent == 1 {
			index = 0
			order[at] = 0
		}
		switch {
		case index == -1:
			return nil, fmt.Errorf("%w: %d of %d vectors have no index", ErrBadAnswer, absent, texts)
		case index < 0 || index >= texts:
			return nil, fmt.Errorf("%w: index %d for %d texts", ErrBadAnswer, index, texts)
		case taken[index]:
			return nil, fmt.Errorf("%w: two vectors have index %d", ErrBadAnswer, index)
		}
		taken[index] = true
	}
	return order, nil
}

func isZero(vector []float32) bool {
	for _, f := range vector {
		if f != 0 {
			return false
		}
	}
	return true
}

// checkModel compares the model that an answer names with the first one named.
func (c *Client) checkModel(ctx context.Context, r *request, model string) error {
	if model == "" || c.answerModel.CompareAndSwap(nil, &model) || *c.answerModel.Load() == model {
		return nil
	}
	r.usage.ModelChanges++
	c.fault(ctx, "provider answered with another model than before", nil, slog.String("model", printable(model)), slog.String("before", printable(*c.answerModel.Load())))
	if c.opts.Strict {
		return fmt.Errorf("%w: %s", ErrModelChanged, printable(model))
	}
	return nil
}

// printable returns a model's name if it looks like one, such as
// "BAAI/bge-m3:latest": it comes from the provider, and goes into logs.
func printable(model string) string {
	if isIdentifier(strings.NewReplacer("/", "", ":", "", "@", "", " ", "").Replace(model)) {
		return strconv.Quote(model)
	}
	return "a name that is not printable"
}
