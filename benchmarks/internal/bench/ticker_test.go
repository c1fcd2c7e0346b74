package bench

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTicksThatAreNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := Watch(5 * time.Millisecond)
		time.Sleep(52 * time.Millisecond)
		lags := stop()
		require.Len(t, lags.Each, 10)
		require.Zero(t, lags.Missed())
		require.Equal(t, Summary{Runs: 10}, lags.Summary())
	})
}

func TestTicksOfAGoroutineThatRunsLate(t *testing.T) {
	begun := time.Now()
	at := func(millis int) time.Time { return begun.Add(time.Duration(millis) * time.Millisecond) }
	lags := Lags{Period: 5 * time.Millisecond}
	next := lags.note(at(5), at(6))
	require.Equal(t, at(10), next)
	next = lags.note(next, at(32)) // 10, 15, 20, 25 and 30 were due
	require.Equal(t, at(35), next)
	require.Equal(t, next, lags.note(next, at(34)), "nothing is due")
	next = lags.note(next, at(35))
	require.Equal(t, at(40), next)

	var millis []int64
	for _, lag := range lags.Each {
		millis = append(millis, lag.Milliseconds())
	}
	require.Equal(t, []int64{1, 22, 17, 12, 7, 2, 0}, millis)
	require.InDelta(t, 100*4.0/7, lags.Missed(), 1e-9)
	require.Equal(t, Summary{7, 22, 22, 0, 22, 7}, lags.Summary())
}

func TestATickThatIsAWholePeriodLateIsMissed(t *testing.T) {
	begun := time.Now()
	lags := Lags{Period: 5 * time.Millisecond}
	lags.note(begun, begun.Add(5*time.Millisecond))
	require.Equal(t, []time.Duration{5 * time.Millisecond, 0}, lags.Each)
	require.InDelta(t, 50, lags.Missed(), 0)
}

func TestNoTickWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lags := Watch(time.Hour)()
		require.Empty(t, lags.Each)
		require.Zero(t, lags.Missed())
		require.Zero(t, lags.Summary())
	})
}

func TestWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mistake := errors.New("mistake")
		elapsed, lags, err := Watched(func() error {
			time.Sleep(2*Tick + time.Millisecond)
			return mistake
		})
		require.ErrorIs(t, err, mistake)
		require.Equal(t, 2*Tick+time.Millisecond, elapsed)
		require.Len(t, lags.Each, 2)
	})
}

func TestIdleLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lags, err := IdleLags(t.Context(), 21*time.Millisecond)
		require.NoError(t, err)
		require.Len(t, lags.Each, 4)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = IdleLags(ctx, time.Hour)
		require.ErrorIs(t, err, context.Canceled)
	})
}
