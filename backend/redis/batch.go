package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/embedonce/embedonce/backend"
)

// batch is a request of a write, and its answers. Like a chunk it is used again and
// again, and holds nothing of the caller's.
type batch struct {
	c       *Cache
	node    *driver.Client // nil: the server of the first key
	index   []int          // of the items, in the call; nil: all, in their order
	n       int
	entries []*entry
	values  []byte // of all entries
	limit   int    // of values, if the batch is to be used again

	multi, exec, wait, end reply
	room                   room // of the mark
	mark                   []byte
	frame                  [4]driver.Cmder // MULTI, EXEC, WAIT, ECHO
	cmds                   []driver.Cmder

	notStored []int
	err       error
}

// entry is one SET.
type entry struct {
	name  []byte
	value payload
	ttl   int64 // in milliseconds
	reply reply
	cmd   driver.Cmder
}

// payload is a value on its way to the connection.
type payload struct {
	bytes []byte
	ctx   context.Context
}

// MarshalBinary is called when the value is written to the connection. After an error
// the driver closes that, and the server forgets the transaction: what was cancelled
// is not sent to its end.
func (p *payload) MarshalBinary() ([]byte, error) {
	if err := p.ctx.Err(); err != nil {
		return nil, err
	}
	return p.bytes, nil
}

// String keeps values out of what hooks of the client print.
func (p *payload) String() string { return fmt.Sprintf("(%d bytes)", len(p.bytes)) }

func (c *Cache) newEntry() *entry {
	e := &entry{name: make([]byte, c.keyLength())}
	args := []any{"set", e.name, &e.value}
	if c.options.TTL > 0 {
		args = append(args, "px", &e.ttl)
	}
	e.cmd = driver.NewRawWriteToCmd(context.Background(), &e.reply, args...)
	return e
}

// fill takes a copy of items, or of those in index.
func (b *batch) fill(c *Cache, node *driver.Client, items []backend.Item, index []int) {
	if b.c == nil {
		b.setUp(c)
	}
	b.node, b.index, b.n = node, index, len(items)
	if index != nil {
		b.n = len(index)
	}
	total := 0
	for n := range b.n {
		total += len(items[b.at(n)].Value)
	}
	if cap(b.values) < total {
		b.values = make([]byte, 0, total)
	}
	b.values = b.values[:0]
	for n := range b.n {
		if n == len(b.entries) {
			b.entries = append(b.entries, c.newEntry())
		}
		e, item := b.entries[n], &items[b.at(n)]
		c.appendKey(e.name[:0], &item.Key)
		from := len(b.values)
		b.values = append(b.values, item.Value...)
		e.value.bytes = b.values[from:]
		e.ttl = c.lifetime().Milliseconds()
	}
}

func (b *batch) setUp(c *Cache) {
	b.c = c
	b.mark = make([]byte, len(c.markStart)+16)
	b.room = room{limit: 1024, most: 1024}
	b.end.room = &b.room
	ctx := context.Background()
	b.frame = [4]driver.Cmder{
		driver.NewRawWriteToCmd(ctx, &b.multi, "multi"),
		driver.NewRawWriteToCmd(ctx, &b.exec, "exec"),
		driver.NewRawWriteToCmd(ctx, &b.wait, "wait", c.options.WaitReplicas, c.waitTime().Milliseconds()),
		driver.NewRawWriteToCmd(ctx, &b.end, "echo", b.mark),
	}
}

// at is where the n-th entry is in the caller's items.
func (b *batch) at(n int) int {
	if b.index == nil {
		return n
	}
	return b.index[n]
}

// lifetime is the TTL of one entry.
func (c *Cache) lifetime() time.Duration {
	ttl := c.options.TTL
	if jitter := c.options.TTLJitter; ttl > 0 && jitter > 0 {
		ttl += rand.N(jitter + 1)
	}
	return ttl
}

// waitTime is how long replicas may take. It ends before the answer is given up.
func (c *Cache) waitTime() time.Duration { return max(c.options.Timeout/2, time.Millisecond) }

func (b *batch) timeout() time.Duration {
	return b.c.options.Timeout + allowance(len(b.values)+b.n<<10)
}

// done gives b back, to be used again.
func (b *batch) done() {
	if cap(b.values) > b.limit {
		b.values = nil
	}
	for _, e := range b.entries[:b.n] {
		e.value = payload{}
	}
	b.node, b.index, b.notStored, b.err = nil, nil, nil, nil
	b.c.batches.Put(b)
}

// send sends the batch to its node, in a transaction or not, and looks at every
// answer.
func (b *batch) send(ctx context.Context, inTxn bool) error {
	c := b.c
	node := b.node
	if node == nil {
		var err error
		if node, err = c.nodeOf(ctx, string(b.entries[0].name)); err != nil {
			return err
		}
	}
	pad(b.mark, len(c.appendMark(b.mark[:0])))
	b.room.empty()
	for _, r := range []*reply{&b.multi, &b.exec, &b.wait, &b.end} {
		r.reset()
	}
	b.cmds = b.cmds[:0]
	if inTxn {
		b.cmds = append(b.cmds, b.frame[0])
	}
	for _, e := range b.entries[:b.n] {
		e.reply.reset()
		e.value.ctx = ctx
		b.cmds = append(b.cmds, e.cmd)
	}
	if inTxn {
		b.cmds = append(b.cmds, b.frame[1])
	}
	if c.options.WaitReplicas > 0 {
		b.cmds = append(b.cmds, b.frame[2])
	}
	b.cmds = append(b.cmds, b.frame[3])
	pipe := node.Pipeline()
	_ = pipe.BatchProcess(ctx, b.cmds...)
	if _, err := pipe.Exec(ctx); err != nil {
		return refusedByReplica(err)
	}
	if err := checkEnd(&b.end, b.mark); err != nil {
		return err
	}
	var err error
	if inTxn {
		err = b.checkTxn()
	} else {
		err = b.checkEach()
	}
	if err != nil {
		return err
	}
	if want := c.options.WaitReplicas; want > 0 {
		return b.wait.checkWait(want)
	}
	return nil
}

// checkTxn returns nil if all of the batch is stored.
func (b *batch) checkTxn() error {
	if b.exec.kind == '*' && b.exec.parts == b.n && b.exec.whole == b.n && b.multi.ok() {
		for _, e := range b.entries[:b.n] {
			if !e.reply.queued {
				return errStrange
			}
		}
		return nil
	}
	for _, r := range []*reply{&b.multi, &b.exec} {
		for _, e := range b.entries[:b.n] { // what made the server refuse the whole
			if e.reply.code != "" {
				return serverError{e.reply.code}
			}
		}
		if r.code != "" {
			return serverError{r.code}
		}
	}
	return errStrange
}

// checkEach returns a partlyStored unless every SET was answered with OK.
func (b *batch) checkEach() error {
	var failed partlyStored
	for n, e := range b.entries[:b.n] {
		if e.reply.ok() {
			continue
		}
		failed.notStored = append(failed.notStored, b.at(n))
		switch {
		case failed.err != nil:
		case e.reply.code != "":
			failed.err = serverError{e.reply.code}
		default:
			failed.err = errStrange
		}
	}
	if failed.err != nil {
		return failed
	}
	return nil
}

// sendInTxnOfDriver lets the cluster's client send the transaction: it follows keys
// that have been moved or are being moved.
func (b *batch) sendInTxnOfDriver(ctx context.Context) error {
	cmds, err := b.c.cluster.TxPipelined(ctx, func(p driver.Pipeliner) error { return b.setAll(ctx, p) })
	if err != nil {
		return err
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// sendThroughDriver is the same without a transaction.
func (b *batch) sendThroughDriver(ctx context.Context) error {
	cmds, err := b.c.cluster.Pipelined(ctx, func(p driver.Pipeliner) error { return b.setAll(ctx, p) })
	var answered driver.Error
	if err != nil && !errors.As(err, &answered) {
		return err // of some node; what the others did isn't told apart
	}
	var failed partlyStored
	for n, cmd := range cmds {
		if cmd.Err() != nil {
			failed.notStored = append(failed.notStored, b.at(n))
			failed.err = cmd.Err()
		}
	}
	if failed.err != nil {
		return failed
	}
	return err
}

func (b *batch) setAll(ctx context.Context, p driver.Pipeliner) error {
	for _, e := range b.entries[:b.n] {
		p.Set(ctx, string(e.name), &payload{e.value.bytes, ctx}, time.Duration(e.ttl)*time.Millisecond)
	}
	return nil
}
