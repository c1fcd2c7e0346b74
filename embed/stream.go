package embed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/backend"
)

// StreamOptions are the settings of one stream; nil is the zero value.
type StreamOptions struct {
	// Refresh, NoStore and CacheOnly mean what they mean in a Call. With Refresh, or
	// without a cache that is written, a text that comes again after its request is
	// over is paid for again: remembering all of a stream's texts would take memory
	// without bound.
	Refresh   bool
	NoStore   bool
	CacheOnly bool
	// Linger is how long texts wait for others to fill their request when the
	// source gives none; 0 is DefaultLinger.
	Linger time.Duration
}

// DefaultLinger is short beside a request to any provider, and long beside what a
// source that reads a file needs for its next text.
const DefaultLinger = 20 * time.Millisecond

// StreamItem is one text of a stream with its vector.
type StreamItem struct {
	ID    string // as the source gave it
	Index int    // how many texts the source gave before
	// Vector is the text's embedding, d long; nil beside an error. It is the
	// consumer's. Vectors that came together share memory: one that is kept for
	// long should be copied.
	Vector []float32
}

// Stream embeds a sequence of texts of any length in bounded memory. It is made
// by Client.Stream, and runs while its consumer ranges over All.
type Stream struct {
	client *Client
	ctx    context.Context
	source iter.Seq2[string, string]
	opts   StreamOptions

	mu       sync.Mutex
	begun    bool
	usage    Usage
	cacheErr error
}

// Stream returns a stream over pairs of an id and a text. Nothing happens before
// its All is ranged over. opts may be nil.
func (c *Client) Stream(ctx context.Context, pairs iter.Seq2[string, string], opts *StreamOptions) *Stream {
	s := &Stream{client: c, ctx: ctx, source: pairs}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.Linger = orDefault(s.opts.Linger, DefaultLinger)
	return s
}

// Usage returns what the stream has done so far for the items that were yielded;
// when All has ended, for the whole stream.
func (s *Stream) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage.clone()
}

// CacheErr returns the first failure of the cache so far, in reading or in storing,
// or nil: vectors of this stream may have to be paid for again. Usage counts how many
// there were. It may be called while the stream runs.
func (s *Stream) CacheErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cacheErr
}

// All yields each text's id and vector, in the order of the source, as soon as
// its chunk of at most 1,024 texts and all before that are there. It can be ranged
// over once.
//
// The source runs on a goroutine of its own, ahead of the consumer by a bounded
// number of texts and bytes. All ends when the source has returned. When the stream
// ends early, since the consumer leaves, ctx ends or something failed for good, the
// source's next yield returns false; a source that doesn't come to it within a
// second, since it waits for its next text, is left behind, and must not rely on
// what its consumer releases. Requests that were sent are stored all the same.
//
// # Errors
//
// A text that got no vector is yielded with its reason, and the stream goes on.
// What ends the stream is yielded last, with an Index of -1: the end of ctx, a
// failure that every request would share, a spent budget (ErrBudget), a cache
// that failed to store several answers in a row, or with Options.Strict any
// failure of the cache.
func (s *Stream) All() iter.Seq2[StreamItem, error] {
	return func(yield func(StreamItem, error) bool) {
		if err := s.begin(); err != nil {
			yield(StreamItem{Index: -1}, err)
			return
		}
		defer s.client.running.Done()
		// Ends with the consumer: the source and the planner then stop.
		ctx, leave := context.WithCancel(s.ctx)
		p := newPipeline(s, ctx)
		planned := p.run()
		err := func() error {
			defer func() { // also when the consumer panics or ends its goroutine
				leave()
				<-planned
				p.awaitSource()
			}()
			return p.emit(yield)
		}()
		if failure := p.sourceFailure.Load(); failure != nil && failure.panicked != nil {
			panic(failure.panicked) // on the consumer's goroutine
		}
		if err != nil {
			yield(StreamItem{Index: -1}, fmt.Errorf("embed: stream: %w", err))
		}
	}
}

func (s *Stream) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.begun:
		return errors.New("embed: Stream.All can be ranged over only once")
	case s.source == nil:
		return errors.New("embed: the stream's pairs are nil; give a sequence of ids and texts")
	case s.opts.Linger < 0:
		return fmt.Errorf("embed: StreamOptions.Linger is %v; allowed are 0 for the default and more", s.opts.Linger)
	case s.opts.CacheOnly && s.opts.Refresh:
		return errors.New("embed: StreamOptions.CacheOnly and StreamOptions.Refresh exclude each other; at most one is allowed")
	}
	if err := s.client.begin(s.ctx); err != nil {
		return err
	}
	s.begun = true
	return nil
}

const (
	// A chunk is what is looked up together: large enough that two cores share it, but
	// at most a quarter of the window.
	chunkTexts = 1024
	chunkBytes = 1 << 20
	// The window is the chunks that are not yet yielded: so many bytes of vectors,
	// but at most so many chunks, which bounds their texts.
	windowBytes  = 24 << 20
	windowChunks = 32
	// sourceGrace is how long a stream that ended early waits for its source.
	sourceGrace = time.Second
	// queueBytes bounds the texts that the source is ahead of the planner.
	queueBytes = 1 << 20
	// unstoredAnswers is after how many answers in a row that could not be stored
	// a stream stops: it would be paid for again, and so would its neighbours.
	unstoredAnswers = 3
)

// pipeline is a stream under way: the source and the planner run on goroutines of
// their own, requests on theirs, and the consumer's emits.
type pipeline struct {
	stream *Stream
	client *Client
	ctx    context.Context

	texts    chan streamText // a chunk of them
	queued   atomic.Int64    // bytes in texts
	room     chan struct{}   // has one when queued has fallen
	window   chan struct{}   // a place for each chunk that is not yet yielded
	chunks   chan *chunk     // in order
	siblings *siblings

	// How the source failed to come to its end; nil if it didn't.
	sourceFailure atomic.Pointer[sourceFailure]

	// The planner's.
	packer  *packer
	flying  map[backend.Key]*miss // texts that are in a request
	landing []*request            // requests whose texts are in flying
	load    load                  // of all that was packed
}

type streamText struct {
	id, text string
}

type chunk struct {
	index  int // of its first text
	ids    []string
	lookup *lookup
	misses []*miss
	load   load // of the stream up to here
}

func newPipeline(s *Stream, ctx context.Context) *pipeline {
	c := s.client
	dimensions := orDefault(c.knownDimensions(), 3072)
	texts := max(1, min(chunkTexts, windowBytes/4/(4*dimensions)))
	chunks := min(max(4, windowBytes/(4*dimensions*texts)), windowChunks)
	siblings := c.newSiblings(!s.opts.NoStore)
	siblings.stopUnstored = unstoredAnswers
	if c.opts.Strict {
		siblings.stopUnstored = 1
	}
	return &pipeline{
		stream:   s,
		client:   c,
		ctx:      ctx,
		texts:    make(chan streamText, texts),
		room:     make(chan struct{}, 1),
		window:   make(chan struct{}, chunks),
		chunks:   make(chan *chunk, chunks),
		siblings: siblings,
		// A request may be open over many chunks, so its texts are always counted.
		packer: c.newPacker(true),
		flying: make(map[backend.Key]*miss),
	}
}

// plan looks up chunk after chunk and sends what is missing.
func (p *pipeline) plan() {
	defer close(p.chunks)
	for index := 0; ; {
		ids, texts, paused, more := p.take()
		if len(texts) > 0 {
			if !p.enterWindow() {
				return
			}
			p.chunks <- p.lookUp(index, ids, texts)
			index += len(texts)
		}
		if paused || !more {
			p.send(p.packer.flush())
		}
		if !more {
			return
		}
	}
}

// take waits for the next chunk of texts; more is false when there are no more.
// When the source pauses, the chunk is cut short: the open request is then to be
// sent with what is missing of it.
func (p *pipeline) take() (ids, texts []string, paused, more bool) {
	bytes := 0
	var lingered <-chan time.Time
	for len(texts) < cap(p.texts) && bytes < chunkBytes {
		var next streamText
		var ok bool
		select {
		case next, ok = <-p.texts:
		default:
			if lingered == nil && (len(texts) > 0 || p.packer.open != nil) {
				timer := time.NewTimer(p.stream.opts.Linger)
				defer timer.Stop()
				lingered = timer.C
			}
			select {
			case next, ok = <-p.texts:
			case <-lingered:
				return ids, texts, true, true
			case <-p.siblings.stops:
				return ids, texts, false, false
			case <-p.ctx.Done():
				return nil, nil, false, false
			}
		}
		if !ok {
			return ids, texts, false, false
		}
		p.dequeued(next)
		ids, texts = append(ids, next.id), append(texts, next.text)
		bytes += len(next.text)
	}
	return ids, texts, false, true
}

// enterWindow waits for a place for one more chunk. What the consumer waits for
// may be in the open request, so that is sent first.
func (p *pipeline) enterWindow() bool {
	select {
	case p.window <- struct{}{}:
		return true
	default:
	}
	p.send(p.packer.flush())
	select {
	case p.window <- struct{}{}:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// send starts r, if there is one, and waits while too many are under way.
func (p *pipeline) send(r *request) {
	if r != nil {
		p.siblings.start(p.ctx, r)
		p.landing = append(p.landing, r)
	}
}

// lookUp looks a chunk up and packs what is missing.
func (p *pipeline) lookUp(index int, ids, texts []string) *chunk {
	c := p.client
	opts := &p.stream.opts
	p.forgetLanded()
	l := c.newLookup(texts)
	l.makeRows(nil)
	if !opts.Refresh {
		l.read(p.ctx, false)
	}
	ch := &chunk{index: index, ids: ids, lookup: l, misses: l.misses()}
	if opts.CacheOnly {
		for _, m := range ch.misses {
			m.err = ErrNotCached
		}
		return ch
	}
	var own []*miss // not in a request yet
	for _, m := range ch.misses {
		if first := p.flying[m.key]; first != nil {
			m.joins = first
			continue
		}
		own = append(own, m)
	}
	c.fitLongTexts(p.ctx, own)
	fitting := own[:0]
	for _, m := range own {
		if m.err == nil {
			fitting = append(fitting, m)
		}
	}
	if c.spec.Limits.Tokens > 0 || c.opts.MaxBilledTokens > 0 {
		c.countTokens(fitting)
	}
	for _, m := range fitting {
		p.flying[m.key] = m
		p.load.add(m, &p.packer.limits)
		p.send(p.packer.add(m))
	}
	ch.load = p.load
	return ch
}

// forgetLanded forgets the texts of requests that were over before the lookup
// that begins now: it will find them in the cache. Those that end during it may
// be missed by it, so their vectors stay at hand.
func (p *pipeline) forgetLanded() {
	flying := p.landing[:0]
	for _, r := range p.landing {
		select {
		case <-r.done:
			for _, m := range r.misses {
				delete(p.flying, m.key)
			}
		default:
			flying = append(flying, r)
		}
	}
	clear(p.landing[len(flying):])
	p.landing = flying
}
