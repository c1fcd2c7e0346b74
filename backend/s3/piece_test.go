package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

// readWindow reads wants from body, as a request would, and returns what was found.
func readWindow(keys []backend.Key, wants []want, body io.Reader) (got []found, rest []want, err error) {
	f := &fetch{keys: keys, out: make(chan chunk), large: make(chan struct{}, 1)}
	attempt := &attempt{limit: time.Hour, timer: time.NewTimer(time.Hour)}
	defer attempt.timer.Stop()
	rest = wants
	done := make(chan struct{})
	go func() {
		defer close(done)
		w := &windowed{fetch: f, ctx: context.Background(), attempt: attempt, body: body, segment: wants[0].segment, at: uint64(wants[0].offset), buf: new([chunkBytes]byte)}
		err = w.read(&rest)
		if flushErr := w.flush(&rest); flushErr != nil {
			err = flushErr
		}
	}()
	for {
		select {
		case ch := <-f.out:
			for _, one := range ch.found {
				one.value = bytes.Clone(one.value)
				got = append(got, one)
			}
			if ch.large {
				<-f.large
			}
		case <-done:
			return got, rest, err
		}
	}
}

// FuzzFrames: whatever comes in place of the frames, what is handed over has the right
// key and a length that the index allows, and all wants are accounted for.
func FuzzFrames(f *testing.F) {
	w := newSegmentWriter(testItems(0, 4, 20, 'f'))
	f.Add(w.data, uint8(0b1111), uint8(1), true)
	f.Add(w.data[:100], uint8(0b1010), uint8(0), true)
	f.Add(append(bytes.Clone(w.data), w.data...), uint8(0b0110), uint8(3), false)
	large := newSegmentWriter(append(testItems(0, 1, 300_000, 'l'), testItems(1, 3, 50, 'm')...))
	f.Add(large.data, uint8(0b1111), uint8(200), false)
	f.Fuzz(func(t *testing.T, body []byte, which, head uint8, uniform bool) {
		s := &segment{name: "s", data: 1 << 30}
		sizes := []uint32{300_000, 50, 50, 50}
		if uniform {
			s.stride = uint32(frameHead) + 20
			sizes = []uint32{20, 20, 20, 20}
		}
		var wants []want
		offset := uint32(0)
		for i, size := range sizes {
			if which&(1<<i) != 0 {
				length := uint32(frameHead) + size
				c := candidate{segment: s, offset: offset, atMost: uint32(classSize(sizeClass(length)))}
				if uniform {
					c.atMost = s.stride
				}
				h := uint32(head)
				if head > 100 {
					h = 1 << 30
				}
				wants = append(wants, want{c, i, h})
			}
			offset += uint32(frameHead) + size
		}
		if len(wants) == 0 || int(wants[0].offset) > len(body) {
			return
		}
		got, rest, err := readWindow(testKeys(4), wants, iotest.OneByteReader(&counting{bytes.NewReader(body[wants[0].offset:]), new(atomic.Int64), &attempt{limit: time.Hour, timer: time.NewTimer(time.Hour)}}))
		if len(got)+len(rest) != len(wants) || err == nil && len(rest) > 0 {
			t.Fatalf("%d found and %d left of %d, %v", len(got), len(rest), len(wants), err)
		}
		if err != nil && !errors.As(err, new(*bodyError)) {
			t.Fatal(err)
		}
		for i, one := range got {
			if one.want != wants[i] {
				t.Fatalf("frame %d is out of order", i)
			}
			if one.size < 0 {
				continue
			}
			at := int(one.want.offset)
			if backend.Key(body[at:]) != testKey(one.want.key) || uint32(one.size)+uint32(frameHead) > one.want.atMost ||
				len(one.value) != min(one.size, int(one.want.head)) || !bytes.Equal(one.value, body[at+frameHead:at+frameHead+len(one.value)]) {
				t.Fatalf("frame %d is wrong", i)
			}
		}
	})
}

// TestFramesInPieces: chunks end anywhere, and answers come in parts of any size.
func TestFramesInPieces(t *testing.T) {
	items := testItems(0, 400, 2000, 'c')
	w := newSegmentWriter(items)
	s := &segment{name: "s", data: uint32(len(w.data)), stride: uint32(frameHead + 2000)}
	for _, step := range []int{1, 2, 3, 50, 200} {
		for _, reader := range []func(io.Reader) io.Reader{iotest.HalfReader, iotest.DataErrReader, func(r io.Reader) io.Reader { return r }} {
			var wants []want
			for i := 0; i < len(items); i += step {
				wants = append(wants, want{candidate{segment: s, offset: uint32(i) * s.stride, atMost: s.stride}, i, 1 << 30})
			}
			got, rest, err := readWindow(testKeys(400), wants, reader(bytes.NewReader(w.data)))
			require.NoError(t, err)
			require.Empty(t, rest)
			require.Len(t, got, len(wants))
			for _, one := range got {
				require.True(t, bytes.Equal(items[one.want.key].Value, one.value))
			}
		}
	}
}
