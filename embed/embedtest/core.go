package embedtest

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"
)

// core is what Provider and Server share.
type core struct {
	*Log
	opts Options // with the defaults filled in

	mu     sync.Mutex
	script []Fault // what is left of it
}

func newCore(opts Options) *core {
	return &core{
		Log:    &Log{keep: !opts.NoLog},
		opts:   opts,
		script: opts.Faults,
	}
}

// addFaults appends to the script.
func (c *core) addFaults(faults []Fault) {
	for i, fault := range faults {
		if err := fault.check(); err != nil {
			panic(fmt.Sprintf("embedtest: AddFaults: fault %d: %v", i, err))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.script = append(c.script[:len(c.script):len(c.script)], faults...)
}

// arrive puts r into the log, and returns what is to go wrong with it and how
// long it takes.
func (c *core) arrive(r *Request) (fault Fault, latency time.Duration) {
	for _, text := range r.Texts {
		r.Tokens += c.opts.Tokenizer.Count(text)
	}
	// One lock for both, so that number n gets fault n.
	c.mu.Lock()
	c.begin(r)
	scripted := len(c.script) > 0
	if scripted {
		fault, c.script = c.script[0], c.script[1:]
	}
	c.mu.Unlock()
	if !scripted && c.opts.FaultFunc != nil {
		fault = c.opts.FaultFunc(r.Number, *r)
		if err := fault.check(); err != nil {
			panic(fmt.Sprintf("embedtest: FaultFunc: %v", err))
		}
	}
	latency = c.opts.Latency + time.Duration(len(r.Texts))*c.opts.LatencyPerText + fault.Delay
	return fault, latency
}

// refuse returns why the request is not answered with vectors; nil if it is. asked
// is the length of vectors that it asks for, if it does.
func (c *core) refuse(r *Request, fault Fault, asked *int) *refusal {
	if fault.refused() {
		return fault.refusal()
	}
	limits := c.opts.Limits
	invalid := func(param, code, format string, args ...any) *refusal {
		return &refusal{http.StatusBadRequest, fmt.Sprintf(format, args...), "invalid_request_error", param, code}
	}
	tooLarge := func(typ, code, format string, args ...any) *refusal {
		return &refusal{c.opts.LimitStatus, fmt.Sprintf(format, args...), typ, "", code}
	}
	if c.opts.Model != "" && r.Model != c.opts.Model {
		return Fault{Status: http.StatusNotFound}.refusal()
	}
	if asked != nil && c.opts.FixedDimensions {
		return invalid("", "", "This model does not support specifying dimensions.")
	}
	if asked != nil && (*asked < 1 || *asked > c.opts.Dimensions) {
		return invalid("dimensions", "", "Invalid value for 'dimensions' = %d. Must be from 1 to %d.", *asked, c.opts.Dimensions)
	}
	if len(r.Texts) == 0 {
		return invalid("", "", "'$.input' is invalid: it has no text.")
	}
	if limits.Items > 0 && len(r.Texts) > limits.Items {
		return tooLarge("invalid_request_error", "", "'$.input' is invalid: array length must be %d or less.", limits.Items)
	}
	for i, text := range r.Texts {
		if text == "" {
			return invalid("", "", "'$.input' is invalid: text %d is empty.", i)
		}
		if limits.TextTokens <= 0 {
			continue
		}
		if tokens := c.opts.Tokenizer.Count(text); tokens > limits.TextTokens {
			return tooLarge("invalid_request_error", "", "This model's maximum context length is %d tokens, however you requested %d tokens (%[2]d in your prompt; 0 for the completion). Please reduce your prompt; or completion length.", limits.TextTokens, tokens)
		}
	}
	if limits.Tokens > 0 && r.Tokens > limits.Tokens {
		return tooLarge("max_tokens_per_request", "max_tokens_per_request", "Requested %d tokens, max %d tokens per request", r.Tokens, limits.Tokens)
	}
	if limits.Bytes > 0 && r.Bytes > limits.Bytes {
		return tooLarge("invalid_request_error", "request_too_large", "Requested %d bytes of text, max %d bytes per request", r.Bytes, limits.Bytes)
	}
	return nil
}

// An item has one of these where an answer has no index and no token count.
const (
	noIndex = math.MinInt
	noUsage = -1
)

// item is one vector of an answer.
type item struct {
	vector []float32
	index  int // noIndex is none
}

// answer is a whole answer, wrong as its Fault wants it.
type answer struct {
	items []item
	model string
	usage int // noUsage is none
}

// answer makes the vectors for r and puts fault into them.
func (c *core) answer(r *Request, fault Fault, space Space, dimensions int) answer {
	if fault.Dimensions != 0 {
		dimensions = fault.Dimensions
	}
	items := make([]item, len(r.Texts))
	numbers := make([]float32, len(items)*dimensions)
	seed := space.seed(dimensions)
	for i, text := range r.Texts {
		vector := numbers[i*dimensions : (i+1)*dimensions : (i+1)*dimensions]
		fill(vector, seed, space.Prefix, text)
		items[i] = item{vector, i}
	}
	at := min(fault.At, len(items)-1)
	items[at].vector = fault.Vector.apply(items[at].vector)
	fault.Index.apply(items, at)
	items = applyCount(items, fault.Count, fault.Index == IndexNone)
	if n := len(items); fault.Shuffle && n > 1 {
		// A rotation leaves nothing at its place.
		by := 1 + r.Number%(n-1)
		items = append(items[by:n:n], items[:by]...)
	}

	a := answer{items: items, model: r.Model, usage: r.Tokens}
	if c.opts.AnswerModel != "" {
		a.model = c.opts.AnswerModel
	}
	if fault.Model != "" {
		a.model = fault.Model
	}
	switch fault.Usage {
	case UsageNone:
		a.usage = noUsage
	case UsageZero:
		a.usage = 0
	case UsageWrong:
		a.usage = 2*r.Tokens + 1
	}
	return a
}

func (f VectorFault) apply(vector []float32) []float32 {
	last := len(vector) - 1
	switch f {
	case VectorNaN:
		vector[last] = float32(math.NaN())
	case VectorInf:
		vector[last] = float32(math.Inf(1))
	case VectorZero:
		clear(vector)
	case VectorShort:
		return vector[:last]
	case VectorEmpty:
		return vector[:0]
	}
	return vector
}

func (f IndexFault) apply(items []item, at int) {
	switch f {
	case IndexNone:
		for i := range items {
			items[i].index = noIndex
		}
	case IndexMissingAt:
		items[at].index = noIndex
	case IndexTwice:
		items[at].index = (at + 1) % len(items)
	case IndexTooHigh:
		items[at].index = len(items)
	case IndexNegative:
		items[at].index = -2
	}
}

// applyCount adds count copies of the last item, or takes away -count items.
func applyCount(items []item, count int, withoutIndex bool) []item {
	if count < 0 {
		return items[:max(0, len(items)+count)]
	}
	last := items[len(items)-1]
	for range count {
		// Vectors of an answer become the client's: no two share memory.
		extra := item{append([]float32(nil), last.vector...), len(items)}
		if withoutIndex {
			extra.index = noIndex
		}
		items = append(items, extra)
	}
	return items
}

// wait returns after d, or with false as soon as ctx or stop has ended. A
// negative d waits for these alone.
func wait(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	var elapsed <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		elapsed = timer.C
	}
	select {
	case <-elapsed:
		return true
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	}
}
