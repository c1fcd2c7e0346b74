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
// The openai package knows how long the vectors of OpenAI's models are, and a Client
// refuses others: with the name of one, set Options.Dimensions to that, such as 1536
// for text-embedding-3-small. [IsVectorOf] and [CheckVectors] are about DefaultModel: for
// another one use the methods of [Space].
//
// Words are counted in place of tokens unless Options.Tokenizer says otherwise: with
// openai.CL100K() the fake bills what Client.Plan counts for OpenAI's models. At an
// address that it doesn't know, the openai package sends 32 texts a request: see
// openai.Options.Limits.
//
// A Provider starts no goroutine, and waits with timers and contexts only: it
// works inside testing/synctest. Neither needs a [testing.TB]: both serve
// examples and benchmarks as well.
package embedtest
