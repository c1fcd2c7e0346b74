package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// killers remembers which groups of tests killed mutants of a file, since they
// are the likely ones for its other mutants: tested first, those die early.
type killers struct {
	mu     sync.Mutex
	byFile map[string]map[string]int // patterns for -test.run, with the number of kills
}

// add counts a kill by a test.
func (k *killers) add(file, test string) {
	parts := strings.Split(test, "/")
	if !strings.HasPrefix(test, "Test") {
		return // a panic
	}
	for i := range parts {
		parts[i] = "^" + regexp.QuoteMeta(parts[i]) + "$"
	}
	group := strings.Join(parts[:min(2, len(parts))], "/")
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byFile == nil {
		k.byFile = make(map[string]map[string]int)
	}
	if k.byFile[file] == nil {
		k.byFile[file] = make(map[string]int)
	}
	k.byFile[file][group]++
}

// likely returns the pattern of up to three groups, or "" if none has killed yet.
func (k *killers) likely(file string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var groups []string
	for group := range k.byFile[file] {
		groups = append(groups, group)
	}
	slices.SortFunc(groups, func(a, b string) int {
		return cmp.Or(cmp.Compare(k.byFile[file][b], k.byFile[file][a]), cmp.Compare(a, b))
	})
	return strings.Join(groups[:min(3, len(groups))], "|")
}
