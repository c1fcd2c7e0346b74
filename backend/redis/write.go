package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	driver "github.com/redis/go-redis/v9"

	"github.com/embedonce/embedonce/backend"
)

// SetMany implements backend.Cache. A batch is one MULTI ... EXEC, sent in one piece.
// Where Info.Atomic is false it is several requests, one or more for each node of the
// cluster.
func (c *Cache) SetMany(ctx context.Context, items []backend.Item) error {
	if err := c.begin(ctx, "write"); err != nil {
		return err
	}
	defer c.calls.leave()
	return c.setMany(ctx, items)
}

func (c *Cache) setMany(ctx context.Context, items []backend.Item) error {
	if ctx.Err() != nil {
		return ended(ctx, "write")
	}
	if err := c.info.Check(items); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	switch {
	case len(items) == 0:
		return nil
	case c.spread():
		return c.setSpread(ctx, items)
	}
	b := c.batches.Get().(*batch)
	b.fill(c, nil, items, nil)
	redirected := false
	err := again(ctx, func(n int) error {
		return c.detachChange(ctx, b.timeout(), func(ctx context.Context) error {
			if n > 1 && c.cluster != nil {
				c.cluster.ReloadState(ctx)
			}
			if redirected {
				return b.sendInTxnOfDriver(ctx)
			}
			err := b.send(ctx, true)
			redirected = c.cluster != nil && c.options.WaitReplicas == 0 && isRedirection(err)
			return err
		})
	}, mayWriteAgain)
	if err != nil {
		return failed(ctx, "write", err) // and b may still be in use
	}
	b.done()
	return nil
}

// mayWriteAgain says whether a write that failed may be sent again: if it was refused
// as a whole, or not sent at all. An answer that got lost says nothing, and is an
// error of the call.
func mayWriteAgain(err error) bool {
	var refused serverError
	var answered driver.Error
	if errors.As(err, &refused) || errors.As(err, &answered) {
		return mayHelpAgain(err)
	}
	return neverSent(err)
}

func isRedirection(err error) bool {
	var refused serverError
	return errors.As(err, &refused) && (refused.code == "MOVED" || refused.code == "ASK" || refused.code == "TRYAGAIN")
}

// setSpread writes to the nodes of a cluster whose keys have no slot in common.
func (c *Cache) setSpread(ctx context.Context, items []backend.Item) error {
	pieces, superseded, err := c.pieces(ctx, items)
	if err != nil {
		return failed(ctx, "find the nodes of a cluster", err)
	}
	var all sync.WaitGroup
	for _, b := range pieces {
		all.Go(func() { b.store(ctx) })
	}
	all.Wait()
	var notStored []int
	for _, b := range pieces {
		notStored = append(notStored, b.notStored...)
		if b.err != nil && err == nil {
			err = b.err
		}
	}
	if err == nil {
		for _, b := range pieces {
			b.done()
		}
		return nil
	}
	notStored = append(notStored, superseded...)
	slices.Sort(notStored)
	return fmt.Errorf("redis: write: %w", &backend.BatchError{NotStored: notStored, Err: reason(ctx, err)})
}

// pieces sorts items by node, in pieces of about chunkLimit. Of equal keys only the
// last counts: in which order pieces are stored is open.
func (c *Cache) pieces(ctx context.Context, items []backend.Item) (pieces []*batch, superseded []int, err error) {
	last := make(map[backend.Key]int, len(items))
	for i := range items {
		last[items[i].Key] = i
	}
	type part struct {
		node  *driver.Client
		index []int
		bytes int
	}
	open := make(map[*driver.Client]*part)
	var parts []*part
	name := make([]byte, 0, c.keyLength())
	for i := range items {
		if last[items[i].Key] != i {
			superseded = append(superseded, i)
			continue
		}
		name = c.appendKey(name[:0], &items[i].Key)
		node, err := c.nodeOf(ctx, string(name))
		if err != nil {
			return nil, nil, err
		}
		size := len(items[i].Value)
		p := open[node]
		if p == nil || p.bytes+size > chunkLimit {
			p = &part{node: node}
			open[node] = p
			parts = append(parts, p)
		}
		p.index = append(p.index, i)
		p.bytes += size
	}
	for _, p := range parts {
		b := c.batches.Get().(*batch)
		b.fill(c, p.node, items, p.index)
		pieces = append(pieces, b)
	}
	return pieces, superseded, nil
}

// store sends the batch, a piece of a larger one, and sets err and notStored.
func (b *batch) store(ctx context.Context) {
	c := b.c
	redirected := false
	b.err = again(ctx, func(n int) error {
		return c.detachChange(ctx, b.timeout(), func(ctx context.Context) error {
			if n > 1 {
				c.cluster.ReloadState(ctx)
			}
			if redirected {
				return b.sendThroughDriver(ctx)
			}
			err := b.send(ctx, false)
			redirected = c.options.WaitReplicas == 0 && (isRedirection(err) || neverSent(err))
			return err
		})
	}, mayWriteAgain)
	b.notStored = nil
	if b.err != nil {
		// The job may still run: what it has found so far is not looked at.
		b.notStored = b.index
		if finished := (partlyStored{}); errors.As(b.err, &finished) {
			b.notStored = finished.notStored
		}
	}
}

// partlyStored is why some of a piece is not stored.
type partlyStored struct {
	notStored []int
	err       error
}

func (p partlyStored) Error() string { return p.err.Error() }
func (p partlyStored) Unwrap() error { return p.err }
