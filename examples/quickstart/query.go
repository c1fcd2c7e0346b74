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

// printClosest prints the passages that are closest to the query.
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
	for _, m := range matches[:min(closestShown, len(matches))] {
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
