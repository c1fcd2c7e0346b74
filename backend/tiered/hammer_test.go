package tiered_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/tiered"
)

// history is what the oracle knows of one key. One goroutine changes it; its
// changes are numbered from 1, and a value says which one it is of.
type history struct {
	mu      sync.Mutex
	deletes []bool // by number: a deletion; number 0 is the empty beginning
	settled int    // the last change that was acknowledged
}

func (h *history) begin(deletion bool) (number int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deletes = append(h.deletes, deletion)
	return len(h.deletes) - 1
}

func (h *history) settle(number int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settled = number
}

func (h *history) settledNow() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settled
}

// judge says what is wrong with an answer to a read that began when change
// settled was the last one acknowledged. number 0 is no value.
func (h *history) judge(settled, number int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if number == 0 {
		if !slices.Contains(h.deletes[settled:], true) {
			return fmt.Errorf("nothing, though change %d was acknowledged and nothing was deleted since", settled)
		}
		return nil
	}
	switch {
	case number >= len(h.deletes):
		return fmt.Errorf("change %d, which was not begun", number)
	case h.deletes[number]:
		return fmt.Errorf("a value of change %d, a deletion", number)
	case number < settled:
		return fmt.Errorf("change %d, though change %d was acknowledged (a deletion: %v)", number, settled, h.deletes[settled])
	}
	return nil
}

// hammer lets goroutines write, delete and read through layers that fail, are
// slow and evict, and holds every answer against the oracle. Time is virtual.
func hammer(t *testing.T, seed uint64, opts tiered.Options, durable bool) {
	const owners, readers, each, operations = 4, 3, 6, 250
	p := newPair(t, tiered.Options{})
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	if p.fast.info.MayEvict = !durable; durable {
		p.fast.info.Durability, p.slow.info.Durability = backend.SurvivesCrash, backend.SurvivesCrash
	}
	p.join(opts)

	histories := make([]*history, owners*each)
	for i := range histories {
		histories[i] = &history{deletes: []bool{true}}
	}
	moody := func(stream uint64, f *fake, in int) func(string) error {
		var mu sync.Mutex
		r := random(stream)
		return func(op string) error {
			mu.Lock()
			pause, fails, evicts := time.Duration(r.IntN(int(5*time.Millisecond))), r.IntN(in) == 0, r.IntN(8) == 0
			victim := key(r.IntN(len(histories)))
			mu.Unlock()
			if f == p.fast && evicts && !durable {
				f.mu.Lock()
				delete(f.entries, victim)
				f.mu.Unlock()
			}
			time.Sleep(pause)
			if fails {
				return errInjected
			}
			return nil
		}
	}
	p.fast.before, p.fast.after = moody(1, p.fast, 40), moody(2, p.fast, 40)
	p.slow.before, p.slow.after = moody(3, p.slow, 12), moody(4, p.slow, 12)

	var all sync.WaitGroup
	for o := range owners {
		all.Go(func() {
			r := random(100 + uint64(o))
			for range operations {
				chosen := r.Perm(each)[:1+r.IntN(each)]
				deletion := r.IntN(4) == 0
				numbers := make([]int, len(chosen))
				batch := make([]backend.Item, len(chosen))
				some := make([]backend.Key, len(chosen))
				for i, c := range chosen {
					at := o*each + c
					numbers[i] = histories[at].begin(deletion)
					some[i] = key(at)
					batch[i] = backend.Item{Key: some[i], Value: binary.AppendUvarint(nil, uint64(numbers[i]))}
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(40))*time.Millisecond)
				var err error
				if deletion {
					_, err = p.Delete(ctx, some, nil)
				} else {
					err = p.SetMany(ctx, batch)
				}
				cancel()
				if err == nil {
					for i, c := range chosen {
						histories[o*each+c].settle(numbers[i])
					}
				}
			}
		})
	}
	for w := range readers {
		all.Go(func() {
			r := random(200 + uint64(w))
			for range 2 * operations {
				chosen := r.Perm(len(histories))[:1+r.IntN(len(histories))]
				some := make([]backend.Key, len(chosen))
				settled := make([]int, len(chosen))
				for i, c := range chosen {
					some[i], settled[i] = key(c), histories[c].settledNow()
				}
				numbers := make([]int, len(chosen))
				err := p.GetMany(context.Background(), some, func(i int, value []byte) error {
					number, _ := binary.Uvarint(value)
					if r.IntN(20) == 0 {
						return backend.ErrForeign
					}
					if numbers[i] != 0 {
						return errors.New("an accepted index is visited again")
					}
					numbers[i] = int(number)
					return nil
				})
				if err != nil && !errors.Is(err, errInjected) {
					t.Errorf("seed %d: %v", seed, err)
				}
				for i, c := range chosen {
					// What was declined, or can't be told, counts for nothing.
					if numbers[i] == 0 {
						continue
					}
					if wrong := histories[c].judge(settled[i], numbers[i]); wrong != nil {
						t.Errorf("seed %d: key %d: %v", seed, c, wrong)
					}
				}
			}
		})
	}
	all.Wait()

	// Without faults every answer is whole, during the last outage and after it.
	p.fast.before, p.fast.after, p.slow.before, p.slow.after = nil, nil, nil, nil
	for range 4 {
		texts := p.reads(keys(len(histories))...)
		for c, h := range histories {
			number, _ := binary.Uvarint([]byte(texts[c]))
			if wrong := h.judge(h.settledNow(), int(number)); wrong != nil {
				t.Errorf("seed %d: key %d in the end: %v", seed, c, wrong)
			}
		}
		time.Sleep(time.Second)
	}
	counts := p.Counts()
	t.Logf("%+v, %d outages", counts, len(p.told()))
	require.NotZero(t, counts.Fast)
	require.NotZero(t, counts.Slow)
	require.NotZero(t, counts.Filled)
	require.NotEmpty(t, p.told())
}

func TestHammer(t *testing.T) {
	seeds := []uint64{20240229, rand.Uint64()}
	for _, seed := range seeds {
		for name, opts := range map[string]tiered.Options{
			"default": {},
			"max age": {MaxAge: 20 * time.Millisecond},
			"durable": {},
		} {
			t.Run(fmt.Sprintf("%s/seed=%d", name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { hammer(t, seed, opts, name == "durable") })
			})
		}
	}
}
