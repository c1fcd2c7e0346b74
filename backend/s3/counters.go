package s3

// Counters is what a handle has done and met since it was opened.
type Counters struct {
	// Requests of each kind, tries that failed included. A PUT or LIST costs about
	// twelve times as much as a GET on Amazon S3; a DELETE costs nothing.
	Lists, Gets, Puts, Deletes int64
	// Retries is how many of them repeat one that failed.
	Retries int64
	// BytesRead and BytesWritten are of bodies.
	BytesRead, BytesWritten int64
	// Absorbed is how many writes were found stored although their answer was lost.
	Absorbed int64
	// Compacted is how many segments Compact has replaced.
	Compacted int64

	// Foreign is how many objects under the prefix were no segments, or damaged ones,
	// when all of it was listed last; Future, how many were of a later version of this
	// package. They are left alone.
	Foreign, Future int64
	// Mismatched is how many frames had another key than the index says.
	Mismatched int64
	// Lost is how many segments were deleted by somebody else.
	Lost int64

	// Segments and Entries are what is in the index now, and IndexBytes how much
	// memory the table of entries takes.
	Segments, Entries, IndexBytes int64
}

// Counters returns what this handle has done and met since it was opened.
func (c *Cache) Counters() Counters {
	n := &c.remote.counted
	v := c.view
	v.mu.RLock()
	defer v.mu.RUnlock()
	return Counters{
		Lists: n.lists.Load(), Gets: n.gets.Load(), Puts: n.puts.Load(), Deletes: n.deletes.Load(), Retries: n.retries.Load(),
		BytesRead: n.bytesRead.Load(), BytesWritten: n.bytesWritten.Load(), Absorbed: n.absorbed.Load(), Compacted: n.compacted.Load(),
		Foreign: n.foreign.Load(), Future: n.future.Load(), Mismatched: n.mismatched.Load(), Lost: n.lost.Load(),
		Segments: int64(len(v.byName)), Entries: int64(v.table.used - v.dead), IndexBytes: int64(v.table.bytes()),
	}
}
