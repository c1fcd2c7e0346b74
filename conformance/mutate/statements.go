package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// statements deletes each statement of a block. A lock goes together with its
// unlock: without the one of them the other ends in a panic or for ever, which
// any test finds.
func (s *source) statements(list []ast.Stmt) {
	if p, ok := s.parent().(*ast.IfStmt); ok && len(list) == 1 && p.Else == nil && !errorLost(list[0], nil) {
		return // the condition false is the same
	}
	done := make(map[ast.Stmt]bool)
	for i, st := range list {
		if done[st] {
			continue
		}
		if unlock := s.unlockOf(st, list[i+1:]); unlock != nil {
			done[unlock] = true
			s.delete(st, unlock)
			continue
		}
		if deletable(st) {
			s.delete(st)
		}
		var next ast.Stmt
		if i+1 < len(list) {
			next = list[i+1]
		}
		if errorLost(st, next) {
			s.add(st.Pos(), "error ignored: "+short(s.text(st)), edit{s.offset(st.End()), s.offset(st.End()), "; err = nil"})
		}
	}
}

func deletable(st ast.Stmt) bool {
	switch st := st.(type) {
	case *ast.ExprStmt:
		call, ok := st.X.(*ast.CallExpr)
		return !ok || !isMessage(call)
	case *ast.AssignStmt:
		return st.Tok != token.DEFINE && (!blank(st.Lhs) || slices.ContainsFunc(st.Rhs, hasCall))
	case *ast.BranchStmt:
		return st.Tok == token.BREAK || st.Tok == token.CONTINUE
	case *ast.ReturnStmt:
		return len(st.Results) == 0
	case *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.RangeStmt:
		return true
	}
	return false
}

func blank(list []ast.Expr) bool {
	for _, e := range list {
		if id, ok := e.(*ast.Ident); !ok || id.Name != "_" {
			return false
		}
	}
	return true
}

func hasCall(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			found = true
		case *ast.UnaryExpr:
			found = found || n.Op == token.ARROW
		}
		return !found
	})
	return found
}

// errorLost says whether st sets err from a call, and next is no condition on it:
// there, ignoring the error is the condition decided the other way.
func errorLost(st, next ast.Stmt) bool {
	assign, ok := st.(*ast.AssignStmt)
	if !ok || len(assign.Rhs) != 1 {
		return false
	}
	call, ok := assign.Rhs[0].(*ast.CallExpr)
	if !ok || isMaking(call) {
		return false
	}
	set := slices.ContainsFunc(assign.Lhs, func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return ok && id.Name == "err"
	})
	check, ok := next.(*ast.IfStmt)
	return set && !(ok && mentions(check.Cond, "err"))
}

// unlockOf returns the statement of rest that gives back the lock that st takes.
func (s *source) unlockOf(st ast.Stmt, rest []ast.Stmt) ast.Stmt {
	lock := s.plainCall(st)
	owner, ok := strings.CutSuffix(lock, "Lock()")
	if !ok {
		return nil
	}
	owner, reading := strings.CutSuffix(owner, ".R")
	unlock := strings.TrimSuffix(owner, ".") + ".Unlock()"
	if reading {
		unlock = owner + ".RUnlock()"
	}
	for _, other := range rest {
		if s.plainCall(other) == unlock {
			return other
		}
	}
	return nil
}

// plainCall returns the text of a statement that is a call, deferred or not.
func (s *source) plainCall(st ast.Stmt) string {
	switch st := st.(type) {
	case *ast.ExprStmt:
		return s.text(st.X)
	case *ast.DeferStmt:
		return s.text(st.Call)
	}
	return ""
}

// calledName returns "pkg.Func", "value.Method" or "func", else "".
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// isMessage says whether a call does nothing but log or make an error's text.
func isMessage(call *ast.CallExpr) bool {
	name := calledName(call)
	return name == "errors.New" || strings.HasPrefix(name, "log.") || strings.HasPrefix(name, "slog.")
}

// isMaking says whether a call only makes an error.
func isMaking(call *ast.CallExpr) bool {
	name := calledName(call)
	return strings.HasPrefix(name, "errors.") || name == "fmt.Errorf"
}

// call adds what is special to calls, and says whether to look inside.
func (s *source) call(n *ast.CallExpr) bool {
	switch {
	case isMessage(n):
		return false
	case calledName(n) == "fmt.Errorf":
		s.unwrap(n)
		return false
	case calledName(n) == "make":
		// A capacity, and the size of a map, are about speed alone.
		if _, isMap := n.Args[0].(*ast.MapType); isMap && len(n.Args) == 2 || len(n.Args) == 3 {
			s.skip[n.Args[len(n.Args)-1]] = true
		}
	}
	return true
}

// unwrap has the error print each error that it wrapped.
func (s *source) unwrap(n *ast.CallExpr) {
	format, ok := n.Args[0].(*ast.BasicLit)
	if !ok {
		return
	}
	text := s.text(format)
	for i := 0; ; {
		next := strings.Index(text[i:], "%w")
		if next < 0 {
			return
		}
		i += next + len("%w")
		at := s.offset(format.Pos()) + i - 1
		s.add(format.Pos()+token.Pos(i-2), short(s.text(n))+": %w -> %v", edit{at, at + 1, "v"})
	}
}

// elements leaves out fields of a struct and elements of a slice, other than
// those that are replaced by 0 or false anyway.
func (s *source) elements(n *ast.CompositeLit) {
	array, ok := n.Type.(*ast.ArrayType)
	isSlice := ok && array.Len == nil
	for _, e := range n.Elts {
		value := e
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			if _, field := pair.Key.(*ast.Ident); !field {
				continue
			}
			value = pair.Value
		} else if !isSlice {
			continue
		}
		id, _ := value.(*ast.Ident)
		if number(value) != nil || id != nil && (id.Name == "true" || id.Name == "false" || id.Name == "nil") {
			continue
		}
		start, end := s.offset(e.Pos()), s.offset(e.End())
		rest := strings.TrimLeft(string(s.src[end:]), " \t")
		if strings.HasPrefix(rest, ",") {
			end = len(s.src) - len(rest) + 1
		}
		s.add(e.Pos(), "left out "+short(s.text(e)), edit{start, end, ""})
	}
}
