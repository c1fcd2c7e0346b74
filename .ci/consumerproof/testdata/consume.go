package main

import (
	"context"
	"fmt"
	"log"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/hashing"
)

// consume embeds texts twice through the cache, and prints how many of them got
// a vector and how many of those came from the cache.
func consume(name string, cache backend.Cache, err error) {
	if err != nil {
		log.Fatal(err)
	}
	client, err := embed.New(hashing.New(nil), &embed.Options{Cache: cache})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		res, err := client.Embed(context.Background(), []string{"read a file", "write a file", "open a socket"})
		if err != nil {
			log.Fatal(err)
		}
		vectors := 0
		for i := range res.Len() {
			if len(res.Vector(i)) == res.Dimensions() && res.Dimensions() > 0 {
				vectors++
			}
		}
		fmt.Printf("%s: %d vectors, %d hits\n", name, vectors, res.Usage.Hits)
	}
	if err := client.Close(); err != nil {
		log.Fatal(err)
	}
	if err := cache.Close(); err != nil {
		log.Fatal(err)
	}
}
