package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// BufferedTxn implements Cache.Txn for a cache that has only GetMany and
// SetMany: it collects the writes of fn in memory and stores them with one
// SetMany when fn has returned nil. It is as atomic as c.SetMany is, and a
// transaction can't be larger than one batch of c.
//
//	func (c *Cache) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
//		return backend.BufferedTxn(ctx, c, fn)
//	}
func BufferedTxn(ctx context.Context, c Cache, fn func(tx Txn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// An empty read asks whether c is closed: fn must not run then (rule C3).
	if err := c.GetMany(ctx, nil, func(int, []byte) error { return nil }); err != nil {
		return err
	}
	tx := &bufferedTxn{cache: c, position: make(map[Key]int)}
	// Also when fn panics: the buffer is dropped, the panic goes its way.
	defer func() { tx.ended = true }()
	if err := fn(tx); err != nil {
		return fmt.Errorf("transaction: %w", err)
	}
	tx.ended = true
	return c.SetMany(ctx, tx.items)
}

type bufferedTxn struct {
	cache    Cache
	items    []Item      // one for each key, the last write of it
	position map[Key]int // where in items a key is
	ended    bool
}

var errTxnEnded = fmt.Errorf("transaction: %w: it ends with the function it was given to", ErrClosed)

func (tx *bufferedTxn) SetMany(ctx context.Context, items []Item) error {
	if tx.ended {
		return errTxnEnded
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// The limits on a batch are for the whole of it, when it is stored.
	limits := tx.cache.Info()
	if err := (Info{MaxValueBytes: limits.MaxValueBytes}).Check(items); err != nil {
		return err
	}
	for _, item := range items {
		own := Item{Key: item.Key, Value: bytes.Clone(item.Value)}
		if at, known := tx.position[item.Key]; known {
			tx.items[at] = own
			continue
		}
		tx.position[item.Key] = len(tx.items)
		tx.items = append(tx.items, own)
	}
	return nil
}

func (tx *bufferedTxn) GetMany(ctx context.Context, keys []Key, visit func(i int, value []byte) error) error {
	if tx.ended {
		return errTxnEnded
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var behind []Key // not written by tx, or declined by visit
	var index []int  // where in keys each of them is
	for i, key := range keys {
		if at, written := tx.position[key]; written {
			err := visit(i, tx.items[at].Value)
			if err == nil {
				continue
			}
			if !errors.Is(err, ErrForeign) {
				return fmt.Errorf("visit: %w", err)
			}
		}
		behind = append(behind, key)
		index = append(index, i)
	}
	if len(behind) == 0 {
		return nil
	}
	return tx.cache.GetMany(ctx, behind, func(i int, value []byte) error {
		return visit(index[i], value)
	})
}
