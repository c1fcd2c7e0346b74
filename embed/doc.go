// Package embed turns texts into vectors and pays for each of them once: it keeps
// what a provider was paid for in a cache of the user's choice, and serves from
// there what it has seen before.
//
//	cache, err := sqlite.Open("vectors.db", nil)
//	client, err := embed.New(openai.New("text-embedding-3-small", nil), &embed.Options{Cache: cache})
//	res, err := client.Embed(ctx, texts)
//	vector := res.Vector(0)
//
// A [Client] joins a [Provider], which knows one embedding API, with a
// [backend.Cache], which knows one kind of store. It collapses repeated texts,
// looks up the others, packs what is missing into requests up to the provider's
// limits, retries what failed for a passing reason, binds each vector to its
// text, and stores it before it returns.
//
// # No wrong vector
//
// An entry of the cache counts only if it is whole and says that it belongs to
// this text, this model and these settings. Anything else is a miss: it is
// counted by its reason in Usage.Foreign, and overwritten. An answer of a provider
// counts only if each of its vectors can be bound to its text.
//
// # Nothing paid for is lost
//
// A request that was sent may be billed. It runs to its end when its caller
// leaves, and each answer is stored as soon as it is there, whatever happens to
// the rest of the call. A cache that can't be read or written costs money, but no
// vector: see Response.CacheErr and Options.Strict.
package embed
