package embedtest

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var fiveTexts = []string{"zero", "one one", "two", "three", "four"} // 6 tokens

// bothWays makes one request through a Provider and one through a Server, and
// returns what their clients see.
func bothWays(t *testing.T, opts Options, texts []string, check func(t *testing.T, s seen)) {
	t.Helper()
	t.Run("provider", func(t *testing.T) { check(t, throughProvider(t, opts, texts...)) })
	t.Run("server", func(t *testing.T) { check(t, throughServer(t, opts, nil, texts...)) })
}

func TestGoodAnswer(t *testing.T) {
	bothWays(t, Options{}, fiveTexts, func(t *testing.T, s seen) {
		require.Equal(t, []int{0, 1, 2, 3, 4}, s.index)
		require.Equal(t, 6, s.usage)
		require.Equal(t, DefaultModel, s.model)
		require.Len(t, s.vectors[0], DefaultDimensions)
		CheckVectors(t, fiveTexts, vectors(s.vectors))
	})
}

func TestWrongAnswers(t *testing.T) {
	right := make([][]float32, len(fiveTexts))
	for i, text := range fiveTexts {
		right[i] = Vector(text, DefaultDimensions)
	}
	last := DefaultDimensions - 1
	// Each check knows what the fault changes; the rest must be right, except that
	// what it spoils is repaired first.
	for _, test := range []struct {
		name  string
		fault Fault
		check func(t *testing.T, s *seen)
	}{
		{"nothing", Fault{}, func(*testing.T, *seen) {}},
		{"status 200 is nothing", Fault{Status: 200}, func(*testing.T, *seen) {}},
		{"one too few", Fault{Count: -1}, func(t *testing.T, s *seen) {
			require.Len(t, s.vectors, 4)
			s.vectors, s.index = append(s.vectors, right[4]), append(s.index, 4)
		}},
		{"none", Fault{Count: -9}, func(t *testing.T, s *seen) {
			require.Empty(t, s.vectors)
			s.vectors, s.index = right, []int{0, 1, 2, 3, 4}
		}},
		{"two too many", Fault{Count: 2}, func(t *testing.T, s *seen) {
			require.Len(t, s.vectors, 7)
			require.Equal(t, []int{5, 6}, s.index[5:])
			require.Equal(t, right[4], s.vectors[6])
			s.vectors, s.index = s.vectors[:5], s.index[:5]
		}},
		{"one too many without index", Fault{Count: 1, Index: IndexNone}, func(t *testing.T, s *seen) {
			require.Equal(t, slices.Repeat([]int{noIndex}, 6), s.index)
			s.vectors, s.index = s.vectors[:5], []int{0, 1, 2, 3, 4}
		}},
		{"shuffled", Fault{Shuffle: true}, func(t *testing.T, s *seen) {
			back := make([][]float32, 5)
			for i, index := range s.index {
				require.NotEqual(t, i, index)
				back[index] = s.vectors[i]
			}
			s.vectors, s.index = back, []int{0, 1, 2, 3, 4}
		}},
		{"no index", Fault{Index: IndexNone}, func(t *testing.T, s *seen) {
			require.Equal(t, slices.Repeat([]int{noIndex}, 5), s.index)
			s.index = []int{0, 1, 2, 3, 4}
		}},
		{"no index for the first, as Gemini", Fault{Index: IndexMissingAt}, func(t *testing.T, s *seen) {
			require.Equal(t, noIndex, s.index[0])
			s.index[0] = 0
		}},
		{"no index for another", Fault{Index: IndexMissingAt, At: 3}, func(t *testing.T, s *seen) {
			require.Equal(t, noIndex, s.index[3])
			s.index[3] = 3
		}},
		{"index twice", Fault{Index: IndexTwice, At: 2}, func(t *testing.T, s *seen) {
			require.Equal(t, 3, s.index[2])
			s.index[2] = 2
		}},
		{"index of the first twice", Fault{Index: IndexTwice, At: 99}, func(t *testing.T, s *seen) {
			require.Equal(t, 0, s.index[4])
			s.index[4] = 4
		}},
		{"index too high", Fault{Index: IndexTooHigh, At: 1}, func(t *testing.T, s *seen) {
			require.Equal(t, 5, s.index[1])
			s.index[1] = 1
		}},
		{"index negative", Fault{Index: IndexNegative, At: 1}, func(t *testing.T, s *seen) {
			require.Equal(t, -2, s.index[1])
			s.index[1] = 1
		}},
		{"NaN", Fault{Vector: VectorNaN, At: 2}, func(t *testing.T, s *seen) {
			require.True(t, math.IsNaN(float64(s.vectors[2][last])))
			s.vectors[2][last] = right[2][last]
		}},
		{"infinity", Fault{Vector: VectorInf, At: 2}, func(t *testing.T, s *seen) {
			require.True(t, math.IsInf(float64(s.vectors[2][last]), 1))
			s.vectors[2][last] = right[2][last]
		}},
		{"zero vector", Fault{Vector: VectorZero}, func(t *testing.T, s *seen) {
			require.Equal(t, make([]float32, DefaultDimensions), s.vectors[0])
			s.vectors[0] = right[0]
		}},
		{"short vector", Fault{Vector: VectorShort, At: 1}, func(t *testing.T, s *seen) {
			require.Equal(t, right[1][:last], s.vectors[1])
			s.vectors[1] = right[1]
		}},
		{"empty vector", Fault{Vector: VectorEmpty, At: 1}, func(t *testing.T, s *seen) {
			require.Empty(t, s.vectors[1])
			s.vectors[1] = right[1]
		}},
		{"no usage", Fault{Usage: UsageNone}, func(t *testing.T, s *seen) {
			require.Equal(t, noUsage, s.usage)
			s.usage = 6
		}},
		{"usage zero", Fault{Usage: UsageZero}, func(t *testing.T, s *seen) {
			require.Equal(t, 0, s.usage)
			s.usage = 6
		}},
		{"wrong usage", Fault{Usage: UsageWrong}, func(t *testing.T, s *seen) {
			require.Equal(t, 13, s.usage)
			s.usage = 6
		}},
		{"other dimensions", Fault{Dimensions: 100}, func(t *testing.T, s *seen) {
			for i, text := range fiveTexts {
				require.Equal(t, Vector(text, 100), s.vectors[i])
			}
			s.vectors = right
		}},
		{"other model", Fault{Model: "another"}, func(t *testing.T, s *seen) {
			require.Equal(t, "another", s.model)
			s.model = DefaultModel
		}},
		{"floats", Fault{Floats: true}, func(*testing.T, *seen) {}},
		{"slow", Fault{Slow: time.Millisecond}, func(*testing.T, *seen) {}},
		{"delayed", Fault{Delay: time.Millisecond}, func(*testing.T, *seen) {}},
		{"several at once", Fault{Shuffle: true, Index: IndexMissingAt, At: 3, Usage: UsageNone, Floats: true}, func(t *testing.T, s *seen) {
			at := slices.Index(s.index, noIndex)
			require.Equal(t, right[3], s.vectors[at])
			s.vectors, s.index, s.usage = right, []int{0, 1, 2, 3, 4}, 6
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bothWays(t, Options{Faults: []Fault{test.fault}}, fiveTexts, func(t *testing.T, s seen) {
				test.check(t, &s)
				require.Equal(t, right, s.vectors)
				require.Equal(t, []int{0, 1, 2, 3, 4}, s.index)
				require.Equal(t, 6, s.usage)
				require.Equal(t, DefaultModel, s.model)
			})
		})
	}
}

// The vectors of an answer become the client's: none may share memory.
func TestVectorsOfAnAnswerShareNoMemory(t *testing.T) {
	s := throughProvider(t, Options{Faults: []Fault{{Count: 2}}}, fiveTexts...)
	for i, v := range s.vectors {
		for j := range v {
			v[j] = float32(i)
		}
		_ = append(v, 100)
	}
	for i, v := range s.vectors {
		require.Equal(t, slices.Repeat([]float32{float32(i)}, DefaultDimensions), v)
	}
}

func TestShuffleMovesAllForAnyNumber(t *testing.T) {
	p := NewProvider(&Options{FaultFunc: func(int, Request) Fault { return Fault{Shuffle: true} }})
	for n := 1; n < 12; n++ {
		for range n {
			answer, err := p.Embed(t.Context(), slices.Repeat([]string{"text"}, n))
			require.NoError(t, err)
			for i, index := range answer.Index {
				require.Equal(t, n == 1, i == index)
			}
			slices.Sort(answer.Index)
			for i, index := range answer.Index {
				require.Equal(t, i, index)
			}
		}
	}
}

func TestOneTextHasNoIndexTwice(t *testing.T) {
	bothWays(t, Options{Faults: []Fault{{Index: IndexTwice}}}, []string{"one"}, func(t *testing.T, s seen) {
		require.Equal(t, []int{0}, s.index)
	})
}

func TestRefusalsByScript(t *testing.T) {
	for _, test := range []struct {
		fault     Fault
		want      seen
		transient bool
		fatal     bool
	}{
		{RateLimited(0), seen{status: 429, code: "rate_limit_exceeded", typ: "requests"}, true, false},
		{QuotaSpent(), seen{status: 429, code: "insufficient_quota", typ: "insufficient_quota"}, false, true},
		{Unauthorized(), seen{status: 401, code: "invalid_api_key", typ: "invalid_request_error"}, false, true},
		{ServerError(), seen{status: 500, typ: "server_error"}, true, false},
		{Fault{Status: 400}, seen{status: 400, typ: "invalid_request_error"}, false, false},
		{Fault{Status: 403}, seen{status: 403, code: "unsupported_country_region_territory", typ: "request_forbidden"}, false, true},
		{Fault{Status: 404}, seen{status: 404, code: "model_not_found", typ: "invalid_request_error"}, false, true},
		{Fault{Status: 408}, seen{status: 408, typ: "invalid_request_error"}, true, false},
		{Fault{Status: 409}, seen{status: 409, typ: "invalid_request_error"}, true, false},
		{Fault{Status: 413}, seen{status: 413, typ: "invalid_request_error"}, false, false},
		{Fault{Status: 422}, seen{status: 422, typ: "invalid_request_error"}, false, false},
		{Fault{Status: 503}, seen{status: 503, typ: "server_error"}, true, false},
		{Fault{Status: 529, Code: "overloaded", Type: "busy", Message: "no"}, seen{status: 529, code: "overloaded", typ: "busy", message: "no"}, true, false},
		{Fault{Status: 429, NullCode: true, Type: "tokens"}, seen{status: 429, typ: "tokens"}, true, false},
	} {
		t.Run(fmt.Sprint(test.want.status, test.want.code), func(t *testing.T) {
			bothWays(t, Options{Faults: []Fault{test.fault}}, fiveTexts, func(t *testing.T, s seen) {
				require.NotEmpty(t, s.message)
				if test.want.message == "" {
					s.message = ""
				}
				s.header = nil
				require.Equal(t, test.want, s)
			})
			p := NewProvider(&Options{Faults: []Fault{test.fault}})
			_, err := p.Embed(t.Context(), fiveTexts)
			refused := providerError(t, err)
			require.Equal(t, test.transient, refused.Transient)
			require.Equal(t, test.fatal, refused.Fatal)
			require.False(t, refused.MaybeBilled)
			require.Zero(t, p.BilledTokens())
		})
	}
}

func TestRetryAfter(t *testing.T) {
	p := NewProvider(&Options{Faults: []Fault{RateLimited(1500 * time.Millisecond)}})
	_, err := p.Embed(t.Context(), fiveTexts)
	require.Equal(t, 1500*time.Millisecond, providerError(t, err).RetryAfter)

	s := throughServer(t, Options{Faults: []Fault{RateLimited(0)}}, nil, "text")
	require.NotContains(t, s.header, "Retry-After")
	s = throughServer(t, Options{Faults: []Fault{RateLimited(1500 * time.Millisecond)}}, nil, "text")
	require.Equal(t, "2", s.header.Get("Retry-After"))

	before := time.Now()
	s = throughServer(t, Options{Faults: []Fault{{Status: 503, RetryAfter: time.Minute, RetryAfterDate: true}}}, nil, "text")
	at, err := http.ParseTime(s.header.Get("Retry-After"))
	require.NoError(t, err)
	require.False(t, at.Before(before.Add(time.Minute).Truncate(time.Second)))
	require.False(t, at.After(time.Now().Add(time.Minute+time.Second)))
}

func TestScriptThenFunc(t *testing.T) {
	opts := &Options{
		Faults: append(Repeat(2, ServerError()), Fault{}),
		FaultFunc: func(number int, r Request) Fault {
			require.Equal(t, number, r.Number)
			require.Equal(t, []string{"text"}, r.Texts)
			if number == 5 {
				return Unauthorized()
			}
			return Fault{Model: fmt.Sprint("model ", number)}
		},
	}
	p := NewProvider(opts)
	p.AddFaults(RateLimited(0))
	var got []int
	for range 6 {
		p.Embed(t.Context(), []string{"text"})
	}
	for _, r := range p.History() {
		got = append(got, r.Status)
	}
	require.Equal(t, []int{500, 500, 200, 429, 401, 200}, got)
	require.Len(t, opts.Faults, 3, "AddFaults must not touch the caller's")

	require.Panics(t, func() { p.AddFaults(Fault{Status: 42}) })
	p.AddFaults(Fault{}, Fault{Status: 500})
	_, err := p.Embed(t.Context(), []string{"text"})
	require.NoError(t, err)
	_, err = p.Embed(t.Context(), []string{"text"})
	require.Equal(t, 500, providerError(t, err).Status)
}
