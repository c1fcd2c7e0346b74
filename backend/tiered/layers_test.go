package tiered_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/conformance"
)

// place is where the layers of one store are, and what is the matter with them.
type place struct {
	mu      sync.Mutex
	fault   conformance.Fault // Kind 0: none
	planted map[backend.Key]struct{}
	slow    []backend.Cache // those that this process has opened

	reads, writes int // of the fast layer
}

// places has them by location.
var places sync.Map

func newPlace(t testing.TB, location string) string {
	places.Store(location, &place{planted: make(map[backend.Key]struct{})})
	t.Cleanup(func() { places.Delete(location) })
	return location
}

// placeAt is a new one in another process, which knows only the location.
func placeAt(location string) *place {
	p, _ := places.LoadOrStore(location, &place{planted: make(map[backend.Key]struct{})})
	return p.(*place)
}

// inject is Suite.Fault: it is the slow layer that misbehaves.
func inject(_ testing.TB, location string, f conformance.Fault) (undo func()) {
	if f.Kind == conformance.Damage {
		return nil // memory has nothing that lies on a disk
	}
	p := placeAt(location)
	p.set(f)
	return func() { p.set(conformance.Fault{}) }
}

func (p *place) set(f conformance.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

func (p *place) now() conformance.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

// below is the slow layer of a handle on the place.
func (p *place) below(c backend.Cache) backend.Cache {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = append(p.slow, c)
	return slowLayer{c, p}
}

// plant is Suite.Plant: something that is read as nil is in the slow layer, and what
// the fast one has is gone, since it would be found first.
func plant(t testing.TB, location string, k backend.Key, what conformance.Foreign) {
	if what != conformance.WrongType {
		t.Skip("these stores hold no empty value")
	}
	p := placeAt(location)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.slow {
		// Handles that are closed don't matter.
		_ = c.SetMany(context.Background(), []backend.Item{{Key: k, Value: []byte("unreadable")}})
	}
	p.planted[k] = struct{}{}
}

func (p *place) unplant(k backend.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.planted, k)
}

func (p *place) isPlanted(k backend.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.planted[k]
	return ok
}

var errInjected = errors.New("injected by the test")

// slowLayer misbehaves as its place says.
type slowLayer struct {
	backend.Cache
	at *place
}

// misbehave does what a fault does to every call.
func (l slowLayer) misbehave(ctx context.Context, writes bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch f := l.at.now(); {
	case f.Kind == conformance.Cut:
		return errInjected
	case f.Kind == conformance.Slow:
		return wait(ctx, 120*time.Millisecond)
	case f.Kind == conformance.Full && writes:
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, errInjected)
	case f.Kind == conformance.Locked && writes:
		return errors.Join(wait(ctx, 500*time.Millisecond), errInjected)
	}
	return nil
}

func (l slowLayer) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	if err := l.misbehave(ctx, false); err != nil {
		return err
	}
	return l.Cache.GetMany(ctx, keys, func(i int, value []byte) error {
		if l.at.isPlanted(keys[i]) {
			value = nil
		}
		return visit(i, value)
	})
}

func (l slowLayer) SetMany(ctx context.Context, items []backend.Item) error {
	if err := l.misbehave(ctx, true); err != nil {
		return err
	}
	if f := l.at.now(); len(items) > 0 && f.Kind == conformance.FailAtCommit || f.Kind == conformance.FailAtItem && len(items) > f.Item {
		if f.Item%2 == 1 { // stored, and the acknowledgement is lost
			return errors.Join(l.Cache.SetMany(ctx, items), errInjected)
		}
		return errInjected
	}
	err := l.Cache.SetMany(ctx, items)
	if err == nil {
		for _, item := range items {
			l.at.unplant(item.Key)
		}
	}
	return err
}

// What is optional is the layer's own: a decorator hides nothing.

func (l slowLayer) Delete(ctx context.Context, keys []backend.Key, match func(int, []byte) bool) (int, error) {
	if err := l.misbehave(ctx, false); err != nil {
		return 0, err
	}
	goes := make([]bool, len(keys))
	removed, err := backend.Delete(ctx, l.Cache, keys, func(i int, value []byte) bool {
		if l.at.isPlanted(keys[i]) {
			value = nil
		}
		goes[i] = match == nil || match(i, value)
		return goes[i]
	})
	for i, k := range keys {
		if err == nil && goes[i] {
			l.at.unplant(k)
		}
	}
	return removed, err
}

func (l slowLayer) Scan(ctx context.Context, from backend.Position, head int, visit func(backend.Entry) error) (backend.Position, error) {
	if err := l.misbehave(ctx, false); err != nil {
		return from, err
	}
	return backend.Scan(ctx, l.Cache, from, head, func(e backend.Entry) error {
		if l.at.isPlanted(e.Key) {
			e.Value, e.Size = nil, -1
		}
		return visit(e)
	})
}

func (l slowLayer) Stats(ctx context.Context) (backend.Stats, error) {
	if err := l.misbehave(ctx, false); err != nil {
		return backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}, err
	}
	return backend.ReadStats(ctx, l.Cache)
}

func (l slowLayer) Compact(ctx context.Context) error {
	if err := l.misbehave(ctx, false); err != nil {
		return err
	}
	return backend.Compact(ctx, l.Cache)
}

func (l slowLayer) Txn(ctx context.Context, fn func(backend.Txn) error) error {
	return backend.BufferedTxn(ctx, l, fn)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fastLayer fails each read and write in every, in turn before and after it did its work;
// 0 is never.
type fastLayer struct {
	backend.Cache
	at    *place
	every int
}

func (l fastLayer) due(count *int) (before, after bool) {
	l.at.mu.Lock()
	defer l.at.mu.Unlock()
	*count++
	if l.every == 0 || *count%l.every != 0 {
		return false, false
	}
	return *count/l.every%2 == 0, *count/l.every%2 == 1
}

func (l fastLayer) GetMany(ctx context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	before, after := l.due(&l.at.reads)
	if before {
		return errInjected
	}
	err := l.Cache.GetMany(ctx, keys, func(i int, value []byte) error {
		if l.at.isPlanted(keys[i]) {
			return nil
		}
		return visit(i, value)
	})
	if after && err == nil {
		return errInjected
	}
	return err
}

func (l fastLayer) SetMany(ctx context.Context, items []backend.Item) error {
	before, after := l.due(&l.at.writes)
	if before {
		return errInjected
	}
	err := l.Cache.SetMany(ctx, items)
	if after && err == nil {
		return errInjected
	}
	return err
}

// Delete works: where it fails, so must the Delete of both layers, and the suite
// wants none that fails.
func (l fastLayer) Delete(ctx context.Context, keys []backend.Key, match func(int, []byte) bool) (int, error) {
	return backend.Delete(ctx, l.Cache, keys, match)
}
