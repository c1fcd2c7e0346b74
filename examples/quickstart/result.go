package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/embedonce/embedonce/embed"
)

// result is what one run did.
type result struct {
	settings *settings
	passages []passage
	usage    embed.Usage
	took     time.Duration
	done     int // passages that got a vector or failed
	reasons  []*reason
	ended    error // why the run ended before all passages were done

	found    []found         // the passages with a vector; nil without a query
	query    *embed.Response // the query's vector; nil if it was not embedded
	queryErr error
}

type found struct {
	passage
	vector []float32
}

// reason is one cause of failures, with the passages that it took.
type reason struct {
	message string
	ids     []string
}

func (r *result) addFailure(id string, err error) {
	message := err.Error()
	at := slices.IndexFunc(r.reasons, func(known *reason) bool { return known.message == message })
	if at < 0 {
		at = len(r.reasons)
		r.reasons = append(r.reasons, &reason{message: message})
	}
	r.reasons[at].ids = append(r.reasons[at].ids, id)
}

// failed returns how many passages got no vector.
func (r *result) failed() int {
	n := len(r.passages) - r.done
	for _, reason := range r.reasons {
		n += len(reason.ids)
	}
	return n
}

// err returns nil if every passage got its vector, and the query too.
func (r *result) err() error {
	switch {
	case r.ended != nil:
		return r.ended
	case r.failed() > 0:
		return fmt.Errorf("%d of %d passages got no vector", r.failed(), len(r.passages))
	case r.queryErr != nil:
		return fmt.Errorf("-q: %w", r.queryErr)
	}
	return nil
}

func (r *result) print(w io.Writer) {
	unique := make(map[string]bool, len(r.passages))
	for _, p := range r.passages {
		unique[p.text] = true
	}
	u := &r.usage
	fmt.Fprintf(w, "\n%d passages (%d unique): %d hits, %d misses\n", len(r.passages), len(unique), u.Hits, u.Misses)
	fmt.Fprintf(w, "%d requests, %d tokens", u.Requests, u.BilledTokens)
	if u.EstimatedTokens > 0 {
		fmt.Fprint(w, " (estimated)")
	}
	if u.Requests == 0 && r.failed() == 0 {
		fmt.Fprint(w, ": every vector came from the cache")
	}
	fmt.Fprintf(w, "\n%.2f seconds\n", r.took.Seconds())
	if info, err := os.Stat(r.settings.cache); err == nil {
		fmt.Fprintf(w, "cache %s, %.1f MB\n", r.settings.cache, float64(info.Size())/1e6)
	}
	if u.CacheFailures > 0 {
		fmt.Fprintf(w, "%d reads or writes of the cache failed\n", u.CacheFailures)
	}
	if u.Truncated > 0 {
		fmt.Fprintf(w, "%d passages were cut at the model's limit\n", u.Truncated)
	}
	r.printFailures(w)
	r.printQuery(w)
}

func (r *result) printFailures(w io.Writer) {
	if r.failed() == 0 {
		return
	}
	others := ""
	if r.failed() < len(r.passages) && r.usage.CacheFailures == 0 {
		others = "; the others are in the cache"
	}
	fmt.Fprintf(w, "\n%d of %d passages got no vector%s:\n", r.failed(), len(r.passages), others)
	for _, reason := range r.reasons {
		named, more := reason.ids, ""
		if len(named) > 3 {
			named, more = named[:3], ", ..."
		}
		fmt.Fprintf(w, "  %d: %s (%s%s)\n", len(reason.ids), reason.message, strings.Join(named, ", "), more)
	}
	if left := len(r.passages) - r.done; left > 0 {
		fmt.Fprintf(w, "  %d: left over when the run ended: %v\n", left, r.ended)
	}
}
