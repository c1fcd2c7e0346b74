// Package backend is what the author of a cache implements, and all that the
// embed package knows of one: the [Cache] interface, its errors, and [Info],
// in which a cache says what it can promise.
//
// A cache stores opaque values under opaque 32-byte keys. It knows nothing of
// texts, vectors or providers, and it never has to judge a value: the caller's
// visit function does that, and says [ErrForeign] when an entry is not its own.
//
// The rules are numbered in the documentation of [Cache]. Package conformance
// checks every one of them, on any implementation.
//
// A small cache needs three things from this package: [Info.Check] at the top
// of SetMany, [BufferedTxn] as the body of Txn, and the errors.
package backend
