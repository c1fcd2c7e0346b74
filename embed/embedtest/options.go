package embedtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/embedonce/embedonce/embed"
)

const (
	// DefaultModel is the model of a Provider whose Options name none, and the
	// one that Vector, IsVectorOf and CheckVectors stand for.
	DefaultModel = "embedtest"
	// DefaultDimensions is the length of vectors where Options name none.
	DefaultDimensions = 64
)

// Options are for NewProvider and NewServer. nil and the zero value are useful:
// an API without limits, faults or latency that takes any key.
type Options struct {
	// Model is the only model there is: a Server answers 404 for another one. ""
	// is any model for a Server, and DefaultModel for a Provider.
	Model string
	// AnswerModel is the model that answers name; "" is the one that was asked
	// for.
	AnswerModel string
	// Dimensions is the length of vectors when a request doesn't say, and the
	// most it may ask for; 0 is DefaultDimensions.
	Dimensions int
	// FixedDimensions refuses a request that asks for dimensions, as OpenAI does
	// for text-embedding-ada-002.
	FixedDimensions bool

	// Limits are what a request may hold; one that holds more is refused. Bytes
	// are those of the texts.
	Limits embed.Limits
	// LimitStatus is the status of a request over Limits; 0 is 400, as OpenAI
	// answers. Gateways say 413 or 422.
	LimitStatus int
	// Tokenizer counts tokens; nil is Words.
	Tokenizer embed.Tokenizer

	// Latency is how long each request takes, and LatencyPerText how long each of
	// its texts adds.
	Latency        time.Duration
	LatencyPerText time.Duration

	// APIKey is the key that a Server requires, as "Authorization: Bearer KEY" or
	// "api-key: KEY"; "" takes any, and none. A Provider sends no key: script
	// Unauthorized for it.
	APIKey string

	// Faults go wrong one a request, in the order in which requests arrive; the
	// zero Fault is a request that goes well. AddFaults adds to them.
	Faults []Fault
	// FaultFunc says what goes wrong with a request that Faults no longer cover.
	// It may block, which holds the request back. Several goroutines call it.
	FaultFunc func(number int, r Request) Fault

	// NoLog keeps the sums, but no Request: for benchmarks.
	NoLog bool

	// EditSpec changes what Provider.Spec says: Identity, Role, Prefix, Params
	// and Dimensions, which the vectors then follow; or limits and a tokenizer
	// that differ from the true ones above. A Server doesn't use it.
	EditSpec func(*embed.Spec)
}

// filledIn returns a copy of o with the defaults filled in. Its error lists
// every problem.
func (o *Options) filledIn() (Options, error) {
	var filled Options
	if o != nil {
		filled = *o
	}
	if filled.Dimensions == 0 {
		filled.Dimensions = DefaultDimensions
	}
	if filled.LimitStatus == 0 {
		filled.LimitStatus = 400
	}
	if filled.Tokenizer == nil {
		filled.Tokenizer = Words
	}

	var problems []error
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"Dimensions", int64(filled.Dimensions)},
		{"Limits.Items", int64(filled.Limits.Items)},
		{"Limits.Tokens", int64(filled.Limits.Tokens)},
		{"Limits.Bytes", int64(filled.Limits.Bytes)},
		{"Limits.TextTokens", int64(filled.Limits.TextTokens)},
		{"Latency", int64(filled.Latency)},
		{"LatencyPerText", int64(filled.LatencyPerText)},
	} {
		if field.value < 0 {
			problems = append(problems, fmt.Errorf("%s is %d, must not be negative", field.name, field.value))
		}
	}
	if filled.LimitStatus < 400 || filled.LimitStatus > 499 {
		problems = append(problems, fmt.Errorf("%s is %d, must be 0 or from 400 to 499", "LimitStatus", filled.LimitStatus))
	}
	for i, fault := range filled.Faults {
		if err := fault.check(); err != nil {
			problems = append(problems, fmt.Errorf("%s[%d]: %w", "Faults", i, err))
		}
	}
	if problems != nil {
		return filled, fmt.Errorf("embedtest.Options: %w", errors.Join(problems...))
	}
	return filled, nil
}
