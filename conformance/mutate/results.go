package main

import (
	"go/ast"
	"go/token"
)

// results replaces each returned value by the zero value of its type.
func (s *source) results(n *ast.ReturnStmt) {
	kinds := s.resultTypes()
	if len(kinds) > 1 && len(n.Results) == 1 {
		zeros := ""
		for i, kind := range kinds {
			if i > 0 {
				zeros += ", "
			}
			zeros += s.zero(kind)
		}
		s.instead(n, n.Results[0], zeros)
		return
	}
	if len(kinds) != len(n.Results) {
		return
	}
	for i, e := range n.Results {
		s.result(n, e, kinds[i])
	}
}

// instead returns code in place of e. The statement as it was stays in the text,
// where it is never reached, so that what it uses counts as used.
func (s *source) instead(n *ast.ReturnStmt, e ast.Expr, code string) {
	s.add(e.Pos(), short(s.text(e))+" -> "+code,
		edit{s.offset(n.Pos()), s.offset(n.Pos()), "if false { " + s.text(n) + " }; "}, s.edit(e, code))
}

func (s *source) result(n *ast.ReturnStmt, e, kind ast.Expr) {
	zero := s.zero(kind)
	if number(e) != nil || isZero(e) {
		return // done as a number, or no change
	}
	if zero == "false" {
		if id, ok := e.(*ast.Ident); !ok || id.Name != "true" {
			s.condition(e)
		}
		return
	}
	s.instead(n, e, zero)
	call, ok := e.(*ast.CallExpr)
	if id, isID := kind.(*ast.Ident); ok && isID && id.Name == "error" && !isMaking(call) {
		s.add(e.Pos(), "error ignored: return "+short(s.text(e)),
			s.edit(e, "func() error { _ = "+s.text(e)+"; return nil }()"))
	}
}

// resultTypes returns the type of each result of the function around.
func (s *source) resultTypes() (kinds []ast.Expr) {
	var f *ast.FuncType
	for _, n := range s.stack {
		switch n := n.(type) {
		case *ast.FuncDecl:
			f = n.Type
		case *ast.FuncLit:
			f = n.Type
		}
	}
	if f == nil || f.Results == nil {
		return nil
	}
	for _, field := range f.Results.List {
		for range max(1, len(field.Names)) {
			kinds = append(kinds, field.Type)
		}
	}
	return kinds
}

// zero returns code for the zero value of a type.
func (s *source) zero(kind ast.Expr) string {
	switch kind := ast.Unparen(kind).(type) {
	case *ast.Ident:
		switch kind.Name {
		case "error", "any":
			return "nil"
		case "bool":
			return "false"
		case "string":
			return `""`
		case "int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64", "uintptr", "byte", "rune", "float32", "float64":
			return "0"
		}
	case *ast.StarExpr, *ast.MapType, *ast.FuncType, *ast.ChanType, *ast.InterfaceType:
		return "nil"
	case *ast.ArrayType:
		if kind.Len == nil {
			return "nil"
		}
	}
	return "*new(" + s.text(kind) + ")"
}

func isZero(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e.Name == "nil" || e.Name == "false"
	case *ast.BasicLit:
		return e.Kind == token.STRING && len(e.Value) == 2
	case *ast.CompositeLit:
		return len(e.Elts) == 0
	}
	return false
}
