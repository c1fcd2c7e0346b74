package redis

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"

	driver "github.com/redis/go-redis/v9"

	"github.com/embedonce/embedonce/backend"
)

var (
	_ backend.Scanner = (*Cache)(nil)
	_ backend.Statter = (*Cache)(nil)
)

const (
	// scanKeys is how many keys of any kind a step of a scan looks at.
	scanKeys = 1000
	// longHead is from where on reading the whole value costs no more than its
	// beginning.
	longHead = 4096
	// A call visits so many entries, if it finds them in so many steps.
	partKeys  = 256
	partSteps = 64
)

// Scan implements backend.Scanner: some hundred entries a call, fewer where a server
// has many keys of other programs, of which a call passes over 64,000 at most. In a
// cluster it goes from one master to the next. Values whose beginning is asked for
// come in a transaction with their length. While a server resizes its table, an entry
// may be visited twice.
//
// # Errors
//
// A position means nothing to a server that was restarted, or to a cluster whose
// masters are others now, as after a failover: Scan then returns an error, and has to
// begin at "" again. Entries that a cluster moves between masters that stay may be
// missed, or visited twice.
func (c *Cache) Scan(ctx context.Context, from backend.Position, head int, visit func(e backend.Entry) error) (next backend.Position, err error) {
	if err := c.begin(ctx, "scan"); err != nil {
		return from, err
	}
	defer c.calls.leave()
	at, err := parseSpot(from)
	if err != nil {
		return from, err
	}
	part, after, err := c.scanPart(ctx, at)
	if err != nil {
		return from, failed(ctx, "scan", err)
	}
	if head < longHead {
		err = c.scanHeads(ctx, part, max(head, 1), visit)
	} else {
		err = c.scanValues(ctx, part.keys, head, visit)
	}
	if err != nil {
		return from, err
	}
	return after.position(), nil
}

// spot is a place in the walk through the servers.
type spot struct {
	node   string // address of a master; "" is the first one
	cursor uint64 // of SCAN; 0 is its beginning
	run    string // which run of the server the cursor is of
	set    string // which masters the cluster had
}

func (s spot) position() backend.Position {
	if s == (spot{}) {
		return ""
	}
	return backend.Position(fmt.Sprintf("%d %s %s %s", s.cursor, s.run, s.set, s.node))
}

func parseSpot(p backend.Position) (spot, error) {
	if p == "" {
		return spot{}, nil
	}
	words := strings.Split(string(p), " ")
	if len(words) == 4 {
		cursor, err := strconv.ParseUint(words[0], 10, 64)
		s := spot{cursor: cursor, run: words[1], set: words[2], node: words[3]}
		if err == nil && s.position() == p {
			return s, nil
		}
	}
	return spot{}, errors.New("redis: scan: the position is not one that Scan returned")
}

var errOtherRun = errors.New("the server was restarted, or another one took its place, since the position was returned; begin at \"\" again")

// part is what one step of a scan found.
type part struct {
	node *driver.Client
	keys []backend.Key
}

// scanPart goes on from a spot until it has some keys of one server, and returns the
// spot behind them.
func (c *Cache) scanPart(ctx context.Context, at spot) (part, spot, error) {
	found, at, err := c.retryStep(ctx, at)
	for n := 1; err == nil && n < partSteps && len(found.keys) < partKeys && at.cursor != 0; n++ {
		var more part
		if more, at, err = c.retryStep(ctx, at); err == nil && more.node != found.node {
			return part{}, at, errOtherRun
		}
		found.keys = append(found.keys, more.keys...)
	}
	return found, at, err
}

func (c *Cache) retryStep(ctx context.Context, at spot) (part, spot, error) {
	var found part
	var after spot
	err := again(ctx, func(int) error {
		var p part
		var next spot
		err := c.detach(ctx, c.options.Timeout, func(ctx context.Context) (err error) {
			p, next, err = c.scanStep(ctx, at)
			return err
		})
		if err == nil {
			found, after = p, next
		}
		return err
	}, mayHelpAgain)
	return found, after, err
}

func (c *Cache) scanStep(ctx context.Context, at spot) (p part, after spot, err error) {
	nodes, err := c.masters(ctx)
	if err != nil {
		return p, after, err
	}
	set, n := "", 0
	if c.single == nil {
		set = setOf(nodes)
	}
	if at != (spot{}) {
		n = slices.IndexFunc(nodes, func(node *driver.Client) bool { return c.single != nil || node.Options().Addr == at.node })
		if n < 0 || at.set != set {
			return p, after, errOtherRun // what a new master has may be from where the scan was
		}
	}
	if n == len(nodes) {
		return p, after, nil
	}
	p.node = nodes[n]
	pipe := p.node.Pipeline()
	info := pipe.Info(ctx, "server")
	scan := pipe.Scan(ctx, at.cursor, escaped(c.options.Prefix)+"*", scanKeys)
	if _, err := pipe.Exec(ctx); err != nil && scan.Err() != nil {
		return p, after, scan.Err()
	}
	run := runOf(info.Val())
	if at.cursor != 0 && run != at.run {
		return p, after, errOtherRun
	}
	names, cursor := scan.Val()
	for _, name := range names {
		if key, ours := c.ownKey(name); ours {
			p.keys = append(p.keys, key)
		}
	}
	switch {
	case cursor != 0:
		after = spot{cursor: cursor, run: run, set: set}
		if c.single == nil {
			after.node = p.node.Options().Addr
		}
	case n+1 < len(nodes):
		after = spot{node: nodes[n+1].Options().Addr, set: set}
	}
	return p, after, nil
}

// setOf tells sets of masters apart.
func setOf(nodes []*driver.Client) string {
	h := fnv.New64a()
	for _, node := range nodes {
		_, _ = fmt.Fprintln(h, node.Options().Addr)
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// runOf finds which run of the server an INFO is from. "" if it may not be asked.
func runOf(info string) string {
	_, rest, _ := strings.Cut(info, "run_id:")
	run, _, _ := strings.Cut(rest, "\r\n")
	return run
}

// masters returns the servers that may have entries, by address.
func (c *Cache) masters(ctx context.Context) ([]*driver.Client, error) {
	if !c.spread() {
		node, err := c.nodeOf(ctx, c.options.Prefix)
		return []*driver.Client{node}, err
	}
	var mu sync.Mutex
	var all []*driver.Client
	err := c.cluster.ForEachMaster(ctx, func(_ context.Context, node *driver.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, node)
		return nil
	})
	slices.SortFunc(all, func(a, b *driver.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	return all, err
}

var errStop = errors.New("stop")

// scanValues visits entries with their whole values.
func (c *Cache) scanValues(ctx context.Context, keys []backend.Key, head int, visit func(e backend.Entry) error) error {
	var stop error // any error of visit ends a scan, also one that a read would go on after
	err := c.getMany(ctx, keys, func(i int, value []byte) error {
		e := backend.Entry{Key: keys[i], Value: value[:min(head, len(value))], Size: len(value)}
		if value == nil {
			e.Size = -1
		}
		if stop = visit(e); stop != nil {
			return errStop
		}
		return nil
	})
	if stop != nil {
		return fmt.Errorf("redis: visit: %w", stop)
	}
	return err
}

// scanHeads visits entries with the beginning of their values. What can't be asked
// for in this way, since it is being moved in a cluster, is read whole.
func (c *Cache) scanHeads(ctx context.Context, p part, head int, visit func(e backend.Entry) error) error {
	for keys := range slices.Chunk(p.keys, c.options.ChunkKeys) {
		names := make([]string, len(keys))
		for i := range keys {
			names[i] = string(c.appendKey(nil, &keys[i]))
		}
		var heads []*driver.SliceCmd
		err := again(ctx, func(int) error {
			var got []*driver.SliceCmd
			err := c.detach(ctx, c.options.Timeout, func(ctx context.Context) (err error) {
				got, err = askHeads(ctx, p.node, names, head)
				return err
			})
			if err == nil {
				heads = got
			}
			return err
		}, mayHelpAgain)
		if err != nil {
			return failed(ctx, "scan", err)
		}
		var whole []backend.Key
		for i, cmd := range heads {
			if ctx.Err() != nil {
				return ended(ctx, "scan")
			}
			entry, stored, ok := entryOf(cmd)
			if !ok {
				whole = append(whole, keys[i])
				continue
			}
			if entry.Key = keys[i]; !stored {
				continue
			}
			if err := visit(entry); err != nil {
				return fmt.Errorf("redis: visit: %w", err)
			}
		}
		if err := c.scanValues(ctx, whole, head, visit); err != nil {
			return err
		}
	}
	return nil
}

// askHeads asks in a transaction for each key, as the three answers must fit
// together.
func askHeads(ctx context.Context, node *driver.Client, names []string, head int) ([]*driver.SliceCmd, error) {
	heads := make([]*driver.SliceCmd, len(names))
	pipe := node.Pipeline()
	queue := func(args ...any) { _ = pipe.Process(ctx, driver.NewStatusCmd(ctx, args...)) }
	for i, name := range names {
		queue("multi")
		queue("exists", name)
		queue("strlen", name)
		queue("getrange", name, 0, head-1)
		heads[i] = driver.NewSliceCmd(ctx, "exec")
		_ = pipe.Process(ctx, heads[i])
	}
	_, err := pipe.Exec(ctx)
	var answered driver.Error
	if err != nil && !errors.As(err, &answered) {
		return nil, err
	}
	for _, cmd := range heads {
		if e := cmd.Err(); e != nil && codeOf([]byte(e.Error())) != "EXECABORT" {
			return nil, e
		}
	}
	return heads, nil
}

// entryOf reads the answers of one transaction of askHeads. ok is false if it wasn't
// carried out.
func entryOf(cmd *driver.SliceCmd) (e backend.Entry, stored, ok bool) {
	answers, err := cmd.Result()
	if err != nil || len(answers) != 3 {
		return e, false, false
	}
	if exists, isNumber := answers[0].(int64); !isNumber || exists == 0 {
		return e, false, isNumber
	}
	size, isNumber := answers[1].(int64)
	head, isText := answers[2].(string)
	if !isNumber || !isText {
		return backend.Entry{Size: -1}, true, true // of another type
	}
	return backend.Entry{Value: []byte(head), Size: int(size)}, true, true
}

// Stats implements backend.Statter: it walks through the keys with SCAN. Bytes is what
// MEMORY USAGE says of each entry, -1 if that may not be asked. While a server resizes
// its table, an entry may be counted twice.
func (c *Cache) Stats(ctx context.Context) (backend.Stats, error) {
	unknown := backend.Stats{Entries: -1, Bytes: -1, FreeBytes: -1}
	if err := c.begin(ctx, "stats"); err != nil {
		return unknown, err
	}
	defer c.calls.leave()
	stats := backend.Stats{FreeBytes: -1}
	for at := (spot{}); ; {
		p, after, err := c.scanPart(ctx, at)
		if err != nil {
			return unknown, failed(ctx, "stats", err)
		}
		stats.Entries += int64(len(p.keys))
		if stats.Bytes >= 0 {
			n, err := c.memory(ctx, p)
			if err != nil {
				return unknown, failed(ctx, "stats", err)
			}
			if stats.Bytes += n; n < 0 {
				stats.Bytes = -1
			}
		}
		if at = after; at == (spot{}) {
			return stats, nil
		}
	}
}

// memory returns how many bytes the server uses for keys, -1 if it doesn't say.
func (c *Cache) memory(ctx context.Context, p part) (int64, error) {
	if len(p.keys) == 0 {
		return 0, nil
	}
	commands := make([][]any, len(p.keys))
	for i := range p.keys {
		commands[i] = []any{"memory", "usage", c.appendKey(nil, &p.keys[i])}
	}
	total := int64(0)
	err := again(ctx, func(int) error {
		sum := int64(0)
		err := c.detach(ctx, c.options.Timeout, func(ctx context.Context) error {
			answers, err := c.exchange(ctx, p.node, commands, false)
			for i := range answers {
				if answers[i].code != "" {
					sum = -1
					break
				}
				sum += int64(answers[i].number) // 0 for a key that has gone
			}
			return err
		})
		if err == nil {
			total = sum
		}
		return err
	}, mayHelpAgain)
	return total, err
}
