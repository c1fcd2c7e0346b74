package redis

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/hashing"
)

// script is a connection to a server that answers what it is told to, whatever it is
// asked: %MARK% stands for what it was last asked to say.
type script struct {
	net.Conn
	mu      sync.Mutex
	sent    []byte
	answers []byte
	greeted bool
	filled  bool
}

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, p...)
	return len(p), nil
}

func (s *script) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.greeted {
		s.greeted = true
		return copy(p, "-ERR no HELLO here\r\n"), nil
	}
	if !s.filled {
		s.filled = true
		if at := bytes.LastIndex(s.sent, []byte("embedonce ")); at >= 0 {
			mark := s.sent[at:]
			if end := bytes.Index(mark, lineEnd); end >= 0 {
				mark = mark[:end]
			}
			s.answers = bytes.ReplaceAll(s.answers, []byte("%MARK%"), mark)
		}
	}
	if len(s.answers) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.answers)
	s.answers = s.answers[n:]
	return n, nil
}

func (s *script) Close() error                     { return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// scripted is a cache whose next request is answered like this.
func scripted(t testing.TB, answers string) *Cache {
	client := driver.NewClient(&driver.Options{
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, PipelinePoolSize: -1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return &script{answers: []byte(answers)}, nil
		},
	})
	o, err := (&Options{Timeout: time.Second, ChunkKeys: 8}).withDefaults()
	require.NoError(t, err)
	c := newCache(client, o, true)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

const end = "$%LEN%\r\n%MARK%\r\n"

// marked has the length of a mark put in.
func marked(answers string) string {
	length := len("embedonce 0123456789abcdef ") + 16
	return strings.ReplaceAll(answers, "%LEN%", strconv.Itoa(length))
}

// What a server may not answer is an error, and never a value, a miss or a success.
func TestAnswersThatAreStrange(t *testing.T) {
	ctx := context.Background()
	good := marked("$1\r\na\r\n$-1\r\n" + end)
	c := scripted(t, good)
	values := make(map[int]string)
	require.NoError(t, c.GetMany(ctx, testKeys(2), func(i int, value []byte) error { values[i] = string(value); return nil }))
	require.Equal(t, map[int]string{0: "a"}, values)

	for name, answers := range map[string]string{
		"nothing":                "",
		"a web server":           "HTTP/1.1 400 Bad Request\r\n\r\n",
		"no mark":                "$1\r\na\r\n$-1\r\n",
		"another mark":           "$1\r\na\r\n$-1\r\n$43\r\n" + string(bytes.Repeat([]byte("x"), 43)) + "\r\n",
		"an answer too many":     "$1\r\nz\r\n$1\r\na\r\n$-1\r\n" + end,
		"an answer too few":      "$1\r\na\r\n" + end,
		"OK for a value":         "+OK\r\n$-1\r\n" + end,
		"a number for a value":   ":5\r\n$-1\r\n" + end,
		"an array for a value":   "*1\r\n$1\r\na\r\n$-1\r\n" + end,
		"a length that is none":  "$x\r\na\r\n$-1\r\n" + end,
		"a length below -1":      "$-2\r\n$-1\r\n" + end,
		"a length that is short": "$1\r\nabc\r\n$-1\r\n" + end,
		"a length that is long":  "$999999999999999\r\na\r\n$-1\r\n" + end,
		"an unknown error":       "-ERR no\r\n$-1\r\n" + end,
		"a lone error":           "-\r\n$-1\r\n" + end,
		"a cut":                  "$10\r\nabc",
		"a RESP3 map":            "%1\r\n+a\r\n+b\r\n$-1\r\n" + end,
	} {
		t.Run(name, func(t *testing.T) {
			c := scripted(t, marked(answers))
			err := c.GetMany(ctx, testKeys(2), func(int, []byte) error { t.Error("a value was visited"); return nil })
			require.Error(t, err)
		})
	}

	queued := "+OK\r\n+QUEUED\r\n+QUEUED\r\n"
	require.NoError(t, scripted(t, marked(queued+"*2\r\n+OK\r\n+OK\r\n"+end)).SetMany(ctx, testItems(0, 2, 'a')))
	for name, answers := range map[string]string{
		"nothing":                "",
		"no answer of EXEC":      queued,
		"EXEC found a change":    queued + "*-1\r\n" + end,
		"EXEC did less":          queued + "*1\r\n+OK\r\n" + end,
		"EXEC did more":          queued + "*3\r\n+OK\r\n+OK\r\n+OK\r\n" + end,
		"EXEC failed in part":    queued + "*2\r\n+OK\r\n-OOM no\r\n" + end,
		"EXEC answers otherwise": queued + "*2\r\n+OK\r\n+FINE\r\n" + end,
		"no transaction":         "+OK\r\n+OK\r\n+OK\r\n*2\r\n+OK\r\n+OK\r\n" + end,
		"MULTI is refused":       "-ERR no\r\n+OK\r\n+OK\r\n-ERR EXEC without MULTI\r\n" + end,
		"refused":                "+OK\r\n+QUEUED\r\n-OOM no\r\n-EXECABORT no\r\n" + end,
		"an answer of before":    "+OK\r\n" + queued + "*2\r\n+OK\r\n+OK\r\n" + end,
		"no mark":                queued + "*2\r\n+OK\r\n+OK\r\n",
		"nested":                 queued + "*2\r\n*1\r\n+OK\r\n+OK\r\n" + end,
	} {
		t.Run("SetMany/"+name, func(t *testing.T) {
			require.Error(t, scripted(t, marked(answers)).SetMany(ctx, testItems(0, 2, 'a')))
		})
	}
}

// FuzzAnswers reads whatever bytes: no panic, and a value is visited only if it
// stands there with its length.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{"$1\r\na\r\n$-1\r\n" + end, "$-1\r\n$-1\r\n" + end, "-WRONGTYPE x\r\n$0\r\n\r\n" + end, "*2\r\n+OK\r\n$3\r\nabc\r\n" + end, "_\r\n|1\r\n+a\r\n+b\r\n$1\r\nx\r\n" + end} {
		f.Add([]byte(marked(seed)))
	}
	f.Fuzz(func(t *testing.T, answers []byte) {
		ctx := context.Background()
		c := scripted(t, string(answers))
		k := c.newChunk() // one request, without the tries that a call makes
		k.begin(2)
		for i, key := range testKeys(2) {
			k.add(i, &key)
		}
		k.reset()
		if k.askNode(ctx) == nil {
			_ = k.visit(ctx, func(_ int, value []byte) error {
				if value != nil && !bytes.Contains(answers, value) {
					t.Errorf("%q is visited", value)
				}
				return nil
			}, new(plan))
		}
		b := &batch{}
		b.fill(c, nil, testItems(0, 2, 'a'), nil)
		if err := b.send(ctx, true); err == nil && !bytes.Contains(answers, []byte("*2\r\n+OK\r\n+OK\r\n")) {
			t.Error("stored")
		}
	})
}

// A proxy that repeats parts of answers, changes bytes or drops them: a value that
// was repeated never comes out under another key, a Client over the cache gets only
// right vectors, and everything ends.
func TestProxyThatRepeatsAndCorrupts(t *testing.T) {
	needServer(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx := context.Background()
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 2))
	changes := 0
	chance := func(n int) bool {
		mu.Lock()
		defer mu.Unlock()
		yes := random.IntN(n) == 0
		if yes {
			changes++
		}
		return yes
	}
	place := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
	mangles := map[string]func(answer []byte) []byte{
		"repeats": func(answer []byte) []byte {
			if !chance(4) {
				return answer
			}
			// Whole answers too, so that only the mark shows it.
			at := bytes.Index(answer, []byte("\r\n$"))
			if end := bytes.LastIndex(answer, []byte("\r\n$")); at >= 0 && end > at && chance(2) {
				return append(append(bytes.Clone(answer[:end+2]), answer[at+2:end+2]...), answer[end+2:]...)
			}
			return append(bytes.Clone(answer), answer[place(len(answer)):]...)
		},
		"corrupts": func(answer []byte) []byte {
			if chance(4) {
				answer[place(len(answer))] ^= byte(1 << place(8))
			}
			return answer
		},
		"drops": func(answer []byte) []byte {
			if !chance(4) {
				return answer
			}
			at := place(len(answer))
			return append(bytes.Clone(answer[:at]), answer[min(len(answer), at+1+place(20)):]...)
		},
	}
	for name, mangle := range mangles {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, sharedServer(t).addr)
			c := openOn(t, p.addr(), Options{Timeout: 200 * time.Millisecond, ChunkKeys: 16})
			const n = 300
			require.NoError(t, openOn(t, sharedServer(t).addr, Options{}).SetMany(ctx, testItems(0, n, 'a')))
			p.mangle.Store(&mangle)
			changes = 0
			for range 10 {
				_ = c.GetMany(ctx, testKeys(n), func(i int, value []byte) error {
					if name == "repeats" && !bytes.Equal(value, testValue(i, 'a')) {
						t.Errorf("index %d has the value %q", i, value)
					}
					return nil
				})
			}
			mu.Lock()
			require.Positive(t, changes, "the proxy did nothing")
			mu.Unlock()

			provider := hashing.New(&hashing.Options{Dimensions: 64})
			plain, err := embed.New(provider, nil)
			require.NoError(t, err)
			defer plain.Close()
			client, err := embed.New(provider, &embed.Options{Cache: c})
			require.NoError(t, err)
			defer client.Close()
			texts := []string{"one text", "another text", "a third one", "and so on"}
			want, err := plain.Embed(ctx, texts)
			require.NoError(t, err)
			for range 5 {
				got, err := client.Embed(ctx, texts)
				require.NoError(t, err)
				for i := range texts {
					require.Equal(t, want.Vector(i), got.Vector(i))
				}
			}
			p.restore()
			p.closeLinks()
			require.Eventually(t, func() bool { return c.GetMany(ctx, testKeys(1), none) == nil }, 5*time.Second, time.Millisecond)
		})
	}
}
