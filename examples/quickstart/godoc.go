package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	// shortestDoc leaves out the one-liners, which say little on their own.
	shortestDoc = 80 // characters
	// fewestDocs tells a whole standard library from the remains of one: Go 1.26
	// has about 6,400 such paragraphs.
	fewestDocs = 3000
)

// goDocs returns the paragraphs of the standard library's documentation.
func goDocs(ctx context.Context) ([]passage, error) {
	root, err := goRoot(ctx)
	if err != nil {
		return nil, err
	}
	passages, err := packageDocs(filepath.Join(root, "src"))
	if err != nil {
		return nil, err
	}
	if len(passages) < fewestDocs {
		return nil, fmt.Errorf("%s has only %d paragraphs of documentation, at least %d are expected; use -in to embed another text",
			root, len(passages), fewestDocs)
	}
	return passages, nil
}

// goRoot asks the go command, since a program built with -trimpath doesn't know.
func goRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("where is Go's standard library? go env GOROOT: %w; use -in to embed another text", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// packageDocs reads the documentation of all packages below src that a program
// can import, each distinct paragraph once.
func packageDocs(src string) ([]passage, error) {
	// Some distributions make src a link, which WalkDir would not follow.
	src, err := filepath.EvalSymlinks(src)
	if err != nil {
		return nil, err
	}
	var passages []passage
	seen := make(map[string]bool)
	err = filepath.WalkDir(src, func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		switch entry.Name() {
		case "internal", "vendor", "testdata", "cmd":
			return filepath.SkipDir
		}
		pkg, err := parsePackage(src, dir)
		if pkg == nil || err != nil {
			return err
		}
		forEachComment(pkg, func(name, comment string) {
			for n, text := range paragraphs(comment) {
				if utf8.RuneCountInString(text) >= shortestDoc && !seen[text] {
					seen[text] = true
					passages = append(passages, passage{id: fmt.Sprintf("%s#%d", name, n+1), text: text})
				}
			}
		})
		return nil
	})
	return passages, err
}

// parsePackage returns the package in dir as this platform sees it, or nil if
// there is none.
func parsePackage(src, dir string) (*doc.Package, error) {
	listed, err := build.ImportDir(dir, 0)
	var none *build.NoGoError
	if errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range append(listed.GoFiles, listed.CgoFiles...) {
		file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	path, err := filepath.Rel(src, dir)
	if err != nil {
		return nil, err
	}
	return doc.NewFromFiles(fset, files, filepath.ToSlash(path))
}

// forEachComment calls visit with the comment of the package and of each
// exported name in it, fields and methods of interfaces too.
func forEachComment(pkg *doc.Package, visit func(name, comment string)) {
	visitName := func(parts ...string) func(name, comment string) {
		prefix := strings.Join(append([]string{pkg.ImportPath}, parts...), ".")
		return func(name, comment string) { visit(prefix+"."+name, comment) }
	}
	topLevel := visitName()
	values := func(list []*doc.Value) {
		for _, v := range list {
			topLevel(v.Names[0], v.Doc)
			specComments(v.Decl, topLevel)
		}
	}
	funcs := func(list []*doc.Func, visit func(name, comment string)) {
		for _, f := range list {
			visit(f.Name, f.Doc)
		}
	}
	visit(pkg.ImportPath, pkg.Doc)
	values(pkg.Consts)
	values(pkg.Vars)
	funcs(pkg.Funcs, topLevel)
	for _, t := range pkg.Types {
		topLevel(t.Name, t.Doc)
		specComments(t.Decl, visitName(t.Name))
		values(t.Consts)
		values(t.Vars)
		funcs(t.Funcs, topLevel)
		funcs(t.Methods, visitName(t.Name))
	}
}

// specComments calls visit with the comments inside decl: those of single
// constants and variables, of fields and of the methods of interfaces.
func specComments(decl *ast.GenDecl, visit func(name, comment string)) {
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			visit(n.Names[0].Name, n.Doc.Text())
		case *ast.Field:
			if len(n.Names) > 0 && n.Names[0].IsExported() {
				visit(n.Names[0].Name, n.Doc.Text())
			}
		}
		return true
	})
}
