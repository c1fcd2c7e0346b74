package redis

import (
	"context"
	"errors"
	"fmt"

	driver "github.com/redis/go-redis/v9"

	"github.com/embedonce/embedonce/backend"
)

// exchange sends commands to one server in one request and returns an answer for
// each, checked to be answers to them. With confirm, replicas must have what the
// commands changed.
func (c *Cache) exchange(ctx context.Context, node *driver.Client, commands [][]any, confirm bool) ([]reply, error) {
	answers := make([]reply, len(commands)+2)
	wait, end := &answers[len(commands)], &answers[len(commands)+1]
	values, marks := room{limit: chunkLimit, most: chunkLimit}, room{limit: 1024, most: 1024}
	pipe := node.Pipeline()
	ask := func(r *reply, to *room, args ...any) {
		r.room = to
		r.reset()
		_ = pipe.Process(ctx, driver.NewRawWriteToCmd(ctx, r, args...))
	}
	for i, args := range commands {
		ask(&answers[i], &values, args...)
	}
	confirm = confirm && c.options.WaitReplicas > 0
	if confirm {
		ask(wait, nil, "wait", c.options.WaitReplicas, c.waitTime().Milliseconds())
	}
	mark := c.appendMark(nil)
	ask(end, &marks, "echo", mark)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, refusedByReplica(err)
	}
	if err := checkEnd(end, mark); err != nil {
		return nil, err
	}
	if confirm {
		if err := wait.checkWait(c.options.WaitReplicas); err != nil {
			return nil, err
		}
	}
	return answers[:len(commands)], nil
}

// checkWait returns an error unless r answers a WAIT, with enough replicas.
func (r *reply) checkWait(want int) error {
	switch {
	case r.code != "":
		return serverError{r.code}
	case r.kind != ':':
		return errStrange
	case r.number < want:
		return fmt.Errorf("%w: %d replicas have what was written, Options.WaitReplicas asks for %d", backend.ErrUnavailable, r.number, want)
	}
	return nil
}

// unknown stands for a number that no server has answered yet.
const unknown = -1

// numbers sends commands that are answered with a number of 0 or more each, and whose
// second or fourth word is the key: to the nodes that have the keys. It follows keys
// that are moved. Only what is unknown in numbers is asked for, and filled in, also
// before an error.
func (c *Cache) numbers(ctx context.Context, names []string, numbers []int, command func(n int) []any) error {
	of := make(map[*driver.Client][]int)
	for n, name := range names {
		if numbers[n] != unknown {
			continue
		}
		node, err := c.nodeOf(ctx, name)
		if err != nil {
			return err
		}
		of[node] = append(of[node], n)
	}
	var moved []int
	var failure error
	for node, own := range of {
		commands := make([][]any, len(own))
		for i, n := range own {
			commands[i] = command(n)
		}
		answers, err := c.exchange(ctx, node, commands, true)
		if err != nil {
			return err
		}
		for i, n := range own {
			r := &answers[i]
			switch {
			case r.kind == ':':
				numbers[n] = r.number
			case c.cluster != nil && isRedirection(serverError{r.code}):
				moved = append(moved, n)
			case r.code != "":
				failure = serverError{r.code}
			default:
				return errStrange
			}
		}
	}
	if failure != nil || len(moved) == 0 {
		return failure
	}
	if c.options.WaitReplicas > 0 {
		c.cluster.ReloadState(ctx)
		return serverError{"MOVED"} // the driver can't wait for replicas of the new node
	}
	cmds := make([]*driver.Cmd, len(moved))
	_, err := c.cluster.Pipelined(ctx, func(p driver.Pipeliner) error {
		for i, n := range moved {
			cmds[i] = p.Do(ctx, command(n)...)
		}
		return nil
	})
	var answered driver.Error
	if err != nil && !errors.As(err, &answered) {
		return err
	}
	for i, n := range moved {
		number, err := cmds[i].Int()
		if err != nil {
			failure = err
			continue
		}
		numbers[n] = number
	}
	return failure
}
