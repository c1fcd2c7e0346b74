package redis

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/embedonce/embedonce/backend"
)

var _ backend.Deleter = (*Cache)(nil)

// deleteKeys is how many keys a step of Delete removes: what match said of them is
// kept until then, values included.
const deleteKeys = 128

// deleteRounds is how often Delete asks match again because an entry had changed.
const deleteRounds = 50

// removeIfSame removes a key if it still has the value that match saw. It returns 1
// if it did, 0 if there is none any more, 2 if it is another one. What can't be read
// is the same as long as it can't: another type, or a string that is too long.
const removeIfSame = `local value = redis.pcall('GET', KEYS[1])
if value == false then return 0 end
local readable = type(value) == 'string' and #value <= tonumber(ARGV[3])
if ARGV[1] == 'readable' and readable and value == ARGV[2] or ARGV[1] == 'unreadable' and not readable then
  return redis.call('UNLINK', KEYS[1])
end
return 2`

// Delete implements backend.Deleter: 128 keys at a time. With match, a script on the
// server removes an entry if it still has the value that match saw: it needs the
// permission to call EVAL. One that was written again meanwhile with the very same
// bytes counts as the same.
func (c *Cache) Delete(ctx context.Context, keys []backend.Key, match func(i int, value []byte) bool) (removed int, err error) {
	if err := c.begin(ctx, "delete"); err != nil {
		return 0, err
	}
	defer c.calls.leave()
	for from := 0; from < len(keys); from += deleteKeys {
		if ctx.Err() != nil {
			return removed, ended(ctx, "delete")
		}
		to := min(from+deleteKeys, len(keys))
		var n int
		if match == nil {
			n, err = c.deleteAll(ctx, keys[from:to])
		} else {
			n, err = c.deleteMatching(ctx, keys[from:to], func(i int, value []byte) bool { return match(from+i, value) })
		}
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func (c *Cache) deleteAll(ctx context.Context, keys []backend.Key) (removed int, err error) {
	names := make([]string, 0, len(keys))
	seen := make(map[backend.Key]bool, len(keys))
	for i := range keys {
		if !seen[keys[i]] {
			seen[keys[i]] = true
			names = append(names, string(c.appendKey(nil, &keys[i])))
		}
	}
	numbers, err := c.change(ctx, names, 0, func(n int) []any { return []any{"unlink", names[n]} })
	for _, n := range numbers {
		removed += n
	}
	return removed, err
}

// change is numbers for a call. What was answered in one try isn't asked for in the
// next: what is removed already would count as missing.
func (c *Cache) change(ctx context.Context, names []string, size int, command func(n int) []any) ([]int, error) {
	numbers := make([]int, len(names))
	for n := range numbers {
		numbers[n] = unknown
	}
	err := again(ctx, func(int) error {
		got := slices.Clone(numbers)
		err := c.detachChange(ctx, c.options.Timeout+allowance(size), func(ctx context.Context) error {
			return c.numbers(ctx, names, got, command)
		})
		if err == nil || mayWriteAgain(err) { // else the job may still run, and write to got
			numbers = got
		}
		return err
	}, mayWriteAgain)
	if err != nil {
		return nil, failed(ctx, "delete", err)
	}
	return numbers, nil
}

// target is an entry that match wants removed.
type target struct {
	key      backend.Key
	name     string
	readable bool
	value    []byte // its own copy
}

func (c *Cache) deleteMatching(ctx context.Context, keys []backend.Key, match func(i int, value []byte) bool) (removed int, err error) {
	index := make([]int, len(keys)) // of those that are still open
	for i := range index {
		index[i] = i
	}
	for range deleteRounds {
		targets, size, err := c.targets(ctx, keys, index, match)
		if err != nil || len(targets) == 0 {
			return removed, err
		}
		names := make([]string, len(targets))
		for n := range targets {
			names[n] = targets[n].name
		}
		numbers, err := c.change(ctx, names, size, func(n int) []any {
			kind := "unreadable"
			if targets[n].readable {
				kind = "readable"
			}
			return []any{"eval", removeIfSame, 1, names[n], kind, targets[n].value, maxValueBytes}
		})
		if err != nil {
			return removed, err
		}
		changed := make(map[backend.Key]bool)
		for n, number := range numbers {
			switch number {
			case 1:
				removed++
			case 2:
				changed[targets[n].key] = true
			}
		}
		if len(changed) == 0 {
			return removed, nil
		}
		index = slices.DeleteFunc(index, func(i int) bool { return !changed[keys[i]] })
	}
	return removed, fmt.Errorf("redis: delete: %w: entries changed again and again between match and their removal", backend.ErrUnavailable)
}

// targets asks match about the keys in index. Of equal keys it is enough that match
// wants one.
func (c *Cache) targets(ctx context.Context, keys []backend.Key, index []int, match func(i int, value []byte) bool) (targets []target, size int, err error) {
	asked := make([]backend.Key, len(index))
	for n, i := range index {
		asked[n] = keys[i]
	}
	wanted := make(map[backend.Key]bool)
	if err := c.left.wait(ctx); err != nil { // what a write that was left stores is looked at too
		return nil, 0, ended(ctx, "delete")
	}
	err = c.getMany(ctx, asked, func(n int, value []byte) error {
		i := index[n]
		if wanted[keys[i]] || !match(i, value) {
			return nil
		}
		wanted[keys[i]] = true
		targets = append(targets, target{keys[i], string(c.appendKey(nil, &keys[i])), value != nil, bytes.Clone(value)})
		size += len(value)
		return nil
	})
	return targets, size, err
}
