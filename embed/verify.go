package embed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/internal/record"
)

// VerifyOptions configure [Verify]. The zero value checks that records are whole.
type VerifyOptions struct {
	// Clients say which records are known: of theirs it is checked too that they lie
	// under their own keys. A Client may be closed; it needs no cache.
	Clients []*Client
	// Drop removes the entries that are bad: also those of other programs, if they
	// are in this cache.
	Drop bool
	// Progress, if set, is called now and then with the report so far, on the
	// goroutine that called Verify. It must not use the cache.
	Progress func(VerifyReport)
}

// VerifyReport is what [Verify] found. Its numbers are of the entries as they were
// scanned; a store that visits an entry twice makes it count twice.
type VerifyReport struct {
	Entries int   // Valid + Unknown + Future + the sum of Bad
	Bytes   int64 // of their keys and values

	Valid   int // whole, and under the key of a text for one of the Clients
	Unknown int // whole, and of other models or settings than the Clients'
	Future  int // whole records of later versions
	// Bad counts the entries that no Client can use, by the reasons of Usage.Foreign.
	// Each is a miss when its text is asked for, and then overwritten.
	Bad map[string]int

	Dropped int // bad entries that were removed
}

// Verify reads every entry of the cache and makes the checks on it that a lookup
// makes, as far as they need no text: that it is a whole record with finite
// numbers and, where it belongs to one of the Clients, that it lies under the key of
// the text and the settings that it says it is of. How many dimensions a Client
// expects is not compared: that is decided by the lookup.
//
// Of a model or settings that no Client has, a record under a wrong key can't be
// told from a right one; it is Unknown, and never dropped. Settings include
// those that decide how long texts are cut.
//
// With Drop each bad entry is removed unless it has become good meanwhile: what is
// removed is checked again as it is removed. Records of later versions always stay.
//
// Verify reads the store once, on one goroutine, in memory bounded by one part of a
// scan.
//
// # Errors
//
// Wrong options, without a report; an error that wraps [backend.ErrUnsupported]
// where the cache has no Scan, or with Drop no Delete; what the cache fails with, and the
// end of ctx. Then the report says what was found so far. Bad entries are no error.
func Verify(ctx context.Context, cache backend.Cache, opts *VerifyOptions) (*VerifyReport, error) {
	v, err := newVerifier(cache, opts)
	if err != nil {
		return nil, fmt.Errorf("embed: Verify: %w", err)
	}
	if err := v.run(ctx); err != nil {
		return &v.report, fmt.Errorf("embed: Verify: %w", err)
	}
	return &v.report, nil
}

// verifier is one call of Verify.
type verifier struct {
	cache  backend.Cache
	opts   VerifyOptions
	scopes []digest // of the Clients
	report VerifyReport
	bad    []backend.Key // in the part of the scan
}

func newVerifier(cache backend.Cache, opts *VerifyOptions) (*verifier, error) {
	v := &verifier{cache: cache}
	if opts != nil {
		v.opts = *opts
	}
	var problems []error
	if cache == nil {
		problems = append(problems, errors.New("cache is nil"))
	}
	for i, client := range v.opts.Clients {
		if client == nil {
			problems = append(problems, fmt.Errorf("VerifyOptions.Clients[%d] is nil", i))
			continue
		}
		for _, scope := range []digest{client.scope, client.longScope} {
			if !slices.Contains(v.scopes, scope) {
				v.scopes = append(v.scopes, scope)
			}
		}
	}
	return v, errors.Join(problems...)
}

func (v *verifier) run(ctx context.Context) error {
	if v.opts.Drop {
		if err := canDelete(ctx, v.cache); err != nil {
			return err
		}
	}
	return walk(ctx, v.cache, backend.WholeValue, func(e backend.Entry) error {
		v.count(e)
		return nil
	}, func() error {
		err := v.drop(ctx)
		if v.opts.Progress != nil {
			told := v.report
			told.Bad = maps.Clone(told.Bad)
			v.opts.Progress(told)
		}
		return err
	})
}

// count checks an entry and counts it in the report.
func (v *verifier) count(e backend.Entry) {
	known, reason := v.check(&e.Key, e.Value)
	v.report.Entries++
	v.report.Bytes += keyBytes + int64(max(e.Size, 0))
	switch {
	case reason == record.Valid && known:
		v.report.Valid++
	case reason == record.Valid:
		v.report.Unknown++
	case reason == record.Future:
		v.report.Future++
	default:
		if v.report.Bad == nil {
			v.report.Bad = make(map[string]int)
		}
		v.report.Bad[reason.String()]++
		if v.opts.Drop {
			v.bad = append(v.bad, e.Key)
		}
	}
}

// check says why a lookup that comes to key would not take value, as far as that
// can be told, and whether it is a record of one of the Clients.
func (v *verifier) check(key *backend.Key, value []byte) (known bool, reason record.Reason) {
	reason = record.Check(value, func(text *digest, scope *[8]byte) record.Reason {
		ours := false
		for i := range v.scopes {
			same := [8]byte(v.scopes[i][:8]) == *scope
			ours = ours || same
			if keyOf(&v.scopes[i], text) != *key {
				continue
			}
			// Here one Client would look for this very text.
			if !same {
				return record.Scope
			}
			known = true
			return record.Valid
		}
		if ours {
			return record.Digest // its own text has another key
		}
		return record.Valid
	})
	return known, reason
}

// drop removes the bad entries of a part that are still bad.
func (v *verifier) drop(ctx context.Context) error {
	defer func() { v.bad = v.bad[:0] }()
	for keys := range slices.Chunk(v.bad, deleteBatch) {
		removed, err := backend.Delete(ctx, v.cache, keys, func(i int, value []byte) bool {
			_, reason := v.check(&keys[i], value)
			return reason != record.Valid && reason != record.Future
		})
		v.report.Dropped += removed
		if err != nil {
			return fmt.Errorf("dropping: %w", err)
		}
	}
	return nil
}
