package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// changes lists what is made of one function's body, or of a whole file.
func changes(t *testing.T, code string) []string {
	t.Helper()
	if !strings.Contains("\n"+code, "\npackage ") {
		code = "package p\n" + code
	}
	mutants, err := mutantsOf("p.go", []byte(code))
	require.NoError(t, err)
	list := []string{}
	for _, m := range mutants {
		list = append(list, m.Change)
		changed := m.apply([]byte(code))
		_, err := parser.ParseFile(token.NewFileSet(), "p.go", changed, 0)
		require.NoError(t, err, "%s:\n%s", m.Change, changed)
	}
	return list
}

func TestMutators(t *testing.T) {
	for _, c := range []struct {
		name, code string
		want       []string
	}{
		{"condition", `func f(ok bool) { if ok { g(); h() } }`,
			[]string{"ok -> true", "ok -> false", "deleted g()", "deleted h()"}},
		{"only statement of a condition", `func f() { if ok() { g() } }`, []string{"ok() -> true", "ok() -> false"}},
		{"boundary", `func f(a, b int) bool { return a < b }`,
			[]string{"a < b -> true", "a < b -> false", "func f(a, b int) bool { return a < b }: < -> <="}},
		{"comparison that is no condition", `func f(a, b int) { x = a >= b }`,
			[]string{"deleted x = a >= b", "func f(a, b int) { x = a >= b }: >= -> >", "func f(a, b int) { x = a >= b }: >= -> <"}},
		{"and", "func f() {\nx = a && !b\n}",
			[]string{"deleted x = a && !b", "a -> true", "x = a && !b: && -> ||", "!b -> true", "!b -> b"}},
		{"or of three", "func f() {\nx = a || b || c\n}",
			[]string{"deleted x = a || b || c", "a -> false", "x = a || b || c: || -> &&", "b -> false", "x = a || b || c: || -> && #2", "c -> false"}},
		{"switch without a tag", "func f() {\nswitch {\ncase a:\ng()\n}\n}", []string{"a -> true", "a -> false", "deleted g()"}},
		{"switch with a tag", "func f() {\nswitch a {\ncase 7:\ng()\n}\n}", []string{"7 -> 0", "7 -> 8", "deleted g()"}},
		{"loop", "func f() {\nfor i := 0; i < n; i++ {\ncontinue\n}\n}",
			[]string{"0 -> 1", "i < n -> false", "for i := 0; i < n; i++ {: < -> <=", "deleted continue"}},
		{"range", "func f() {\nfor range n {\ng()\n}\n}", []string{"deleted for range n { g() }", "deleted g()"}},
		{"arithmetic", "func f() {\nx = a*b - c<<d\n}",
			[]string{"deleted x = a*b - c<<d", "x = a*b - c<<d: * -> /", "x = a*b - c<<d: - -> +", "x = a*b - c<<d: << -> >>"}},
		{"assignment with an operator", "func f() {\nx += a\ny--\n}",
			[]string{"deleted x += a", "x += a: += -> -=", "deleted y--", "y--: -- -> ++"}},
		{"text is not added up", `var x = "a" + b + c`, []string{}},
		{"numbers", "const a, b, c = 0, -1, 1 << 20", []string{"0 -> 1", "-1 -> 0", "1 << 20 -> 0", "1 << 20 -> 1048577"}},
		{"float", "const a = 0.5", []string{"0.5 -> 0", "0.5 -> 1.5"}},
		{"duration", "const a = 10 * time.Second", []string{"10 -> 0"}},
		{"bool", "var a = true", []string{"true -> false"}},
		{"names by iota", "const (\na = iota + 1\nb\n)", []string{}},
		{"assertion", "var _ I = make(T, 5)", []string{}},
		{"types", "type T struct{ a [4]byte `x:\"1\"` }\nvar x [8]int", []string{}},
		{"capacities", "var a, b = make([]int, n, 8), make(map[int]int, 8)", []string{}},
		{"size", "var a = make([]int, 8)", []string{"8 -> 0", "8 -> 9"}},
		{"lock", "func f() {\nc.mu.RLock()\ndefer c.mu.RUnlock()\ng()\n}",
			[]string{"deleted c.mu.RLock() ... defer c.mu.RUnlock()", "deleted g()"}},
		{"locks of two kinds", "func f() {\nmu.Lock()\nx.Unlock()\nmu.Unlock()\n}",
			[]string{"deleted mu.Lock() ... mu.Unlock()", "deleted x.Unlock()"}},
		{"statements", "func f() {\ndefer g()\ngo h()\nc <- v\nx := 5\n_ = g()\n_ = x\nreturn\n}",
			[]string{"deleted defer g()", "deleted go h()", "deleted c <- v", "5 -> 0", "5 -> 6", "deleted _ = g()", "deleted return"}},
		{"error overwritten", "func f() (err error) {\nerr = g()\nh()\nreturn err\n}",
			[]string{"deleted err = g()", "error ignored: err = g()", "deleted h()", "err -> nil"}},
		{"error looked at", "func f() {\nerr := g()\nif err != nil {\nh()\n}\n}", []string{"err != nil -> true", "err != nil -> false"}},
		{"results", "func f() (int, string, bool, T, error) {\nreturn a, b, c, d, g()\n}",
			[]string{"a -> 0", "b -> \"\"", "c -> true", "c -> false", "d -> *new(T)", "g() -> nil", "error ignored: return g()"}},
		{"results of one call", "func f() (*T, error) {\nreturn g()\n}", []string{"g() -> nil, nil"}},
		{"results that are zero", "func f() (*T, bool, S, error) {\nreturn nil, false, S{}, nil\n}", []string{"false -> true"}},
		{"made error", "func f() error {\nreturn fmt.Errorf(\"%d: %w\", n+1, err)\n}",
			[]string{`fmt.Errorf("%d: %w", n+1, err) -> nil`, `fmt.Errorf("%d: %w", n+1, err): %w -> %v`}},
		{"message", "func f() {\nlog.Print(1)\nslog.Info(\"a\", \"n\", 1)\n}", []string{}},
		{"text for people", "func (t T) String() string { return g(1) }", []string{}},
		{"other systems", "func f() {\nif runtime.GOOS == \"plan9\" {\ng()\n}\n}", []string{}},
		{"fields", "var a = T{A: x, B: 0, C: nil, 5}", []string{"left out A: x", "0 -> 1", "5 -> 0", "5 -> 6"}},
		{"elements", "var a = []string{\"a\",\n\"b\",\n}", []string{`left out "a"`, `left out "b"`}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, changes(t, c.code)) })
	}
}

// TestApply: all but the edits stays as it is, what is deleted still counts as
// used, and the place is said.
func TestApply(t *testing.T) {
	src := "package p\n\nfunc (t *T) f() {\n\tmu.Lock() // a\n\tg(1 /* b */)\n\tmu.Unlock()\n}\n"
	mutants, err := mutantsOf("p.go", []byte(src))
	require.NoError(t, err)
	var got []string
	for _, m := range mutants {
		got = append(got, fmt.Sprintf("%s %d:%d %s", m.Func, m.Line, m.Column, m.apply([]byte(src))))
	}
	with := func(old, text string) string { return strings.Replace(src, old, text, 1) }
	require.Equal(t, []string{
		"T.f 4:2 " + strings.Replace(with("mu.Lock()", "if false { mu.Lock() }"), "mu.Unlock()", "if false { mu.Unlock() }", 1),
		"T.f 5:2 " + with("g(1 /* b */)", "if false { g(1 /* b */) }"),
		"T.f 5:4 " + with("(1", "(0"),
		"T.f 5:4 " + with("(1", "(2"),
	}, got)
}

func TestUnreadableSource(t *testing.T) {
	_, err := mutantsOf("p.go", []byte("package p\nfunc"))
	require.ErrorContains(t, err, "p.go:2")
}

// TestOwnSources: whatever Go code comes, its mutants can be parsed.
func TestOwnSources(t *testing.T) {
	for _, name := range []string{"main.go", "source.go", "mutators.go", "statements.go", "results.go", "run.go", "report.go", "target.go"} {
		src, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Greater(t, len(changes(t, string(src))), 30, name)
	}
}
