package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlainLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(&out, 20)
		p.start()
		for range 4 {
			time.Sleep(500 * time.Millisecond)
			p.step(false)
		}
		require.Equal(t, "2 of 20 passages, 2 a second, 9s left\n4 of 20 passages, 2 a second, 8s left\n", out.String())
		out.Reset()
		time.Sleep(11 * time.Second)
		p.step(false) // no tenth, but long awaited
		require.Equal(t, "5 of 20 passages, 0 a second, 39s left\n", out.String())
		for range 15 {
			p.step(true)
		}
		p.finish()
		require.True(t, strings.HasSuffix(out.String(), "20 of 20 passages (15 failed), 2 a second, 0s left\n"), out.String())
		require.NotContains(t, out.String(), "\r")
	})
}

func TestFewerPassagesThanTenths(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, 1)
	p.start()
	p.step(false)
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), "1 of 1 passages")
}

func TestBarShowsRateAndTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		b := newBar(&out, 4)
		b.start()
		time.Sleep(2 * time.Second)
		b.step(true)
		time.Sleep(2 * time.Second)
		b.step(false)
		b.finish()
		require.Contains(t, out.String(), "embedding")
		require.Contains(t, out.String(), "2/4")
		require.Contains(t, out.String(), "embedding (1 failed)")
		require.Contains(t, out.String(), "passages/")
		require.Contains(t, out.String(), "[4s:2s]")
		require.True(t, strings.HasSuffix(out.String(), "\n"))
	})
}
