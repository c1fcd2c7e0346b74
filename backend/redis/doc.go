// Package redis is a [backend.Cache] on a Redis or Valkey server that any number of
// machines share: one server, one that Sentinel watches, or a cluster. It is built on
// go-redis v9.
//
//	cache, err := redis.Open("redis://user:password@host:6379/0", nil)
//	cache, err := redis.New(client, nil) // over a client that you have already
//
// # What is stored
//
// Each entry is one string: its key is Options.Prefix and the 32 bytes of the
// [backend.Key], its value the bytes given. What another program puts there under such
// a key is visited too: a value of another type, or a string of more than 16 MiB, as
// nil, a string of no bytes as an empty value (rule G5).
//
// # Batches
//
// On one server, and in a cluster where Options.Prefix has a hash tag, SetMany is one
// MULTI ... EXEC in one request, stored whole or not at all. In a cluster without a
// hash tag the entries of a batch are on all nodes: Info.Atomic is false, each node
// gets its part, and a *[backend.BatchError] names what is not known to be stored. A
// hash tag keeps the whole cache on one node.
//
// An answer that gets lost is an error of the call, never a success, and the batch is
// not sent again: its caller can't know whether it is stored, and storing it again is
// always safe (rule S4). What a server refuses as a whole for a moment, such as while
// it loads its data or while a slot of a cluster moves, is sent again within half a
// second.
//
// # What survives
//
// Info.Durability is asked from the server, or from each master, when the cache is
// opened: with "appendonly yes" and "appendfsync always" an acknowledged batch
// survives a power failure of the server. Otherwise it is [backend.SurvivesCrash],
// which is the end of this process and says nothing of the server: without a log on
// its disk (appendonly no) the server loses with its own end what it has written since
// its last snapshot.
//
// Redis copies to its replicas after it has acknowledged: a master that fails may take
// acknowledged batches with it, and so may one that is cut off from the others and
// goes on for a while. Options.WaitReplicas asks for replicas that have the batch
// before it is acknowledged, which makes this far less likely, and not impossible.
//
// A server with maxmemory and an allkeys policy drops entries: Info.MayEvict says so,
// as it was when the cache was opened, and so does a TTL.
//
// # Waiting
//
// Each request of a call is bounded by Options.Timeout, and ends with
// [backend.ErrUnavailable]; a context that ends earlier ends the call at once with its
// own error. go-redis goes on to wait for an answer after a context was cancelled: the
// call doesn't, and a request that is under way ends by itself after Options.Timeout
// at the latest, or with Close. A write that was left is brought to its end like that,
// and the next one of the handle waits for it.
//
// After a server was down for long, go-redis looks once a second whether it is back.
//
// # Safety
//
// The last answer of each request repeats a number that was sent with it. If it does
// not, the answers are not those to what was asked, all of them are dropped, and the
// call returns an error. TLS (rediss) verifies the server. Errors hold neither keys nor
// values nor passwords: of what a server answers they show the first word alone, since
// the rest may quote what was sent.
//
// A user needs these permissions: GET, SET, MULTI, EXEC and ECHO; INFO and CONFIG GET
// for what Info says; WAIT for Options.WaitReplicas; SCAN, STRLEN, GETRANGE, EXISTS and
// MEMORY USAGE for Scan and Stats; UNLINK and EVAL for Delete; and CLUSTER in a cluster.
package redis
