package embedtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
)

// A Provider that refuses the first request and shuffles the second.
func ExampleProvider() {
	p := embedtest.NewProvider(&embedtest.Options{
		Limits: embed.Limits{Items: 2048},
		Faults: []embedtest.Fault{embedtest.RateLimited(time.Second), {Shuffle: true}},
	})
	texts := []string{"first text", "second text"}

	_, err := p.Embed(context.Background(), texts)
	var refused *embed.ProviderError
	fmt.Println(errors.As(err, &refused) && refused.Transient, err)

	answer, err := p.Embed(context.Background(), texts)
	if err != nil {
		panic(err)
	}
	for i, v := range answer.Vectors {
		fmt.Println("text", answer.Index[i], embedtest.IsVectorOf(texts[answer.Index[i]], v))
	}
	fmt.Println(p.Requests(), "requests,", p.BilledTokens(), "tokens")
	// Output:
	// true provider answered status 429, code rate_limit_exceeded, type requests, retry after 1s
	// text 1 true
	// text 0 true
	// 2 requests, 4 tokens
}

// A Server works outside of tests, too.
func ExampleServer() {
	server := embedtest.NewServer(&embedtest.Options{Dimensions: 2})
	defer server.Close()

	response, err := http.Post(server.BaseURL+"/embeddings", "application/json",
		strings.NewReader(`{"model": "embedtest", "input": "some text"}`))
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		panic(err)
	}
	fmt.Print(string(body))
	// Output:
	// {
	//   "object": "list",
	//   "data": [
	//     {
	//       "object": "embedding",
	//       "index": 0,
	//       "embedding": [
	//         0.6860483884811401,
	//         7.275558710098267e-01
	//       ]
	//     }
	//   ],
	//   "model": "embedtest",
	//   "usage": {
	//     "prompt_tokens": 2,
	//     "total_tokens": 2
	//   }
	// }
}
