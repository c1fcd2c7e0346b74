package bolt

import (
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

// The file has two buckets: one that marks it as this package's and tells its
// layout, and one with the values under their keys.
var (
	markBucket    = []byte("embedonce")
	layoutKey     = []byte("layout")
	layoutVersion = []byte("1")
	entriesBucket = []byte("entries")
)

// checkLayout reports whether the database is one of ours, with the layout that
// this version reads. A database without any bucket is not ours and no error.
func checkLayout(db *bbolt.DB) (ours bool, err error) {
	defer guard(&err)
	tx, err := db.Begin(false)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // of a transaction that only reads
	return layoutOf(tx)
}

func layoutOf(tx *bbolt.Tx) (ours bool, err error) {
	defer guard(&err) // before the transaction is rolled back
	mark := tx.Bucket(markBucket)
	if mark == nil {
		if first, _ := tx.Cursor().First(); first == nil {
			return false, nil
		}
		return false, fmt.Errorf("%w: it is a bbolt database of another program: it has no bucket %q", backend.ErrCorrupt, markBucket)
	}
	version := mark.Get(layoutKey)
	switch {
	case version == nil || len(version) > 20:
		return false, fmt.Errorf("%w: its bucket %q has no layout version under %q", backend.ErrCorrupt, markBucket, layoutKey)
	case string(version) != string(layoutVersion):
		return false, fmt.Errorf("%w: it has layout version %q, this program reads version %q", backend.ErrCorrupt, version, layoutVersion)
	case tx.Bucket(entriesBucket) == nil:
		return false, fmt.Errorf("%w: its bucket %q is missing", backend.ErrCorrupt, entriesBucket)
	}
	return true, nil
}

// createLayout makes an empty database ours.
func createLayout(db *bbolt.DB) error {
	return db.Update(func(tx *bbolt.Tx) error {
		mark, err := tx.CreateBucket(markBucket)
		if err != nil {
			return err
		}
		if err := mark.Put(layoutKey, layoutVersion); err != nil {
			return err
		}
		_, err = tx.CreateBucket(entriesBucket)
		return err
	})
}
