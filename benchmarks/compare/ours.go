package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/bolt"
	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/backend/sqlite"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/openai"
)

// limits are those of OpenAI's API, which the server stands for. A server that is not
// known by its address gets requests of 32 texts.
var limits = embed.Limits{Items: 2048, Tokens: 300_000, TextTokens: 8192}

// ours is embedonce over one backend, with its default options.
type ours struct {
	backend  string
	syncless bool // writes are not synced to the disk, as the predecessor's are not
	texts    []string
	baseURL  string
	open_    func(dir string) (backend.Cache, error)
	memory   map[string]*memory.Cache // by folder, where that is the store
}

// newOurs is each backend; with normal, sqlite also as it writes without syncs.
func newOurs(texts []string, baseURL string, normal bool) []contestant {
	file := func(name string, open func(path string) (backend.Cache, error)) *ours {
		return &ours{backend: name, texts: texts, baseURL: baseURL,
			open_: func(dir string) (backend.Cache, error) { return open(filepath.Join(dir, "vectors")) }}
	}
	inMemory := &ours{backend: "memory", texts: texts, baseURL: baseURL, memory: make(map[string]*memory.Cache)}
	inMemory.open_ = inMemory.openMemory
	all := []contestant{
		file("sqlite", func(path string) (backend.Cache, error) { return sqlite.Open(path, nil) }),
		file("bolt", func(path string) (backend.Cache, error) { return bolt.Open(path, nil) }),
		inMemory,
	}
	if normal {
		syncless := file("sqlite (Normal)", func(path string) (backend.Cache, error) {
			return sqlite.Open(path, &sqlite.Options{Synchronous: sqlite.Normal})
		})
		syncless.syncless = true
		all = append(all, syncless)
	}
	return all
}

func (o *ours) name() string { return o.backend }

// openMemory returns a handle whose Close keeps the entries: this store lives as
// long as its folder.
func (o *ours) openMemory(dir string) (backend.Cache, error) {
	if o.memory[dir] == nil {
		cache, err := memory.New(&memory.Options{MaxBytes: 2 << 30})
		if err != nil {
			return nil, err
		}
		o.memory[dir] = cache
	}
	return o.memory[dir], nil
}

func (o *ours) copyStore(ctx context.Context, from, to string) error {
	if o.memory == nil {
		return copyFolder(from, to)
	}
	source, err := o.openMemory(from)
	if err != nil {
		return err
	}
	target, err := o.openMemory(to)
	if err != nil {
		return err
	}
	_, err = backend.Copy(ctx, source, target, nil)
	return err
}

func (o *ours) dropStore(dir string) {
	if cache := o.memory[dir]; cache != nil {
		cache.Close()
		delete(o.memory, dir)
	}
}

func (o *ours) open(_ context.Context, dir string, l layout) (session, error) {
	if l.processes != 1 {
		return nil, fmt.Errorf("%s: %d processes asked for, has 1", o.backend, l.processes)
	}
	cache, err := o.open_(dir)
	if err != nil {
		return nil, err
	}
	s := &ourSession{texts: o.texts, cache: cache, keep: o.memory != nil}
	for range l.clients {
		provider := openai.New(model, &openai.Options{BaseURL: o.baseURL, APIKey: "none", Limits: &limits})
		client, err := embed.New(provider, &embed.Options{Cache: cache})
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.clients = append(s.clients, client)
	}
	return s, nil
}

type ourSession struct {
	texts   []string
	cache   backend.Cache
	keep    bool // the cache is the store itself
	clients []*embed.Client
}

func (s *ourSession) run(ctx context.Context, w work) (outcome, error) {
	return drive(ctx, w, func(lane, start int) (int, []float32, error) {
		response, err := s.clients[lane%len(s.clients)].Embed(ctx, s.texts[start:start+w.perCall])
		if err != nil {
			return 0, nil, err
		}
		return response.Usage.Hits, response.Matrix(), response.CacheErr
	})
}

func (s *ourSession) close() error {
	for _, client := range s.clients {
		client.Close()
	}
	if s.keep {
		return nil
	}
	return s.cache.Close()
}

// control is no contestant: it digests the texts of each call 16 times and does
// nothing else. What becomes of its rate as callers are added is what the machine
// has to give.
type control struct{ texts []string }

func (*control) name() string                                    { return "control (CPU only)" }
func (*control) copyStore(context.Context, string, string) error { return nil }
func (*control) dropStore(string)                                {}
func (*control) close() error                                    { return nil }

func (c *control) open(context.Context, string, layout) (session, error) { return c, nil }

func (c *control) run(ctx context.Context, w work) (outcome, error) {
	return drive(ctx, w, func(_, start int) (int, []float32, error) {
		for _, text := range c.texts[start : start+w.perCall] {
			sum := sha256.Sum256([]byte(text))
			for range 15 {
				sum = sha256.Sum256(append(sum[:], text...))
			}
			if sum == ([32]byte{}) {
				return 0, nil, errors.New("a digest is zero")
			}
		}
		return w.perCall, nil, nil
	})
}
