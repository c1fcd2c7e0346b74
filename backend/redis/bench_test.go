package redis

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/backend"
)

const (
	benchValueBytes = 64 + 1536*4 // a record of 1,536 dimensions
	benchEntries    = 10_000
)

func benchItems(from, n int) []backend.Item {
	items := make([]backend.Item, n)
	for i := range items {
		value := make([]byte, benchValueBytes)
		for j := range value {
			value[j] = byte(rand.Uint32())
		}
		items[i] = backend.Item{Key: testKey(from + i), Value: value}
	}
	return items
}

// benchServer has benchEntries entries under the default prefix.
func benchServer(b *testing.B) string {
	needServer(b)
	s := startServer(b)
	c, err := Open("redis://"+s.addr, nil)
	require.NoError(b, err)
	for from := 0; from < benchEntries; from += 500 {
		require.NoError(b, c.SetMany(context.Background(), benchItems(from, 500)))
	}
	require.NoError(b, c.Close())
	return s.addr
}

func benchKeys(n int) []backend.Key {
	keys := make([]backend.Key, n)
	for i, k := range rand.Perm(benchEntries)[:n] {
		keys[i] = testKey(k)
	}
	return keys
}

func getAll(c *Cache, keys []backend.Key, to []byte) error {
	found := 0
	err := c.GetMany(context.Background(), keys, func(_ int, value []byte) error {
		found++
		copy(to, value)
		return nil
	})
	if err == nil && found != len(keys) {
		err = fmt.Errorf("%d of %d keys found", found, len(keys))
	}
	return err
}

// rawConn is the floor: the protocol in a loop over one connection, nothing else. It
// asks for a chunk while it reads the one before.
type rawConn struct {
	net.Conn
	w *bufio.Writer
	r *bufio.Reader
}

func dialRaw(b *testing.B, addr string) *rawConn {
	conn, err := net.Dial("tcp", addr)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	return &rawConn{conn, bufio.NewWriterSize(conn, bufferBytes), bufio.NewReaderSize(conn, bufferBytes)}
}

func (c *rawConn) bulk(p []byte) {
	_, _ = c.w.Write(strconv.AppendInt(append(c.w.AvailableBuffer(), '$'), int64(len(p)), 10))
	_, _ = c.w.WriteString("\r\n")
	_, _ = c.w.Write(p)
	_, _ = c.w.WriteString("\r\n")
}

func (c *rawConn) ask(keys []backend.Key, name []byte) error {
	for i := range keys {
		_, _ = c.w.WriteString("*2\r\n$3\r\nget\r\n")
		c.bulk(append(append(name[:0], defaultPrefix...), keys[i][:]...))
	}
	return c.w.Flush()
}

func (c *rawConn) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line, []byte("\r\n")), nil
}

func (c *rawConn) getMany(keys []backend.Key, chunk int, to []byte) error {
	name := make([]byte, 0, 64)
	if err := c.ask(keys[:min(chunk, len(keys))], name); err != nil {
		return err
	}
	for len(keys) > 0 {
		n := min(chunk, len(keys))
		if next := keys[n:]; len(next) > 0 {
			if err := c.ask(next[:min(chunk, len(next))], name); err != nil {
				return err
			}
		}
		for range n {
			line, err := c.line()
			if err != nil || line[0] != '$' {
				return errors.Join(err, errStrange)
			}
			size, err := strconv.Atoi(string(line[1:]))
			if err != nil || size < 0 {
				return errors.Join(err, errStrange)
			}
			if _, err := io.ReadFull(c.r, to[:size]); err != nil {
				return err
			}
			if _, err := c.r.Discard(2); err != nil {
				return err
			}
		}
		keys = keys[n:]
	}
	return nil
}

func (c *rawConn) setMany(items []backend.Item) error {
	name := make([]byte, 0, 64)
	_, _ = c.w.WriteString("*1\r\n$5\r\nmulti\r\n")
	for i := range items {
		_, _ = c.w.WriteString("*3\r\n$3\r\nset\r\n")
		c.bulk(append(append(name[:0], defaultPrefix...), items[i].Key[:]...))
		c.bulk(items[i].Value)
	}
	_, _ = c.w.WriteString("*1\r\n$4\r\nexec\r\n")
	if err := c.w.Flush(); err != nil {
		return err
	}
	for range 2 + 2*len(items) { // OK, QUEUED for each, the number of answers, OK for each
		if line, err := c.line(); err != nil || line[0] == '-' {
			return errors.Join(err, errStrange)
		}
	}
	return nil
}

// beside calls each of what is compared once a round, so that a change of the
// machine's load meets all of them, and reports the median and the 10th percentile of
// each, for one key.
func beside(b *testing.B, keys int, names []string, calls []func() error) {
	took := make([][]float64, len(calls))
	for _, call := range calls { // connections, memory
		require.NoError(b, call())
	}
	for b.Loop() {
		for i, call := range calls {
			start := time.Now()
			require.NoError(b, call())
			took[i] = append(took[i], float64(time.Since(start).Nanoseconds())/1000/float64(keys))
		}
	}
	for i := range took {
		slices.Sort(took[i])
		n := len(took[i])
		b.ReportMetric(took[i][n/2], names[i]+"-µs/key")
		b.ReportMetric(took[i][n/10], names[i]+"-p10-µs/key")
	}
	b.ReportMetric(0, "ns/op") // of all together: it says nothing
}

// BenchmarkBesideRaw compares with the floor.
func BenchmarkBesideRaw(b *testing.B) {
	addr := benchServer(b)
	c, err := Open("redis://"+addr, nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	raw := dialRaw(b, addr)
	to := make([]byte, benchValueBytes)
	names := []string{"cache", "raw"}
	for _, n := range []int{1, 512, 4096} {
		keys := benchKeys(n)
		b.Run(fmt.Sprintf("GetMany/keys=%d", n), func(b *testing.B) {
			beside(b, n, names, []func() error{
				func() error { return getAll(c, keys, to) },
				func() error { return raw.getMany(keys, defaultChunkKeys, to) },
			})
		})
	}
	items := benchItems(0, 512)
	b.Run("SetMany/items=512", func(b *testing.B) {
		beside(b, 512, names, []func() error{
			func() error { return c.SetMany(context.Background(), items) },
			func() error { return raw.setMany(items) },
		})
	})
}

// BenchmarkAllocations is for the allocations of one call, which no load changes.
func BenchmarkAllocations(b *testing.B) {
	addr := benchServer(b)
	c, err := Open("redis://"+addr, nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	to := make([]byte, benchValueBytes)
	for _, n := range []int{512, 4096} {
		keys := benchKeys(n)
		b.Run(fmt.Sprintf("GetMany/keys=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, getAll(c, keys, to))
			}
		})
	}
	items := benchItems(0, 512)
	b.Run("SetMany/items=512", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, c.SetMany(context.Background(), items))
		}
	})
}

// BenchmarkLatency is the sweep behind the defaults of Options.ReadAhead and
// Options.ChunkKeys: GetMany of so many keys from a server that answers later.
func BenchmarkLatency(b *testing.B) {
	addr := benchServer(b)
	to := make([]byte, benchValueBytes)
	for _, latency := range []time.Duration{0, 500 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond} {
		via := addr // a proxy takes time itself
		if latency > 0 {
			p := startProxy(b, addr)
			p.latency.Store(int64(latency))
			via = p.addr()
		}
		for _, n := range []int{512, 4096} {
			keys := benchKeys(n)
			var names []string
			var calls []func() error
			for _, chunk := range []int{32, 64, 128, 256} {
				for _, ahead := range []int{1, 2, 3, 4, 8, 14} {
					c, err := Open("redis://"+via, &Options{ReadAhead: ahead, ChunkKeys: chunk})
					require.NoError(b, err)
					b.Cleanup(func() { _ = c.Close() })
					names = append(names, fmt.Sprintf("%dx%d", ahead, chunk))
					calls = append(calls, func() error { return getAll(c, keys, to) })
				}
			}
			b.Run(fmt.Sprintf("latency=%v/keys=%d", latency, n), func(b *testing.B) { beside(b, n, names, calls) })
		}
	}
}
