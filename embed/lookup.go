package embed

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/internal/record"
)

// yieldAfter is how many texts a goroutine works on before it lets others run:
// about a millisecond, so that a large call doesn't hold up its neighbours.
const yieldAfter = 128

// slot is what is known of one input.
type slot uint8

// A slot below hit has a record.Reason: why what was found is not its vector, or
// record.Valid (0) while nothing was found.
const (
	hit   slot = 0xff
	blank slot = 0xfe
)

// lookup is the state of the texts of one call, or of one chunk of a stream: it
// finds their keys, their repeats, and their vectors in the cache. It is pooled,
// so that a call that finds everything allocates next to nothing.
type lookup struct {
	client  *Client
	texts   []string // the caller's; a copy where one was not valid UTF-8
	digests []digest
	long    []bool  // texts that could have been cut
	first   []int32 // position of the first equal text
	slots   []slot  // of first texts only

	// The distinct texts that are not blank: their keys, and their positions.
	keys  []backend.Key
	where []int32
	table []int32 // hash table over keys: index into keys + 1

	rows  rows
	asked bool  // the cache was asked
	err   error // and failed, at least in part
}

// rows is a matrix of n vectors that is made when their length is known.
type rows struct {
	lent       []float32
	matrix     []float32
	n          int
	dimensions int
}

// make allocates the matrix, in the lent memory if it fits.
func (r *rows) make(dimensions int) {
	r.dimensions = dimensions
	size := r.n * dimensions
	if cap(r.lent) >= size {
		r.matrix = r.lent[:size]
		return
	}
	r.matrix = make([]float32, size)
}

func (r *rows) row(i int) []float32 {
	from, to := i*r.dimensions, (i+1)*r.dimensions
	return r.matrix[from:to:to]
}

// newLookup takes a lookup from the pool, with its keys made and nothing looked
// up yet.
func (c *Client) newLookup(texts []string) *lookup {
	l := c.scratch.Get().(*lookup)
	n := len(texts)
	l.client = c
	l.texts = texts
	l.digests = resize(l.digests, n)
	l.long = resize(l.long, n)
	l.first = resize(l.first, n)
	l.slots = resize(l.slots, n)
	clear(l.slots)
	l.replaceInvalid()
	c.parallel(n, func(from, to int) {
		for i := from; i < to; i++ {
			text := l.texts[i]
			if strings.TrimSpace(text) == "" {
				l.slots[i] = blank
				continue
			}
			l.long[i] = c.couldBeCut(text)
			l.digests[i] = c.digester.sum(text)
		}
	})
	l.findRepeats()
	return l
}

// makeRows readies l for keeping vectors, in the lent memory if they fit there.
func (l *lookup) makeRows(lent []float32) {
	l.rows = rows{lent: lent, n: len(l.texts)}
	if d := l.client.knownDimensions(); d > 0 {
		l.rows.make(d)
	}
}

// free gives l back to the pool. Nothing of it may be used afterwards; the
// matrix is not part of it.
func (l *lookup) free() {
	c := l.client
	l.client, l.texts, l.rows, l.asked, l.err = nil, nil, rows{}, false, nil
	c.scratch.Put(l)
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// replaceInvalid replaces texts that are not valid UTF-8, in a copy.
func (l *lookup) replaceInvalid() {
	copied := false
	for i, text := range l.texts {
		if valid := validUTF8(text); valid != text {
			if !copied {
				l.texts = append([]string(nil), l.texts...)
				copied = true
			}
			l.texts[i] = valid
		}
	}
}

// findRepeats makes the keys of the distinct texts and points each repeat to its
// first text. Texts are the same when their digests are.
func (l *lookup) findRepeats() {
	n := len(l.texts)
	size := 1
	for size < 2*n {
		size *= 2
	}
	l.table = resize(l.table, size)
	clear(l.table)
	l.keys, l.where = l.keys[:0], l.where[:0]
	for i := range l.texts {
		l.first[i] = int32(i)
		if l.slots[i] == blank {
			continue
		}
		at := binary.LittleEndian.Uint64(l.digests[i][:]) & uint64(size-1)
		for ; l.table[at] != 0; at = (at + 1) & uint64(size-1) {
			if known := l.where[l.table[at]-1]; l.digests[known] == l.digests[i] {
				l.first[i] = known
				break
			}
		}
		if l.table[at] == 0 {
			l.where = append(l.where, int32(i))
			l.keys = append(l.keys, backend.Key{})
			l.table[at] = int32(len(l.keys))
		}
	}
	l.client.parallel(len(l.keys), func(from, to int) {
		for k := from; k < to; k++ {
			i := l.where[k]
			l.keys[k] = keyOf(l.scope(int(i)), &l.digests[i])
		}
	})
}

// scope returns the scope of text i.
func (l *lookup) scope(i int) *digest {
	if l.long[i] {
		return &l.client.longScope
	}
	return &l.client.scope
}

// read looks for the distinct texts in the cache, and leaves the vectors it finds
// in their rows. What the cache fails to answer counts as missing. A lookup that
// is for counting only keeps no vector, and needs no rows.
func (l *lookup) read(ctx context.Context, countOnly bool) {
	c := l.client
	if c.cache == nil || len(l.keys) == 0 {
		return
	}
	begun := time.Now()
	l.asked = true
	pieces, readers := 1, c.readers()
	if split := c.cacheInfo.SplitKeys; readers > 1 && split > 0 && len(l.keys) >= split && (countOnly || l.rows.dimensions > 0) {
		// More pieces than readers: the last one to end is not far behind.
		pieces = min(4*readers, max(2*len(l.keys)/split, 1))
	}
	l.err = c.inPieces(len(l.keys), pieces, readers, func(from, to int) error {
		return l.readPiece(ctx, from, to, countOnly)
	})
	c.noteRead(ctx, l.err)
	if observer := c.opts.Observer; observer != nil && observer.Lookup != nil {
		event := LookupEvent{Texts: len(l.keys), Duration: time.Since(begun), Err: l.err}
		for _, i := range l.where {
			switch l.slots[i] {
			case hit:
				event.Hits++
			case slot(record.Valid):
			default:
				event.Foreign++
			}
		}
		observer.Lookup(ctx, event)
	}
}

// readPiece looks for keys[from:to].
func (l *lookup) readPiece(ctx context.Context, from, to int, countOnly bool) error {
	c := l.client
	var own []float32 // the row of a lookup that can't use, or doesn't have, a matrix
	visited := 0
	return c.cache.GetMany(ctx, l.keys[from:to], func(k int, value []byte) error {
		if visited++; visited%yieldAfter == 0 {
			runtime.Gosched()
		}
		i := int(l.where[from+k])
		dimensions, reason := record.Shape(value, c.knownDimensions())
		if reason == record.Valid {
			var row []float32
			if l.rows.dimensions > 0 && !countOnly {
				row = l.rows.row(i)
			} else {
				own = resize(own, dimensions)
				row = own
			}
			scope := [8]byte(l.scope(i)[:8])
			reason = record.Load(row, value, &l.digests[i], &scope)
			if reason == record.Valid && l.rows.dimensions == 0 && !countOnly {
				// The first valid record tells the length of the model's vectors.
				if c.learnFromRecord(dimensions) == dimensions {
					l.rows.make(dimensions)
					copy(l.rows.row(i), row)
				} else {
					reason = record.Dimensions
				}
			}
		}
		if reason != record.Valid {
			// Of several candidates a future record is the one to remember: it must
			// not be overwritten.
			if l.slots[i] != slot(record.Future) {
				l.slots[i] = slot(reason)
			}
			return backend.ErrForeign
		}
		l.slots[i] = hit
		return nil
	})
}

// readers returns how many reads of the cache one call runs at once, the
// caller's goroutine included.
func (c *Client) readers() int {
	readers := orDefault(c.opts.CacheReaders, c.cacheInfo.Readers)
	return max(1, readers)
}

// parallel calls work for all of [0,n), in pieces on several goroutines where n
// is large enough to be worth it.
func (c *Client) parallel(n int, work func(from, to int)) {
	if n < 8*yieldAfter || runtime.GOMAXPROCS(0) == 1 {
		for from := 0; from < n; from += yieldAfter {
			if from > 0 {
				runtime.Gosched()
			}
			work(from, min(from+yieldAfter, n))
		}
		return
	}
	_ = c.inPieces(n, n/yieldAfter, runtime.GOMAXPROCS(0), func(from, to int) error {
		work(from, to)
		return nil
	})
}

// inPieces cuts [0,n) into pieces and calls work for each, on at most so many
// goroutines, the caller's included. It returns the errors of all pieces.
func (c *Client) inPieces(n, pieces, workers int, work func(from, to int) error) error {
	if pieces <= 1 {
		return work(0, n)
	}
	var mu sync.Mutex
	var errs []error
	next := 0
	worker := func() {
		for {
			mu.Lock()
			piece := next
			next++
			mu.Unlock()
			if piece >= pieces {
				return
			}
			border := func(piece int) int { return int(int64(piece) * int64(n) / int64(pieces)) }
			if err := work(border(piece), border(piece+1)); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
			runtime.Gosched()
		}
	}
	var wg sync.WaitGroup
	for range min(workers, pieces) - 1 {
		wg.Go(worker)
	}
	worker()
	wg.Wait()
	return errors.Join(errs...)
}
