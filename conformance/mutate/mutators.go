package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// swaps has what comes in place of an operator.
var swaps = map[token.Token][]token.Token{
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD},
	token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.MUL},
	token.SHL: {token.SHR}, token.SHR: {token.SHL},
	token.AND: {token.OR}, token.OR: {token.AND}, token.XOR: {token.AND}, token.AND_NOT: {token.AND},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN},
	token.MUL_ASSIGN: {token.QUO_ASSIGN}, token.QUO_ASSIGN: {token.MUL_ASSIGN}, token.REM_ASSIGN: {token.MUL_ASSIGN},
	token.SHL_ASSIGN: {token.SHR_ASSIGN}, token.SHR_ASSIGN: {token.SHL_ASSIGN},
	token.AND_ASSIGN: {token.OR_ASSIGN}, token.OR_ASSIGN: {token.AND_ASSIGN},
	token.XOR_ASSIGN: {token.AND_ASSIGN}, token.AND_NOT_ASSIGN: {token.AND_ASSIGN},
	token.INC: {token.DEC}, token.DEC: {token.INC},
}

// shifted has the comparison that differs for equal operands alone.
var shifted = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
}

var negated = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
}

// textMethods make text for people: what they say is nobody's contract.
var textMethods = []string{"String", "GoString", "Error", "Format", "LogValue"}

// visit adds the mutants that begin at n, and says whether to look inside.
func (s *source) visit(n ast.Node) bool {
	if e, ok := n.(ast.Expr); ok {
		if value := number(e); value != nil {
			s.number(e, value)
			return false
		}
	}
	switch n := n.(type) {
	case *ast.ArrayType, *ast.StructType, *ast.FuncType, *ast.InterfaceType, *ast.MapType, *ast.ChanType:
		return false
	case *ast.FuncDecl:
		return n.Recv == nil || !slices.Contains(textMethods, n.Name.Name)
	case *ast.GenDecl:
		return n.Tok == token.CONST || n.Tok == token.VAR
	case *ast.ValueSpec:
		named := slices.ContainsFunc(n.Names, func(name *ast.Ident) bool { return name.Name != "_" })
		return named && !mentions(n, "iota")
	case *ast.BlockStmt:
		s.statements(n.List)
	case *ast.CommClause:
		s.statements(n.Body)
	case *ast.CaseClause:
		s.statements(n.Body)
		if sw, ok := s.stack[len(s.stack)-2].(*ast.SwitchStmt); ok && sw.Tag == nil {
			for _, e := range n.List {
				s.condition(e)
			}
		}
	case *ast.IfStmt:
		if mentions(n.Cond, "GOOS") || mentions(n.Cond, "GOARCH") {
			return false // one of its branches can't be run here
		}
		s.condition(n.Cond)
	case *ast.ForStmt:
		s.skip[n.Post] = true // a loop that doesn't go on shows nothing but patience
		if n.Cond != nil {
			s.decide(n.Cond, false)
			s.conditions[ast.Unparen(n.Cond)] = true
		}
	case *ast.ReturnStmt:
		s.results(n)
	case *ast.AssignStmt:
		s.operator(n.TokPos, n.Tok, swaps[n.Tok]...)
	case *ast.IncDecStmt:
		s.operator(n.TokPos, n.Tok, swaps[n.Tok]...)
	case *ast.CallExpr:
		return s.call(n)
	case *ast.CompositeLit:
		s.elements(n)
	case *ast.BinaryExpr:
		s.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.SUB || n.Op == token.NOT && !s.conditions[n] {
			s.replace(n, s.text(n.X), "")
		}
	case *ast.Ident:
		switch n.Name {
		case "true":
			s.replace(n, "false", "")
		case "false":
			s.replace(n, "true", "")
		}
	}
	return true
}

func (s *source) operator(at token.Pos, op token.Token, others ...token.Token) {
	start := s.offset(at)
	for _, other := range others {
		s.add(at, short(s.line(at))+": "+op.String()+" -> "+other.String(), edit{start, start + len(op.String()), other.String()})
	}
}

// line returns the text of the line that has at, without what is around it.
func (s *source) line(at token.Pos) string {
	start := s.offset(at)
	from := strings.LastIndexByte(string(s.src[:start]), '\n') + 1
	line, _, _ := strings.Cut(string(s.src[from:]), "\n")
	return line
}

// condition replaces a condition by true and by false; what it is made of is
// evaluated no more, but still counts as used.
func (s *source) condition(e ast.Expr) {
	s.decide(e, true)
	s.decide(e, false)
	s.conditions[ast.Unparen(e)] = true
}

func (s *source) decide(e ast.Expr, to bool) {
	if to {
		s.replace(e, "(true || ("+s.text(e)+"))", "true")
	} else {
		s.replace(e, "(false && ("+s.text(e)+"))", "false")
	}
}

func (s *source) binary(n *ast.BinaryExpr) {
	switch {
	case n.Op == token.LAND || n.Op == token.LOR:
		s.operator(n.OpPos, n.Op, swaps[n.Op]...)
		for _, operand := range []ast.Expr{n.X, n.Y} {
			if inner, ok := operand.(*ast.BinaryExpr); !ok || inner.Op != n.Op {
				s.decide(operand, n.Op == token.LAND) // as if it weren't there
			}
		}
	case negated[n.Op] != 0:
		if other, ok := shifted[n.Op]; ok {
			s.operator(n.OpPos, n.Op, other)
		}
		if !s.conditions[n] {
			s.operator(n.OpPos, n.Op, negated[n.Op])
		}
	case n.Op == token.MUL && (isUnit(n.X) || isUnit(n.Y)):
		s.scaled[n.X], s.scaled[n.Y] = true, true
	case n.Op == token.ADD && hasText(n):
	default:
		s.operator(n.OpPos, n.Op, swaps[n.Op]...)
	}
}

// isUnit says whether e is time.Second or the like.
func isUnit(e ast.Expr) bool {
	sel, ok := ast.Unparen(e).(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "time"
}

// hasText says whether a sum is one of strings, as far as a literal shows it.
func hasText(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.BinaryExpr:
		return hasText(e.X) || hasText(e.Y)
	case *ast.BasicLit:
		return e.Kind == token.STRING
	}
	return false
}

// number returns the value of an expression of number literals, else nil.
func number(e ast.Expr) constant.Value {
	literal := false
	for inner := e; ; {
		switch x := inner.(type) {
		case *ast.ParenExpr:
			inner = x.X
			continue
		case *ast.UnaryExpr:
			inner = x.X
			continue
		case *ast.BinaryExpr:
			if number(x.X) == nil {
				return nil
			}
			inner = x.Y
			continue
		case *ast.BasicLit:
			literal = x.Kind == token.INT || x.Kind == token.FLOAT
		}
		break
	}
	if !literal {
		return nil
	}
	value, err := types.Eval(token.NewFileSet(), nil, token.NoPos, types.ExprString(e))
	if err != nil || value.Value == nil || value.Value.Kind() != constant.Int && value.Value.Kind() != constant.Float {
		return nil // a comparison, or an overflow
	}
	return value.Value
}

// number replaces n by n+1 and by 0.
func (s *source) number(e ast.Expr, value constant.Value) {
	next := constant.BinaryOp(value, token.ADD, constant.MakeInt64(1))
	if constant.Sign(value) != 0 {
		s.replace(e, "0", "")
		if constant.Sign(next) == 0 {
			return
		}
	}
	if !s.scaled[e] {
		text := next.ExactString()
		if next.Kind() == constant.Float {
			float, _ := constant.Float64Val(next)
			text = fmt.Sprint(float)
		}
		s.replace(e, text, "")
	}
}

// mentions says whether n has an identifier of that name in it.
func mentions(n ast.Node, name string) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return !found
	})
	return found
}
