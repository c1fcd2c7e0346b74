package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/embed/embedtest"
)

const (
	model        = "text-embedding-3-small"
	dimensions   = 1536 // of that model
	wordsPerText = 180
)

// words are short ones, so that a text has about as many bytes and tokens as
// those of the predecessor's own measurements: 740 and 185.
var words = []string{
	"a", "all", "an", "and", "answer", "are", "as", "at", "be", "before", "but",
	"by", "can", "every", "for",
	"had", "has", "if", "in", "is", "it", "keep", "key", "no", "not", "of", "on",
	"once", "one", "or", "out", "paid", "row", "so", "text", "that", "the", "to",
	"twice", "up", "vector", "was", "we", "what", "wrong",
}

// makeTexts returns n texts of 180 words, no two of them equal: the same ones
// for the same seed.
func makeTexts(n int, seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 1))
	texts := make([]string, n)
	for i := range texts {
		text := fmt.Appendf(nil, "number %d", i)
		for range wordsPerText - 2 {
			text = append(append(text, ' '), words[r.IntN(len(words))]...)
		}
		texts[i] = string(text)
	}
	return texts
}

// api is the fake provider that all contestants pay, with one address for all
// cases: it is part of the predecessor's keys.
type api struct {
	*embedtest.Server
	latency atomic.Int64
}

func newAPI() *api {
	a := &api{}
	a.Server = embedtest.NewServer(&embedtest.Options{
		Dimensions: dimensions,
		NoLog:      true,
		FaultFunc: func(int, embedtest.Request) embedtest.Fault {
			return embedtest.Fault{Delay: time.Duration(a.latency.Load())}
		},
	})
	return a
}

// setLatency is for the requests that come from now on.
func (a *api) setLatency(d time.Duration) { a.latency.Store(int64(d)) }

// wanted is the digest of the right vectors of texts.
func wanted(texts []string) string {
	h := sha256.New()
	var raw []byte
	for _, text := range texts {
		raw, _ = binary.Append(raw[:0], binary.LittleEndian, embedtest.Space{Model: model}.Vector(text, dimensions))
		h.Write(raw)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// digest is that of the vectors in matrix.
func digest(matrix []float32) string {
	raw, _ := binary.Append(make([]byte, 0, 4*len(matrix)), binary.LittleEndian, matrix)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}
