package floor

import (
	"bytes"
	"errors"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

// boltFile is a file of backend/bolt under the bare library: one transaction and one
// cursor for each call.
type boltFile struct{ db *bbolt.DB }

var errNoBucket = errors.New("the file has no bucket of entries")

// OpenBolt opens a file that backend/bolt has made.
func OpenBolt(path string) (Store, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, InitialMmapSize: 1 << 30})
	if err != nil {
		return nil, err
	}
	return &boltFile{db}, nil
}

func (f *boltFile) Reader() (Reader, error) { return boltReader{f.db}, nil }

func (f *boltFile) Close() error { return f.db.Close() }

func (f *boltFile) Write(items []backend.Item) error {
	sorted := slices.Clone(items) // neighbours on one page are written together
	slices.SortFunc(sorted, func(a, b backend.Item) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	return f.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("entries"))
		if bucket == nil {
			return errNoBucket
		}
		for i := range sorted {
			if err := bucket.Put(sorted[i].Key[:], sorted[i].Value); err != nil {
				return err
			}
		}
		return nil
	})
}

type boltReader struct{ db *bbolt.DB }

func (r boltReader) Close() error { return nil }

func (r boltReader) Get(keys []backend.Key, visit func(i int, value []byte)) error {
	return r.db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("entries"))
		if bucket == nil {
			return errNoBucket
		}
		cursor := bucket.Cursor()
		for i := range keys {
			if key, value := cursor.Seek(keys[i][:]); value != nil && bytes.Equal(key, keys[i][:]) {
				visit(i, value)
			}
		}
		return nil
	})
}
