package embed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/embedonce/embedonce/backend"
)

// Forget removes what the cache holds for texts under this Client's settings, and
// returns how many entries that were, also beside an error. A text that isn't in
// the cache is no error, and neither is a blank one, which is never stored.
// Without a cache there is nothing to remove.
//
// Whatever lies under a text's key is removed: records that are damaged or of a
// later version too. The key is the same whether the text was cut or not, unless the
// token limit has changed: a text that was too short to be cut when it was stored
// is found again, while what was stored under another limit, policy for long
// texts or tokenizer isn't.
//
// # What stays
//
// Vectors of the same text under another model, another role, other dimensions or
// other settings have other keys: a Client with those settings forgets them. An
// Embed or Stream that has the text and is under way, here or elsewhere, may store
// it again after Forget has returned, also when its caller has left: end those
// first, and Close their Clients, which waits for what was sent.
//
// nil means that the cache no longer shows the entries, not that their bytes are
// gone: they may remain in free pages, in a write-ahead log, in backups and
// snapshots, and, until they are evicted, in the memory of other handles that keep
// a layer of their own over the same store. [backend.Compact] gives free space
// back. A key tells the text to whoever can guess it, unless Options.Secret is
// set.
//
// # Errors
//
// No texts; ErrClosed; the end of ctx; an error that wraps [backend.ErrUnsupported]
// where the cache has no Delete; what the cache fails with. After an error some
// texts may be forgotten; Forget may be called again.
func (c *Client) Forget(ctx context.Context, texts []string) (removed int, err error) {
	if len(texts) == 0 {
		return 0, errors.New("embed: texts is empty; at least 1 text is needed")
	}
	if err := c.begin(ctx); err != nil {
		return 0, err
	}
	defer c.running.Done()
	if c.cache == nil {
		return 0, nil
	}
	for keys := range slices.Chunk(c.keysToForget(texts), deleteBatch) {
		c.forgetHeld(keys)
		n, err := backend.Delete(ctx, c.cache, keys, nil)
		removed += n
		if err != nil {
			return removed, fmt.Errorf("embed: Forget: %w", err)
		}
	}
	return removed, nil
}

// keysToForget returns the keys that a lookup of each text would ask for, and
// those of long texts under which they lie if they were short once.
func (c *Client) keysToForget(texts []string) []backend.Key {
	l := c.newLookup(texts)
	defer l.free()
	keys := slices.Clone(l.keys)
	for _, i := range l.where {
		if l.long[i] {
			keys = append(keys, keyOf(&c.scope, &l.digests[i]))
		}
	}
	return keys
}
