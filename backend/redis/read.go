package redis

import (
	"context"
	"errors"
	"fmt"

	driver "github.com/redis/go-redis/v9"

	"github.com/embedonce/embedonce/backend"
)

// GetMany implements backend.Cache. Keys are asked for in chunks, several at once;
// value is a part of the one that is being visited.
func (c *Cache) GetMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if err := c.begin(ctx, "read"); err != nil {
		return err
	}
	defer c.calls.leave()
	return c.getMany(ctx, keys, visit)
}

// chunkBytes is what the values of a chunk take, about: asking for 25 MB at once
// costs 8 times more for each key than asking for 1 MB 25 times.
const chunkBytes = 1 << 20

// chunkLimit is what they take at most, unless one alone is longer.
const chunkLimit = 4 << 20

func (c *Cache) getMany(ctx context.Context, keys []backend.Key, visit func(i int, value []byte) error) error {
	if ctx.Err() != nil {
		return ended(ctx, "read")
	}
	if len(keys) == 0 {
		return nil
	}
	plan, err := c.plan(ctx, keys)
	if err != nil {
		return failed(ctx, "find the nodes of a cluster", err)
	}
	// Room for every chunk that is under way: whoever delivers one never waits, also
	// when this call has left.
	arrived := make(chan *chunk, c.ahead)
	underWay := 0
	for {
		for underWay < cap(arrived) {
			k := c.nextChunk(plan, keys)
			if k == nil {
				break
			}
			underWay++
			c.jobs.Go(func() {
				k.fetch(ctx)
				arrived <- k
			})
		}
		if underWay == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ended(ctx, "read")
		case k := <-arrived:
			underWay--
			if k.err != nil {
				return failed(ctx, "read", k.err)
			}
			if err := k.visit(ctx, visit, plan); err != nil {
				return err
			}
			c.chunks.Put(k)
		}
	}
}

// plan is what is left to ask for, as indexes of keys: of one server, or by server.
type plan struct {
	all    int // without a list: every index from next on
	next   int
	groups []group
	again  []int // once more, each alone or nearly so
}

type group struct {
	node  *driver.Client
	index []int
}

func (c *Cache) plan(ctx context.Context, keys []backend.Key) (*plan, error) {
	if !c.spread() {
		return &plan{all: len(keys)}, nil
	}
	p := new(plan)
	groupOf := make(map[*driver.Client]int)
	name := make([]byte, 0, maxPrefix+len(backend.Key{}))
	for i := range keys {
		name = c.appendKey(name[:0], &keys[i])
		node, err := c.nodeOf(ctx, string(name))
		if err != nil {
			return nil, err
		}
		g, known := groupOf[node]
		if !known {
			g = len(p.groups)
			groupOf[node] = g
			p.groups = append(p.groups, group{node: node})
		}
		p.groups[g].index = append(p.groups[g].index, i)
	}
	return p, nil
}

// nextChunk takes the next keys off the plan; nil at its end.
func (c *Cache) nextChunk(p *plan, keys []backend.Key) *chunk {
	most := c.options.ChunkKeys
	if typical := int(c.typical.Load()); typical > 0 {
		most = max(1, min(most, chunkBytes/typical))
	}
	var k *chunk
	take := func(n int) {
		k = c.chunks.Get().(*chunk)
		k.begin(n)
	}
	switch {
	case p.next < p.all:
		n := min(most, p.all-p.next)
		take(n)
		for i := p.next; i < p.next+n; i++ {
			k.add(i, &keys[i])
		}
		p.next += n
	case len(p.groups) > 0:
		g := &p.groups[0]
		n := min(most, len(g.index))
		take(n)
		k.node = g.node
		for _, i := range g.index[:n] {
			k.add(i, &keys[i])
		}
		// The next chunk is for another node, so that all of them work at once.
		rest := group{g.node, g.index[n:]}
		p.groups = p.groups[1:]
		if len(rest.index) > 0 {
			p.groups = append(p.groups, rest)
		}
	case len(p.again) > 0:
		n := max(1, min(most/4, len(p.again)))
		if c.spread() {
			n = 1 // the others may be on other nodes
		}
		take(n)
		for _, i := range p.again[:n] {
			k.add(i, &keys[i])
		}
		p.again = p.again[n:]
	}
	return k
}

// visit offers what has arrived, and notes in plan what must be asked for again.
func (k *chunk) visit(ctx context.Context, visit func(i int, value []byte) error, p *plan) error {
	total, values := 0, 0
	for n, i := range k.index {
		r := &k.replies[n]
		var value []byte
		switch {
		case r.kind == '$' && r.size >= 0:
			total += r.size
			values++
			if r.from < 0 && r.size+len(lineEnd) <= k.room.most {
				p.again = append(p.again, i) // the chunk was full
				continue
			}
			if r.from >= 0 {
				value = r.value()
			}
		case r.code == "WRONGTYPE":
		default:
			continue // missing
		}
		if ctx.Err() != nil {
			return ended(ctx, "read")
		}
		if err := visit(i, value); err != nil && !errors.Is(err, backend.ErrForeign) {
			return fmt.Errorf("redis: visit: %w", err)
		}
	}
	if values > 0 {
		k.c.typical.Store(int64(max(1, total/values)))
	}
	return nil
}
