//go:build unix

package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/embedonce/embedonce/backend"
)

// A batch in the log is the length of all that follows the sum; the sum of that
// length and of the heads; the number of items; for each of them a head with key,
// size and checksum of the value; and the values. So a process that was killed
// leaves a part that can be told from damage.
const (
	batchHeader = 4 + sha256.Size + 4
	itemHead    = 32 + 4 + 4
	wrongType   = 1<<32 - 1 // in place of a size
	deleted     = 1<<32 - 2 // in place of a size
)

func headSum(b []byte, count int) [sha256.Size]byte {
	return sha256.Sum256(append(bytes.Clone(b[:4]), b[4+sha256.Size:batchHeader+count*itemHead]...))
}

// frame is a batch as the log has it.
func frame(items []backend.Item) []byte {
	b := make([]byte, batchHeader)
	for _, item := range items {
		b = append(b, item.Key[:]...)
		size := uint32(len(item.Value))
		switch {
		case item.Value == nil:
			size = wrongType
		case isTombstone(item.Value):
			size = deleted
		}
		b = binary.LittleEndian.AppendUint32(b, size)
		b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(item.Value))
	}
	for _, item := range items {
		if !isTombstone(item.Value) {
			b = append(b, item.Value...)
		}
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-batchHeader))
	binary.LittleEndian.PutUint32(b[batchHeader-4:], uint32(len(items)))
	sum := headSum(b, len(items))
	copy(b[4:], sum[:])
	return b
}

var errDamaged = fmt.Errorf("file: %w: the log is damaged", backend.ErrCorrupt)

// unframe returns the first batch of the log and its length, 0 if it isn't whole.
// The value of a damaged item is nil, as for one of a wrong type.
func unframe(b []byte) (items []backend.Item, length, damaged int, err error) {
	if len(b) < batchHeader {
		return nil, 0, 0, nil
	}
	length = batchHeader + int(binary.LittleEndian.Uint32(b))
	count := int(binary.LittleEndian.Uint32(b[batchHeader-4:]))
	heads := batchHeader + count*itemHead
	if heads > len(b) {
		return nil, 0, 0, nil
	}
	if headSum(b, count) != [32]byte(b[4:]) {
		return nil, 0, 0, errDamaged
	}
	if length > len(b) {
		return nil, 0, 0, nil
	}
	values := b[heads:length]
	for head := b[batchHeader:heads]; len(head) > 0; head = head[itemHead:] {
		item := backend.Item{Key: backend.Key(head[:32])}
		switch size := binary.LittleEndian.Uint32(head[32:]); size {
		case wrongType:
		case deleted:
			item.Value = tombstone
		default:
			item.Value = append([]byte{}, values[:size]...)
			values = values[size:]
			if crc32.ChecksumIEEE(item.Value) != binary.LittleEndian.Uint32(head[36:]) {
				item.Value = nil
				damaged++
			}
		}
		items = append(items, item)
	}
	return items, length, damaged, nil
}

// refresh reads what the log has more, up to a batch that isn't whole. With own it
// is a batch of this handle.
func (c *fileCache) refresh(own bool) error {
	if c.flaws.neverRefreshes && !own {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	rest, err := io.ReadAll(io.NewSectionReader(c.file, c.known, 1<<40))
	if err != nil {
		return err
	}
	opening := !c.opened
	c.opened = true
	var batches [][]backend.Item
	for {
		items, length, damaged, err := unframe(rest)
		if err != nil || damaged > 0 && c.flaws.refusesDamage {
			return errDamaged
		}
		if length == 0 || damaged > 0 && c.flaws.stopsAtDamage {
			break
		}
		if c.flaws.skipsDamaged && damaged > 0 {
			items = slices.DeleteFunc(items, func(item backend.Item) bool { return item.Value == nil })
		}
		batches = append(batches, items)
		c.known += int64(length)
		rest = rest[length:]
	}
	if opening && c.flaws.losesLast && len(batches) > 0 {
		batches = batches[:len(batches)-1]
	}
	if opening && c.flaws.keepsFive {
		batches = batches[max(0, len(batches)-5):]
	}
	if c.flaws.ownView && !own {
		return nil
	}
	for _, items := range batches {
		for _, item := range items {
			c.index[item.Key] = item.Value
			if isTombstone(item.Value) {
				delete(c.index, item.Key)
			}
		}
	}
	if opening {
		c.loaded.Store(int64(len(c.index)))
	}
	return nil
}
