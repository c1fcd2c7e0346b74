package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLoopStartsAllTogetherAfterAWarmUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var warm atomic.Int32
		began := time.Now()
		pass, err := Loop(t.Context(), 4, 100*time.Millisecond, func(g, i int) error {
			if i == 0 {
				time.Sleep(time.Duration(g) * time.Second) // the slowest warms up for 3 s
				warm.Add(1)
				return nil
			}
			if warm.Load() != 4 {
				return errors.New("measured before all were warm")
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, 4*10, pass.Calls)
		require.Equal(t, 100*time.Millisecond, pass.Elapsed)
		require.Equal(t, 3100*time.Millisecond, time.Since(began))
		require.Len(t, pass.Each, 40)
		for _, d := range pass.Each {
			require.Equal(t, 10*time.Millisecond, d)
		}
		require.InDelta(t, 10_000.0/4/16, pass.PerText(16), 1e-9)
		require.InDelta(t, 10, Summarize(pass.EachMillis()).P99, 1e-9)
	})
}

func TestLoopCallsAtLeastOnce(t *testing.T) {
	pass, err := Loop(t.Context(), 3, 0, func(int, int) error { return nil })
	require.NoError(t, err)
	require.Equal(t, 3, pass.Calls)
}

func TestLoopEndsWithTheFirstError(t *testing.T) {
	mistake := errors.New("mistake")
	for _, at := range []int{0, 1, 5} {
		_, err := Loop(t.Context(), 3, time.Hour, func(g, i int) error {
			if g == 1 && i == at {
				return mistake
			}
			return nil
		})
		require.ErrorIs(t, err, mistake)
	}
}

func TestLoopEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Loop(ctx, 2, time.Hour, func(_, i int) error {
		if i == 3 {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestControl(t *testing.T) {
	perDigest, err := Control(t.Context(), 2, time.Millisecond)
	require.NoError(t, err)
	require.Positive(t, perDigest)
}

// kept is a Sink that keeps results.
type kept struct {
	Lines
	results []Result
}

func (k *kept) Result(r Result) error {
	k.results = append(k.results, r)
	return nil
}

func TestBesideTakesTurns(t *testing.T) {
	sink := new(kept)
	table := (&Run{Settings: Settings{Scenario: "s", Sink: sink}}).NewTable()
	var order []string
	side := func(name string, figures ...float64) Side {
		return Side{name, func(context.Context) (float64, error) {
			order = append(order, name)
			figure := figures[0]
			figures = figures[1:]
			return figure, nil
		}}
	}
	ours, floor, control := side(CaseOurs, 3, 8, 6), side(CaseFloor, 1, 4, 2), side(CaseControl, 9, 9, 9)
	cell := Result{Backend: "memory", Metric: "hit", Unit: "µs/text"}
	for repetition := range 3 {
		require.NoError(t, table.Beside(t.Context(), repetition, cell, ours, floor, control))
	}
	require.Equal(t, []string{
		CaseOurs, CaseFloor, CaseControl,
		CaseFloor, CaseControl, CaseOurs,
		CaseControl, CaseOurs, CaseFloor,
	}, order)

	require.NoError(t, table.Emit())
	require.Len(t, sink.results, 4)
	require.Equal(t, Result{
		Scenario: "s", Case: CaseOurs, Backend: "memory", Metric: "hit", Unit: "µs/text", Summary: Summary{6, 8, 8, 3, 8, 3}, Floor: 2,
	}, sink.results[0])
	require.Equal(t, CaseFloor, sink.results[1].Case)
	require.Equal(t, CaseControl, sink.results[2].Case)
	// The median of 3/1, 8/4 and 6/2, not of the medians.
	require.Equal(t, Result{
		Scenario: "s", Case: CaseOurs, Backend: "memory", Metric: "hit / floor", Unit: "ratio", Summary: Summary{3, 3, 3, 2, 3, 3},
	}, sink.results[3])

	require.NoError(t, table.Emit())
	require.Len(t, sink.results, 4, "the table is empty then")
}

func TestBesideSaysWhoFailed(t *testing.T) {
	mistake := errors.New("mistake")
	table := (&Run{}).NewTable()
	err := table.Beside(t.Context(), 0, Result{Backend: "bolt"}, Side{CaseFloor, func(context.Context) (float64, error) { return 0, mistake }})
	require.ErrorIs(t, err, mistake)
	require.ErrorContains(t, err, `floor on "bolt"`)
}
