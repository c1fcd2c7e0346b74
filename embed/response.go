package embed

import (
	"maps"
)

// Response has the vectors of one call. It is the caller's; its methods may be
// used by many goroutines at once.
type Response struct {
	// Usage is what this call did and cost.
	Usage Usage
	// CacheErr says that vectors of this call could not be read from or stored in
	// the cache, and may have to be paid for again; nil if all went well. The
	// vectors themselves are right either way.
	CacheErr error

	matrix     []float32
	texts      int
	dimensions int
	missing    []bool // nil where every text has its vector
}

// Len returns n, the number of texts of the call.
func (r *Response) Len() int { return r.texts }

// Dimensions returns d, the length of each vector; 0 where it is
// not known, since no text has one.
func (r *Response) Dimensions() int { return r.dimensions }

// Vector returns the vector of text i, which must be below Len, or nil if the
// text got none. It is a part of Matrix; no two texts share one, equal texts
// included, so it may be changed.
func (r *Response) Vector(i int) []float32 {
	if i < 0 || i >= r.texts {
		panic("embed: Response.Vector: index out of range")
	}
	if r.dimensions == 0 || r.missing != nil && r.missing[i] {
		return nil
	}
	from, to := i*r.dimensions, (i+1)*r.dimensions
	return r.matrix[from:to:to]
}

// Matrix returns all vectors as n rows of d, one after the other. Rows of texts
// without a vector are zero. It lies in Call.Into if that was large enough.
func (r *Response) Matrix() []float32 { return r.matrix }

// Usage counts what a call, a stream or a Client did. For each,
// Texts = Hits + Misses + Deduplicated + Joined + Refused.
type Usage struct {
	Texts        int // inputs
	Hits         int // answered by the cache; a repeated text counts each time
	Misses       int // distinct texts that the cache didn't have
	Deduplicated int // repeats of a missed text in the same call
	Joined       int // texts that waited for the same text of an earlier chunk
	Refused      int // blank texts, and too long ones where those are refused

	Truncated     int            // texts that were cut at the token limit before they were sent
	Foreign       map[string]int // entries that were not usable, by reason (docs/design.md lists them); nil if none
	CacheFailures int            // reads and writes of the cache that failed for good
	ModelChanges  int            // answers that named another model than before; see Options.Strict

	Requests      int // requests sent, retries included
	LeastRequests int // the fewest that the provider's limits would have allowed
	Retries       int // requests that were sent again

	// BilledTokens is what the provider's answers billed. EstimatedTokens is the
	// part of it that was counted here, since the answer didn't say.
	BilledTokens    int64
	EstimatedTokens int64
	// LogicalTokens is what the call would have cost without cache and dedupe. For
	// texts that were not sent it is estimated from their bytes, at the rate of
	// what this Client was billed: counting them would cost more than the lookup.
	LogicalTokens int64
}

// add adds what v counted.
func (u *Usage) add(v *Usage) {
	u.Texts += v.Texts
	u.Hits += v.Hits
	u.Misses += v.Misses
	u.Deduplicated += v.Deduplicated
	u.Joined += v.Joined
	u.Refused += v.Refused
	u.Truncated += v.Truncated
	for reason, n := range v.Foreign {
		u.addForeign(reason, n)
	}
	u.CacheFailures += v.CacheFailures
	u.ModelChanges += v.ModelChanges
	u.Requests += v.Requests
	u.LeastRequests += v.LeastRequests
	u.Retries += v.Retries
	u.BilledTokens += v.BilledTokens
	u.EstimatedTokens += v.EstimatedTokens
	u.LogicalTokens += v.LogicalTokens
}

func (u *Usage) addForeign(reason string, n int) {
	if u.Foreign == nil {
		u.Foreign = make(map[string]int)
	}
	u.Foreign[reason] += n
}

// clone returns a copy that shares nothing.
func (u *Usage) clone() Usage {
	v := *u
	v.Foreign = maps.Clone(u.Foreign)
	return v
}
