package embedtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/embed"
)

func TestProviderLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProvider(&Options{
			Latency: time.Second, LatencyPerText: time.Minute,
			Faults: []Fault{{Delay: time.Hour, Slow: 24 * time.Hour}},
		})
		start := time.Now()
		_, err := p.Embed(t.Context(), []string{"a", "b", "c"})
		require.NoError(t, err)
		require.Equal(t, 25*time.Hour+3*time.Minute+time.Second, time.Since(start))
		log := p.History()
		require.Equal(t, start, log[0].Start)
		require.Equal(t, time.Now(), log[0].End)
	})
}

func TestProviderHonoursContext(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  Fault
		billed int64
	}{
		{"latency", Fault{Delay: time.Hour}, 0},
		{"slow", Fault{Slow: time.Hour}, 1},
		{"hang", Fault{Hang: true}, 0},
		{"hang, billed", Fault{Hang: true, Billed: true}, 1},
		{"hang in the body", Fault{Hang: true, Cut: true}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := NewProvider(&Options{Faults: []Fault{test.fault}})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				_, err := p.Embed(ctx, []string{"text"})
				require.Equal(t, time.Minute, time.Since(start))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				failed := providerError(t, err)
				require.Zero(t, failed.Status)
				require.True(t, failed.MaybeBilled)
				require.True(t, failed.Transient)
				require.Equal(t, test.billed, p.BilledTokens())
				require.Zero(t, p.History()[0].Status)

				_, err = p.Embed(ctx, []string{"text"})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 1, p.Requests(), "an ended context sends nothing")
			})
		})
	}
}

func TestProviderOfWhatHTTPWouldLose(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  Fault
		cause  error
		status int
		billed int64
	}{
		{"reset", Fault{Reset: true}, syscall.ECONNRESET, 0, 0},
		{"reset, billed", Fault{Reset: true, Billed: true}, syscall.ECONNRESET, 0, 1},
		{"cut", Fault{Cut: true}, io.ErrUnexpectedEOF, 0, 1},
		{"error cut", Fault{Cut: true, Status: 500}, io.ErrUnexpectedEOF, 0, 0},
		{"malformed", Fault{Malformed: true}, embed.ErrBadAnswer, 200, 1},
		{"body", Fault{Body: []byte("<html>")}, embed.ErrBadAnswer, 200, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := NewProvider(&Options{Faults: []Fault{test.fault}})
			answer, err := p.Embed(t.Context(), []string{"text"})
			require.Nil(t, answer)
			require.ErrorIs(t, err, test.cause)
			failed := providerError(t, err)
			require.Equal(t, test.status, failed.Status)
			require.True(t, failed.MaybeBilled)
			require.Equal(t, test.status == 0, failed.Transient)
			require.Equal(t, test.status, p.History()[0].Status)
			require.Equal(t, test.billed, p.BilledTokens())
		})
	}
	p := NewProvider(&Options{Faults: []Fault{{Reset: true}, {Status: 502, Body: []byte("<html>")}}})
	_, err := p.Embed(t.Context(), []string{"text"})
	var broken net.Error
	require.ErrorAs(t, err, &broken)
	_, err = p.Embed(t.Context(), []string{"text"})
	failed := providerError(t, err)
	require.Equal(t, &embed.ProviderError{Status: 502, Transient: true}, failed)
}

func TestProviderDoesNotKeepOrChangeTexts(t *testing.T) {
	p := NewProvider(&Options{EditSpec: func(s *embed.Spec) { s.Prefix = "p " }})
	texts := []string{"p a", "p b"}
	_, err := p.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.Equal(t, []string{"p a", "p b"}, texts)
	texts[0] = "changed"
	require.Equal(t, []string{"p a", "p b"}, p.History()[0].Texts)
}

func TestLogSums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hold sync.WaitGroup
		hold.Add(1)
		p := NewProvider(&Options{FaultFunc: func(number int, r Request) Fault {
			hold.Wait() // holds all requests back until each is there
			if r.Texts[0] == "fails" {
				return ServerError()
			}
			return Fault{}
		}})
		var running sync.WaitGroup
		for i := range 10 {
			running.Go(func() {
				text := fmt.Sprintf("text %d", i%3)
				if i == 9 {
					text = "fails"
				}
				p.Embed(t.Context(), []string{text, "shared"})
			})
		}
		synctest.Wait()
		require.Equal(t, 10, p.Requests())
		require.Equal(t, 10, p.MaxConcurrent())
		require.Zero(t, p.BilledTokens())
		for i, r := range p.History() {
			require.Equal(t, i+1, r.Number)
			require.Zero(t, r.End)
			require.Zero(t, r.Status)
		}
		hold.Done()
		running.Wait()

		require.Equal(t, 10, p.Requests())
		require.Equal(t, 20, p.Texts())
		require.Equal(t, 10, p.MaxConcurrent())
		require.EqualValues(t, 27, p.BilledTokens())
		require.Equal(t, map[string]int{"text 0": 3, "text 1": 3, "text 2": 3, "shared": 9}, p.TimesBilled())
		p.Embed(t.Context(), []string{"text"})
		require.Equal(t, 10, p.MaxConcurrent())
	})
}

func TestNoLog(t *testing.T) {
	p := NewProvider(&Options{NoLog: true})
	_, err := p.Embed(t.Context(), []string{"two words"})
	require.NoError(t, err)
	require.Nil(t, p.History())
	require.Nil(t, p.TimesBilled())
	require.Equal(t, 1, p.Requests())
	require.EqualValues(t, 2, p.BilledTokens())
}

func TestProviderConcurrently(t *testing.T) {
	p := NewProvider(&Options{FaultFunc: func(number int, _ Request) Fault {
		if number%7 == 0 {
			return RateLimited(time.Second)
		}
		return Fault{Shuffle: number%2 == 0}
	}})
	var running sync.WaitGroup
	for g := range 8 {
		running.Go(func() {
			for i := range 100 {
				texts := []string{fmt.Sprint("a", i), fmt.Sprint("b", g), "c"}
				answer, err := p.Embed(t.Context(), texts)
				if err != nil {
					continue
				}
				for j, index := range answer.Index {
					if !IsVectorOf(texts[index], answer.Vectors[j]) {
						t.Errorf("vector %d is not that of its text", j)
					}
				}
				p.History()
				p.TimesBilled()
			}
		})
	}
	running.Wait()
	require.Equal(t, 800, p.Requests())
	failed := 0
	for _, r := range p.History() {
		if r.Status != http.StatusOK {
			failed++
		}
	}
	require.Equal(t, 800/7, failed)
	require.EqualValues(t, 3*(800-failed), p.BilledTokens())
}
