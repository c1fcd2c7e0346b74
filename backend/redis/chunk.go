package redis

import (
	"context"
	"errors"
	"io"
	"strings"

	driver "github.com/redis/go-redis/v9"

	"github.com/embedonce/embedonce/backend"
)

// chunk is one request of a read: GET for each of some keys, pipelined, and the
// values that came. It is used again and again, commands included: go-redis keeps the
// arguments' slices, so that the keys are written into memory that the commands have.
// What it holds is its own, since it may outlive the call that it is for.
type chunk struct {
	c       *Cache
	node    *driver.Client // nil: the server of the first key
	index   []int          // of the keys, in the call
	names   []byte         // the keys with their prefix
	mark    []byte
	replies []reply
	end     reply
	cmds    []driver.Cmder // GETs, as many as ChunkKeys, and one for the mark behind those in use
	echo    driver.Cmder
	pipe    driver.Pipeliner // of pipeOf
	pipeOf  *driver.Client
	room    room
	endRoom room // of the mark
	err     error
}

func (c *Cache) newChunk() *chunk {
	n, length := c.options.ChunkKeys, c.keyLength()
	k := &chunk{
		c:       c,
		names:   make([]byte, 0, n*length),
		replies: make([]reply, n),
		cmds:    make([]driver.Cmder, n),
		mark:    make([]byte, len(c.markStart)+16),
		room:    room{limit: chunkLimit, most: maxValueBytes + len(lineEnd)},
		endRoom: room{limit: 1024, most: 1024},
	}
	ctx := context.Background()
	names := k.names[:cap(k.names)]
	for i := range n {
		k.replies[i].room = &k.room
		k.cmds[i] = driver.NewRawWriteToCmd(ctx, &k.replies[i], "get", names[i*length:(i+1)*length])
	}
	k.end.room = &k.endRoom
	k.echo = driver.NewRawWriteToCmd(ctx, &k.end, "echo", k.mark)
	return k
}

// begin empties the chunk, for n keys.
func (k *chunk) begin(n int) {
	k.node, k.err = nil, nil
	k.index, k.names = k.index[:0], k.names[:0]
	if k.room.bytes == nil {
		expected := int(k.c.typical.Load())*n + 64
		k.room.bytes = make([]byte, min(expected, k.room.limit))
	}
}

func (k *chunk) add(i int, key *backend.Key) {
	k.index = append(k.index, i)
	k.names = k.c.appendKey(k.names, key)
}

func (k *chunk) name(n int) string {
	length := k.c.keyLength()
	return string(k.names[n*length : (n+1)*length])
}

// fetch asks for the keys and sets k.err. It is the one that may run on without its
// call.
func (k *chunk) fetch(ctx context.Context) {
	c := k.c
	redirected := false
	k.err = again(ctx, func(int) error {
		bounded, cancel := context.WithTimeout(ctx, c.options.Timeout+allowance(chunkLimit))
		defer cancel()
		err := c.inTurn(bounded, func(ctx context.Context) error {
			k.reset()
			if redirected {
				return k.askCluster(ctx)
			}
			err := k.askNode(ctx)
			if err != nil && c.cluster != nil {
				redirected = true // its own client finds out where the keys are now
			}
			return err
		})
		return judge(ctx, err)
	}, mayHelpAgain)
}

func (k *chunk) reset() {
	k.room.empty()
	k.endRoom.empty()
	for i := range k.index {
		k.replies[i].reset()
	}
	k.end.reset()
}

// askNode asks one server. Nothing of the answers is used before all of them are
// known to be answers to this.
func (k *chunk) askNode(ctx context.Context) error {
	node := k.node
	if node == nil {
		var err error
		if node, err = k.c.nodeOf(ctx, k.name(0)); err != nil {
			return err
		}
	}
	if k.pipeOf != node {
		k.pipe, k.pipeOf = node.Pipeline(), node
	}
	n := len(k.index)
	mark := k.c.appendMark(k.mark[:0])
	pad(k.mark, len(mark))
	_ = k.pipe.BatchProcess(ctx, k.cmds[:n]...)
	_ = k.pipe.Process(ctx, k.echo)
	if _, err := k.pipe.Exec(ctx); err != nil {
		return err
	}
	if err := checkEnd(&k.end, k.mark); err != nil {
		return err
	}
	for i := range k.replies[:n] {
		if err := k.replies[i].checkValue(); err != nil {
			return err
		}
	}
	return nil
}

// pad makes the mark as long as the memory that its command has.
func pad(mark []byte, used int) {
	for i := used; i < len(mark); i++ {
		mark[i] = ' '
	}
}

// checkValue returns an error unless r answers a GET.
func (r *reply) checkValue() error {
	switch {
	case r.kind == '$', r.kind == '_', r.code == "WRONGTYPE":
		return nil
	case r.code != "":
		return serverError{r.code}
	}
	return errStrange
}

// askCluster asks through the cluster's client, which follows keys that have been
// moved, are being moved, or whose node has failed. It costs more for each key.
func (k *chunk) askCluster(ctx context.Context) error {
	k.c.cluster.ReloadState(ctx)
	const piece = 16
	for from := 0; from < len(k.index); from += piece {
		to := min(from+piece, len(k.index))
		gets := make([]*driver.StringCmd, 0, piece)
		_, err := k.c.cluster.Pipelined(ctx, func(p driver.Pipeliner) error {
			for n := from; n < to; n++ {
				gets = append(gets, p.Get(ctx, k.name(n)))
			}
			return nil
		})
		for n, get := range gets {
			value, getErr := get.Result()
			if e := k.replies[from+n].answer(value, getErr); e != nil {
				return e
			}
		}
		var answered driver.Error
		if err != nil && !errors.As(err, &answered) {
			return err
		}
	}
	return nil
}

// answer fills r with what the driver says of a GET.
func (r *reply) answer(value string, err error) error {
	var answered driver.Error
	switch {
	case err == nil:
		r.kind, r.size = '$', len(value)
		_, err := r.ReadFrom(io.MultiReader(strings.NewReader(value), strings.NewReader("\r\n")))
		return err
	case errors.Is(err, driver.Nil):
		r.kind, r.size = '$', -1
		return nil
	case errors.As(err, &answered) && codeOf([]byte(answered.Error())) == "WRONGTYPE":
		r.kind, r.code = '-', "WRONGTYPE"
		return nil
	}
	return err
}
