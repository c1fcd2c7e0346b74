package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/embedonce/embedonce/backend/redis"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/hashing"
)

// work is one worker: it embeds its texts through the shared cache, and says what it
// had to pay for.
func work(ctx context.Context, number, url string, stdout io.Writer) (err error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("the number of the worker: %w", err)
	}
	cache, err := redis.Open(url, &redis.Options{Prefix: "embedonce-example:"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cache.Close()) }()
	// The provider works offline; openai.New("text-embedding-3-small", nil) would ask
	// an API that has to be paid.
	client, err := embed.New(hashing.New(nil), &embed.Options{Cache: cache})
	if err != nil {
		return err
	}
	defer client.Close()

	hits, misses, requests := 0, 0, 0
	for _, part := range texts(n) {
		response, err := client.Embed(ctx, part)
		if err != nil {
			return err
		}
		u := response.Usage
		hits, misses, requests = hits+u.Hits, misses+u.Misses, requests+u.Requests
	}
	_, err = fmt.Fprintf(stdout, "  worker %d: %d texts, %d hits, %d misses, %d requests\n", n, hits+misses, hits, misses, requests)
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
