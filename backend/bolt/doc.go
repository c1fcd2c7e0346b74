// Package bolt is a [backend.Cache] in one bbolt file, in pure Go. One process at
// a time may have the file open for writing, through one handle; reading is as
// fast as memory.
//
//	cache, err := bolt.Open("vectors.bolt", nil)
//
// Package backend/sqlite is the one for several processes. Its files have another
// format: Open refuses one with [backend.ErrCorrupt]. [backend.Copy] takes the vectors
// along.
//
// # The file
//
// The file is made with mode 0600, in its place at once and whole. It has two
// buckets: "embedonce", where "layout" tells the version of the layout, and
// "entries", with the values under their keys of 32 bytes. Other buckets are left
// alone. In "entries" another program may put anything: a bucket under a key is
// visited as nil (rule G5), and the next write replaces it.
//
// bbolt locks the file from Open to Close. A second handle, in this process or
// another, is refused with [backend.ErrUnavailable] after Options.LockTimeout. Any
// number of handles with Options.ReadOnly may share the file when nobody has it
// open for writing. Do not put the file on a network file system: its locks are
// not reliable there. On Solaris, AIX and Android the locks of bbolt don't hold
// between two handles of one process; don't open a file twice there.
//
// The file grows in steps of 16 MiB, of which the disk stores what is used, where
// its file system has sparse files.
//
// # What survives
//
// A batch is one transaction, or a part of one that it shares with batches of
// other goroutines. By default it is synced to the disk before it is acknowledged
// and survives a power failure. With Options.NoSync it survives the end of the
// process, and a power failure may cost the whole file.
//
// # Waiting
//
// SetMany waits for the commit that is under way, and shares the next one with
// all that wait. When its context ends it leaves: a batch that still waits is not
// stored, one that is being written may be.
//
// GetMany waits for nobody as long as the file is smaller than Options.MapBytes. A
// visit that takes long keeps the pages that are overwritten meanwhile from being
// used again, so that the file grows; it holds nobody up. When the file outgrows
// the map, the commit waits for every GetMany that is running, and those that
// begin wait for the commit, all of them at most until their contexts end or
// Options.StallTimeout is over.
//
// Close waits for calls and for commits, also those whose callers have left.
//
// # Damage
//
// bbolt has no checksums but on its two meta pages. Open checks these, the list of
// free pages, that the file is as long as it says, and the layout. On a damaged
// page GetMany leaves out the entries it can't read, visits the others, and returns
// [backend.ErrCorrupt] at the end; panics of bbolt, and faults of the map where a
// file was truncated or a disk fails, come out as the same error. A batch that
// meets a damaged page is not stored.
//
// What can't be caught: a fault inside visit, when the file is truncated at that
// moment, is a panic. A branch page that leads back to itself ends the process (a
// stack overflow inside bbolt): a flipped bit in a page number can make one. Damage
// that looks like another valid page is not seen here, where embed's records have
// checksums, and neither is a list of free pages that names one in use. The command
// "bbolt check" of the bbolt project checks a whole file: run it on a file that
// returned ErrCorrupt before you go on with it.
//
// # Space
//
// Pages of overwritten and deleted entries are used again, but the file never gets
// shorter: this Cache is no [backend.Compacter]. [Rewrite] writes a file without
// free pages, while nobody has it open for writing:
//
//	if err := bolt.Rewrite(ctx, "vectors.bolt", "vectors.new", nil); err != nil {
//		return err
//	}
//	return os.Rename("vectors.new", "vectors.bolt")
//
// It pays when FreeBytes in [backend.Stats] is a large part of Bytes, after many
// deletions.
//
// # Handles that are dropped
//
// A goroutine runs only while there is something to write. A Cache that is dropped
// without Close loses nothing that was acknowledged, but the file stays open, and
// locked, until the process ends.
package bolt
