package embed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/internal/record"
)

const (
	// storeTimeout bounds the storing of one answer, which nobody can cancel: it
	// was paid for.
	storeTimeout = time.Minute
	// writeAttempts is how often a batch is written before it counts as lost, with
	// pauses that double from firstWritePause.
	writeAttempts   = 4
	firstWritePause = 50 * time.Millisecond
)

// storeAnswer writes the vectors of r to the cache. An error means that some of
// them may have to be paid for again.
func (c *Client) storeAnswer(ctx context.Context, r *request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	c.lookBeforeStoring(ctx, r.misses)
	items := append(c.records(r.held), c.records(r.misses)...) // of equal keys the last wins
	if len(items) == 0 {
		return nil
	}
	size := c.cacheInfo.Fit(items)
	batches := (len(items) + size - 1) / size
	err := c.inPieces(batches, batches, max(1, c.cacheInfo.Writers), func(from, to int) error {
		var errs []error
		for batch := from; batch < to; batch++ {
			errs = append(errs, c.storeBatch(ctx, items[batch*size:min((batch+1)*size, len(items))]))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("embed: writing to the cache: %w", err)
	}
	c.writesFail.Store(false)
	return nil
}

// lookBeforeStoring looks at what is stored for misses that were not looked up,
// as in a refresh: a record of a later version must stay, and where nobody knows the
// length of the model's vectors, a record tells it before the answer does. If the
// cache can't be read now, what was paid for is worth more than records that nobody
// may have written.
func (c *Client) lookBeforeStoring(ctx context.Context, misses []*miss) {
	var unseen []*miss
	var keys []backend.Key
	for _, m := range misses {
		if m.unseen {
			unseen = append(unseen, m)
			keys = append(keys, m.key)
		}
	}
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	err := c.cache.GetMany(ctx, keys, func(i int, value []byte) error {
		m := unseen[i]
		dimensions, reason := record.Shape(value, 0)
		if reason == record.Valid && c.knownDimensions() == 0 {
			scope := [8]byte(m.scope[:8])
			if record.Load(make([]float32, dimensions), value, &m.digest, &scope) == record.Valid {
				c.learnFromRecord(dimensions)
			}
		}
		if reason == record.Future {
			m.future = true
		}
		return backend.ErrForeign
	})
	for _, m := range unseen {
		m.unseen = err != nil
	}
}

// records returns what to store for misses: nothing where there is no vector, or
// where a record of a later version must stay.
func (c *Client) records(misses []*miss) []backend.Item {
	now := time.Now()
	items := make([]backend.Item, 0, len(misses))
	var memory []byte
	for _, m := range misses {
		if m.vector == nil || m.future {
			continue
		}
		if memory == nil {
			memory = make([]byte, 0, len(misses)*record.Size(len(m.vector)))
		}
		origin := record.Origin{Digest: m.digest, Scope: [8]byte(m.scope[:8]), Created: now}
		if m.long {
			origin.Flags |= record.FlagLong
		}
		start := len(memory)
		memory = record.Append(memory, m.vector, &origin)
		items = append(items, backend.Item{Key: m.key, Value: memory[start:len(memory):len(memory)]})
	}
	return items
}

// storeBatch writes one batch, and again if that fails, then reads it back if
// that is due.
func (c *Client) storeBatch(ctx context.Context, items []backend.Item) error {
	err := c.writeBatch(ctx, items)
	switch {
	case errors.Is(err, backend.ErrTooLarge):
		// All records of a Client are of one size: one that is too large means all.
		if len(items) > 1 && !c.tooLarge.Load() {
			// The store may have a limit that it doesn't declare.
			half := len(items) / 2
			return errors.Join(c.storeBatch(ctx, items[:half]), c.storeBatch(ctx, items[half:]))
		}
		if c.tooLarge.CompareAndSwap(false, true) {
			c.fault(ctx, "a vector is too large for the cache and will be paid for each time", err)
		}
		return err
	case err != nil:
		if c.writesFail.CompareAndSwap(false, true) {
			c.fault(ctx, "cache can't be written, its texts will be paid for again", err)
		}
		return err
	}
	return c.verify(ctx, items)
}

func (c *Client) writeBatch(ctx context.Context, items []backend.Item) error {
	for attempt := 0; ; attempt++ {
		begun := time.Now()
		err := c.cache.SetMany(ctx, items)
		if observer := c.opts.Observer; observer != nil && observer.Write != nil {
			size := 0
			for _, item := range items {
				size += len(item.Value)
			}
			observer.Write(ctx, WriteEvent{Items: len(items), Bytes: size, Duration: time.Since(begun), Err: err})
		}
		if err == nil || attempt+1 == writeAttempts || ctx.Err() != nil || lastsForever(err) {
			return err
		}
		if batch := (*backend.BatchError)(nil); errors.As(err, &batch) {
			items = pick(items, batch.NotStored)
		}
		timer := time.NewTimer(firstWritePause << attempt)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// lastsForever says whether the same write would fail again.
func lastsForever(err error) bool {
	for _, sentinel := range []error{backend.ErrTooLarge, backend.ErrReadOnly, backend.ErrCorrupt, backend.ErrClosed, backend.ErrEmptyValue, errors.ErrUnsupported} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// pick returns the items at the given indexes; all of them if an index is wrong.
func pick(items []backend.Item, indexes []int) []backend.Item {
	picked := make([]backend.Item, 0, len(indexes))
	for _, i := range indexes {
		if i < 0 || i >= len(items) {
			return items
		}
		picked = append(picked, items[i])
	}
	if len(picked) == 0 {
		return items
	}
	return picked
}

// verify reads a batch back that the cache acknowledged, if it is the Client's
// first or all are to be verified: a cache that drops what it acknowledged is
// found at once, and not on the bill. One that was found is never trusted again.
func (c *Client) verify(ctx context.Context, items []backend.Item) error {
	first := c.firstWrite.CompareAndSwap(false, true)
	if !first && !c.opts.VerifyWrites && !c.writesLost.Load() {
		return nil
	}
	keys := make([]backend.Key, len(items))
	for i, item := range items {
		keys[i] = item.Key
	}
	there := make([]bool, len(items))
	wrong := 0
	err := backend.Authoritative(c.cache).GetMany(ctx, keys, func(i int, value []byte) error {
		if !sameVector(value, items[i].Value) {
			wrong++
			return backend.ErrForeign
		}
		there[i] = true
		return nil
	})
	if err != nil {
		// It can't be told. The next batch tries again.
		c.firstWrite.Store(false)
		return nil
	}
	missing := 0
	for _, ok := range there {
		if !ok {
			missing++
		}
	}
	if missing == 0 || wrong == 0 && c.cacheInfo.MayEvict {
		return nil
	}
	err = fmt.Errorf("%w: of %d vectors written %d are missing or changed", ErrWriteLost, len(items), missing)
	if c.writesLost.CompareAndSwap(false, true) {
		c.fault(ctx, "cache acknowledged a write and lost it", err)
	}
	return err
}

// sameVector says whether value is the record that was written, or another whole
// record of the same text: a second process may have stored its own meanwhile.
func sameVector(value, written []byte) bool {
	if bytes.Equal(value, written) {
		return true
	}
	return record.SameText(value, written)
}
