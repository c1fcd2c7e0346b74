package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/backend/s3"
	"github.com/embedonce/embedonce/backend/tiered"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/hashing"
)

// work is one worker: it embeds its texts through its memory and the shared bucket,
// and says what it had to pay for.
func work(ctx context.Context, number, url string, stdout io.Writer) (err error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("the number of the worker: %w", err)
	}
	bucket, err := s3.Open(url, nil)
	if err != nil {
		return err
	}
	fast, err := memory.New(&memory.Options{MaxBytes: 64 << 20})
	if err != nil {
		return errors.Join(err, bucket.Close())
	}
	cache, err := tiered.New(fast, bucket, nil)
	if err != nil {
		return errors.Join(err, fast.Close(), bucket.Close())
	}
	defer func() { err = errors.Join(err, cache.Close()) }()
	// The provider works offline; openai.New("text-embedding-3-small", nil) would ask
	// an API that has to be paid.
	client, err := embed.New(hashing.New(nil), &embed.Options{Cache: cache})
	if err != nil {
		return err
	}
	defer client.Close()

	hits, misses := 0, 0
	for range 2 { // the second time from memory
		for _, part := range texts(n) {
			response, err := client.Embed(ctx, part)
			if err != nil {
				return err
			}
			hits, misses = hits+response.Usage.Hits, misses+response.Usage.Misses
		}
	}
	requests := bucket.Counters()
	_, err = fmt.Fprintf(stdout, "  worker %d: %d lookups, %d hits, %d misses; %d PUTs, %d LISTs, %d GETs\n", n, hits+misses, hits, misses, requests.Puts, requests.Lists, requests.Gets)
	return err
}

// texts are those of worker n, in three parts: what the next worker has to embed too,
// what it has for itself, and what the one before has begun with.
func texts(n int) [3][]string {
	var parts [3][]string
	for i := range 300 {
		parts[0] = append(parts[0], fmt.Sprintf("Passage %d, which workers %d and %d have to embed.", i, n, n+1))
		parts[1] = append(parts[1], fmt.Sprintf("Passage %d, which worker %d alone has to embed.", i, n))
		parts[2] = append(parts[2], fmt.Sprintf("Passage %d, which workers %d and %d have to embed.", i, n-1, n))
	}
	return parts
}
