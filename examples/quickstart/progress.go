package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far the work is: a bar with rate and remaining time where
// w is a terminal, else a line now and then. Only note may be called at any time
// and by several goroutines at once.
type progress interface {
	start()           // the work begins
	step(failed bool) // one passage more is done
	finish()          // no passage more comes
	note(line string) // prints a line
}

func newProgress(w io.Writer, total int) progress {
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return newBar(w, total)
	}
	return &lines{w: w, total: total}
}

type bar struct {
	*progressbar.ProgressBar
	w      io.Writer
	failed int
}

func newBar(w io.Writer, total int) *bar {
	return &bar{w: w, ProgressBar: progressbar.NewOptions(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("embedding"),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("passages"),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(30),
	)}
}

// A terminal that can't be written to is no reason to stop the work.
func (b *bar) start() { _ = b.RenderBlank() }

func (b *bar) step(failed bool) {
	if failed {
		b.failed++
		b.Describe(fmt.Sprintf("embedding (%d failed)", b.failed))
	}
	_ = b.Add(1)
}

// note takes the place of the bar, which the next step draws again below it.
func (b *bar) note(line string) {
	const eraseToEnd = "\x1b[K"
	_, _ = progressbar.Bprintln(b.ProgressBar, "\r"+line+eraseToEnd)
}

func (b *bar) finish() {
	_ = b.Exit() // leaves the bar as it is, also an unfinished one
	fmt.Fprintln(b.w)
}

// lines prints a line at each tenth of the work, and after ten seconds without
// one.
type lines struct {
	mu                  sync.Mutex // held while w is written to
	w                   io.Writer
	total, done, failed int
	began, last         time.Time
}

func (l *lines) start() {
	l.began = time.Now()
	l.last = l.began
}

func (l *lines) step(failed bool) {
	l.done++
	if failed {
		l.failed++
	}
	now := time.Now()
	tenth := l.done*10/l.total > (l.done-1)*10/l.total
	if !tenth && now.Sub(l.last) < 10*time.Second {
		return
	}
	l.last = now
	failures := ""
	if l.failed > 0 {
		failures = fmt.Sprintf(" (%d failed)", l.failed)
	}
	rate := float64(l.done) / max(now.Sub(l.began).Seconds(), 1e-3)
	left := time.Duration(float64(l.total-l.done) / rate * float64(time.Second))
	l.note(fmt.Sprintf("%d of %d passages%s, %.0f a second, %v left", l.done, l.total, failures, rate, left.Round(time.Second)))
}

func (l *lines) note(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.w, line)
}

func (l *lines) finish() {}
