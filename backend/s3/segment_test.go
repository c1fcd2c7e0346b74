package s3

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/embedonce/embedonce/backend"
)

func testKey(i int) (k backend.Key) {
	binary.BigEndian.PutUint32(k[:], uint32(i))
	k[31] = byte(i)
	return k
}

func testKeys(n int) (keys []backend.Key) {
	for i := range n {
		keys = append(keys, testKey(i))
	}
	return keys
}

// testItems has n items from number from on, whose values say which they are.
func testItems(from, n, size int, mark byte) (items []backend.Item) {
	for i := from; i < from+n; i++ {
		value := bytes.Repeat([]byte{mark}, max(size, 6))
		binary.BigEndian.PutUint32(value, uint32(i))
		items = append(items, backend.Item{Key: testKey(i), Value: value})
	}
	return items
}

var testVersion = version{100, 7}

// testSegment returns a written segment, its name and the writer.
func testSegment(items []backend.Item, tombs ...tomb) (objectName, []byte) {
	w := merge([]*waiting{newWrite(items)})
	w.tombs = tombs
	if len(items) > 0 {
		w.runs = []run{{testVersion, uint32(len(w.entries))}}
	}
	body, tail := w.finish()
	return objectName{version: testVersion, seq: 1, tail: uint32(tail), count: uint32(len(w.entries))}, body
}

func testOutput() (objectName, []byte) {
	w := newSegmentWriter(testItems(0, 9, 30, 'x'))
	w.runs = []run{{version{5, 1}, 4}, {version{9, 1}, 0}, {version{9, 2}, 5}}
	w.replaced = []string{objectName{version: testVersion}.String(), objectName{compacted: true}.String()}
	w.tombs = []tomb{{testKey(3), version{5, 1}, 1_700_000_000}}
	body, tail := w.finish()
	return objectName{compacted: true, unique: [16]byte{1}, tail: uint32(tail), count: 9}, body
}

func newSegmentWriter(items []backend.Item) *segmentWriter { return merge([]*waiting{newWrite(items)}) }

func TestSegmentRoundTrip(t *testing.T) {
	for _, items := range [][]backend.Item{testItems(0, 1, 1, 'a'), testItems(0, 100, 50, 'b'), append(testItems(0, 3, 9, 'c'), testItems(3, 2, 400, 'd')...)} {
		name, body := testSegment(items, tomb{testKey(1), version{3, 4}, 0})
		for _, extra := range []int{0, 1, 1000} { // bytes of frames before the tail
			tail, err := parseTail(name, body[max(0, len(body)-int(name.tail)-extra):], int64(len(body)))
			require.NoError(t, err)
			require.EqualValues(t, len(items), tail.frames)
			offset := 0
			for i, item := range items {
				require.Equal(t, item.Key, *tail.key(i))
				require.EqualValues(t, len(item.Value), tail.size(i))
				require.Equal(t, item.Key[:], body[offset:offset+32])
				require.Equal(t, item.Value, body[offset+frameHead:offset+frameHead+len(item.Value)])
				offset += frameHead + len(item.Value)
			}
			require.Equal(t, []run{{testVersion, uint32(len(items))}}, tail.runs)
			require.Equal(t, []tomb{{testKey(1), version{3, 4}, 0}}, tail.tombs)
		}
	}
	name, body := testOutput()
	tail, err := parseTail(name, body, int64(len(body)))
	require.NoError(t, err)
	require.Len(t, tail.replaced, 2)
	require.Len(t, tail.runs, 3)
	require.EqualValues(t, 1_700_000_000, tail.tombs[0].created)
	s := newSegment(name, tail, ctxTime)
	frame := frameHead + 30
	for offset := range 9 * frame {
		want := version{9, 2}
		if offset < 4*frame {
			want = version{5, 1}
		}
		require.Equal(t, want, s.versionAt(uint32(offset)))
	}
	require.Zero(t, s.versionAt(uint32(9*frame)))
}

// TestSegmentIsPinned: a change of the format makes everybody's buckets unreadable.
func TestSegmentIsPinned(t *testing.T) {
	_, body := testSegment(testItems(0, 3, 20, 'p'), tomb{testKey(1), version{3, 4}, 0})
	require.Equal(t, "dd42bccd0a6991f9", fmt.Sprintf("%016x", xxh3.Hash(body)))
	_, body = testOutput()
	require.Equal(t, "76ab8cbc59b3a0a9", fmt.Sprintf("%016x", xxh3.Hash(body)))
}

// reseal makes the checksums of a changed segment right again.
func reseal(body []byte, tail int) {
	foot := body[len(body)-footerSize:]
	binary.LittleEndian.PutUint64(foot[16:], xxh3.Hash(body[len(body)-tail:len(body)-footerSize]))
	binary.LittleEndian.PutUint64(foot[48:], xxh3.Hash(foot[:48]))
}

// TestDamagedTails: whatever bit is flipped in the tail, wherever it is cut, nothing
// comes out.
func TestDamagedTails(t *testing.T) {
	name, good := testSegment(testItems(0, 5, 20, 'p'), tomb{testKey(1), version{3, 4}, 0})
	from := len(good) - int(name.tail)
	for at := from; at < len(good); at++ {
		for bit := range 8 {
			body := bytes.Clone(good)
			body[at] ^= 1 << bit
			_, err := parseTail(name, body, int64(len(body)))
			require.Error(t, err, "bit %d of byte %d", bit, at)
		}
	}
	for n := range good {
		_, err := parseTail(name, good[:n], int64(n))
		require.ErrorIs(t, err, errForeignObject, "cut to %d bytes", n)
		_, err = parseTail(name, good[n:], int64(len(good)))
		require.Equal(t, n <= from, err == nil, "without the first %d bytes", n)
	}
	_, err := parseTail(name, good, int64(len(good))+1)
	require.ErrorIs(t, err, errForeignObject, "an object of another size")
}

// TestTailsThatLie have right checksums.
func TestTailsThatLie(t *testing.T) {
	for what, lie := range map[string]func(body []byte, tail int){
		"more data":                  func(b []byte, _ int) { binary.LittleEndian.PutUint64(b[len(b)-64:], 1<<40) },
		"no data":                    func(b []byte, _ int) { binary.LittleEndian.PutUint64(b[len(b)-64:], 0) },
		"many frames":                func(b []byte, _ int) { binary.LittleEndian.PutUint32(b[len(b)-40:], 1<<32-1) },
		"a frame more":               func(b []byte, _ int) { b[len(b)-40]++ },
		"many runs":                  func(b []byte, _ int) { binary.LittleEndian.PutUint32(b[len(b)-36:], 1<<32-1) },
		"many names":                 func(b []byte, _ int) { binary.LittleEndian.PutUint32(b[len(b)-32:], 1<<32-1) },
		"many tombstones":            func(b []byte, _ int) { binary.LittleEndian.PutUint32(b[len(b)-28:], 1<<32-1) },
		"version 0":                  func(b []byte, _ int) { binary.LittleEndian.PutUint32(b[len(b)-20:], 0) },
		"a frame of 4 GiB":           func(b []byte, tail int) { binary.LittleEndian.PutUint32(b[len(b)-tail+32:], 1<<32-1) },
		"frames that overlap":        func(b []byte, tail int) { b[len(b)-tail+32]-- },
		"a run of more frames":       func(b []byte, tail int) { b[len(b)-footerSize-tombSize-4]++ },
		"another version":            func(b []byte, tail int) { b[len(b)-footerSize-tombSize-runSize]++ },
		"a stamp at the end of time": func(b []byte, tail int) { b[len(b)-footerSize-tombSize-runSize+7] = 0xff },
	} {
		name, body := testSegment(testItems(0, 5, 20, 'p'), tomb{testKey(1), version{3, 4}, 0})
		lie(body, int(name.tail))
		reseal(body, int(name.tail))
		_, err := parseTail(name, body, int64(len(body)))
		require.ErrorIs(t, err, errForeignObject, what)
	}
	name, body := testSegment(testItems(0, 5, 20, 'p'))
	binary.LittleEndian.PutUint32(body[len(body)-20:], formatVersion+1)
	reseal(body, int(name.tail))
	_, err := parseTail(name, body, int64(len(body)))
	require.ErrorIs(t, err, errFuture)

	w := newSegmentWriter(testItems(0, 2, 9, 'a'))
	w.runs, w.replaced = []run{{testVersion, 2}}, []string{"s/readme"}
	body, tail := w.finish()
	_, err = parseTail(objectName{compacted: true, tail: uint32(tail)}, body, int64(len(body)))
	require.ErrorIs(t, err, errForeignObject, "it replaces what is no segment")
	w = newSegmentWriter(testItems(0, 2, 9, 'a'))
	w.runs, w.replaced = []run{{testVersion, 2}}, []string{name.String()}
	body, _ = w.finish()
	_, err = parseTail(name, body, int64(len(body)))
	require.ErrorIs(t, err, errForeignObject, "a written segment that replaces another one")
}

func FuzzParseTail(f *testing.F) {
	name, body := testSegment(testItems(0, 5, 20, 'p'), tomb{testKey(1), version{3, 4}, 0})
	f.Add(name.String(), body, int64(len(body)), false)
	name, body = testOutput()
	f.Add(name.String(), body, int64(len(body)), false)
	f.Add(name.String(), body[40:], int64(len(body)), true)
	f.Fuzz(func(t *testing.T, s string, b []byte, size int64, seal bool) {
		name, _ := parseName(s)
		if seal && len(b) >= footerSize { // get behind the checksums
			b = bytes.Clone(b)
			reseal(b, min(len(b), max(footerSize, int(name.tail))))
		}
		tail, err := parseTail(name, b, size)
		if err != nil {
			return
		}
		offset := uint64(0)
		for i := range int(tail.frames) {
			offset += uint64(frameHead) + uint64(tail.size(i))
		}
		if offset != tail.dataBytes || tail.dataBytes+tail.tailBytes() != uint64(size) {
			t.Fatalf("frames of %d bytes where the object has %d", offset, size)
		}
		newSegment(name, tail, ctxTime)
	})
}

func FuzzParseFooter(f *testing.F) {
	_, body := testSegment(testItems(0, 2, 20, 'p'))
	f.Add(body[len(body)-footerSize:], int64(len(body)))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		foot, err := parseFooter(b, size)
		if err == nil && foot.dataBytes+foot.tailBytes() != uint64(size) {
			t.Fatalf("%+v of an object of %d bytes", foot, size)
		}
	})
}

// TestMerge: of equal keys the last one of a call, and the later call, wins.
func TestMerge(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		want := make(map[backend.Key][]byte)
		var group []*waiting
		for range 1 + random.IntN(4) {
			var items []backend.Item
			for range 1 + random.IntN(20) {
				i := testItems(random.IntN(15), 1, 6+random.IntN(30), byte(random.Uint32()))[0]
				items = append(items, i)
				want[i.Key] = i.Value
			}
			group = append(group, newWrite(items))
		}
		w := merge(group)
		require.Len(t, w.entries, len(want))
		got := make(map[backend.Key][]byte)
		data := w.data
		for _, e := range w.entries {
			require.Equal(t, e.key[:], data[:32])
			got[e.key], data = data[frameHead:frameHead+int(e.size)], data[frameHead+int(e.size):]
		}
		require.Empty(t, data)
		require.Equal(t, want, got)
	}
}
