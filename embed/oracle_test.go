package embed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// oracle runs random operations on one client and knows what each must give.
type oracle struct {
	t        *testing.T
	r        *rand.Rand
	client   *embed.Client
	provider *embedtest.Provider
	prefix   string
	limit    int
	policy   embed.LongTexts
	strict   bool
	faulty   bool // errors other than those of the texts themselves are allowed
}

// want returns what text is sent as, without the prefix, or why it is not sent.
func (o *oracle) want(text string) (string, error) {
	text = string([]rune(text))
	if strings.TrimSpace(text) == "" {
		return "", embed.ErrBlankText
	}
	if whole := o.prefix + text; o.limit > 0 && embedtest.Words.Count(whole) > o.limit {
		switch o.policy {
		case embed.RefuseLongTexts:
			return "", embed.ErrTextTooLong
		case embed.TruncateLongTexts:
			cut, _ := embedtest.Words.Cut(whole, o.limit)
			text = strings.TrimPrefix(cut, o.prefix)
		}
	}
	return text, nil
}

// check fails unless vector is that of text, or err says why there is none.
func (o *oracle) check(text string, vector []float32, err error, ended bool) {
	o.t.Helper()
	sent, refused := o.want(text)
	switch {
	case err != nil:
		require.Nil(o.t, vector)
		if refused != nil && !ended {
			require.True(o.t, errors.Is(err, refused) || errors.Is(err, embed.ErrNotCached), "%v", err)
		} else if !o.faulty && !ended {
			require.ErrorIs(o.t, err, embed.ErrNotCached)
		}
	case refused != nil:
		o.t.Fatalf("a text that must be refused has a vector: %v", refused)
	default:
		require.True(o.t, o.provider.Space().IsVectorOf(sent, vector), "wrong vector for %q", text)
	}
}

// texts returns some, with repeats, blanks, long ones and invalid bytes.
func (o *oracle) texts() []string {
	n := 1 + o.r.IntN(1+o.r.IntN(60))
	if o.r.IntN(15) == 0 {
		n = 500 + o.r.IntN(700)
	}
	texts := make([]string, n)
	for i := range texts {
		name := fmt.Sprint("t", o.r.IntN(300))
		switch o.r.IntN(12) {
		case 0:
			texts[i] = []string{"", " ", "\n\t", "\u2003"}[o.r.IntN(4)]
		case 1:
			texts[i] = ofTokens(name, 15+o.r.IntN(20))
		case 2:
			texts[i] = name + "\xff\xfe" + string(rune(0xe9+o.r.IntN(3)))
		case 3:
			texts[i] = "  " + name + " 日本\xe6\x97 "
		default:
			texts[i] = ofTokens(name, 1+o.r.IntN(6))
		}
	}
	return texts
}

// do runs one call and checks it.
func (o *oracle) do(ctx context.Context, call *embed.Call) {
	before := append([]string(nil), call.Texts...)
	response, err := o.client.Do(ctx, call)
	require.Equal(o.t, before, call.Texts)
	if response == nil {
		require.True(o.t, ctx.Err() != nil || o.strict && errors.Is(err, backend.ErrUnavailable), "%v", err)
		return
	}
	requireSum(o.t, response.Usage)
	var partial *embed.PartialError
	failed := make(map[int]error)
	if errors.As(err, &partial) {
		failed = failures(o.t, err)
	} else if err != nil {
		require.True(o.t, o.strict, "%v", err)
		require.Error(o.t, response.CacheErr)
	}
	for i, text := range call.Texts {
		vector := response.Vector(i)
		require.Equal(o.t, vector == nil, failed[i] != nil, "text %d has neither a vector nor an error, or both", i)
		o.check(text, vector, failed[i], ctx.Err() != nil)
	}
}

// stream runs one stream, until the consumer leaves.
func (o *oracle) stream(ctx context.Context, opts *embed.StreamOptions, leaveAfter int) {
	texts := o.texts()
	n := 0
	var end error
	for item, err := range o.client.Stream(ctx, pairs(texts), opts).All() {
		require.NoError(o.t, end)
		if item.Index == -1 {
			end = err
			continue
		}
		require.Equal(o.t, n, item.Index)
		require.Equal(o.t, fmt.Sprint(n), item.ID)
		require.Equal(o.t, item.Vector == nil, err != nil)
		o.check(texts[n], item.Vector, err, ctx.Err() != nil || errors.Is(err, embed.ErrSiblingFailed))
		if n++; n == leaveAfter {
			return
		}
	}
	if end == nil {
		require.Equal(o.t, len(texts), n)
	} else {
		require.True(o.t, o.faulty || ctx.Err() != nil, "%v", end)
	}
}

// step runs one random operation.
func (o *oracle) step() {
	ctx := context.Background()
	switch o.r.IntN(10) {
	case 0:
		o.do(ctx, &embed.Call{Texts: o.texts(), Refresh: true})
	case 1:
		o.do(ctx, &embed.Call{Texts: o.texts(), NoStore: true})
	case 2:
		o.do(ctx, &embed.Call{Texts: o.texts(), CacheOnly: true})
	case 3:
		o.stream(ctx, nil, -1)
	case 4:
		o.stream(ctx, &embed.StreamOptions{Refresh: o.r.IntN(2) == 0, NoStore: o.r.IntN(2) == 0}, 1+o.r.IntN(30))
	case 5:
		plan, err := o.client.Plan(ctx, o.texts())
		if err == nil {
			require.Equal(o.t, plan.Texts, plan.Hits+plan.Misses+plan.Deduplicated+plan.Refused)
		} else {
			require.ErrorIs(o.t, err, backend.ErrUnavailable)
		}
	case 6: // the caller leaves
		ctx, cancel := context.WithTimeout(ctx, time.Duration(o.r.IntN(3000))*time.Millisecond)
		defer cancel()
		if o.r.IntN(2) == 0 {
			o.stream(ctx, nil, -1)
		} else {
			o.do(ctx, &embed.Call{Texts: o.texts()})
		}
	case 7:
		texts := o.texts()
		lent := make([]float32, len(texts)*64)
		for i := range lent {
			lent[i] = 77
		}
		o.do(ctx, &embed.Call{Texts: texts, Into: lent})
	default:
		o.do(ctx, &embed.Call{Texts: o.texts()})
	}
}

// newOracle returns one with random settings, a provider that fails as fault
// says, and the given cache.
func newOracle(t *testing.T, r *rand.Rand, cache backend.Cache, fault func(number int, r embedtest.Request) embedtest.Fault) *oracle {
	o := &oracle{t: t, r: r, prefix: []string{"", "passage: "}[r.IntN(2)], limit: 15 * r.IntN(2), policy: embed.LongTexts(r.IntN(3)), strict: r.IntN(4) == 0}
	limits := embed.Limits{Items: 1 + r.IntN(60), Tokens: 50 * r.IntN(5), Bytes: 500 * r.IntN(5)}
	dimensions := 64 * r.IntN(2)
	o.provider = embedtest.NewProvider(&embedtest.Options{
		Latency:   200 * time.Millisecond,
		FaultFunc: fault,
		EditSpec: func(s *embed.Spec) {
			s.Prefix, s.Limits, s.ModelDimensions = o.prefix, limits, dimensions
			s.Limits.TextTokens = o.limit
		},
	})
	o.client = newClient(t, o.provider, &embed.Options{
		Cache: cache, ConcurrentRequests: r.IntN(6), ClientRequests: r.IntN(4), MaxRetries: 2, LongTexts: o.policy,
		Strict: o.strict, VerifyWrites: r.IntN(2) == 0, CacheReaders: r.IntN(4),
	})
	return o
}

// requireBill closes the client and fails unless it knows of every token that an
// answer billed.
func (o *oracle) requireBill() {
	require.NoError(o.t, o.client.Close())
	billed := int64(0)
	for _, request := range o.provider.History() {
		if request.Status == 200 {
			billed += int64(request.BilledTokens)
		}
	}
	usage := o.client.Usage()
	require.Equal(o.t, billed, usage.BilledTokens)
	require.Equal(o.t, o.provider.Requests(), usage.Requests)
	require.Equal(o.t, usage.Texts, usage.Hits+usage.Misses+usage.Deduplicated+usage.Joined+usage.Refused)
}

// TestOracle: whatever goes wrong at the provider and in the cache, every text has
// its own vector or an error, and the bill is known to the token.
func TestOracle(t *testing.T) {
	seed := random(t).Uint64()
	for round := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			t.Logf("seed %d, round %d", seed, round)
			r := rand.New(rand.NewPCG(seed, round))
			chance := func(number, one int) *rand.Rand {
				own := rand.New(rand.NewPCG(seed+round, uint64(number)))
				if own.IntN(one) == 0 {
					return own
				}
				return nil
			}
			cache := newTestCache()
			cache.info.SplitKeys, cache.info.Readers, cache.info.MaxBatchItems = 200, 3, 20*r.IntN(3)
			var calls atomic.Int64
			cache.onGet = func(context.Context, []backend.Key) error {
				if chance(int(calls.Add(1))+1_000_000, 12) != nil {
					return errDisk
				}
				return nil
			}
			cache.store = func(entries map[backend.Key][]byte, items []backend.Item) error {
				own := chance(int(calls.Add(1))+2_000_000, 8)
				for i, item := range items {
					value := append([]byte(nil), item.Value...)
					if own != nil {
						switch own.IntN(5) {
						case 0:
							return errDisk
						case 1:
							value = append([]byte(nil), items[own.IntN(len(items))].Value...)
						case 2:
							value = value[:own.IntN(len(value))]
						case 3:
							value[own.IntN(len(value))] ^= 1 << own.IntN(8)
						case 4:
							return &backend.BatchError{NotStored: []int{i}, Err: errDisk}
						}
					}
					entries[item.Key] = value
				}
				return nil
			}
			o := newOracle(t, r, cache, func(number int, _ embedtest.Request) embedtest.Fault {
				own := chance(number, 6)
				if own == nil {
					return embedtest.Fault{Shuffle: number%2 == 0}
				}
				faults := []embedtest.Fault{
					{Status: 400}, {Status: 413}, embedtest.RateLimited(time.Duration(own.IntN(90)) * time.Second), {Status: 500}, {Status: 503, Billed: true},
					embedtest.Unauthorized(), embedtest.QuotaSpent(), {Hang: true}, {Reset: true}, {Cut: true}, {Slow: time.Second},
					{Count: own.IntN(5) - 2}, {Index: embedtest.IndexFault(own.IntN(6)), At: own.IntN(9)}, {Vector: embedtest.VectorFault(own.IntN(6)), At: own.IntN(9)},
					{Usage: embedtest.UsageNone}, {Model: "other"}, {Delay: 20 * time.Second},
				}
				return faults[own.IntN(len(faults))]
			})
			o.faulty = true
			for range 25 {
				o.step()
			}
			o.requireBill()
		})
	}
}

// TestEachTextIsPaidForOnce: with a provider whose failures pass and a cache that
// works, nothing fails, and no text is ever paid for twice, but by calls that ask
// for it.
func TestEachTextIsPaidForOnce(t *testing.T) {
	seed := random(t).Uint64()
	for round := range uint64(25) {
		synctest.Test(t, func(t *testing.T) {
			t.Logf("seed %d, round %d", seed, round)
			r := rand.New(rand.NewPCG(seed, round))
			var tried sync.Map // first texts of requests
			o := newOracle(t, r, newTestCache(), func(number int, request embedtest.Request) embedtest.Fault {
				if _, again := tried.LoadOrStore(request.Texts[0], true); !again && number%3 == 0 {
					return embedtest.ServerError()
				}
				return []embedtest.Fault{{}, {Shuffle: true}, {Index: embedtest.IndexNone}, {Index: embedtest.IndexMissingAt}}[number%4]
			})
			for range 25 {
				switch o.r.IntN(5) {
				case 0:
					o.stream(t.Context(), nil, -1)
				case 1:
					o.stream(t.Context(), nil, 1+o.r.IntN(50))
				case 2:
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(o.r.IntN(1000))*time.Millisecond)
					o.do(ctx, &embed.Call{Texts: o.texts()})
					cancel()
				default:
					o.do(t.Context(), &embed.Call{Texts: o.texts()})
				}
				time.Sleep(time.Hour) // what was sent for nobody lands
			}
			o.requireBill()
			for sent, times := range o.provider.TimesBilled() {
				if o.limit == 0 || embedtest.Words.Count(sent) < o.limit { // or else two texts may have become one
					require.Equal(t, 1, times, "%q", sent)
				}
			}
		})
	}
}
