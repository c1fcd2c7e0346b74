package s3

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/embedonce/embedonce/backend"
)

const (
	// chunkBytes is what a request reads before it hands over: a call has one chunk
	// for each of its requests in memory, and one more. Of frames that are longer it
	// has one at a time.
	chunkBytes = 256 << 10
)

var chunkPool = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// found is what came of one want.
type found struct {
	want  want
	value []byte // of the chunk's memory; nil if the frame isn't the key's, or is no frame
	size  int    // of the whole value, -1 if there is none
}

// chunk is some frames of one piece, in the order in which they lie.
type chunk struct {
	buf   *[chunkBytes]byte // for the pool; nil for a large frame
	found []found
	large bool // it holds the call's token for a large frame
}

// fetch reads pieces with several requests at once.
type fetch struct {
	cache *Cache
	keys  []backend.Key
	out   chan chunk
	large chan struct{} // of one: whoever has a large frame in memory
}

// run calls use with each chunk, on the caller's goroutine, one at a time, and
// returns the wants whose objects were gone, and the first error. Nothing is running
// any more when it returns.
func (c *Cache) fetch(ctx context.Context, keys []backend.Key, pieces []piece, use func(chunk) error) (gone []want, err error) {
	own, cancel := context.WithCancel(ctx)
	f := &fetch{cache: c, keys: keys, out: make(chan chunk), large: make(chan struct{}, 1)}
	var mu sync.Mutex
	var failed error
	over := make(chan struct{})
	go func() {
		defer close(over)
		failed = inParallel(own, c.options.ParallelGets, len(pieces), func(ctx context.Context, i int) error {
			rest, err := f.piece(ctx, &pieces[i])
			if errors.Is(err, errMissing) {
				mu.Lock()
				defer mu.Unlock()
				gone = append(gone, rest...)
				return nil
			}
			return err
		})
	}()
	// Also when use panics or ends its goroutine.
	defer func() {
		cancel()
		<-over
	}()
	for {
		select {
		case ch := <-f.out:
			err := use(ch)
			if ch.buf != nil {
				chunkPool.Put(ch.buf)
			}
			if ch.large {
				<-f.large
			}
			if err != nil {
				return nil, err
			}
		case <-over:
			return gone, failed
		}
	}
}

// piece reads one piece. It returns what it hasn't handed over.
func (f *fetch) piece(ctx context.Context, p *piece) (rest []want, err error) {
	rest = p.wants
	err = f.cache.remote.get(ctx, p.segment.name, func() (uint64, uint64) { return uint64(rest[0].offset), p.to }, func(a *attempt, body io.Reader) error {
		w := &windowed{fetch: f, ctx: ctx, attempt: a, body: body, segment: p.segment, at: uint64(rest[0].offset), buf: chunkPool.Get().(*[chunkBytes]byte)}
		defer func() {
			if w.buf != nil {
				chunkPool.Put(w.buf)
			}
		}()
		err := w.read(&rest)
		// What came whole before a failure counts.
		if flushErr := w.flush(&rest); flushErr != nil {
			return flushErr
		}
		return err
	})
	return rest, err
}

// windowed reads frames from an answer into chunks.
type windowed struct {
	fetch   *fetch
	ctx     context.Context
	attempt *attempt
	body    io.Reader
	segment *segment
	at      uint64 // the offset of buf[0] in the object
	n       int    // how much of buf is filled
	buf     *[chunkBytes]byte
	found   []found
}

// fill reads on until buf has at least the bytes up to offset end.
func (w *windowed) fill(end uint64) error {
	need := int(end - w.at)
	if need <= w.n {
		return nil
	}
	n, err := io.ReadAtLeast(w.body, w.buf[w.n:], need-w.n)
	w.n += n
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return &bodyError{io.ErrUnexpectedEOF}
	}
	return err
}

// room makes sure that the bytes from offset to end fit into buf: if they don't, it
// hands over what is there and begins a new chunk at offset.
func (w *windowed) room(offset, end uint64, rest *[]want) error {
	if end-w.at <= chunkBytes {
		return nil
	}
	return w.turn(offset, rest)
}

// turn begins a new chunk at offset.
func (w *windowed) turn(offset uint64, rest *[]want) error {
	var left []byte
	if have := w.at + uint64(w.n); have > offset {
		left = w.buf[offset-w.at : w.n]
	} else if _, err := io.CopyN(io.Discard, w.body, int64(offset-have)); err != nil {
		return bodyFailure(err)
	}
	w.at = offset
	if len(w.found) == 0 {
		w.n = copy(w.buf[:], left)
		return nil
	}
	next := chunkPool.Get().(*[chunkBytes]byte)
	w.n = copy(next[:], left)
	old, found := w.buf, w.found
	w.buf, w.found = next, nil
	return w.send(chunk{buf: old, found: found}, len(found), rest)
}

func bodyFailure(err error) error {
	var body *bodyError
	if errors.As(err, &body) {
		return err
	}
	return &bodyError{io.ErrUnexpectedEOF}
}

// send hands a chunk over, which answers the first n of rest.
func (w *windowed) send(ch chunk, n int, rest *[]want) error {
	w.attempt.pause()
	select {
	case w.fetch.out <- ch:
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
	w.attempt.alive()
	*rest = (*rest)[n:]
	return nil
}

func (w *windowed) flush(rest *[]want) error {
	if len(w.found) == 0 {
		return nil
	}
	found := w.found
	buf := w.buf
	w.found, w.buf = nil, nil
	return w.send(chunk{buf: buf, found: found}, len(found), rest)
}

// read reads the frames of *rest, and hands over all but the last chunk.
func (w *windowed) read(rest *[]want) error {
	wants := *rest
	for i := range wants {
		want := &wants[i]
		offset := uint64(want.offset)
		if offset < w.at { // behind a large frame that two keys share, by their hashes
			w.found = append(w.found, found{want: *want, size: -1})
			continue
		}
		if err := w.room(offset, offset+uint64(frameHead), rest); err != nil {
			return err
		}
		if err := w.fill(offset + uint64(frameHead)); err != nil {
			return err
		}
		head := w.buf[offset-w.at:][:frameHead]
		size := binary.LittleEndian.Uint32(head[len(backend.Key{}):])
		length := uint64(frameHead) + uint64(size)
		if backend.Key(head) != w.fetch.keys[want.key] || !w.segment.fits(want.candidate, length) {
			w.found = append(w.found, found{want: *want, size: -1})
			continue
		}
		take := uint64(min(size, want.head))
		end := offset + uint64(frameHead) + take
		if end-offset > chunkBytes {
			if err := w.readLarge(*want, size, take, rest); err != nil {
				return err
			}
			continue
		}
		if err := w.room(offset, end, rest); err != nil {
			return err
		}
		if err := w.fill(end); err != nil {
			return err
		}
		from := offset - w.at + uint64(frameHead)
		w.found = append(w.found, found{want: *want, value: w.buf[from : from+take : from+take], size: int(size)})
	}
	return nil
}

// fits says whether a frame may be so long. What it says itself is not believed.
func (s *segment) fits(c candidate, length uint64) bool {
	if s.stride > 0 {
		return length == uint64(s.stride)
	}
	return length <= uint64(c.atMost) && sizeClass(uint32(length)) == sizeClass(c.atMost)
}

// readLarge reads a frame that no chunk has room for.
func (w *windowed) readLarge(want want, size uint32, take uint64, rest *[]want) error {
	// What is there already goes first: found must be in the order of rest.
	if err := w.turn(uint64(want.offset), rest); err != nil {
		return err
	}
	w.attempt.pause()
	select {
	case w.fetch.large <- struct{}{}:
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
	w.attempt.alive()
	var value bytes.Buffer
	begin := uint64(want.offset) - w.at + uint64(frameHead)
	have := min(uint64(w.n)-begin, take)
	value.Write(w.buf[begin : begin+have])
	_, err := io.CopyN(&value, w.body, int64(take-have))
	if err == nil {
		// The window goes on behind the value; what it had beyond stays in front.
		if begin+have < uint64(w.n) {
			w.n = copy(w.buf[:], w.buf[begin+have:w.n])
		} else {
			w.n = 0
		}
		w.at = uint64(want.offset) + uint64(frameHead) + take
		one := []found{{want: want, value: value.Bytes(), size: int(size)}}
		err = w.send(chunk{found: one, large: true}, 1, rest)
	} else {
		err = bodyFailure(err)
	}
	if err != nil {
		<-w.fetch.large
	}
	return err
}
