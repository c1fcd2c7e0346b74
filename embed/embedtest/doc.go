// Package embedtest helps to test code that embeds texts, without a network, a
// key or a bill: [Provider] is an [embed.Provider] in memory, and [Server] an
// OpenAI-compatible HTTP server on the loopback interface, like those of
// net/http/httptest. Both check the same limits, follow the same script of
// faults and keep the same log of requests, so that a test written for one says
// something about the other.
//
// The vectors are a function of the text, the model, the dimensions and every
// parameter that could change a vector, and of nothing else. [CheckVectors]
// therefore notices each swap, each vector of a neighbour, and each vector from
// another model or of another length.
//
// A Provider starts no goroutine, and waits with timers and contexts only: it
// works inside testing/synctest. Neither needs a [testing.TB]: both serve
// examples and benchmarks as well.
package embedtest
