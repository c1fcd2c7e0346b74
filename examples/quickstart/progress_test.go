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
		for range 4 {
			time.Sleep(500 * time.Millisecond)
			p.step()
		}
		require.Equal(t, "2 of 20 passages, 2 a second, 9s left\n4 of 20 passages, 2 a second, 8s left\n", out.String())
		out.Reset()
		time.Sleep(11 * time.Second)
		p.step() // no tenth, but long awaited
		require.Equal(t, "5 of 20 passages, 0 a second, 39s left\n", out.String())
		for range 15 {
			p.step()
		}
		p.finish()
		require.True(t, strings.HasSuffix(out.String(), "20 of 20 passages, 2 a second, 0s left\n"), out.String())
		require.NotContains(t, out.String(), "\r")
	})
}

func TestFewerPassagesThanTenths(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, 1)
	p.step()
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), "1 of 1 passages")
}

func TestBarShowsRateAndTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		b := newBar(&out, 4)
		time.Sleep(2 * time.Second)
		b.step()
		b.finish()
		require.Contains(t, out.String(), "embedding")
		require.Contains(t, out.String(), "1/4")
		require.Contains(t, out.String(), "passages/")
		require.Contains(t, out.String(), "[2s:6s]")
		require.True(t, strings.HasSuffix(out.String(), "\n"))
	})
}
