package embedtest

import (
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Request is what a fake knows of one request.
type Request struct {
	// Number counts requests from 1, in the order in which they arrived.
	Number int
	// Model, Texts and Dimensions are what was asked for; Dimensions is 0 where
	// it was left to the model. Texts of a request that a Server can't read are
	// nil. A Client sends texts with their Prefix.
	Model      string
	Texts      []string
	Dimensions int
	// Bytes and Tokens are those of Texts.
	Bytes, Tokens int
	// BilledTokens is what the user pays: Tokens where vectors were sent, whole or
	// not, or where a Fault says so; else 0.
	BilledTokens int
	// Status is what was answered; 0 where no whole answer was.
	Status int
	// Start is when the request arrived, End when its answer was ready or the
	// client had gone; End is zero before that.
	Start, End time.Time

	// URL, Header and Body are the request as a Server got it, key and all; nil
	// for a Provider. They are shared: don't change them.
	URL    *url.URL
	Header http.Header
	Body   []byte
}

// Log is what happened so far. Any number of goroutines may read it while
// requests run. A request is complete in it before its client sees the end of the
// answer.
type Log struct {
	mu       sync.Mutex
	keep     bool
	log      []*Request
	requests int
	texts    int
	billed   int64
	running  int
	most     int
}

// Requests is how many requests have arrived, whatever became of them.
func (l *Log) Requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

// Texts is how many texts those requests had, repetitions included.
func (l *Log) Texts() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.texts
}

// BilledTokens is what the user pays for so far.
func (l *Log) BilledTokens() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.billed
}

// MaxConcurrent is how many requests ran at the same time, at most.
func (l *Log) MaxConcurrent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}

// History returns a copy of the requests so far, in the order of their arrival; nil
// with Options.NoLog. The texts are shared: don't change them.
func (l *Log) History() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.keep {
		return nil
	}
	requests := make([]Request, len(l.log))
	for i, request := range l.log {
		requests[i] = *request
	}
	return requests
}

// TimesBilled returns for each text how many times the user pays for it, as it
// was sent; nil with Options.NoLog.
func (l *Log) TimesBilled() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.keep {
		return nil
	}
	times := make(map[string]int)
	for _, request := range l.log {
		if request.BilledTokens == 0 {
			continue
		}
		for _, text := range request.Texts {
			times[text]++
		}
	}
	return times
}

// begin gives r its number and adds it.
func (l *Log) begin(r *Request) {
	r.Texts = slices.Clip(r.Texts)
	for _, text := range r.Texts {
		r.Bytes += len(text)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	l.texts += len(r.Texts)
	l.running++
	l.most = max(l.most, l.running)
	r.Number = l.requests
	r.Start = time.Now()
	if l.keep {
		l.log = append(l.log, r)
	}
}

// bill charges for r, at most once.
func (l *Log) bill(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.BilledTokens == 0 {
		r.BilledTokens = r.Tokens
		l.billed += int64(r.Tokens)
	}
}

// end completes r; only the first call for r counts.
func (l *Log) end(r *Request, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.End.IsZero() {
		r.Status, r.End = status, time.Now()
		l.running--
	}
}
