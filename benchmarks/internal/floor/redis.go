package floor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"

	"github.com/embedonce/embedonce/backend"
)

// redisServer is a Redis server under its protocol written by hand, over a connection
// for each reader.
type redisServer struct {
	address, prefix string
	writer          *redisConn
}

const (
	redisChunk  = 128 // keys that are asked for at once
	redisBuffer = 64 << 10
)

// OpenRedis connects to a server that asks for no password. Keys are what
// backend/redis makes of them with the prefix.
func OpenRedis(address, prefix string) (Store, error) {
	s := &redisServer{address: address, prefix: prefix}
	var err error
	s.writer, err = s.dial()
	return s, err
}

func (s *redisServer) dial() (*redisConn, error) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, err
	}
	return &redisConn{conn, bufio.NewWriterSize(conn, redisBuffer), bufio.NewReaderSize(conn, redisBuffer), s.prefix, nil}, nil
}

func (s *redisServer) Reader() (Reader, error) { return s.dial() }

func (s *redisServer) Close() error { return s.writer.Close() }

func (s *redisServer) Write(items []backend.Item) error {
	c := s.writer
	c.writer.WriteString("*1\r\n$5\r\nMULTI\r\n")
	for i := range items {
		c.writer.WriteString("*3\r\n$3\r\nSET\r\n")
		c.putKey(&items[i].Key)
		c.putSize(len(items[i].Value))
		c.writer.Write(items[i].Value)
		c.writer.WriteString("\r\n")
	}
	c.writer.WriteString("*1\r\n$4\r\nEXEC\r\n")
	if err := c.writer.Flush(); err != nil { // it repeats the first error
		return err
	}
	for range 2 + 2*len(items) { // OK, QUEUED for each, the number of answers, OK for each
		line, err := c.line()
		if err != nil {
			return err
		}
		if line[0] == '-' {
			return fmt.Errorf("the server answered %q", line)
		}
	}
	return nil
}

type redisConn struct {
	net.Conn
	writer *bufio.Writer
	reader *bufio.Reader
	prefix string
	value  []byte
}

func (c *redisConn) putSize(n int) {
	c.writer.Write(append(strconv.AppendInt(append(c.writer.AvailableBuffer(), '$'), int64(n), 10), '\r', '\n'))
}

func (c *redisConn) putKey(key *backend.Key) {
	c.putSize(len(c.prefix) + len(key))
	c.writer.WriteString(c.prefix)
	c.writer.Write(key[:])
	c.writer.WriteString("\r\n")
}

func (c *redisConn) ask(keys []backend.Key) error {
	for i := range keys[:min(redisChunk, len(keys))] {
		c.writer.WriteString("*2\r\n$3\r\nGET\r\n")
		c.putKey(&keys[i])
	}
	return c.writer.Flush()
}

func (c *redisConn) line() ([]byte, error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, errors.New("the server answered an empty line")
	}
	return line[:len(line)-2], nil
}

// Get asks for a chunk while it reads the one before.
func (c *redisConn) Get(keys []backend.Key, visit func(i int, value []byte)) error {
	if err := c.ask(keys); err != nil {
		return err
	}
	for from := 0; from < len(keys); from += redisChunk {
		to := min(from+redisChunk, len(keys))
		if err := c.ask(keys[to:]); err != nil {
			return err
		}
		for i := from; i < to; i++ {
			line, err := c.line()
			if err != nil {
				return err
			}
			size, err := strconv.Atoi(string(line[1:]))
			if err != nil || line[0] != '$' {
				return fmt.Errorf("the server answered %q", line)
			}
			if size < 0 {
				continue
			}
			c.value = slices.Grow(c.value[:0], size+2)[:size+2]
			if _, err := io.ReadFull(c.reader, c.value); err != nil {
				return err
			}
			visit(i, c.value[:size])
		}
	}
	return nil
}
