package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/embedonce/embedonce/backend"
)

// commit is a commit that is under way.
type commit struct {
	store *store
	over  chan struct{} // closed at its end
}

// What follows is called by commitAll alone.

// beginWrite returns a transaction that writes; commit must follow.
func (c *Cache) beginWrite() (*bbolt.Tx, error) {
	c.phase.RLock()
	s, err := c.store, c.broken
	c.phase.RUnlock()
	if err != nil {
		return nil, err
	}
	if s == nil {
		if s, err = c.reopen(nil); err != nil {
			return nil, err
		}
	}
	if err := s.inPlace(c.path); err != nil {
		return nil, err
	}
	tx, err := s.begin(true)
	if err != nil {
		return nil, c.brokenBy(err)
	}
	// What a truncated file has lost, a commit would fill with zeros.
	if err := s.atLeast(tx.Size()); err != nil {
		return nil, errors.Join(err, c.giveUp(tx))
	}
	return tx, nil
}

// commit writes the requests and commits tx; after an error nothing of them is
// stored, or all.
func (c *Cache) commit(tx *bbolt.Tx, group []*request) error {
	if len(group) == 0 {
		return c.giveUp(tx)
	}
	t, err := treeOf(tx)
	if err != nil {
		return errors.Join(err, c.giveUp(tx))
	}
	size, wrote, more := 0, false, false
	for _, r := range group {
		size += r.bytes
		r.removed, r.changed = 0, nil
		did, err := c.apply(tx, t, r)
		if err != nil {
			return errors.Join(err, c.giveUp(tx))
		}
		wrote, more = wrote || did, more || len(r.items) > 0
	}
	if !wrote {
		return c.giveUp(tx)
	}
	c.limit(tx, more)
	c.queue.restart(size)
	if err := c.hooks.Load().beforeCommit(); err != nil {
		return errors.Join(err, c.giveUp(tx))
	}
	c.phase.Lock()
	s := c.store
	under := &commit{store: s, over: make(chan struct{})}
	c.committing = under
	c.phase.Unlock()
	defer c.over(under)
	err = commitTx(tx)
	if err == nil || leavesSound(err) {
		return err
	}
	// What bbolt has in memory may not fit the file any more, and its readers may
	// stand on pages that it takes for free. Closing waits for them.
	if e := c.giveUp(tx); e != nil && !errors.Is(e, berrors.ErrTxClosed) {
		return errors.Join(err, e)
	}
	_, e := c.reopen(s)
	return errors.Join(err, e)
}

// over ends the phase of a commit.
func (c *Cache) over(under *commit) {
	c.phase.Lock()
	defer c.phase.Unlock()
	if c.committing == under {
		c.committing = nil
	}
	close(under.over)
}

func commitTx(tx *bbolt.Tx) (err error) {
	defer guard(&err)
	return tx.Commit()
}

// leavesSound says whether bbolt goes on rightly after a commit that failed with
// err: no room for the batch, or a page that could not be written. Then it drops
// the batch and reads its list of free pages again. After a failed sync it
// can't know what is in the file.
func leavesSound(err error) bool {
	if errors.Is(err, berrors.ErrMaxSizeReached) || strings.HasPrefix(err.Error(), "file resize error") {
		return true
	}
	pathErr, ok := errors.AsType[*fs.PathError](err)
	return ok && strings.HasPrefix(pathErr.Op, "write")
}

// giveUp rolls tx back. If that fails by a panic, bbolt is locked for ever.
func (c *Cache) giveUp(tx *bbolt.Tx) error {
	err := rollback(tx)
	if errors.Is(err, backend.ErrCorrupt) {
		err = c.brokenBy(lockedUp{err})
	}
	return err
}

// reopen closes old, which may be nil, and opens the file again.
func (c *Cache) reopen(old *store) (s *store, err error) {
	if old != nil {
		func() {
			defer guard(&err)
			err = old.db.Close()
		}()
	}
	var openErr error
	s, openErr = openStore(c.path, &c.options, time.Now().Add(c.options.LockTimeout))
	c.phase.Lock()
	defer c.phase.Unlock()
	c.store = s
	return s, errors.Join(err, openErr)
}

// limit keeps a little of Options.MaxBytes for deletions, which need pages before
// they free any. more says that the commit stores something.
func (c *Cache) limit(tx *bbolt.Tx, more bool) {
	if c.options.MaxBytes == 0 {
		return
	}
	db := tx.DB()
	db.MaxSize = int(c.options.MaxBytes)
	if more {
		db.MaxSize -= 2 * db.AllocSize
	}
}

func treeOf(tx *bbolt.Tx) (t *tree, err error) {
	defer guard(&err)
	entries := tx.Bucket(entriesBucket)
	if entries == nil {
		return nil, errNoEntries
	}
	return newTree(tx, entries)
}

// apply writes one request, and says whether there was anything to write.
func (c *Cache) apply(tx *bbolt.Tx, t *tree, r *request) (wrote bool, err error) {
	defer guard(&err)
	entries := tx.Bucket(entriesBucket)
	hooks := c.hooks.Load()
	for i := range r.items {
		if err := hooks.beforePut(i); err != nil {
			return false, err
		}
		if err := t.checkEntry(&r.items[i].Key, false); err != nil {
			return false, err
		}
		if err := put(entries, &r.items[i]); err != nil {
			return false, err
		}
	}
	cursor := entries.Cursor()
	for i := range r.drops {
		d := &r.drops[i]
		if err := t.checkEntry(&d.key, true); err != nil {
			return false, err
		}
		k, v := cursor.Seek(d.key[:])
		switch {
		case !bytes.Equal(k, d.key[:]):
			continue // somebody else was faster
		case d.judged && d.sum != sumOf(v):
			r.changed = append(r.changed, i)
			continue
		case v == nil:
			err = entries.DeleteBucket(d.key[:])
		default:
			err = entries.Delete(d.key[:])
		}
		if err != nil {
			return false, err
		}
		r.removed++
	}
	return len(r.items) > 0 || r.removed > 0, nil
}

var errNoEntries = fmt.Errorf("%w: the bucket of entries is missing", backend.ErrCorrupt)

// put stores one entry, also in the place of a bucket that another program left
// under the key.
func put(entries *bbolt.Bucket, item *backend.Item) error {
	err := entries.Put(item.Key[:], item.Value)
	if errors.Is(err, berrors.ErrIncompatibleValue) {
		if err = entries.DeleteBucket(item.Key[:]); err == nil {
			err = entries.Put(item.Key[:], item.Value)
		}
	}
	return err
}
