package conformance

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRules compares the table of rules with the documentation of backend.Cache and
// of the optional interfaces, in both directions, and looks for a case that checks each.
func TestRules(t *testing.T) {
	documented := make(map[string]string)
	entry := regexp.MustCompile(`^\s*- ([A-Z]\d+): (.*)$`)
	for _, name := range []string{"cache.go", "optional.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "backend", name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		before := len(documented)
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if m := entry.FindStringSubmatch(strings.TrimPrefix(comment.Text, "//")); m != nil {
					if documented[m[1]] != "" {
						t.Errorf("rule %s stands twice in package backend", m[1])
					}
					documented[m[1]] = m[2]
				}
			}
		}
		if len(documented) == before {
			t.Errorf("backend/%s has no rules", name)
		}
	}
	for _, r := range rules {
		if documented[r.id] != r.sentence {
			t.Errorf("rule %s\nhere:            %s\npackage backend: %s", r.id, r.sentence, documented[r.id])
		}
		delete(documented, r.id)
		checked := 0
		for i := range cases {
			if cases[i].checks(r.id) {
				checked++
			}
		}
		if checked == 0 {
			t.Errorf("no case checks rule %s", r.id)
		}
	}
	for id := range documented {
		t.Errorf("rule %s of package backend is not in the suite's table", id)
	}
}

// TestCases: each case names rules that exist, and fails them by name.
func TestCases(t *testing.T) {
	known := make(map[string]bool)
	for _, r := range rules {
		known[r.id] = true
	}
	seen := make(map[string]bool)
	for i := range cases {
		c := &cases[i]
		if seen[c.name] {
			t.Errorf("two cases are called %s", c.name)
		}
		seen[c.name] = true
		if i > 0 && c.group() != cases[i-1].group() && seen[c.group()] {
			t.Errorf("the cases of group %s don't stand together", c.group())
		}
		seen[c.group()] = true
		if strings.Count(c.name, "/") != 1 || c.rules == "" || c.fn == nil {
			t.Errorf("case %q has no group/name, no rule or no function", c.name)
		}
		for _, id := range strings.Fields(c.rules) {
			if !known[id] {
				t.Errorf("case %s checks a rule %s that doesn't exist", c.name, id)
			}
		}
	}
}

// TestLiterals: what a case prints when it fails is a rule that exists; ruleText
// panics otherwise, which nobody would see while the case passes.
func TestLiterals(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, r := range rules {
		known[r.id] = true
	}
	quoted := regexp.MustCompile(`"([A-Z]\d{1,2})"`)
	found := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range quoted.FindAllSubmatch(text, -1) {
			found++
			if !known[string(m[1])] {
				t.Errorf("%s has a rule %s that doesn't exist", name, m[1])
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d rules found in the source: the pattern is wrong", found)
	}
}

// checks says whether the case has the rule with this id.
func (c *testcase) checks(id string) bool {
	for _, own := range strings.Fields(c.rules) {
		if own == id {
			return true
		}
	}
	return false
}
