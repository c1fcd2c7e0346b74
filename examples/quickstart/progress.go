package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far the work is: a bar with rate and remaining time where
// w is a terminal, else a line now and then.
type progress interface {
	step()   // one passage more is done
	finish() // nothing more comes
}

func newProgress(w io.Writer, total int) progress {
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return newBar(w, total)
	}
	now := time.Now()
	return &lines{w: w, total: total, start: now, last: now}
}

type bar struct {
	*progressbar.ProgressBar
	w io.Writer
}

func newBar(w io.Writer, total int) bar {
	return bar{w: w, ProgressBar: progressbar.NewOptions(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("embedding"),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("passages"),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetRenderBlankState(true),
	)}
}

// A terminal that can't be written to is no reason to stop the work.
func (b bar) step() { _ = b.Add(1) }

func (b bar) finish() {
	_ = b.Exit() // leaves the bar as it is, also an unfinished one
	fmt.Fprintln(b.w)
}

// lines prints a line at each tenth of the work, and after ten seconds without
// one.
type lines struct {
	w           io.Writer
	total, done int
	start, last time.Time
}

func (l *lines) step() {
	l.done++
	now := time.Now()
	tenth := l.done*10/l.total > (l.done-1)*10/l.total
	if !tenth && now.Sub(l.last) < 10*time.Second {
		return
	}
	l.last = now
	rate := float64(l.done) / max(now.Sub(l.start).Seconds(), 1e-3)
	left := time.Duration(float64(l.total-l.done) / rate * float64(time.Second))
	fmt.Fprintf(l.w, "%d of %d passages, %.0f a second, %v left\n", l.done, l.total, rate, left.Round(time.Second))
}

func (l *lines) finish() {}
