package embed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/internal/record"
)

// deleteBatch is how many entries are removed by one call: so many that the fixed
// cost of a call counts little, so few that writers of the store don't wait long.
const deleteBatch = 512

// keyBytes is what a key adds to the bytes of an entry.
const keyBytes = int64(len(backend.Key{}))

// PruneOptions say which records [Prune] removes: by age, by size, or both. At
// least one of OlderThan and MaxBytes is needed.
type PruneOptions struct {
	// OlderThan removes each record that was created longer ago than this. Records
	// keep the second of their creation, by the clock of the machine that wrote
	// them. 0 is any age.
	OlderThan time.Duration
	// MaxBytes removes the oldest records until those that stay have at most so many
	// bytes of keys and values. What is no record of this version isn't counted, and
	// neither is the store's own overhead. 0 is any size.
	MaxBytes int64
	// DryRun removes nothing, and reports what would have been removed.
	DryRun bool
	// Progress, if set, is called now and then with the report so far, on the
	// goroutine that called Prune. It must not use the cache.
	Progress func(PruneReport)
}

// PruneReport is what [Prune] saw and did. Its numbers are of the entries as they
// were scanned; a store that visits an entry twice makes it count twice.
type PruneReport struct {
	Records int   // whole by their headers, of this version
	Bytes   int64 // of their keys and values
	Foreign int   // what is no record by its header: never removed; see Verify
	Future  int   // records of later versions: never removed

	Removed      int   // records
	RemovedBytes int64 // of their keys and values; an estimate after an error
}

// Prune removes old records from the cache, whoever wrote them. What it removes is
// paid for again when it is asked for. A record that was rewritten since Prune saw
// it stays, and so does what isn't a record of this version.
//
// A time of creation is believed, also where a clock was wrong: what seems to come
// from the future isn't older than anything, and what seems to come from 1970 is
// the oldest.
//
// By age the store is scanned once, by size twice, for the headers alone. Memory is
// bounded: that of one part of a scan, and about 5 MB to sort the records by their
// second of creation. A store that has more than 65,536 different ones is sorted
// coarser, at worst to its whole span of time divided by 32,768: two hours for eight
// years.
//
// # Errors
//
// Wrong options, all in one error and without a report; an error that wraps
// [backend.ErrUnsupported] where the cache has no Scan, or no Delete; what the
// cache fails with, and the end of ctx. Then the report says what was done so far,
// and Prune may be called again. The space that records had may stay with the
// store: see [backend.Compact].
func Prune(ctx context.Context, cache backend.Cache, opts *PruneOptions) (*PruneReport, error) {
	p, err := newPruner(cache, opts)
	if err != nil {
		return nil, fmt.Errorf("embed: Prune: %w", err)
	}
	if err := p.run(ctx); err != nil {
		return &p.report, fmt.Errorf("embed: Prune: %w", err)
	}
	return &p.report, nil
}

// pruner is one call of Prune.
type pruner struct {
	cache  backend.Cache
	opts   PruneOptions
	report PruneReport

	before int64 // records created before this second are too old

	sums   *ages  // nil without MaxBytes
	bySize bool   // there is more than MaxBytes:
	edge   uint32 // all before this time goes
	rest   int64  // and so many bytes of it

	found []pruned // in the part of the scan
}

// pruned is a record that is to be removed, if it is still the same.
type pruned struct {
	key    backend.Key
	header [record.HeaderSize]byte // its checksum is that of the whole record
	size   int                     // of the value
	atEdge bool
}

func (p *pruned) bytes() int64 { return keyBytes + int64(p.size) }

func newPruner(cache backend.Cache, opts *PruneOptions) (*pruner, error) {
	var set PruneOptions
	if opts != nil {
		set = *opts
	}
	var problems []error
	if cache == nil {
		problems = append(problems, errors.New("cache is nil"))
	}
	if set.OlderThan < 0 {
		problems = append(problems, fmt.Errorf("PruneOptions.OlderThan is %v; allowed are 0 for any age and more", set.OlderThan))
	}
	if set.MaxBytes < 0 {
		problems = append(problems, fmt.Errorf("PruneOptions.MaxBytes is %d; allowed are 0 for any size and more", set.MaxBytes))
	}
	if set.OlderThan == 0 && set.MaxBytes == 0 {
		problems = append(problems, errors.New("PruneOptions has neither OlderThan nor MaxBytes; at least one must be set"))
	}
	p := &pruner{cache: cache, opts: set}
	if set.OlderThan > 0 {
		// A record of second s was created before s+1.
		p.before = time.Now().Add(-set.OlderThan).Unix()
	}
	return p, errors.Join(problems...)
}

func (p *pruner) run(ctx context.Context) error {
	if !p.opts.DryRun {
		if err := canDelete(ctx, p.cache); err != nil {
			return err
		}
	}
	if p.opts.MaxBytes > 0 {
		p.sums = newAges(mostAges)
		err := walk(ctx, p.cache, record.HeaderSize, func(e backend.Entry) error {
			if created, ok := p.count(e); ok {
				p.sums.add(created, keyBytes+int64(e.Size))
			}
			return nil
		}, func() error {
			p.tell()
			return nil
		})
		if err != nil {
			return err
		}
		p.edge, p.rest = p.sums.oldest(p.report.Bytes - p.opts.MaxBytes)
		p.bySize = p.rest > 0
		if !p.bySize && p.opts.OlderThan == 0 {
			return nil
		}
	}
	return walk(ctx, p.cache, record.HeaderSize, func(e backend.Entry) error {
		p.choose(e)
		return nil
	}, func() error {
		err := p.remove(ctx)
		p.tell()
		return err
	})
}

// count counts an entry in the report, and says whether it is a record that may
// be removed.
func (p *pruner) count(e backend.Entry) (created uint32, ok bool) {
	created, reason := record.Glance(e.Value, e.Size)
	switch reason {
	case record.Valid:
		p.report.Records++
		p.report.Bytes += keyBytes + int64(e.Size)
		return created, true
	case record.Future:
		p.report.Future++
	default:
		p.report.Foreign++
	}
	return 0, false
}

// choose puts an entry among those to be removed if it is too old.
func (p *pruner) choose(e backend.Entry) {
	if p.sums == nil { // else the first scan counted
		p.count(e)
	}
	created, reason := record.Glance(e.Value, e.Size)
	if reason != record.Valid {
		return
	}
	goes, atEdge := int64(created) < p.before, false
	if p.bySize {
		when := p.sums.when(created)
		atEdge = when == p.edge
		goes = goes || when < p.edge || atEdge && p.rest > 0
	}
	if !goes {
		return
	}
	if atEdge {
		p.rest -= keyBytes + int64(e.Size)
	}
	p.found = append(p.found, pruned{e.Key, [record.HeaderSize]byte(e.Value), e.Size, atEdge})
}

// remove removes what was chosen.
func (p *pruner) remove(ctx context.Context) error {
	defer func() { p.found = p.found[:0] }()
	for batch := range slices.Chunk(p.found, deleteBatch) {
		if err := p.removeBatch(ctx, batch); err != nil {
			return fmt.Errorf("removing: %w", err)
		}
	}
	return nil
}

func (p *pruner) removeBatch(ctx context.Context, batch []pruned) error {
	if p.opts.DryRun {
		for i := range batch {
			p.report.RemovedBytes += batch[i].bytes()
		}
		p.report.Removed += len(batch)
		return nil
	}
	keys := make([]backend.Key, len(batch))
	for i := range batch {
		keys[i] = batch[i].key
	}
	same, changed := make([]bool, len(batch)), make([]bool, len(batch))
	removed, err := backend.Delete(ctx, p.cache, keys, func(i int, value []byte) bool {
		same[i] = len(value) == batch[i].size && bytes.HasPrefix(value, batch[i].header[:])
		changed[i] = !same[i]
		return same[i]
	})
	matched, size := 0, int64(0)
	for i := range batch {
		if same[i] {
			matched++
			size += batch[i].bytes()
		} else if changed[i] && batch[i].atEdge {
			p.rest += batch[i].bytes() // another one has to go in its place
		}
	}
	p.report.Removed += removed
	if matched > 0 {
		// All of them, unless the call failed, or somebody else was quicker.
		p.report.RemovedBytes += int64(float64(size) * float64(removed) / float64(matched))
	}
	return err
}

// tell calls Progress.
func (p *pruner) tell() {
	if p.opts.Progress != nil {
		p.opts.Progress(p.report)
	}
}
