package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"sort"
	"strings"
)

const (
	maxFileLines     = 600
	maxFunctionLines = 100
)

// CheckStyle finds files that gofmt would change, files and functions that are too long, packages without a doc
// comment, and sleeping tests.
func CheckStyle(files []*File) []Problem {
	var out []Problem
	documented, packages := map[string]bool{}, map[string]*File{}
	for _, f := range files {
		if f.AST == nil {
			continue
		}
		if formatted, err := format.Source(f.Src); err != nil || !bytes.Equal(formatted, f.Src) {
			out = append(out, Problem{f.Path, 1, "gofmt would change it"})
		}
		if n := bytes.Count(f.Src, []byte("\n")); n > maxFileLines && longFiles()[f.Path] == "" {
			out = append(out, Problem{f.Path, n, fmt.Sprintf("%d lines, at most %d (internal/lint/exceptions.go)", n, maxFileLines)})
		}
		if f.Test() {
			out = append(out, f.sleeps()...)
			continue
		}
		out = append(out, f.longFunctions()...)
		documented[f.Dir()] = documented[f.Dir()] || f.AST.Doc != nil
		if packages[f.Dir()] == nil {
			packages[f.Dir()] = f
		}
	}
	for dir, f := range packages {
		if !documented[dir] {
			out = append(out, Problem{f.Path, 1, "package " + f.AST.Name.Name + " has no doc comment"})
		}
	}
	sort.Slice(out, func(i, j int) bool {
		return out[i].Path < out[j].Path || out[i].Path == out[j].Path && out[i].Line < out[j].Line
	})
	return out
}

func (f *File) longFunctions() []Problem {
	var out []Problem
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		lines := f.line(fn.End()) - f.line(fn.Pos()) + 1
		if lines > maxFunctionLines && longFunctions()[f.Path+":"+fn.Name.Name] == "" {
			out = append(out, Problem{f.Path, f.line(fn.Pos()), fmt.Sprintf("func %s has %d lines, at most %d (internal/lint/exceptions.go)", fn.Name.Name, lines, maxFunctionLines)})
		}
	}
	return out
}

// sleeps finds time.Sleep in tests. Two forms are good: the pause of a loop that polls a condition under a deadline, and
// a synctest bubble, where sleeping takes no time and is deterministic.
func (f *File) sleeps() []Problem {
	if bytes.Contains(f.Src, []byte(`"testing/synctest"`)) {
		return nil
	}
	var out []Problem
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		var loops []ast.Node // for statements that look at the clock
		ast.Inspect(fn, func(n ast.Node) bool {
			if loop, ok := n.(*ast.ForStmt); ok && looksAtClock(loop) {
				loops = append(loops, loop)
			}
			return true
		})
		ast.Inspect(fn, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || exprName(s) != "time.Sleep" {
				return true
			}
			for _, l := range loops {
				if l.Pos() < s.Pos() && s.End() < l.End() {
					return true
				}
			}
			out = append(out, Problem{f.Path, f.line(s.Pos()), "time.Sleep in a test: poll a condition under a deadline"})
			return true
		})
	}
	return out
}

func looksAtClock(n ast.Node) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			switch exprName(s) {
			case "time.Now", "time.Since", "time.Until", "ctx.Err":
				found = true
			}
		}
		return true
	})
	return found
}

// CheckSettings finds settings that nothing reads: accepted and not obeyed would be a lie. Only cmd and admin see
// config.Settings; the packages below have fields of the same names in configurations of their own.
func CheckSettings(files []*File) []Problem {
	var fields []Problem // Text is the field's name
	read := map[string]bool{}
	for _, f := range files {
		if f.AST == nil || f.Test() {
			continue
		}
		inConfig, reader := f.Dir() == "internal/config", under(f.Dir(), "cmd") || under(f.Dir(), "admin")
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				read[n.Sel.Name] = read[n.Sel.Name] || reader
			case *ast.TypeSpec:
				st, ok := n.Type.(*ast.StructType)
				if !ok || !inConfig || n.Name.Name != "Settings" {
					return true
				}
				for _, field := range st.Fields.List {
					for _, name := range field.Names {
						fields = append(fields, Problem{f.Path, f.line(name.Pos()), name.Name})
					}
				}
			}
			return true
		})
	}
	var out []Problem
	for _, p := range fields {
		if !read[p.Text] && unreadSettings()[p.Text] == "" {
			p.Text = "setting " + p.Text + " is read by nothing"
			out = append(out, p)
		}
	}
	return out
}

// isDoc reports whether a file is prose or build rules, where a name must be right although no compiler looks.
func isDoc(path string) bool {
	for _, suffix := range []string{".md", "Makefile", ".sh", ".ci/run", ".service"} {
		if strings.HasSuffix(path, suffix) {
			return true
		}
	}
	return false
}
