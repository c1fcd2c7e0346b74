package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	File   string `json:"file"` // path, as it was given to mutantsOf
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Func   string `json:"func"`   // the function that has it, "" outside of all
	Change string `json:"change"` // one line: old -> new

	edits []edit
}

// edit puts text in place of the bytes from start to end.
type edit struct {
	start, end int
	text       string
}

// apply returns src with the mutant's edits, which don't overlap and are in order.
func (m *mutant) apply(src []byte) []byte {
	var out []byte
	at := 0
	for _, e := range m.edits {
		out = append(out, src[at:e.start]...)
		out = append(out, e.text...)
		at = e.end
	}
	return append(out, src[at:]...)
}

// source collects the mutants of one file. Edits are made in its text, not in its
// tree, so that nothing else of the file changes.
type source struct {
	name  string
	src   []byte
	fset  *token.FileSet
	stack []ast.Node // the nodes around the one that is visited
	out   []mutant
	seen  map[string]bool // texts of edits, since two rules may say the same

	skip       map[ast.Node]bool // not to be visited
	conditions map[ast.Node]bool // replaced by true and by false: negating says no more
	scaled     map[ast.Node]bool // the 3 of 3*time.Second: 4 is as good
}

// mutantsOf returns every mutant of a file, in the order of the text.
func mutantsOf(name string, src []byte) ([]mutant, error) {
	s := &source{
		name: name, src: src, fset: token.NewFileSet(),
		seen: make(map[string]bool), skip: make(map[ast.Node]bool),
		conditions: make(map[ast.Node]bool), scaled: make(map[ast.Node]bool),
	}
	file, err := parser.ParseFile(s.fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			s.stack = s.stack[:len(s.stack)-1]
			return true
		}
		if s.skip[n] || !s.visit(n) {
			return false
		}
		s.stack = append(s.stack, n)
		return true
	})
	// The same change may be possible several times in a function: it is numbered, so
	// that function and change name one mutant.
	slices.SortStableFunc(s.out, func(a, b mutant) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	times := make(map[[2]string]int)
	for i := range s.out {
		m := &s.out[i]
		key := [2]string{m.Func, m.Change}
		if times[key]++; times[key] > 1 {
			m.Change += fmt.Sprintf(" #%d", times[key])
		}
	}
	return s.out, nil
}

// parent returns the node around the visited one.
func (s *source) parent() ast.Node {
	if len(s.stack) == 0 {
		return nil
	}
	return s.stack[len(s.stack)-1]
}

// inFunc returns the name of the function around the visited node, with its
// receiver's type.
func (s *source) inFunc() string {
	for _, n := range s.stack {
		f, ok := n.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if f.Recv == nil || len(f.Recv.List) == 0 {
			return f.Name.Name
		}
		return strings.TrimPrefix(s.text(f.Recv.List[0].Type), "*") + "." + f.Name.Name
	}
	return ""
}

func (s *source) offset(p token.Pos) int { return s.fset.Position(p).Offset }

func (s *source) text(n ast.Node) string {
	return string(s.src[s.offset(n.Pos()):s.offset(n.End())])
}

// replace adds a mutant that has code in place of n and describes it as saying
// shown there; "" is code itself.
func (s *source) replace(n ast.Node, code, shown string) {
	if shown == "" {
		shown = code
	}
	s.add(n.Pos(), short(s.text(n))+" -> "+short(shown), s.edit(n, code))
}

func (s *source) edit(n ast.Node, code string) edit {
	return edit{s.offset(n.Pos()), s.offset(n.End()), code}
}

func (s *source) add(at token.Pos, change string, edits ...edit) {
	key := fmt.Sprint(edits)
	if s.seen[key] {
		return
	}
	s.seen[key] = true
	p := s.fset.Position(at)
	s.out = append(s.out, mutant{s.name, p.Line, p.Column, s.inFunc(), change, edits})
}

// delete adds a mutant without the statements. They stay in the text, behind a
// condition that is false, so that what they use counts as used.
func (s *source) delete(statements ...ast.Stmt) {
	var edits []edit
	var texts []string
	for _, st := range statements {
		edits = append(edits, s.edit(st, "if false { "+s.text(st)+" }"))
		texts = append(texts, s.text(st))
	}
	s.add(statements[0].Pos(), "deleted "+short(strings.Join(texts, " ... ")), edits...)
}

// short makes one line of at most 70 characters.
func short(text string) string {
	line := []rune(strings.Join(strings.Fields(text), " "))
	const most = 70
	if len(line) <= most {
		return string(line)
	}
	return string(line[:most-4]) + " ..."
}
