// Package tiered is a [backend.Cache] of two layers, a fast one over a slow one:
// memory over a file, a file over an object store.
//
//	cache, err := tiered.New(fast, slow, nil)
//
// The slow layer is the store. The fast one holds copies: it may be small, evict,
// lag behind or fail, and nothing that was acknowledged is lost with it.
//
// # Reading
//
// GetMany asks the fast layer, then the slow one for what is missing there and
// for what visit declined with [backend.ErrForeign]: the slow layer's value is
// the second candidate of rule G6. What visit accepted from the slow layer is
// copied into the fast one before GetMany returns, which also heals an entry that
// was declined there. A copy that fails doesn't fail the read, and a copy never
// brings back what this handle deleted or overwrote meanwhile.
//
// When the slow layer fails, what the fast one has is visited, and GetMany returns
// the slow layer's error.
//
// # Writing
//
// SetMany writes to the slow layer, then to the fast one, and returns nil when
// the slow layer has acknowledged. Writes of this handle that have a key in
// common take turns, so that both layers end with the same one.
//
// When the slow layer fails, the batch goes into the fast layer all the same, whole
// or not at all, so that what was paid for serves at least this handle, and SetMany
// returns the slow layer's error; one that has no sentinel of package backend
// wraps [backend.ErrUnavailable]. A fast layer that may evict would show a part of
// the batch sooner or later: there it is kept beside the layer, in at most 64 MiB of
// memory, from which the oldest batch goes first, as a whole. Nothing writes such
// batches to the slow layer later: store them again. A batch that the slow layer
// refused (ErrTooLarge, ErrEmptyValue, ErrClosed) is kept nowhere.
//
// Where the fast layer outlives the process, what it has under the keys of a batch is
// removed before the slow layer is written, so that a process that ends in between
// leaves no old values beside new ones.
//
// # A fast layer that fails
//
// is bypassed: the slow layer answers, and after a second the fast one is tried
// again. Each outage is reported once, through Options.OnFault. Where the fast layer
// may hold something old, because it could not be written, it isn't asked for
// these keys until they have been written or copied again. Waiting for a write to it
// ends after 2 seconds.
//
// # What others wrote
//
// A value that was stored first is seen by every handle at once. What another
// handle overwrote or deleted in the slow layer may go on being read from this
// handle's fast layer: for ever, or for Options.MaxAge. The values of one key are
// interchangeable, so that an old one is never a wrong one; set MaxAge where
// entries are deleted, or embedded anew, and that must show everywhere. A store
// whose slow layer has one handle, as memory and bolt do, knows no others.
//
// The fast layer should be used by this Cache alone. If processes share it, as they
// can share a file, a copy made by one may undo what another deleted or
// overwrote at the same moment.
package tiered
