// Package examples_test compiles the Go code of README.md and docs/*.md, so that
// what a reader copies is what works.
//
// Each block fenced as "```go" is one of four things, and compiled on its own unless
// it is the first:
//
//   - an excerpt, when it stands word for word in a file of an example, which is
//     compiled there;
//   - a whole file, when it begins with a package clause: nothing is added;
//   - declarations (types, functions): a package clause is added;
//   - statements: they become the body of a function that returns an error.
//     Variables that a fragment declares and doesn't use are forgiven.
//
// Where a fragment doesn't import by itself, it may use every package of this
// project, and the standard library's in stdImports, by the last element of the
// path; and it may use the variables in ambient without declaring them.
// Code that isn't meant to compile is not fenced as go.
package examples_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var stdImports = []string{
	"context", "errors", "fmt", "iter", "log", "log/slog", "maps", "net/http", "os", "slices", "strings", "testing", "time",
}

// ambient are the variables that a fragment may use without declaring them.
var ambient = map[string]string{
	"cache":    "backend.Cache",
	"client":   "*embed.Client",
	"ctx":      "context.Context",
	"docs":     "[]string",
	"err":      "error",
	"i":        "int",
	"newCache": "backend.Cache",
	"oldCache": "backend.Cache",
	"index":    "func(id string, vector []float32)",
	"open":     "func(t testing.TB, location string) backend.Cache",
	"provider": "embed.Provider",
	"query":    "string",
	"res":      "*embed.Response",
	"rows":     "iter.Seq2[string, string]",
	"t":        "*testing.T",
	"texts":    "[]string",
}

var qualifier = regexp.MustCompile(`\b(\w+)\.`)

func TestCodeInDocumentsCompiles(t *testing.T) {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	readme := filepath.Join(root, "README.md")
	imports := projectImports(t)

	examples, err := filepath.Glob("*/*.go")
	require.NoError(t, err)
	var sources []string
	for _, file := range examples {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		sources = append(sources, string(source))
	}

	var blocks []block
	for _, file := range append([]string{readme}, files...) {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		found := goBlocks(file, string(content))
		if file == readme {
			require.NotEmpty(t, found, "README.md shows no Go code")
		}
		blocks = append(blocks, found...)
	}

	for _, b := range blocks {
		name, _ := filepath.Rel(root, b.file)
		t.Run(fmt.Sprintf("%s:%d", filepath.ToSlash(name), b.line), func(t *testing.T) {
			t.Parallel()
			if slices.ContainsFunc(sources, func(source string) bool { return strings.Contains(source, b.code) }) {
				return
			}
			source, err := b.source(imports)
			require.NoError(t, err)
			if output, err := compile(t, source); err != nil {
				t.Fatalf("%v\n%s\ncompiled as:\n%s", err, output, source)
			}
		})
	}
}

func TestBlocksAreFoundAndWrapped(t *testing.T) {
	imports := map[string]string{"fmt": "fmt", "errors": "errors", "context": "context"}
	document := strings.ReplaceAll(`
'''go
v, err := fmt.Println("a")
'''
'''sh
no go
'''
1. A list:
   '''go
   func f() error { return errors.New("x") }
   '''
'''go
package main

func main() {}
'''
'''go
import "os"

os.Exit(int(ctx.Value(i).(int)))
'''
`, "'''", "```")
	blocks := goBlocks("x.md", document)
	require.Len(t, blocks, 4)
	require.Equal(t, []int{2, 9, 12, 17}, []int{blocks[0].line, blocks[1].line, blocks[2].line, blocks[3].line})
	wants := []string{
		"import \"fmt\"\n\nfunc _() error {\n//line x.md:3\n\tv, err := fmt.Println(\"a\")\n\n\t_ = v\n\t_ = err\n\treturn nil\n}\n",
		"import \"errors\"\n\n//line x.md:10\nfunc f() error { return errors.New(\"x\") }\n",
		"package main\n\nfunc main() {}\n",
		"import \"os\"\nimport \"context\"\n\nvar ctx context.Context\nvar i int\n\nfunc _() error {\n",
	}
	for i, want := range wants {
		source, err := blocks[i].source(imports)
		require.NoError(t, err)
		require.Contains(t, string(source), want)
		require.Equal(t, i != 2, strings.HasPrefix(string(source), "package block\n"))
	}

	_, err := block{file: "x.md", line: 7, code: "a := = 1"}.source(imports)
	require.ErrorContains(t, err, "x.md:8")
}

// block is one fenced block of Go.
type block struct {
	file string
	line int // of the opening fence
	code string
}

// goBlocks returns the blocks fenced as go in a document, also indented ones.
func goBlocks(file, document string) []block {
	var blocks []block
	var current *block
	var indent string
	inOther := false
	number := 0
	for line := range strings.Lines(document) {
		number++
		trimmed := strings.TrimSpace(line)
		fence := strings.HasPrefix(trimmed, "```")
		switch {
		case fence && current != nil:
			blocks = append(blocks, *current)
			current = nil
		case fence && inOther:
			inOther = false
		case fence && trimmed == "```go":
			current = &block{file: file, line: number}
			indent = line[:strings.Index(line, "`")]
		case fence:
			inOther = true
		case current != nil:
			current.code += strings.TrimPrefix(line, indent)
		}
	}
	return blocks
}

// source returns the file that the block is compiled as.
func (b block) source(imports map[string]string) ([]byte, error) {
	if strings.HasPrefix(b.code, "package ") || strings.Contains(b.code, "\npackage ") {
		return []byte(b.code), nil
	}
	own, rest, skipped := splitImports(b.code)
	here := fmt.Sprintf("//line %s:%d\n", b.file, b.line+1+skipped)

	header := "package block\n"
	body := here + rest
	file, err := parser.ParseFile(token.NewFileSet(), "", header+body, 0)
	if err != nil {
		header += "func _() error {\n"
		fset := token.NewFileSet()
		file, err = parser.ParseFile(fset, "", header+body+"\nreturn nil }\n", 0)
		if err != nil {
			return nil, err
		}
		var used strings.Builder
		for _, name := range declared(file.Decls[0].(*ast.FuncDecl).Body) {
			fmt.Fprintf(&used, "_ = %s\n", name)
		}
		body = "func _() error {\n" + body + "\n" + used.String() + "return nil\n}\n"
	}

	unresolved := make(map[string]bool)
	for _, ident := range file.Unresolved {
		unresolved[ident.Name] = true
	}
	var top strings.Builder
	for _, name := range slices.Sorted(maps.Keys(ambient)) {
		if unresolved[name] {
			fmt.Fprintf(&top, "var %s %s\n", name, ambient[name])
			for _, match := range qualifier.FindAllStringSubmatch(ambient[name], -1) {
				unresolved[match[1]] = true
			}
		}
	}
	source := "package block\n\n" + own
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		if unresolved[name] && !strings.Contains(own, `"`+imports[name]+`"`) {
			source += fmt.Sprintf("import %q\n", imports[name])
		}
	}
	return format.Source([]byte(source + "\n" + top.String() + "\n" + body))
}

// splitImports cuts the import declarations off the start of code; lines is how
// many lines they took.
func splitImports(code string) (imports, rest string, lines int) {
	const clause = "package p;"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", clause+code, parser.ImportsOnly)
	if err != nil || len(file.Decls) == 0 {
		return "", code, 0
	}
	end := fset.Position(file.Decls[len(file.Decls)-1].End()).Offset - len(clause)
	imports = strings.TrimSpace(code[:end]) + "\n"
	return imports, code[end:], strings.Count(code[:end], "\n")
}

// declared returns the variables that the statements of body declare, nested
// ones not included.
func declared(body *ast.BlockStmt) []string {
	var names []string
	add := func(ident *ast.Ident) {
		if ident.Name != "_" && !slices.Contains(names, ident.Name) {
			names = append(names, ident.Name)
		}
	}
	for _, statement := range body.List {
		switch s := statement.(type) {
		case *ast.AssignStmt:
			for _, left := range s.Lhs {
				if ident, ok := left.(*ast.Ident); ok && s.Tok == token.DEFINE {
					add(ident)
				}
			}
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && s.Decl.(*ast.GenDecl).Tok == token.VAR {
					for _, ident := range v.Names {
						add(ident)
					}
				}
			}
		}
	}
	return names
}

// projectImports returns the import path of each package that a fragment may
// use, by its last element.
func projectImports(t *testing.T) map[string]string {
	imports := make(map[string]string)
	for _, p := range stdImports {
		imports[path.Base(p)] = p
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-f", "{{if ne .Name \"main\"}}{{.ImportPath}}{{end}}", "github.com/embedonce/embedonce/...")
	output, err := list.Output()
	require.NoError(t, err)
	for p := range strings.FieldsSeq(string(output)) {
		if !strings.HasPrefix(p, "github.com/embedonce/embedonce/") || strings.Contains(p, "/internal/") {
			continue
		}
		name := path.Base(p)
		require.NotContains(t, imports, name, "two packages have one name")
		imports[name] = p
	}
	return imports
}

// compile compiles source as a package of this module that exists for the
// compiler alone.
func compile(t *testing.T, source []byte) ([]byte, error) {
	dir := t.TempDir()
	real := filepath.Join(dir, "block.go")
	require.NoError(t, os.WriteFile(real, source, 0o600))
	here, err := os.Getwd()
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(here, "block", "block.go"): real},
	})
	require.NoError(t, err)
	overlayFile := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))

	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlayFile, "-o", os.DevNull, "./block")
	var output bytes.Buffer
	build.Stdout, build.Stderr = &output, &output
	err = build.Run()
	return output.Bytes(), err
}
