package hashing_test

import (
	"context"
	"fmt"

	"github.com/embedonce/embedonce/embed/hashing"
)

// Vectors without a key or a network. What counts is shared words and parts of
// words, not meaning.
func Example() {
	texts := []string{
		"read a JSON file",
		"ReadFile reads the named file",
		"a decoder for JSON values",
		"plays music in the background",
	}
	answer, err := hashing.New(nil).Embed(context.Background(), texts)
	if err != nil {
		panic(err)
	}
	query := answer.Vectors[0]
	for i, v := range answer.Vectors[1:] {
		var cosine float64
		for d := range v {
			cosine += float64(v[d]) * float64(query[d])
		}
		fmt.Printf("%.2f %s\n", cosine, texts[i+1])
	}
	fmt.Println(len(query), "dimensions,", answer.Tokens, "words")
	// Output:
	// 0.57 ReadFile reads the named file
	// 0.32 a decoder for JSON values
	// -0.08 plays music in the background
	// 512 dimensions, 19 words
}
