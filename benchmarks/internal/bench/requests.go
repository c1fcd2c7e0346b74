package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/embedonce/embedonce/embed"
)

// TextsOfRequest is about as many texts as the limit of 300,000 tokens lets a Client
// put into one request to a Server.
const TextsOfRequest = 1500

// Ask sends texts to a provider by hand, and nothing else: in requests of at most so
// many items, of which so many are under way at once. It is the floor of a call that
// finds nothing. The vectors are dropped.
func Ask(ctx context.Context, provider embed.Provider, texts []string, items, atOnce int) error {
	requests := slices.Collect(slices.Chunk(texts, items))
	errs := make([]error, len(requests))
	var sent atomic.Int64
	var all sync.WaitGroup
	for range min(atOnce, len(requests)) {
		all.Go(func() {
			for {
				k := int(sent.Add(1)) - 1
				if k >= len(requests) {
					return
				}
				answer, err := provider.Embed(ctx, requests[k])
				if err == nil && len(answer.Vectors) != len(requests[k]) {
					err = fmt.Errorf("%d vectors for %d texts", len(answer.Vectors), len(requests[k]))
				}
				errs[k] = err
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Check returns an error unless a call went well and had so many hits: a figure of
// any other call would mean something else.
func Check(response *embed.Response, err error, hits int) error {
	switch {
	case err != nil:
		return err
	case response.CacheErr != nil:
		return response.CacheErr
	case response.Usage.Hits != hits:
		return fmt.Errorf("%d hits in a call of %d texts, not %d", response.Usage.Hits, response.Len(), hits)
	}
	return nil
}
