// Package s3 is a [backend.Cache] in a bucket of Amazon S3, or of a server that
// speaks its protocol, for any number of machines.
//
//	cache, err := s3.Open("s3://bucket/prefix", nil)
//
// One object for each vector would cost more to write than to embed the text again.
// So a batch, or what several callers want to store at the same time, is one object,
// a segment; and what was written together is read together.
//
// # What is in the bucket
//
// Under the prefix, s/ has a segment for each PUT of a writer, and c/ one for each
// that [Cache.Compact] has made of others. Nothing is ever changed: a segment that was
// replaced is deleted. There is no other state, no lock and no manifest, so that every
// program can stop at any moment. Objects that are no segments, are damaged or are of a
// later version are left alone and counted (see [Counters]); a listing has to go over
// them, so give the cache a prefix of its own.
//
// The permissions that it needs are s3:ListBucket on the bucket, and s3:GetObject,
// s3:PutObject and s3:DeleteObject (for Compact) on the prefix; s3:GetObject and
// s3:ListBucket suffice with Options.ReadOnly. Let a lifecycle rule of the bucket end
// multipart uploads that were not completed. With versioning, what Compact deletes stays
// until a rule expires it.
//
// # Memory
//
// Open reads the indexes, 36 bytes a key, and keeps 20 to 24.4 bytes of memory a key.
// Values are not kept: put backend/memory or backend/sqlite over this one with
// backend/tiered where the same texts come again. A call takes 256 KiB for each request
// that it has under way, and for values that are longer as much as one of them.
//
// # What others see
//
// A handle sees what it wrote itself at once, and what others wrote within
// Options.Freshness, 10 seconds by default: the store is listed at most once in this
// time, when something is read. Where the listing fails, GetMany visits what it knows
// and returns an error, since *missing* and *can't tell* are two answers.
//
// Of two records of one key, the one with the later stamp counts: the time of its
// writer, or more than any that its writer knew. Where two machines whose clocks
// differ write one key within Options.Freshness, that can be the one that was written
// first. embed's values of one key are interchangeable.
//
// One call looks at one moment of what its handle knows. While a call runs for longer
// than Options.Grace, and somebody compacts the store, it may find newer values instead
// (rule S10 holds for calls that are shorter).
//
// # Durability
//
// A batch is acknowledged when the server has. What that means is the server's
// business: Amazon S3 stores it in several places first.
//
// # Deleting
//
// [Cache.Delete] writes tombstones, so that no value is visible any more. The bytes
// leave the bucket with the first Compact after that which joins their segment, when
// Options.Grace is over: run it until [Cache.Stats] says that FreeBytes is 0 to be sure.
// Only the digest of the text, and its tombstone, stay for seven days longer.
//
// # Background
//
// Nothing runs unasked. Compact is for a cron job: once a day where there are many
// small writes, else once a month. A write goes on for as long as Options.Timeout after
// its caller has left, and Close waits for it.
//
// # Errors
//
// They say which permission is missing, that the bucket is, that it is in another
// region, or that the clock of this machine is wrong. They have the server's code and the
// number of the request, and none of its prose: no name of an object, no credential.
package s3
