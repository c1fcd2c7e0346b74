package embed

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrClosed: the Client was closed.
	ErrClosed = errors.New("client is closed")

	// ErrBlankText: a text is empty or has only white space, which providers
	// refuse.
	ErrBlankText = errors.New("text is blank")

	// ErrTextTooLong: a text is over the model's token limit, and
	// Options.LongTexts is RefuseLongTexts.
	ErrTextTooLong = errors.New("text is over the token limit")

	// ErrNotCached: a text of a cache-only call is not in the cache.
	ErrNotCached = errors.New("not in the cache")

	// ErrBudget: sending a request would overspend Options.MaxBilledTokens.
	ErrBudget = errors.New("token budget is spent")

	// ErrBadAnswer: a provider's answer can't be trusted: a wrong number of
	// vectors, indexes that bind them to no text or twice to one, or vectors of other
	// dimensions; then nothing of it is used or cached. A single vector that is zero
	// or not finite fails its own text alone. Three such answers in a row, with no
	// vector of use, end the call: each was paid for. So do those of ErrModelChanged.
	ErrBadAnswer = errors.New("provider's answer is not usable")

	// ErrModelChanged: the provider answers with another model than before: with
	// vectors of other dimensions than the cached ones, or, if Options.Strict is set,
	// under another name. Such vectors are neither used nor cached; but when three
	// answers in a row have the same other dimensions, the model was replaced: the
	// vectors of all three are cached, and the old ones count no longer.
	ErrModelChanged = errors.New("provider answered with another model than before")

	// ErrSiblingFailed: the request was not sent, because others of the call failed
	// in a way that this one would too. It wraps the failure.
	ErrSiblingFailed = errors.New("not sent after another request failed")

	// ErrWriteLost: the cache acknowledged a write and doesn't have it.
	ErrWriteLost = errors.New("cache acknowledged a write and lost it")
)

// Failure is one text without a vector.
type Failure struct {
	Index int   // its position in the call
	Err   error // why
}

// PartialError is the error of a call in which some texts, or all, got no vector.
// The Response beside it has the others.
type PartialError struct {
	// Failures has each text without a vector, by ascending index.
	Failures []Failure
	// Texts is how many texts the call had.
	Texts int
}

// Error says how many texts failed, and each distinct reason once.
func (e *PartialError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d texts got no vector", len(e.Failures), e.Texts)
	separator := ": "
	for _, reason := range e.Reasons() {
		fmt.Fprintf(&b, "%s%d x %v", separator, reason.Texts, reason.Err)
		separator = "; "
	}
	return b.String()
}

// Reason is one cause in a PartialError, with the number of texts it took.
type Reason struct {
	Err   error
	Texts int
}

// Reasons returns each distinct reason with the number of its texts, the most
// frequent first.
func (e *PartialError) Reasons() []Reason {
	var reasons []Reason
	known := make(map[string]int) // position in reasons, by message
	for _, failure := range e.Failures {
		message := failure.Err.Error()
		at, ok := known[message]
		if !ok {
			at = len(reasons)
			known[message] = at
			reasons = append(reasons, Reason{Err: failure.Err})
		}
		reasons[at].Texts++
	}
	slices.SortStableFunc(reasons, func(a, b Reason) int { return b.Texts - a.Texts })
	return reasons
}

// Unwrap returns the distinct reasons, for errors.Is and errors.As.
func (e *PartialError) Unwrap() []error {
	var errs []error
	for _, reason := range e.Reasons() {
		errs = append(errs, reason.Err)
	}
	return errs
}
