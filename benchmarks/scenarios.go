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
	{"misses", "Calls of 16 texts that find nothing, 50 ms a request, 1 to 32 goroutines: with a cache, without one, by hand.", misses},
	{"mixed", "One call of 4,096 texts of which 0 to 100 % are cached, 20 ms a request, and the latest tick meanwhile.", mixed},
	{"concurrent", "Calls of 128 cached texts, 1 to 256 at once: the time of each, one client and four on one store.", concurrent},
	{"collapse", "Hits by 1 to 32 goroutines on sqlite and bolt, with each suspect changed: handles, maps, page cache, journal, shards.", collapse},
	{"stream", "A stream beside one call with the same texts, and how far the heap grows.", stream},
	{"neighbours", "What a 5 ms ticker, callers of one text and 16 hit callers feel of calls of 64 to 4,096 texts.", neighbours},
	{"batches", "One call of 41 requests of 50 ms, by how many are under way at once: 1 to 50.", batches},
	{"processes", "Hits and writes of 1, 2 and 4 processes on one sqlite file, beside as many goroutines.", processes},
	{"workers", "One call of 4,096 hits by the readers it has and by what each lookup waits: 0, 0.5, 2 and 10 ms.", workers},
	{"writes", "A response stored in one transaction against one for each entry, in stores of up to 1.5 GB, and reads meanwhile.", writes},
	{"lifecycle", "Opening, first call, second call and closing of each backend: 1,000 to 100,000 entries.", lifecycle},
	{"tokens", "Counting tokens: 128 to 4,096 texts of 740 bytes by 1 to 8 goroutines, and runs of 1 MB of one kind.", tokens},
	{"parse", "Decoding answers of 16 to 2,048 vectors, as base64 and as numbers.", parsing},
	{"breakdown", "Where a call of 512 hits spends its time: digests, lookup, copy, checks, rest.", breakdown},
}
