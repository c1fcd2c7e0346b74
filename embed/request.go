package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// siblings are the requests of one call or stream: they share its bound on
// concurrency, and a failure that would be every request's stops those that
// were not sent.
type siblings struct {
	client *Client
	store  bool
	slots  chan struct{} // one for each request under way
	writes chan struct{} // one for each answer that is being stored

	// stopUnstored is after how many answers in a row that could not be stored
	// nothing more is sent; 0 is never.
	stopUnstored int

	mu       sync.Mutex
	unusable int           // how much unusable answers weigh, see noteUsable
	unstored int           // answers in a row
	cause    error         // the first failure that stopped the others
	stops    chan struct{} // closed then
}

func (c *Client) newSiblings(store bool) *siblings {
	return &siblings{
		client: c,
		store:  store && c.cache != nil,
		slots:  make(chan struct{}, c.opts.ConcurrentRequests),
		writes: make(chan struct{}, c.opts.ConcurrentRequests),
		stops:  make(chan struct{}),
	}
}

// stopWith keeps the requests that were not sent from being sent.
func (s *siblings) stopWith(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
		close(s.stops)
	}
}

// Each unusable answer weighs two, each usable one takes one away, and at six
// nothing more is sent: each was paid for, and the next would be like them. That is
// after three in a row, and soon where more than every third is unusable.
const (
	unusableWeighs  = 2
	unusableAnswers = 3
	mostUnusable    = unusableAnswers * unusableWeighs
)

// noteUsable notes whether a request had an answer of use.
func (s *siblings) noteUsable(err error) {
	s.mu.Lock()
	switch {
	case err == nil:
		s.unusable = max(0, s.unusable-1)
	case errors.Is(err, ErrBadAnswer), errors.Is(err, ErrModelChanged):
		s.unusable += unusableWeighs
	}
	stop := s.unusable >= mostUnusable
	s.mu.Unlock()
	if stop {
		s.stopWith(err)
	}
}

// noteStored notes whether an answer could be stored.
func (s *siblings) noteStored(err error) {
	s.mu.Lock()
	if err != nil {
		s.unstored++
	} else {
		s.unstored = 0
	}
	unstored := s.unstored
	s.mu.Unlock()
	if s.stopUnstored > 0 && unstored >= s.stopUnstored {
		s.stopWith(fmt.Errorf("%d answers in a row could not be stored: %w", unstored, err))
	}
}

// failure returns the failure that stopped the siblings, or nil.
func (s *siblings) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// stopped returns why a request must not be sent any more, or nil.
func (s *siblings) stopped(ctx context.Context) error {
	if cause := s.failure(); cause != nil {
		return fmt.Errorf("%w: %w", ErrSiblingFailed, cause)
	}
	return ctx.Err()
}

// start waits for a free place among the siblings and begins r, which then runs
// without its caller. ctx is the caller's. If nothing may be sent any more, r is
// over at once.
func (s *siblings) start(ctx context.Context, r *request) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		r.fail(ctx.Err())
		return
	case <-s.stops:
		r.fail(s.stopped(ctx))
		return
	}
	// The caller is counted in running, so Close can't have finished waiting.
	s.client.running.Add(1)
	go func() {
		defer s.client.running.Done()
		s.perform(ctx, r)
	}()
}

// fail ends r with one error for all its texts.
func (r *request) fail(err error) {
	for _, m := range r.misses {
		m.err = err
	}
	close(r.done)
}

// perform gets the vectors of r from the provider and stores them.
func (s *siblings) perform(ctx context.Context, r *request) {
	c := s.client
	answer, err := s.send(ctx, r)
	if err == nil {
		if s.store && c.knownDimensions() == 0 {
			c.lookBeforeStoring(ctx, r.misses) // what is stored may know
		}
		err = c.bind(ctx, r, answer, s.store)
	}
	// Before the next request takes our place, it must be known whether to stop.
	s.noteUsable(err)
	// It need not wait for our write, as long as not too many answers wait for theirs.
	s.writes <- struct{}{}
	defer func() { <-s.writes }()
	<-s.slots
	if err != nil {
		c.countRequest(&r.usage)
		r.fail(err)
		return
	}
	if s.store {
		r.cacheErr = c.storeAnswer(ctx, r)
		if r.cacheErr != nil {
			r.usage.CacheFailures++
		}
		s.noteStored(r.cacheErr)
	}
	c.countRequest(&r.usage)
	close(r.done)
}

// send asks the provider until it answers, or fails for good. Once the caller
// has left, nothing is sent again.
func (s *siblings) send(ctx context.Context, r *request) (*Answer, error) {
	c := s.client
	texts := make([]string, len(r.misses))
	for i, m := range r.misses {
		texts[i] = m.text
	}
	for attempt := 0; ; attempt++ {
		answer, err := s.attempt(ctx, r, texts, attempt)
		if err == nil {
			return answer, nil
		}
		var failure *ProviderError
		if !errors.As(err, &failure) {
			return nil, err
		}
		if failure.Fatal {
			s.stopWith(err)
		}
		if !failure.Transient || attempt >= c.opts.MaxRetries || failure.RetryAfter > c.opts.MaxRetryWait {
			return nil, err
		}
		wait := c.backoff(attempt, failure.RetryAfter)
		c.warnRetry(ctx, attempt, wait, err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w before a retry after: %w", ctx.Err(), err)
		case <-s.stops:
			timer.Stop()
			return nil, s.stopped(ctx)
		}
		r.usage.Retries++
	}
}

// attempt sends r once, if it may.
func (s *siblings) attempt(ctx context.Context, r *request, texts []string, attempt int) (*Answer, error) {
	c := s.client
	if c.slots != nil {
		select {
		case c.slots <- struct{}{}:
			defer func() { <-c.slots }()
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.stops:
		}
	}
	if err := s.stopped(ctx); err != nil {
		return nil, err
	}
	reserved := c.mayCost(r)
	if err := c.budget.reserve(reserved); err != nil {
		return nil, err
	}
	r.usage.Requests++

	// From here on the request may be billed: it runs to its own time-out.
	begun := time.Now()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.RequestTimeout)
	answer, err := c.provider.Embed(limited, slices.Clone(texts)) // a provider may edit what it gets
	if err == nil && answer == nil {
		err = fmt.Errorf("%w: there is none", ErrBadAnswer)
	}
	failure := (*ProviderError)(nil)
	answered := err == nil || errors.As(err, &failure) && failure.Status != 0
	if !answered && limited.Err() != nil {
		err = &ProviderError{Transient: true, MaybeBilled: true, Err: fmt.Errorf("no answer within Options.RequestTimeout, %v: %w", c.opts.RequestTimeout, limited.Err())}
	}
	cancel()

	billed := int64(0)
	if err == nil {
		billed = c.bill(r, answer)
	}
	cost := billed
	if err != nil && (!errors.As(err, &failure) || failure.MaybeBilled) {
		cost = reserved
	}
	c.budget.settle(reserved, cost)
	if observer := c.opts.Observer; observer != nil && observer.Request != nil {
		observer.Request(ctx, RequestEvent{Texts: len(texts), Attempt: attempt, BilledTokens: int(billed), Duration: time.Since(begun), Err: err})
	}
	return answer, err
}

// mayCost bounds what r will be billed. It matters only to a budget, and then
// its texts were counted.
func (c *Client) mayCost(r *request) int64 {
	if c.tokenizer.Exact() {
		return int64(r.tokens)
	}
	return int64(float64(r.tokens)/estimateShare) + 1
}

// bill notes what the answer bills in the usage of r, and returns it.
func (c *Client) bill(r *request, answer *Answer) int64 {
	bytes := 0
	for _, m := range r.misses {
		bytes += len(m.text)
	}
	tokens := min(int64(answer.Tokens), mostBilled)
	if tokens <= 0 { // no text costs nothing: a server that says 0 doesn't count
		c.countTokens(r.misses)
		tokens = 0
		for _, m := range r.misses {
			tokens += int64(m.tokens)
		}
		r.usage.EstimatedTokens += tokens
	}
	r.usage.BilledTokens += tokens
	c.rate.note(bytes, tokens)
	return tokens
}

// mostBilled is far above any request, and keeps sums from overflowing on an
// answer that lies.
const mostBilled = 1 << 40

const firstBackoff = 500 * time.Millisecond

// backoff returns how long to wait before the next attempt: what the provider
// asks for, else a random part of a time that doubles with each attempt, so that
// clients that failed together don't come back together.
func (c *Client) backoff(attempt int, retryAfter time.Duration) time.Duration {
	ceiling := c.opts.MaxRetryWait
	if attempt < 16 {
		ceiling = min(ceiling, firstBackoff<<attempt)
	}
	jittered := ceiling/2 + rand.N(ceiling/2+1)
	if retryAfter > 0 {
		// Not before that time, and not all at the same moment after it.
		return min(retryAfter+min(jittered, retryAfter/10), c.opts.MaxRetryWait)
	}
	return jittered
}

func (c *Client) warnRetry(ctx context.Context, attempt int, wait time.Duration, err error) {
	if c.opts.Logger == nil {
		return
	}
	c.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "embedonce: request failed, retrying", slog.Int("attempt", attempt+1),
		slog.Duration("wait", wait), slog.String("error", err.Error()))
}

// fulfil pays for the misses and waits for their vectors, or until ctx ends. What
// was done and cost is added to the response. The misses it returns have a vector
// or an error each; those it was given belong to their requests, which may
// outlive the call.
func (c *Client) fulfil(ctx context.Context, misses []*miss, store bool, r *Response) []*miss {
	if len(misses) == 0 {
		return nil
	}
	over := make([]*miss, 0, len(misses))
	fitting := make([]*miss, 0, len(misses))
	c.fitLongTexts(ctx, misses)
	for _, m := range misses {
		if m.cut {
			r.Usage.Truncated++
		}
		if m.err != nil {
			over = append(over, m)
		} else {
			fitting = append(fitting, m)
		}
	}
	requests, least := c.pack(fitting)
	r.Usage.LeastRequests += least

	siblings := c.newSiblings(store)
	for _, request := range requests {
		siblings.start(ctx, request)
	}
	unstored := false
	for _, request := range requests {
		if !request.wait(ctx) {
			for _, m := range request.misses {
				over = append(over, &miss{index: m.index, err: fmt.Errorf("the call ended before the answer: %w", ctx.Err())})
			}
			continue
		}
		r.Usage.add(&request.usage)
		if request.cacheErr != nil && !unstored { // the others are mostly the same
			unstored = true
			r.CacheErr = errors.Join(r.CacheErr, request.cacheErr) // beside what reading failed with
		}
		over = append(over, request.misses...)
	}
	return over
}

// wait waits until r is over, or ctx ends; it says whether r is over.
func (r *request) wait(ctx context.Context) bool {
	select {
	case <-r.done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}
