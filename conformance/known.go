package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
)

// wordProvider is a model whose vectors are a function of the text and of the
// model's name, so that any swap is seen.
type wordProvider struct {
	model      string
	dimensions int
}

func (p wordProvider) Spec() (embed.Spec, error) {
	return embed.Spec{Identity: "https://conformance.invalid/v1", Model: p.model, ModelDimensions: p.dimensions}, nil
}

func (p wordProvider) Embed(_ context.Context, texts []string) (*embed.Answer, error) {
	answer := &embed.Answer{Model: p.model, Tokens: len(texts)}
	for i, text := range texts {
		answer.Vectors = append(answer.Vectors, p.vector(text))
		answer.Index = append(answer.Index, i)
	}
	return answer, nil
}

func (p wordProvider) vector(text string) []float32 {
	seed := sha256.Sum256([]byte(p.model + "\x00" + text))
	vector := make([]float32, p.dimensions)
	for i, b := range payload(seed, 0, p.dimensions) {
		vector[i] = float32(b)/256 - 0.4
	}
	vector[0] += 2 // never the zero vector
	return vector
}

// collector is a cache that keeps nothing but what it was given to store.
type collector struct {
	mu    sync.Mutex
	items []backend.Item
}

func (c *collector) GetMany(_ context.Context, keys []backend.Key, visit func(int, []byte) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range keys { // the client reads back its first batch
		if at := slices.IndexFunc(c.items, func(item backend.Item) bool { return item.Key == k }); at >= 0 {
			if err := visit(i, c.items[at].Value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *collector) SetMany(_ context.Context, items []backend.Item) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.items = append(c.items, cloneItems(items)...)
	return nil
}

func (c *collector) Txn(ctx context.Context, fn func(tx backend.Txn) error) error {
	return backend.BufferedTxn(ctx, c, fn)
}

func (c *collector) Info() backend.Info { return backend.Info{Atomic: true} }
func (c *collector) Close() error       { return nil }

// records returns the records that a client of p stores for texts, in their
// order.
func (e *env) records(texts []string, p wordProvider) []backend.Item {
	var seen collector
	client, err := embed.New(p, &embed.Options{Cache: &seen})
	if err != nil {
		e.Fatalf("make a client: %v", err)
	}
	e.Cleanup(func() { _ = client.Close() })
	if _, err := client.Embed(e.ctx, texts); err != nil {
		e.Fatalf("embed without a store: %v", err)
	}
	// A record holds the text's digest, design 2.3.
	byDigest := make(map[string]backend.Item)
	for _, item := range seen.items {
		byDigest[string(item.Value[24:56])] = item
	}
	items := make([]backend.Item, len(texts))
	for i, text := range texts {
		digest := sha256.Sum256([]byte(text))
		item, ok := byDigest[string(digest[:])]
		if !ok {
			e.Fatalf("the client stored no record of text %d", i)
		}
		items[i] = item
	}
	return items
}

// known is a store that holds the vectors of knownTexts texts, and a client over it.
type known struct {
	e        *env
	location string
	cache    backend.Cache
	provider wordProvider
	client   *embed.Client
	texts    []string
	items    []backend.Item // the record of each text
	// older says whether the store offers what was overwritten when visit declines
	// the new value (G6).
	older, asked bool
}

const (
	foreignGroup = 8                      // bad entries that are stored in one batch
	knownTexts   = 512 + foreignGroup - 1 // a call without the others of a group has 512
)

func (e *env) newKnown() *known {
	k := &known{e: e, provider: wordProvider{model: "words", dimensions: 16}}
	for i := range knownTexts {
		k.texts = append(k.texts, fmt.Sprintf("text %d of seed %d", i, e.seed))
	}
	k.items = e.records(k.texts, k.provider)
	if limit := e.s.Want.MaxValueBytes; limit > 0 && limit < 1200 {
		e.Skipf("Info.MaxValueBytes is %d, and the records of this case are longer", limit)
	}
	k.location = e.location()
	k.cache = e.open(k.location)
	e.set(k.cache, k.items)
	var err error
	if k.client, err = embed.New(k.provider, &embed.Options{Cache: k.cache}); err != nil {
		e.Fatalf("make a client: %v", err)
	}
	e.Cleanup(func() { _ = k.client.Close() })
	return k
}

// offersOlder says whether c keeps what was overwritten, and offers it.
func (e *env) offersOlder(c backend.Cache) bool {
	keys := e.keys("overwritten", 1)
	old := e.batch(keys, 1)
	e.set(c, old)
	e.set(c, e.batch(keys, 2))
	visits, offered := 0, false
	err := c.GetMany(e.ctx, keys, func(_ int, value []byte) error {
		visits++
		offered = offered || bytes.Equal(value, old[0].Value)
		e.check(visits <= 16, "G6", "GetMany of a key whose values are declined", "an end of the values that are offered", "16 visits")
		return backend.ErrForeign
	})
	e.check(err == nil, "G6", "GetMany of a key whose values are declined", "nil", errText(err))
	return offered
}

// put stores bad entries so that nothing good is behind them.
func (k *known) put(items []backend.Item) {
	e := k.e
	if !k.asked {
		k.older, k.asked = e.offersOlder(k.cache), true
	}
	if k.older {
		e.needDelete(k.cache)
		_, err := backend.Delete(e.ctx, k.cache, keysOf(items), nil)
		e.check(err == nil, "D1", "Delete of what is to be replaced by foreign entries", "nil", errText(err))
	}
	e.set(k.cache, items)
}

// badEntry is a value in place of the record of text at.
type badEntry struct {
	what   string
	at     int
	value  []byte
	reason string
}

// replaceEach puts bad entries in place of records, and looks at each alone among
// the good ones, in a call that heals nothing; then a call heals a whole group.
func (k *known) replaceEach(bad []badEntry) {
	e := k.e
	for group := range slices.Chunk(bad, foreignGroup) {
		var items []backend.Item
		all := make(map[int]string)
		for _, b := range group {
			items = append(items, backend.Item{Key: k.items[b.at].Key, Value: b.value})
			all[b.at] = b.reason
		}
		k.put(items)
		for _, b := range group {
			k.call(b.what, all, func(at int) bool { _, other := all[at]; return at == b.at || !other }, true)
		}
		what := fmt.Sprintf("%d foreign entries, the first of them %s", len(group), group[0].what)
		k.embed(what, all)
		for i, value := range e.read(k.cache, keysOf(items)) {
			// Creation times differ.
			good := k.items[group[i].at].Value
			e.check(len(value) == len(good) && bytes.Equal(value[24:], good[24:]), "S2", "Embed of a text with "+group[i].what+" in the store",
				"a good record in its place", fmt.Sprintf("%d other bytes", len(value)))
		}
		k.embed("the same texts after "+what, nil)
	}
}

// replace puts value in place of the record of text at, and looks at the client.
func (k *known) replace(what string, at int, value []byte, reason string) {
	k.put([]backend.Item{{Key: k.items[at].Key, Value: value}})
	k.seeMiss(what, at, reason)
}

// seeMiss checks that text at is a miss, for that reason, and healed by it.
func (k *known) seeMiss(what string, at int, reason string) {
	k.embed(what, map[int]string{at: reason})
	k.embed("the same text after "+what, nil)
}

// embed asks the client for all texts. bad has the texts that must be misses,
// with the reasons; every other one must be a hit, every vector right.
func (k *known) embed(what string, bad map[int]string) {
	k.call(what, bad, func(int) bool { return true }, false)
}

// call is embed for the texts that ask wants; with readOnly it heals nothing.
func (k *known) call(what string, bad map[int]string, ask func(at int) bool, readOnly bool) {
	e := k.e
	var texts []string
	reasons := make(map[string]int)
	misses := 0
	for at, text := range k.texts {
		if !ask(at) {
			continue
		}
		texts = append(texts, text)
		if reason, ok := bad[at]; ok {
			reasons[reason]++
			misses++
		}
	}
	action := fmt.Sprintf("Embed of %d stored texts, with %s", len(texts), what)
	response, err := k.client.Do(e.ctx, &embed.Call{Texts: texts, NoStore: readOnly})
	e.check(err == nil, "G6", action, "nil", errText(err))
	e.check(response.CacheErr == nil, "G6", action, "no error of the cache", errText(response.CacheErr))
	for i, text := range texts {
		e.check(slices.Equal(response.Vector(i), k.provider.vector(text)), "G4", action, "the right vector for each text", fmt.Sprintf("another one for text %d", i))
	}
	u := response.Usage
	e.check(u.Hits == len(texts)-misses, "G6", action, fmt.Sprintf("%d hits", len(texts)-misses), fmt.Sprintf("%d", u.Hits))
	e.check(u.Misses == misses, "G4", action, fmt.Sprintf("%d misses", misses), fmt.Sprintf("%d", u.Misses))
	rule := "G4"
	if _, native := reasons["unreadable"]; native {
		rule = "G5"
	}
	e.check(fmt.Sprint(u.Foreign) == fmt.Sprint(reasons), rule, action, fmt.Sprintf("foreign entries by reason: %v", reasons), fmt.Sprint(u.Foreign))
}
