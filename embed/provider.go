package embed

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Provider is one model behind one embedding API: it turns texts into vectors,
// and knows nothing of caches, batching or retries, which are the Client's.
// [github.com/embedonce/embedonce/embed/openai] is the one most users need.
//
// Any number of goroutines may use a Provider at the same time.
type Provider interface {
	// Spec describes the model and the limits of the API. It answers at once and
	// always the same. Its error lists every problem of the provider's own
	// configuration; New returns it, so that nothing is sent with a bad one.
	Spec() (Spec, error)

	// Embed sends texts, never none, in one request and returns the answer as it
	// came: the Client binds vectors to texts and checks them. The texts have
	// Spec.Prefix before them already. Embed doesn't retry, and doesn't keep texts. A failed request is a *ProviderError; any other
	// error counts as one that a repetition would not mend.
	Embed(ctx context.Context, texts []string) (*Answer, error)
}

// Spec says which vector space a provider's vectors belong to, and what its API
// accepts. Every field down to Params is part of each key: two providers whose
// vectors could differ must differ in one of them.
type Spec struct {
	// Identity is who answers: the API's normalised base URL, or a name that the
	// user gave it. Required.
	Identity string
	// IdentityIsLocal says that Identity means something else on another machine,
	// as "http://localhost:11434" does; New refuses it with a cache that machines
	// share.
	IdentityIsLocal bool
	// Model is the model's name as it is sent; "" where the API has only one.
	Model string
	// Dimensions is the vector length that is asked for; nil asks for none, which
	// is not the same as asking for 0.
	Dimensions *int
	// Role is what the texts are for, such as "query" or "document", where the
	// model tells them apart.
	Role string
	// Prefix is put before each text by the Client, which counts its tokens too.
	Prefix string
	// Params has every further request parameter that can change a vector. Values
	// are what encoding/json can marshal; the order of keys and the spelling of
	// numbers don't matter.
	Params map[string]any

	// ModelDimensions is the length of the vectors when Dimensions is nil; 0 is
	// unknown, and the first answer or cached record tells.
	ModelDimensions int
	// Limits are what one request may hold.
	Limits Limits
	// Tokenizer counts and cuts as the model does; nil is Estimate.
	Tokenizer Tokenizer
	// DollarsPerMillion is the price of a million tokens; 0 is unknown.
	DollarsPerMillion float64
}

// Limits bound one request to a provider; 0 is no limit.
type Limits struct {
	Items      int // texts in a request
	Tokens     int // tokens in a request, over all its texts
	Bytes      int // bytes in a request, over all its texts
	TextTokens int // tokens in one text
}

// Answer is what a provider answered to one request.
type Answer struct {
	// Vectors has the embeddings in the order of their arrival. They become the
	// Client's.
	Vectors [][]float32
	// Index has, for each of Vectors, the position of its text in the request as
	// the answer gives it, or -1 where it gives none. nil is none given at all.
	Index []int
	// Model is the model that the answer names; "" where it names none.
	Model string
	// Tokens is what the answer says it bills; 0 or less where it doesn't say.
	Tokens int
}

// ProviderError says why a request to a provider failed. Error prints only
// machine-readable parts: what a provider writes in prose can quote the texts or
// the key of the request.
type ProviderError struct {
	// Status is the HTTP status; 0 where no whole answer came.
	Status int
	// Code and Type are the provider's own words for the error, such as
	// "insufficient_quota"; what is no plain identifier is not printed.
	Code, Type string
	// RequestID is the provider's name for the request, for its support.
	RequestID string
	// Transient: the same request may succeed later.
	Transient bool
	// Fatal: every request like this will fail, as with a wrong key or an empty
	// account. Requests of the same call that were not sent are not sent then.
	Fatal bool
	// MaybeBilled: the provider may have done the work though no answer came.
	MaybeBilled bool
	// RetryAfter is how long the provider asks to wait; 0 where it doesn't.
	RetryAfter time.Duration
	// Err is the cause where no answer came, such as a *net.OpError.
	Err error

	detail string
}

// WithDetail keeps the provider's prose, for Detail, and returns e.
func (e *ProviderError) WithDetail(prose string) *ProviderError {
	e.detail = prose
	return e
}

// Detail returns what the provider wrote about the error. It can quote the texts
// or a part of the key: show it to a person, keep it out of logs.
func (e *ProviderError) Detail() string { return e.detail }

// Error names status, code, type and request without the provider's prose.
func (e *ProviderError) Error() string {
	var b strings.Builder
	if e.Status != 0 {
		fmt.Fprintf(&b, "provider answered status %d", e.Status)
	} else {
		b.WriteString("provider gave no answer")
	}
	for _, part := range []struct{ name, value string }{{"code", e.Code}, {"type", e.Type}, {"request", e.RequestID}} {
		if isIdentifier(part.value) {
			fmt.Fprintf(&b, ", %s %s", part.name, part.value)
		}
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, ", retry after %v", e.RetryAfter)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *ProviderError) Unwrap() error { return e.Err }

// isIdentifier says whether s is short and of letters, digits, '_', '-' and '.'
// alone: too little to be a text, and no secret looks like an error code.
func isIdentifier(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, r := range s {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
		default:
			return false
		}
	}
	return true
}
