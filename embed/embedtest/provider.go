package embedtest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"syscall"

	"github.com/embedonce/embedonce/embed"
)

// Provider is an embed.Provider in memory.
type Provider struct {
	// Log has the requests so far.
	*Log

	core  *core
	spec  embed.Spec
	space Space
	err   error // of the options
}

var _ embed.Provider = (*Provider)(nil)

// NewProvider returns a Provider. What is wrong with opts, Spec and Embed say.
func NewProvider(opts *Options) *Provider {
	filled, err := opts.filledIn()
	p := &Provider{err: err, core: newCore(filled)}
	p.Log = p.core.Log
	p.spec = embed.Spec{
		Identity:        "embedtest",
		Model:           cmp.Or(filled.Model, DefaultModel),
		ModelDimensions: filled.Dimensions,
		Limits:          filled.Limits,
		Tokenizer:       filled.Tokenizer,
	}
	if filled.EditSpec != nil {
		filled.EditSpec(&p.spec)
	}
	p.space = Space{Model: p.spec.Model, Role: p.spec.Role, Prefix: p.spec.Prefix, Params: p.spec.Params}
	if _, err := canonicalParams(p.space.Params); err != nil && p.err == nil {
		p.err = fmt.Errorf("embedtest.Options: EditSpec: Params: %w", err)
	}
	return p
}

// Spec returns the model, and what Options.EditSpec made of it. Its error lists
// what is wrong with the options.
func (p *Provider) Spec() (embed.Spec, error) { return p.spec, p.err }

// Space is the one that the vectors come from, for CheckVectors.
func (p *Provider) Space() Space { return p.space }

// AddFaults adds to the script that Options.Faults began. It panics if a fault
// can't be.
func (p *Provider) AddFaults(faults ...Fault) { p.core.addFaults(faults) }

// Embed answers as a Server and an HTTP client together would. As from every
// provider, it expects texts that have Spec.Prefix already.
//
// # Errors
//
// A refusal is an *embed.ProviderError with the status, code and type of the
// Server's answer. Where no whole answer comes, it has no status and wraps
// ctx.Err(), io.ErrUnexpectedEOF or syscall.ECONNRESET. A request whose context
// has ended before is not sent, and not in the log.
func (p *Provider) Embed(ctx context.Context, texts []string) (*embed.Answer, error) {
	if p.err != nil {
		return nil, p.err
	}
	if err := ctx.Err(); err != nil {
		return nil, &embed.ProviderError{Transient: true, Err: err}
	}
	r := &Request{Model: p.spec.Model, Texts: slices.Clone(texts)}
	dimensions := p.core.opts.Dimensions
	if p.spec.Dimensions != nil {
		r.Dimensions = *p.spec.Dimensions
		dimensions = *p.spec.Dimensions
	}
	fault, latency := p.core.arrive(r)
	status := 0
	defer func() { p.core.end(r, status) }()

	if !wait(ctx, nil, latency) {
		return nil, lost(ctx.Err())
	}
	if fault.Billed {
		p.core.bill(r)
	}
	switch {
	case fault.Reset:
		return nil, lost(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET})
	case fault.Hang && !fault.Cut:
		wait(ctx, nil, -1)
		return nil, lost(ctx.Err())
	}
	var refused *refusal
	switch {
	case fault.Body == nil:
		refused = p.core.refuse(r, fault, p.spec.Dimensions)
		if refused == nil {
			p.core.bill(r)
		}
	case fault.refused():
		refused = &refusal{status: fault.Status}
	}
	if !wait(ctx, nil, fault.Slow) {
		return nil, lost(ctx.Err())
	}
	switch {
	case fault.Hang:
		wait(ctx, nil, -1)
		return nil, lost(ctx.Err())
	case fault.Cut:
		return nil, lost(io.ErrUnexpectedEOF)
	case refused != nil:
		status = refused.status
		return nil, refused.providerError(fault)
	}
	status = http.StatusOK
	if fault.Malformed || fault.Body != nil {
		return nil, malformed()
	}
	space := p.space
	space.Prefix = "" // the texts have it already
	return p.core.answer(r, fault, space, dimensions).forClient(), nil
}

// forClient returns a as a provider hands it on.
func (a answer) forClient() *embed.Answer {
	out := &embed.Answer{Vectors: make([][]float32, len(a.items)), Model: a.model, Tokens: a.usage}
	anyIndex := slices.ContainsFunc(a.items, func(it item) bool { return it.index != noIndex })
	if anyIndex {
		out.Index = make([]int, len(a.items))
	}
	for i, it := range a.items {
		out.Vectors[i] = it.vector
		switch {
		case it.index != noIndex:
			out.Index[i] = it.index
		case anyIndex:
			out.Index[i] = -1
		}
	}
	return out
}

// providerError is what a client makes of the refusal: which failures may pass
// and which will not is in docs/design.md, "The pipeline".
func (r *refusal) providerError(fault Fault) *embed.ProviderError {
	noQuota := r.code == "insufficient_quota" || r.typ == "insufficient_quota"
	e := &embed.ProviderError{Status: r.status, Code: r.code, Type: r.typ, MaybeBilled: fault.Billed}
	if fault.refused() {
		e.RetryAfter = fault.RetryAfter
	}
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		e.Fatal = true
	case http.StatusTooManyRequests:
		e.Fatal, e.Transient = noQuota, !noQuota
	case http.StatusRequestTimeout, http.StatusConflict:
		e.Transient = true
	default:
		e.Transient = r.status >= 500
	}
	return e.WithDetail(r.message)
}

// lost is the error of a request that was sent and got no whole answer.
func lost(cause error) *embed.ProviderError {
	return &embed.ProviderError{Transient: true, MaybeBilled: true, Err: cause}
}

// malformed is the error of an answer that is not the JSON it should be.
func malformed() *embed.ProviderError {
	return &embed.ProviderError{
		Status: http.StatusOK, MaybeBilled: true,
		Err: fmt.Errorf("%w: invalid JSON", embed.ErrBadAnswer),
	}
}
