package bolt

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/conformance"
)

func conformanceSuite(options Options) conformance.Suite {
	options.LockTimeout = 500 * time.Millisecond
	options.StallTimeout = 3 * time.Second // a sync takes more than a second on a busy machine
	want := backend.Info{
		Atomic:        true,
		Durability:    backend.SurvivesPowerLoss,
		Reach:         backend.ReachHandle,
		SnapshotReads: true,
		MaxValueBytes: maxValueBytes,
	}
	if options.NoSync {
		want.Durability = backend.SurvivesCrash
	}
	return conformance.Suite{
		New: func(t testing.TB) string { return filepath.Join(t.TempDir(), "vectors.db") },
		Open: func(t testing.TB, location string) backend.Cache {
			c, err := Open(location, &options)
			if err != nil {
				t.Fatal(err)
			}
			opened.add(t, location, c)
			return c
		},
		Want:  want,
		Plant: plant,
		Fault: injectFault,
	}
}

func TestConformance(t *testing.T) { conformanceSuite(Options{}).Run(t) }

// A map that must grow all the time, large pages, no sync.
func TestConformanceSmallMap(t *testing.T) {
	conformanceSuite(Options{MapBytes: 1, PageSize: 16 << 10, NoSync: true, Readers: 1}).Run(t)
}

func TestSoak(t *testing.T) { conformanceSuite(Options{}).Soak(t) }

func TestSoakSmallMap(t *testing.T) { conformanceSuite(Options{MapBytes: 1, NoSync: true}).Soak(t) }

func BenchmarkCache(b *testing.B) { conformanceSuite(Options{}).Bench(b) }

// plant leaves what another program could: a bucket in the place of a value, in
// one case with something in it, or a value of no bytes.
func plant(t testing.TB, location string, k backend.Key, what conformance.Foreign) {
	rawUpdate(t, location, func(tx *bbolt.Tx) error {
		entries := tx.Bucket(entriesBucket)
		if what == conformance.Empty {
			return put(entries, &backend.Item{Key: k})
		}
		if err := entries.Delete(k[:]); err != nil && entries.DeleteBucket(k[:]) != nil {
			return err
		}
		nested, err := entries.CreateBucket(k[:])
		if err == nil && k[0]%2 == 0 {
			err = nested.Put([]byte("a key"), make([]byte, 5000))
		}
		return err
	})
}

func injectFault(t testing.TB, location string, f conformance.Fault) (undo func()) {
	switch f.Kind {
	case conformance.FailAtItem:
		return withHooks(t, location, hooks{put: func(item int) error {
			if item == f.Item {
				return errors.New("injected")
			}
			return nil
		}})
	case conformance.Slow:
		return withHooks(t, location, hooks{commit: func() error { time.Sleep(150 * time.Millisecond); return nil }})
	case conformance.FailAtCommit:
		return withHooks(t, location, hooks{commit: func() error { return errors.New("injected") }})
	case conformance.Full:
		c := opened.get(location)
		require.NotNil(t, c)
		info, err := os.Stat(location)
		require.NoError(t, err)
		setMaxSize(t, c, int(info.Size()))
		return func() { setMaxSize(t, c, 0) }
	case conformance.Cut:
		away := location + ".away"
		require.NoError(t, os.Rename(location, away))
		return func() { require.NoError(t, os.Rename(away, location)) }
	case conformance.Damage:
		damageValue(t, location, f.Item)
		return func() {}
	case conformance.Locked:
		// As a commit that hangs in the disk: nobody else gets bbolt's lock.
		tx, err := opened.get(location).openedStore().db.Begin(true)
		require.NoError(t, err)
		return func() { require.NoError(t, tx.Rollback()) }
	}
	return nil
}

func withHooks(t testing.TB, location string, h hooks) (undo func()) {
	c := opened.get(location)
	require.NotNil(t, c)
	c.hooks.Store(&h)
	return func() { c.hooks.Store(nil) }
}

// setMaxSize lets the file not grow beyond bytes, once no commit is under way.
func setMaxSize(t testing.TB, c *Cache, bytes int) {
	db := c.openedStore().db
	tx, err := db.Begin(true)
	require.NoError(t, err)
	db.MaxSize = bytes
	require.NoError(t, tx.Rollback())
}

// damageValue turns bits of one stored value over, in the file.
func damageValue(t testing.TB, location string, place int) {
	c := opened.get(location)
	require.NotNil(t, c)
	tx, err := c.begin(ctxb)
	require.NoError(t, err)
	defer c.end(tx)
	w, err := newWalk(tx, nil)
	require.NoError(t, err)
	for range 1 + place*7 {
		more, err := w.next(maxValueBytes)
		require.NoError(t, err)
		if !more {
			break
		}
	}
	require.False(t, w.inline)
	value := w.entry.Value
	require.NotEmpty(t, value)
	within := place * 31 % len(value)
	at := int64(uintptr(unsafe.Pointer(unsafe.SliceData(value)))-w.first) + int64(within)
	file, err := os.OpenFile(location, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = file.WriteAt([]byte{value[within] ^ 0x55}, at)
	require.NoError(t, errors.Join(err, file.Close()))
}
