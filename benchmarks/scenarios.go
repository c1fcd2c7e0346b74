package main

import (
	"context"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// scenario is one thing that can be measured.
type scenario struct {
	name string
	// says in one sentence what is measured.
	says string
	run  func(ctx context.Context, r *bench.Run) error
}

// scenarios has all of them, in the order of "list".
var scenarios = []scenario{
	{"hits", "Calls whose texts are all cached: 1 to 4,096 texts a call, 1 to 32 goroutines, lent destination.", hits},
	{"raw", "Hits, misses and writes of each backend without a Client: 256 to 3,072 dimensions, 1,000 to 100,000 entries.", raw},
}
