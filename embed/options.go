package embed

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// Defaults of Options.
const (
	DefaultConcurrentRequests = 5
	DefaultMaxRetries         = 5
	DefaultRequestTimeout     = 2 * time.Minute
	DefaultMaxRetryWait       = time.Minute
)

// LongTexts says what happens to a text over the model's token limit.
type LongTexts uint8

const (
	// TruncateLongTexts cuts the text at the limit: exactly there with a tokenizer
	// that is exact for the model, at 85 % of it with one that estimates. Usage
	// counts the texts that were cut.
	TruncateLongTexts LongTexts = iota
	// RefuseLongTexts fails the text with ErrTextTooLong.
	RefuseLongTexts
	// SendLongTexts logs a warning and sends the text as it is.
	SendLongTexts
)

// String returns "truncate", "refuse" or "send"; it is part of the keys of long
// texts.
func (l LongTexts) String() string {
	switch l {
	case TruncateLongTexts:
		return "truncate"
	case RefuseLongTexts:
		return "refuse"
	case SendLongTexts:
		return "send"
	}
	return fmt.Sprintf("unknown (%d)", uint8(l))
}

// Options configure a Client. The zero value works: without a cache it still
// dedupes, batches and retries.
type Options struct {
	// Cache keeps the vectors. It stays the caller's, who closes it after the
	// Client. nil keeps nothing.
	Cache backend.Cache

	// Generation is part of every key. Raise it to pay again for all texts, when a
	// provider changed a model without changing its name.
	Generation uint64
	// Secret, if set, makes the texts' digests HMAC-SHA-256 with this key instead
	// of SHA-256, so that nobody with access to the cache can test whether a
	// guessed text is in it. Another secret is another cache.
	Secret []byte

	// ConcurrentRequests is how many requests of one call or stream may be under
	// way at once; 0 is DefaultConcurrentRequests.
	ConcurrentRequests int
	// ClientRequests is how many requests of this Client, over all calls, may be
	// under way at once; 0 is no limit.
	ClientRequests int
	// MaxRetries is how often a request that failed for a passing reason is sent
	// again; 0 is DefaultMaxRetries, -1 is never.
	MaxRetries int
	// RequestTimeout bounds one attempt; 0 is DefaultRequestTimeout. It goes on
	// when the caller has left: what was sent may be billed, so it is stored.
	RequestTimeout time.Duration
	// MaxRetryWait is the longest wait before a retry; 0 is DefaultMaxRetryWait. A
	// provider that asks for a longer one (Retry-After) is not asked again.
	MaxRetryWait time.Duration

	// LongTexts says what happens to a text over the model's token limit.
	LongTexts LongTexts
	// MaxBilledTokens is what this Client may spend in its lifetime; a request
	// that could exceed it fails with ErrBudget before it is sent. 0 is no bound.
	MaxBilledTokens int64

	// Strict makes an error of what is otherwise counted and survived: a cache that
	// can't be read or written, and an answer that names another model than
	// before. Without it the vectors of such an answer are used and cached if they
	// have the right length, since one model can have several names.
	Strict bool
	// VerifyWrites reads back every batch that was written, not only the first
	// one of the Client, and reports with ErrWriteLost what isn't there.
	VerifyWrites bool
	// CacheReaders is how many GetMany calls one large call runs at once; 0 takes
	// the cache's own advice, [backend.Info].
	CacheReaders int

	// Observer is told of each lookup, request, write and fault.
	Observer *Observer
	// Logger gets warnings; nil is silence. No text, vector, key or credential is
	// logged.
	Logger *slog.Logger
}

// withDefaults returns a copy of o in which every zero has its meaning, or an
// error that lists all that is wrong.
func (o *Options) withDefaults() (Options, error) {
	var set Options
	if o != nil {
		set = *o
	}
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	atLeast := func(name string, value, least int64, meaning string) {
		if value < least {
			problem("Options.%s is %d; allowed are %s", name, value, meaning)
		}
	}
	atLeast("ConcurrentRequests", int64(set.ConcurrentRequests), 0, "0 for the default and more")
	atLeast("ClientRequests", int64(set.ClientRequests), 0, "0 for no limit and more")
	atLeast("MaxRetries", int64(set.MaxRetries), -1, "-1 for never, 0 for the default, and more")
	atLeast("RequestTimeout", int64(set.RequestTimeout), 0, "0 for the default and more")
	atLeast("MaxRetryWait", int64(set.MaxRetryWait), 0, "0 for the default and more")
	atLeast("MaxBilledTokens", set.MaxBilledTokens, 0, "0 for no bound and more")
	atLeast("CacheReaders", int64(set.CacheReaders), 0, "0 for the cache's advice and more")
	if set.LongTexts > SendLongTexts {
		problem("Options.LongTexts is %d; allowed are TruncateLongTexts, RefuseLongTexts, SendLongTexts", set.LongTexts)
	}
	if set.Cache != nil && isNil(set.Cache) {
		problem("Options.Cache is a nil %T; allowed are an open cache, and nil without a type for none", set.Cache)
		set.Cache = nil // what else is wrong can be told without it
	}
	set.ConcurrentRequests = orDefault(set.ConcurrentRequests, DefaultConcurrentRequests)
	set.MaxRetries = max(orDefault(set.MaxRetries, DefaultMaxRetries), 0)
	set.RequestTimeout = orDefault(set.RequestTimeout, DefaultRequestTimeout)
	set.MaxRetryWait = orDefault(set.MaxRetryWait, DefaultMaxRetryWait)
	return set, errors.Join(problems...)
}

func orDefault[T comparable](value, preset T) T {
	var zero T
	if value == zero {
		return preset
	}
	return value
}
