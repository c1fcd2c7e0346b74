package embedtest

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"
)

// Fault is what goes wrong with one request; the zero value is nothing. Fields
// can be combined, such as Shuffle with Index. A request that Options refuse, for
// its key or its size, is refused whatever its Fault says, except that Status,
// Body, Hang and Reset come first.
//
// A [Provider] does the same as a [Server] where it can: what a client can only
// see in HTTP or JSON becomes the [embed.ProviderError] it should lead to, as each
// field says.
type Fault struct {
	// Delay is added to the latency.
	Delay time.Duration

	// Status, where it is not 0 or 200, is answered instead of vectors, with an
	// error like OpenAI's. Code, Type and Message are its parts; "" is what
	// OpenAI sends with that status. NullCode sends none.
	Status              int
	Code, Type, Message string
	NullCode            bool
	// RetryAfter asks the client to wait: in whole seconds, rounded up, or with
	// RetryAfterDate as an HTTP date. A Provider gives it as it is.
	RetryAfter     time.Duration
	RetryAfterDate bool
	// Header is added to the answer. A Provider ignores it.
	Header http.Header
	// Body, where it is not nil, is sent as it is, with Status or else 200. For a
	// Provider it is Malformed, or Status with nothing known of the error.
	Body []byte

	// Hang never answers; it ends when the client goes away, or at Server.Close.
	// With Cut, half of the body comes first.
	Hang bool
	// Reset breaks the connection without an answer (RST).
	Reset bool
	// Cut ends the connection in the middle of the body. For a Provider it is
	// io.ErrUnexpectedEOF.
	Cut bool
	// Slow is how long the body takes to come, in eight pieces.
	Slow time.Duration
	// Malformed makes the JSON of vectors invalid. For a Provider it is embed.ErrBadAnswer
	// with status 200.
	Malformed bool
	// Billed charges for a Hang, a Reset or a Status, as a provider may whose
	// answer got lost. All that sends vectors is billed in any case.
	Billed bool

	// Count adds so many vectors, copies of the last with the indexes that follow,
	// or takes the last -Count away.
	Count int
	// Shuffle sends the vectors in another order, none at its place, with the
	// indexes that belong to them.
	Shuffle bool
	// At is the text, by its position in the request, that Index and Vector are
	// about; the last one if there are fewer.
	At int
	// Index is what is wrong with the indexes.
	Index IndexFault
	// Vector is what is wrong with the vector.
	Vector VectorFault
	// Usage is what is wrong with the token count.
	Usage UsageFault
	// Dimensions, where it is not 0, is the length of all vectors, whatever the
	// request says.
	Dimensions int
	// Model, where it is not "", is the model that the answer names.
	Model string
	// Floats sends lists of numbers though base64 was asked for, in several
	// spellings. A Provider has no encoding, and ignores it.
	Floats bool
}

// IndexFault is what is wrong with the indexes of an answer.
type IndexFault uint8

// What is wrong with the indexes of an answer.
const (
	IndexRight     IndexFault = iota
	IndexNone                 // no vector has one
	IndexMissingAt            // vector At has none; At 0 is how Gemini answers
	IndexTwice                // vector At has that of the next text (of the first, for the last); needs two texts
	IndexTooHigh              // vector At has the number of texts
	IndexNegative             // vector At has -2
)

// VectorFault is what is wrong with one vector of an answer.
type VectorFault uint8

// What is wrong with one vector of an answer. JSON has no NaN and no infinity:
// in a list of numbers they are spelled NaN and Infinity, as Python does.
const (
	VectorRight VectorFault = iota
	VectorNaN               // the last number is NaN
	VectorInf               // the last number is +Inf
	VectorZero              // all numbers are zero
	VectorShort             // the last number is missing
	VectorEmpty             // all numbers are missing
)

// UsageFault is what is wrong with the token count of an answer. It changes
// nothing about what is billed.
type UsageFault uint8

// What is wrong with the token count of an answer.
const (
	UsageRight UsageFault = iota
	UsageNone             // there is none
	UsageZero             // it is 0
	UsageWrong            // it is twice the right one plus 1
)

// RateLimited is OpenAI's answer to too many requests. after is when to come
// back; 0 doesn't say.
func RateLimited(after time.Duration) Fault {
	return Fault{Status: http.StatusTooManyRequests, RetryAfter: after}
}

// QuotaSpent is OpenAI's answer when the account is empty: status 429, which
// waiting doesn't mend.
func QuotaSpent() Fault {
	return Fault{
		Status: http.StatusTooManyRequests, Code: "insufficient_quota", Type: "insufficient_quota",
		Message: "You exceeded your current quota, please check your plan and billing details.",
	}
}

// Unauthorized is OpenAI's answer to a wrong key.
func Unauthorized() Fault { return Fault{Status: http.StatusUnauthorized} }

// ServerError is OpenAI's answer when it fails.
func ServerError() Fault { return Fault{Status: http.StatusInternalServerError} }

// Repeat returns a script of n times fault.
func Repeat(n int, fault Fault) []Fault {
	script := make([]Fault, n)
	for i := range script {
		script[i] = fault
	}
	return script
}

// check lists what is wrong with f itself.
func (f Fault) check() error {
	var problems []error
	if f.Status != 0 && (f.Status < 200 || f.Status > 599) {
		problems = append(problems, fmt.Errorf("%s is %d, must be 0 or from 200 to 599", "Status", f.Status))
	}
	for _, field := range []struct {
		name       string
		value, max int64
	}{
		{"Delay", int64(f.Delay), math.MaxInt64},
		{"RetryAfter", int64(f.RetryAfter), math.MaxInt64},
		{"Slow", int64(f.Slow), math.MaxInt64},
		{"At", int64(f.At), math.MaxInt64},
		{"Dimensions", int64(f.Dimensions), math.MaxInt64},
		{"Index", int64(f.Index), int64(IndexNegative)},
		{"Vector", int64(f.Vector), int64(VectorEmpty)},
		{"Usage", int64(f.Usage), int64(UsageWrong)},
	} {
		if field.value < 0 {
			problems = append(problems, fmt.Errorf("%s is %d, must not be negative", field.name, field.value))
		} else if field.value > field.max {
			problems = append(problems, fmt.Errorf("%s is %d, the last constant is %d", field.name, field.value, field.max))
		}
	}
	return errors.Join(problems...)
}

// refused says whether f answers an error instead of vectors.
func (f Fault) refused() bool { return f.Status != 0 && f.Status != http.StatusOK }

// refusal is an error as OpenAI's API answers it. Null is what an empty part
// becomes in JSON.
type refusal struct {
	status                    int
	message, typ, param, code string
}

// refusal returns the error of f, which refused. The words are those that
// OpenAI uses, as users quote them.
func (f Fault) refusal() *refusal {
	r := refusal{status: f.Status, typ: "invalid_request_error", message: http.StatusText(f.Status)}
	switch f.Status {
	case http.StatusUnauthorized:
		r.code, r.message = "invalid_api_key", "Incorrect API key provided."
	case http.StatusForbidden:
		r.typ, r.code = "request_forbidden", "unsupported_country_region_territory"
		r.message = "Country, region, or territory not supported"
	case http.StatusNotFound:
		r.code, r.message = "model_not_found", "The model does not exist or you do not have access to it."
	case http.StatusTooManyRequests:
		r.typ, r.code, r.message = "requests", "rate_limit_exceeded", "Rate limit reached."
	default:
		if f.Status >= 500 {
			r.typ, r.message = "server_error", "The server had an error while processing your request. Sorry about that!"
		}
	}
	if f.Code != "" {
		r.code = f.Code
	}
	if f.NullCode {
		r.code = ""
	}
	if f.Type != "" {
		r.typ = f.Type
	}
	if f.Message != "" {
		r.message = f.Message
	}
	return &r
}
