package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// reach says which blocks of the backend a test gets to. It cannot notice a mutant of
// the others, and need not be run for it.
type reach map[string][]block // by the file's name

type block struct {
	fromLine, fromColumn, toLine, toColumn int
	reached                                bool
}

// read adds what a profile of the go command says of a package.
func (r reach) read(profile, pkg string) error {
	text, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "mode: ") {
			continue
		}
		colon := strings.LastIndex(line, ":")
		if colon < 0 {
			return fmt.Errorf("%s: not understood: %s", profile, line)
		}
		file := line[:colon]
		var b block
		var statements, count int
		if _, err := fmt.Sscanf(line[colon+1:], "%d.%d,%d.%d %d %d", &b.fromLine, &b.fromColumn, &b.toLine, &b.toColumn, &statements, &count); err != nil {
			return fmt.Errorf("%s: %q: %w", profile, line, err)
		}
		if path.Dir(file) == pkg {
			b.reached = count > 0
			r[path.Base(file)] = append(r[path.Base(file)], b)
		}
	}
	return nil
}

// has says whether a test may get to m. What is in no block, such as a constant,
// may have an effect anywhere.
func (r reach) has(m *mutant) bool {
	inside := false
	for _, b := range r[filepath.Base(m.File)] {
		after := m.Line > b.fromLine || m.Line == b.fromLine && m.Column >= b.fromColumn
		before := m.Line < b.toLine || m.Line == b.toLine && m.Column < b.toColumn
		if after && before {
			if b.reached {
				return true
			}
			inside = true
		}
	}
	return !inside
}
