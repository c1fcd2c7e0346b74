package embed_test

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/embedonce/embedonce/embed/hashing"
)

// The second call pays only for what the first one didn't see.
func Example() {
	cache, err := memory.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cache.Close()
	client, err := embed.New(hashing.New(nil), &embed.Options{Cache: cache})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	ctx := context.Background()
	for _, texts := range [][]string{{"one text", "another"}, {"another", "one text", "a third"}} {
		res, err := client.Embed(ctx, texts)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(res.Len(), "x", res.Dimensions(), "hits:", res.Usage.Hits, "misses:", res.Usage.Misses, "requests:", res.Usage.Requests)
	}
	// Output:
	// 2 x 512 hits: 0 misses: 2 requests: 1
	// 3 x 512 hits: 2 misses: 1 requests: 1
}

// A text that can't be embedded costs only itself.
func ExamplePartialError() {
	client, _ := embed.New(hashing.New(nil), nil)
	res, err := client.Embed(context.Background(), []string{"a text", "   "})

	var partial *embed.PartialError
	if errors.As(err, &partial) {
		for _, failure := range partial.Failures {
			fmt.Println(failure.Index, failure.Err)
		}
	}
	fmt.Println(res.Vector(0) != nil, res.Vector(1) != nil)
	// Output:
	// 1 text is blank
	// true false
}

// Cache-only calls are for programs that must not spend, such as tests in CI.
func ExampleClient_Do() {
	cache, _ := memory.New(nil)
	client, _ := embed.New(hashing.New(nil), &embed.Options{Cache: cache})

	_, err := client.Do(context.Background(), &embed.Call{Texts: []string{"never seen"}, CacheOnly: true})
	fmt.Println(errors.Is(err, embed.ErrNotCached))
	// Output: true
}

func ExampleClient_Stream() {
	client, _ := embed.New(hashing.New(nil), nil)
	rows := maps.All(map[string]string{"id-7": "a text"}) // or rows of a database, lines of a file

	stream := client.Stream(context.Background(), rows, nil)
	for item, err := range stream.All() {
		if err != nil {
			fmt.Println(item.ID, err)
			continue
		}
		fmt.Println(item.ID, len(item.Vector))
	}
	fmt.Println("requests:", stream.Usage().Requests)
	// Output:
	// id-7 512
	// requests: 1
}

func ExampleClient_Plan() {
	provider := embedtest.NewProvider(&embedtest.Options{
		EditSpec: func(s *embed.Spec) { s.DollarsPerMillion = 0.02 },
	})
	client, _ := embed.New(provider, nil)

	plan, err := client.Plan(context.Background(), []string{"three short words", "three short words", "two words"})
	fmt.Println(plan.Misses, plan.Deduplicated, plan.Requests, plan.Tokens, err)
	// Output: 2 1 1 5 <nil>
}

func ExampleClient_Rank() {
	client, _ := embed.New(hashing.New(nil), nil)
	docs := []string{"how to bake bread", "reading a file line by line", "the tides of the sea"}

	matches, err := client.Rank(context.Background(), "read lines of a file", docs, 1)
	fmt.Println(docs[matches[0].Index], err)
	// Output: reading a file line by line <nil>
}
