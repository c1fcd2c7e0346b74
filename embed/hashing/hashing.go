package hashing

import (
	"context"
	"errors"
	"fmt"

	"github.com/embedonce/embedonce/embed"
)

const (
	// identity names this way of making vectors. It changes when a vector does.
	identity = "embedonce/hashing/1"

	defaultDimensions = 512
	defaultMinGram    = 3
	defaultMaxGram    = 4

	maxDimensions = 1 << 16
	maxMaxGram    = 16

	// itemsPerRequest is not a limit of anything here: it makes a large job come
	// in pieces, so that it is stored, and its progress shown, on the way.
	itemsPerRequest = 1024
)

// Options are for New. nil and the zero value are the defaults.
type Options struct {
	// Dimensions is the length of the vectors, up to 65,536; 0 is 512. More keep
	// more features apart.
	Dimensions int
	// MinGram and MaxGram are the lengths in characters, from 1 to 16, of the
	// pieces of words; 0 is 3 for MinGram, and 4 for MaxGram.
	MinGram, MaxGram int
}

// Provider is an embed.Provider that hashes words and parts of words. It is
// lexical, not semantic: see the package's documentation.
type Provider struct {
	dimensions       int
	minGram, maxGram int
	err              error // of the options
}

var _ embed.Provider = (*Provider)(nil)

// New returns a Provider. What is wrong with opts, Spec and Embed say.
func New(opts *Options) *Provider {
	var o Options
	if opts != nil {
		o = *opts
	}
	p := &Provider{dimensions: o.Dimensions, minGram: o.MinGram, maxGram: o.MaxGram}
	if p.dimensions == 0 {
		p.dimensions = defaultDimensions
	}
	if p.minGram == 0 {
		p.minGram = defaultMinGram
	}
	if p.maxGram == 0 {
		p.maxGram = max(defaultMaxGram, p.minGram)
	}
	p.err = p.check()
	return p
}

// check lists every problem of the options.
func (p *Provider) check() error {
	var problems []error
	for _, field := range []struct {
		name       string
		value, max int
	}{
		{"Dimensions", p.dimensions, maxDimensions},
		{"MinGram", p.minGram, maxMaxGram},
		{"MaxGram", p.maxGram, maxMaxGram},
	} {
		if field.value < 1 || field.value > field.max {
			problems = append(problems, fmt.Errorf("%s is %d, must be from 1 to %d, or 0 for the default", field.name, field.value, field.max))
		}
	}
	if p.minGram > p.maxGram {
		problems = append(problems, fmt.Errorf("%s is %d, must not be more than MaxGram, %d", "MinGram", p.minGram, p.maxGram))
	}
	if problems != nil {
		return fmt.Errorf("hashing.Options: %w", errors.Join(problems...))
	}
	return nil
}

// Spec names all that changes a vector. Its error lists what is wrong with the
// options.
func (p *Provider) Spec() (embed.Spec, error) {
	if p.err != nil {
		return embed.Spec{}, p.err
	}
	dimensions := p.dimensions
	return embed.Spec{
		Identity:        identity,
		Dimensions:      &dimensions,
		Params:          map[string]any{"min_gram": p.minGram, "max_gram": p.maxGram},
		ModelDimensions: dimensions,
		Limits:          embed.Limits{Items: itemsPerRequest},
		Tokenizer:       words{},
	}, nil
}

// Embed returns the vector of each text, of norm 1. The tokens of the answer are
// the words of the texts: runs of letters and digits, and each character of a
// script without spaces. It works on the caller's goroutine alone; several calls
// use several cores.
//
// # Errors
//
// A context that ends gives an *embed.ProviderError that wraps ctx.Err().
func (p *Provider) Embed(ctx context.Context, texts []string) (*embed.Answer, error) {
	if p.err != nil {
		return nil, p.err
	}
	answer := &embed.Answer{
		Vectors: make([][]float32, len(texts)),
		Index:   make([]int, len(texts)),
	}
	numbers := make([]float32, len(texts)*p.dimensions)
	h := newHasher(p.dimensions, p.minGram, p.maxGram)
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, &embed.ProviderError{Transient: true, Err: err}
		}
		answer.Vectors[i], numbers = numbers[:p.dimensions:p.dimensions], numbers[p.dimensions:]
		answer.Index[i] = i
		answer.Tokens += h.embed(text, answer.Vectors[i])
	}
	return answer, nil
}
