package sqlite

import (
	"context"
	"os"
	"time"
)

// logWait is how long a batch that is stored may be held up for the log. Up to
// three generations of readers must end before it can be emptied, each a matter of
// milliseconds unless visit lingers.
const logWait = 2 * time.Second

// logLimit says when and how shortenLog acts; c.writing guards it.
type logLimit struct {
	path  string
	bytes int64         // the log may be as long
	wait  time.Duration // for readers, and for other processes
	again int64         // after a try in vain: the length that calls for the next
}

// shortenLog empties a log that has become too long; the caller has passed
// c.writing and has committed.
//
// SQLite begins the log anew only when nobody reads from it. With readers that
// overlap and a writer that goes on, there is always one that began before the
// last batch. The writer must pause: then each reader that begins sees the last
// batch, those before it end, the whole log can be moved, and readers that begin
// after that don't need it any more. No reader has to wait.
func (c *Cache) shortenLog(ctx context.Context) {
	info, err := os.Stat(c.log.path)
	if err != nil {
		return // there is no log, or the next batch finds out what is wrong
	}
	size := info.Size()
	if size <= c.log.bytes {
		c.log.again = 0
		return
	}
	if size < c.log.again {
		return
	}
	// The batch is stored, whatever happens here.
	if untilFree(ctx, time.Now(), c.log.wait, c.writer.checkpoint) != nil {
		c.log.again = size + c.log.bytes
		return
	}
	c.log.again = 0
}

// cutLog moves the log into the file, which gets its new length by that. Readers
// may keep it from that for logWait; the next Compact, or the last Close, does it
// then.
func (c *Cache) cutLog(ctx context.Context) error {
	if err := c.writing.pass(ctx); err != nil {
		return c.ended(ctx, "wait for other writes", nil)
	}
	defer c.writing.leave()
	if c.writer == nil {
		return nil // another call has found it broken, and says so
	}
	err := untilFree(ctx, time.Now(), c.log.wait, c.writer.checkpoint)
	switch {
	case ctx.Err() != nil && err != nil:
		return c.ended(ctx, "compact", err)
	case err != nil && failureOf(err) != busyFailure:
		return c.fail("compact", err)
	}
	return nil
}
