package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// CheckState finds mutable state at package level and init functions. Outside cmd a package-level var must be a
// sentinel, a compiled table, an embedded file, a sync.Pool (a cache without meaning) or a blank check of an interface,
// and nothing may assign to it.
func CheckState(files []*File) []Problem {
	var out []Problem
	written := assigned(files)
	for _, f := range files {
		if f.AST == nil || f.Test() {
			continue
		}
		for _, d := range f.AST.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					out = append(out, Problem{f.Path, f.line(d.Pos()), "func init: nothing happens at import"})
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR && !under(f.Dir(), "cmd") && !under(f.Dir(), "scripts") {
					out = append(out, f.checkVars(d, written[f.Dir()])...)
				}
			}
		}
	}
	return out
}

func (f *File) checkVars(d *ast.GenDecl, written map[string]bool) []Problem {
	var out []Problem
	embedded := d.Doc != nil && strings.Contains(docText(d.Doc), "//go:embed")
	for _, s := range d.Specs {
		v := s.(*ast.ValueSpec)
		for i, name := range v.Names {
			at := Problem{Path: f.Path, Line: f.line(name.Pos())}
			switch {
			case name.Name == "_", embedded, v.Doc != nil && strings.Contains(docText(v.Doc), "//go:embed"):
				continue
			case i >= len(v.Values):
				at.Text = fmt.Sprintf("var %s has no value: it can only be mutable state", name.Name)
			case !constantValue(v.Values[i]):
				at.Text = fmt.Sprintf("var %s is neither a sentinel nor a table (allowed: internal/lint/state.go)", name.Name)
			case written[name.Name]:
				at.Text = fmt.Sprintf("var %s is assigned to: mutable state at package level", name.Name)
			default:
				continue
			}
			out = append(out, at)
		}
	}
	return out
}

func docText(g *ast.CommentGroup) string {
	var b strings.Builder
	for _, c := range g.List {
		b.WriteString(c.Text + "\n")
	}
	return b.String()
}

// makers are functions whose result is as good as a constant.
func makers() []string {
	return []string{"errors.New", "fmt.Errorf", "oerr.E", "oerr.Errorf", "regexp.MustCompile", "crc32.MakeTable", "crc64.MakeTable", "strings.NewReplacer",
		"bytes.Repeat", "strings.Repeat", "binary.BigEndian", "base64.StdEncoding.WithPadding", "time.Unix", "xml.Name"}
}

// constantValue reports whether e is a literal, a table, a conversion, or a call of one of makers.
func constantValue(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit, *ast.Ident, *ast.FuncLit:
		return true
	case *ast.SelectorExpr:
		return true // another package's constant or table
	case *ast.BinaryExpr:
		return constantValue(e.X) && constantValue(e.Y)
	case *ast.ParenExpr:
		return constantValue(e.X)
	case *ast.UnaryExpr:
		return e.Op != token.AND && e.Op != token.ARROW && constantValue(e.X)
	case *ast.CompositeLit:
		name := exprName(e.Type)
		return name == "sync.Pool" || !strings.HasPrefix(name, "sync.") && !strings.HasPrefix(name, "atomic.")
	case *ast.CallExpr:
		if _, conversion := e.Fun.(*ast.ArrayType); conversion {
			return true
		}
		if _, computed := e.Fun.(*ast.FuncLit); computed && len(e.Args) == 0 {
			return true // a table that is filled in once
		}
		return slices.Contains(makers(), exprName(e.Fun))
	}
	return false
}

func exprName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return exprName(e.X) + "." + e.Sel.Name
	}
	return ""
}

// assigned collects, for each folder, the names that some statement writes to or takes the address of, as far as the
// syntax tells: a local name that hides a package-level one counts too, which only asks for another name.
func assigned(files []*File) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, f := range files {
		if f.AST == nil || f.Test() {
			continue
		}
		names := out[f.Dir()]
		if names == nil {
			names = map[string]bool{}
			out[f.Dir()] = names
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, l := range n.Lhs {
					if n.Tok != token.DEFINE {
						names[root(l)] = true
					}
				}
			case *ast.IncDecStmt:
				names[root(n.X)] = true
			}
			return true
		})
	}
	return out
}

// root is the identifier that an expression starts at: x of x.y[3].z. Writing through a dereferenced pointer is not
// writing to the name.
func root(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return root(e.X)
	case *ast.IndexExpr:
		return root(e.X)
	case *ast.ParenExpr:
		return root(e.X)
	}
	return ""
}
