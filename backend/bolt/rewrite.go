package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

// rewriteBytes is how much one transaction of Rewrite writes.
const rewriteBytes = 32 << 20

// Rewrite writes the entries of the cache in the file from into a new file to,
// which has no free pages and is as short as it can be. from stays as it is; it
// must not be open for writing, and can be read meanwhile with Options.ReadOnly.
// to must not exist; it gets its name when it is whole and synced, and nothing is
// left of it after an error. Of opts, which may be nil, LockTimeout and PageSize
// count.
//
// Unlike bbolt's own Compact it ends soon after ctx does, and copies the buckets of
// this package alone, with everything that somebody else has put into them.
//
// # Errors
//
// Those of [Open]; backend.ErrCorrupt for a damaged page, where nothing is
// written: backend.Copy copies what a scan sees before the damage.
func Rewrite(ctx context.Context, from, to string, opts *Options) (err error) {
	from, o, err := opts.withDefaults("Rewrite", from)
	if err != nil {
		return err
	}
	to, _, err = (*Options)(nil).withDefaults("Rewrite", to)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("bolt: rewrite %s: %w", from, explain(err))
		}
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%w: the file to write, %s, exists: %w", backend.ErrUnavailable, to, fs.ErrExist)
	}
	o.ReadOnly = true
	source, err := openStore(from, &o, time.Now().Add(o.LockTimeout))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.db.Close()) }()

	temp, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".new-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // it has another name then, or is of no use
	if err := temp.Close(); err != nil {
		return err
	}
	target, err := bbolt.Open(temp.Name(), 0o600, &bbolt.Options{
		PageSize: o.PageSize, Timeout: time.Second, FreelistType: bbolt.FreelistMapType, NoSync: true,
	})
	if err != nil {
		return err
	}
	err = rewrite(ctx, source.db, target)
	if err == nil {
		err = target.Sync()
	}
	if err := errors.Join(err, target.Close()); err != nil {
		return err
	}
	return publish(temp.Name(), to)
}

// publish gives a file that is whole its name.
func publish(temp, to string) error {
	if err := os.Link(temp, to); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: the file to write, %s, exists: %w", backend.ErrUnavailable, to, err)
	} else if err != nil {
		// A file system without links: a file that somebody makes at this moment would
		// be replaced.
		if err := os.Rename(temp, to); err != nil {
			return err
		}
	}
	return syncDir(filepath.Dir(to))
}

func rewrite(ctx context.Context, source, target *bbolt.DB) (err error) {
	defer debug.SetPanicOnFault(faultsPanic())
	if err := createLayout(target); err != nil {
		return err
	}
	tx, err := source.Begin(false)
	if err != nil {
		return err
	}
	defer func() { _ = rollback(tx) }() // of a transaction that only reads
	r, err := newReader(tx)
	if err != nil {
		return err
	}
	p := &pump{ctx: ctx, reader: r, target: target}
	if err := p.begin(); err != nil {
		return err
	}
	err = p.copyAll(tx.Bucket(entriesBucket))
	if err == nil {
		return p.tx.Commit()
	}
	return errors.Join(err, rollback(p.tx))
}

// pump copies buckets into a database, in transactions that are not too large.
type pump struct {
	ctx     context.Context
	reader  *reader
	target  *bbolt.DB
	tx      *bbolt.Tx
	entries *bbolt.Bucket
	bytes   int
}

func (p *pump) begin() (err error) {
	if p.tx, err = p.target.Begin(true); err != nil {
		return err
	}
	p.bytes = 0
	p.entries = p.tx.Bucket(entriesBucket)
	// The keys come in their order, so a page that is split gets no more.
	p.entries.FillPercent = 1
	return nil
}

func (p *pump) copyAll(from *bbolt.Bucket) (err error) {
	defer guard(&err)
	var last []byte
	cursor := from.Cursor()
	for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if last != nil && string(k) <= string(last) {
			return errOrder
		}
		last = k
		if p.bytes > rewriteBytes {
			if err := p.tx.Commit(); err != nil {
				return err
			}
			if err := p.begin(); err != nil {
				return err
			}
		}
		if err := p.copyOne(from, p.entries, k, v, 0); err != nil {
			return err
		}
	}
	return nil
}

// maxNesting bounds how deep buckets in buckets are followed.
const maxNesting = 100

func (p *pump) copyOne(from, to *bbolt.Bucket, k, v []byte, depth int) error {
	p.bytes += len(k) + len(v)
	if len(k) == 0 || len(k) > bbolt.MaxKeySize {
		return errTree
	}
	if v != nil {
		if depth == 0 {
			if err := p.reader.touch(v, len(v)); err != nil {
				return err
			}
		}
		return to.Put(k, v)
	}
	if depth == maxNesting {
		return fmt.Errorf("%w: a bucket is nested deeper than %d times", backend.ErrCorrupt, maxNesting)
	}
	nested, err := to.CreateBucket(k)
	if err != nil {
		return err
	}
	inner := from.Bucket(k)
	return inner.ForEach(func(k, v []byte) error { return p.copyOne(inner, nested, k, v, depth+1) })
}
