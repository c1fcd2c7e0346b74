package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/embedonce/embedonce/embed"
)

// closestShown is how many passages are shown for a query.
const closestShown = 5

// printQuery prints what came of the query, if there was one.
func (r *result) printQuery(w io.Writer) {
	switch {
	case r.settings.query == "":
	case r.queryErr != nil:
		fmt.Fprintf(w, "\n-q got no vector: %v\n", r.queryErr)
	case len(r.found) == 0:
		fmt.Fprintln(w, "\n-q was left out: no passage has a vector to compare it with")
	case r.query == nil:
		fmt.Fprintln(w, "\n-q was left out: the run ended before all passages were done")
	default:
		r.printClosest(w)
	}
}

// printClosest prints the passages that are closest to the query, equal ones once.
func (r *result) printClosest(w io.Writer) {
	type match struct {
		found
		score float64
	}
	var matches []match
	for _, f := range r.found {
		matches = append(matches, match{f, embed.Cosine(r.query.Vector(0), f.vector)})
	}
	slices.SortStableFunc(matches, func(a, b match) int { return cmp.Compare(b.score, a.score) })

	fmt.Fprintf(w, "\nclosest to %q (requests for the query: %d):\n", r.settings.query, r.query.Usage.Requests)
	shown := make(map[string]bool)
	for _, m := range matches {
		if shown[m.text] {
			continue
		}
		if len(shown) == closestShown {
			break
		}
		shown[m.text] = true
		fmt.Fprintf(w, "  %.3f  %s  %s\n", m.score, m.id, shortened(m.text))
	}
}

// shortened returns the start of text on one line.
func shortened(text string) string {
	const most = 100
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > most {
		return string(line[:most-3]) + "..."
	}
	return string(line)
}
