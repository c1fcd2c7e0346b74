package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/embedonce/embedonce/backend"
)

var order = binary.NativeEndian

func TestHeaderSaysWhatBboltKnows(t *testing.T) {
	for _, o := range []*Options{nil, {PageSize: 32 << 10}} {
		path := testPath(t)
		c := openTest(t, path, o)
		for i := range 5 {
			require.NoError(t, c.SetMany(ctxb, wideItems(i*7, 70)))
		}
		_, err := c.Delete(ctxb, testKeys(60), nil)
		require.NoError(t, err)
		stats := c.openedStore().db.Stats()
		var size int64
		require.NoError(t, c.openedStore().db.View(func(tx *bbolt.Tx) error { size = tx.Size(); return nil }))
		require.NoError(t, c.Close())
		h := headerOf(t, path)
		require.EqualValues(t, stats.FreePageN+stats.PendingPageN, h.free)
		require.Equal(t, size, h.bytes())
	}
}

// A list of so many free pages that their number does not fit its field.
func TestLongListOfFreePages(t *testing.T) {
	path := testPath(t)
	c := openTest(t, path, &Options{NoSync: true})
	const pages = 0xFFFF + 10
	require.NoError(t, c.SetMany(ctxb, []backend.Item{
		{Key: testKey(0), Value: make([]byte, maxValueBytes)}, {Key: testKey(1), Value: make([]byte, maxValueBytes)},
		{Key: testKey(2), Value: make([]byte, maxValueBytes)}, {Key: testKey(3), Value: make([]byte, maxValueBytes)},
		{Key: testKey(4), Value: make([]byte, maxValueBytes)},
	}))
	_, err := c.Delete(ctxb, testKeys(5), nil)
	require.NoError(t, err)
	require.NoError(t, c.SetMany(ctxb, testItems(0, 1, 'a')))
	require.NoError(t, c.Close())
	h := headerOf(t, path)
	require.Greater(t, h.free, uint64(pages))
	require.Len(t, readAll(t, openTest(t, path, nil), testKeys(3)), 1)
}

// FuzzHeader: any file is either refused as corrupt, or bbolt can open it.
func FuzzHeader(f *testing.F) {
	path := testPath(f)
	c, err := Open(path, nil)
	require.NoError(f, err)
	require.NoError(f, c.SetMany(ctxb, testItems(0, 100, 'a')))
	require.NoError(f, c.SetMany(ctxb, testItems(0, 100, 'b')))
	require.NoError(f, c.Close())
	whole := readFile(f, path)
	h := headerOf(f, path)
	f.Add(whole[:h.bytes()])
	f.Add(whole[:h.bytes()-1])
	long := bytes.Clone(whole)
	order.PutUint16(long[int64(h.freelist)*4096+10:], 0xFFFF)
	f.Add(long[:h.bytes()])
	many := bytes.Clone(whole)
	for page := range 2 {
		order.PutUint64(many[page*4096+pageBytes+40:], 1<<60)
	}
	f.Add(many[:h.bytes()])
	f.Add(whole[:100])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, fix := range []bool{false, true} {
			if fix { // else the checksum ends nearly every try
				for at := 0; at+pageBytes+metaBytes <= len(data) && at <= 4096; at += 4096 {
					setChecksum(data[at:])
				}
			}
			h, err := checkHeader(bytes.NewReader(data), int64(len(data)))
			if err != nil {
				require.ErrorIs(t, err, backend.ErrCorrupt)
				continue
			}
			require.LessOrEqual(t, h.bytes(), int64(len(data)))
			require.Less(t, h.root, h.pages)
			require.LessOrEqual(t, h.free, h.pages)
		}
	})
}

func TestHeaderThatCanNotBeRead(t *testing.T) {
	path := ours(t)
	data := readFile(t, path)
	for n := range 10 {
		file := &failingReader{data: bytes.NewReader(data), left: n}
		_, err := checkHeader(file, int64(len(data)))
		if file.left < 0 {
			require.ErrorIs(t, err, backend.ErrCorrupt)
		} else {
			require.NoError(t, err)
		}
	}
}

// failingReader fails after so many reads.
type failingReader struct {
	data io.ReaderAt
	left int
}

func (f *failingReader) ReadAt(p []byte, at int64) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errors.New("the disk failed")
	}
	return f.data.ReadAt(p, at)
}
