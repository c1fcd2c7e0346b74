package embed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/internal/record"
)

// estimateShare is how much of a limit is used where the tokenizer only
// estimates: what a model counts may be more.
const estimateShare = 0.85

// Client embeds texts through one provider and one cache. Any number of
// goroutines may use it, and should share it: what they learn of the model, the
// bounds on requests and tokens and the health of the cache are per Client.
//
// An idle Client runs no goroutine and holds nothing open.
type Client struct {
	provider  Provider
	spec      Spec
	tokenizer Tokenizer
	opts      Options
	cache     backend.Cache // nil: nothing is kept
	cacheInfo backend.Info

	digester  textDigester
	scope     digest
	longScope digest
	// textLimit is the most tokens one text is sent with; 0 is no limit.
	textLimit int

	slots  chan struct{} // one for each request under way; nil without a limit
	rate   tokenRate
	budget budget

	dimensions  atomic.Int64 // of the model; 0 until it is known
	readsFail   atomic.Bool  // an outage was logged
	writesFail  atomic.Bool
	tooLarge    atomic.Bool // a vector was too large for the cache, and that was logged
	firstWrite  atomic.Bool // the first batch was claimed for reading back
	writesLost  atomic.Bool // the cache lost what it acknowledged, and that was logged
	answerModel atomic.Pointer[string]

	// Closing: calls and sent requests are counted in running, under mu.
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
	usage   Usage
	// dimensionsSure: dimensions are from the settings or an answer, not a record.
	dimensionsSure    bool
	dissent, dissents int     // the last answer's length, and how many in a row had it
	held              []*miss // and what these would have stored

	scratch sync.Pool // of *lookup
}

// New returns a Client for the provider. opts may be nil.
//
// # Errors
//
// One error lists every problem of opts and of the provider's configuration.
// Nothing is sent or read before it is known to be right.
func New(provider Provider, opts *Options) (*Client, error) {
	if isNil(provider) {
		return nil, errors.New("embed: provider is nil; package embed/openai has one")
	}
	set, optionsErr := opts.withDefaults()
	spec, specErr := provider.Spec()
	if specErr == nil {
		specErr = spec.check(&set)
	}
	if err := errors.Join(optionsErr, specErr); err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	scope, err := scopeOf(&spec, set.Generation)
	if err != nil {
		return nil, fmt.Errorf("embed: the provider's Params: %w", err)
	}

	c := &Client{
		provider:  provider,
		spec:      spec,
		tokenizer: orDefault(spec.Tokenizer, Estimate),
		opts:      set,
		cache:     set.Cache,
		digester:  newTextDigester(set.Secret),
		scope:     scope,
		budget:    budget{limit: set.MaxBilledTokens},
	}
	c.textLimit = c.usable(spec.Limits.TextTokens)
	c.longScope = longScopeOf(scope, c.textLimit, set.LongTexts, c.tokenizer.Name())
	if spec.Dimensions != nil && *spec.Dimensions > 0 {
		c.dimensions.Store(int64(*spec.Dimensions))
	} else if spec.Dimensions == nil {
		c.dimensions.Store(int64(spec.ModelDimensions))
	}
	c.dimensionsSure = c.knownDimensions() > 0
	if set.ClientRequests > 0 {
		c.slots = make(chan struct{}, set.ClientRequests)
	}
	if c.cache != nil {
		c.cacheInfo = c.cache.Info()
	}
	c.scratch.New = func() any { return new(lookup) }
	return c, nil
}

// isNil says whether an interface value is nil, or a pointer that is: every method
// of such a one would panic.
func isNil(v any) bool {
	of := reflect.ValueOf(v)
	return !of.IsValid() || of.Kind() == reflect.Pointer && of.IsNil()
}

// check returns every problem of s, together with the options.
func (s *Spec) check(set *Options) error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if s.Identity == "" {
		problem("the provider's Spec.Identity is empty; it must name the API")
	}
	if s.IdentityIsLocal && set.Cache != nil && set.Cache.Info().Reach == backend.ReachHosts {
		problem("the provider is known only by an address that means another one on each machine, and machines share the cache: give the provider a name")
	}
	if s.Dimensions != nil && (*s.Dimensions < 0 || *s.Dimensions > record.MaxDimensions) {
		problem("Dimensions is %d; allowed are 1 to %d, or none", *s.Dimensions, record.MaxDimensions)
	}
	if s.ModelDimensions < 0 || s.ModelDimensions > record.MaxDimensions {
		problem("the provider's Spec.ModelDimensions is %d; allowed are 0 for unknown, and up to %d", s.ModelDimensions, record.MaxDimensions)
	}
	for _, limit := range []struct {
		name  string
		value int
	}{{"Items", s.Limits.Items}, {"Tokens", s.Limits.Tokens}, {"Bytes", s.Limits.Bytes}, {"TextTokens", s.Limits.TextTokens}} {
		if limit.value < 0 {
			problem("Limits.%s is %d; allowed are 0 for no limit and more", limit.name, limit.value)
		}
	}
	if limit := s.Limits.TextTokens; limit > 0 && len(s.Prefix) >= limit {
		problem("Prefix has %d bytes, and one text may have only %d tokens", len(s.Prefix), limit)
	}
	if !(s.DollarsPerMillion >= 0) || math.IsInf(s.DollarsPerMillion, 1) {
		problem("DollarsPerMillion is %v; allowed are 0 for unknown and more", s.DollarsPerMillion)
	}
	return errors.Join(problems...)
}

// usable returns how much of a limit in tokens is used: all of it if the
// tokenizer is exact. 0 stays no limit, and no limit becomes 0.
func (c *Client) usable(limit int) int {
	if limit == 0 || c.tokenizer.Exact() {
		return limit
	}
	return max(1, int(estimateShare*float64(limit)))
}

// begin counts a call that Close has to wait for; the caller ends it with
// c.running.Done.
func (c *Client) begin(ctx context.Context) error {
	if ctx == nil {
		return errors.New("embed: ctx is nil; give context.Background() or one that ends the call")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("embed: %w", ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("embed: %w", err)
	}
	c.running.Add(1)
	return nil
}

// Close refuses new calls and waits for those that are running, their retries
// included, and for requests that were sent and whose callers have left: their
// vectors are still stored, and RequestTimeout bounds them. To end sooner, end the
// contexts of the calls. The cache stays open. Close may be called again, and
// returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// Usage returns the sum over all calls so far. Its billed tokens and requests
// include the requests that no caller waited for any more: they add up to what
// the provider's answers billed. A request whose answer never came, or could not be
// read, counts no tokens, though it may be billed too.
func (c *Client) Usage() Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usage.clone()
}

// count adds to the Client's own usage, and returns the texts of all calls so far.
func (c *Client) count(u *Usage) (texts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.usage.add(u)
	return c.usage.Texts
}

// knownDimensions returns d if the length of the model's vectors is known, else 0.
func (c *Client) knownDimensions() int { return int(c.dimensions.Load()) }

// learnFromRecord takes d as the length of the model's vectors unless another one
// is known, and returns the one that is known then.
func (c *Client) learnFromRecord(d int) int {
	c.dimensions.CompareAndSwap(0, int64(d))
	return c.knownDimensions()
}

// dissenters is how many answers in a row must agree on another length before what
// a record told counts no longer. One alone can be a gateway's fallback.
const dissenters = 3

// verdict is what an answer's length says about the answer.
type verdict uint8

const (
	right verdict = iota
	// wrong: another length is known from the settings or from an answer.
	wrong
	// disputed: only a record told another one. The model may have been replaced, or
	// this answer is a fallback's.
	disputed
)

// learnFromAnswer judges an answer by the length d of its vectors. Those of a
// disputed one are held back: in the cache they would be served to a Client that
// knows no length yet, as if they were the model's. When enough answers agree they
// are released, to be stored with the next answer that is; when another length is
// right they are forgotten, as the wrong vectors that they are. vectors are nil if
// the answer is not to be stored.
func (c *Client) learnFromAnswer(d int, vectors []*miss) (v verdict, released []*miss) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.knownDimensions()
	if c.dimensionsSure && known != d {
		return wrong, nil
	}
	if !c.dimensionsSure {
		if d != c.dissent {
			c.dissent, c.dissents, c.held = d, 0, nil
		}
		c.dissents++
		if known != 0 && known != d && c.dissents < dissenters {
			c.held = append(c.held, vectors...)
			return disputed, nil
		}
		c.dimensions.Store(int64(d))
		c.dimensionsSure = true
	}
	if vectors != nil {
		released, c.held = c.held, nil
	}
	return right, released
}

// forgetHeld keeps vectors that were held back from being stored later.
func (c *Client) forgetHeld(keys []backend.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = slices.DeleteFunc(c.held, func(m *miss) bool { return slices.Contains(keys, m.key) })
}
