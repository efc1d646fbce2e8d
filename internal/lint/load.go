package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the import path of the repository.
const Module = "objstore"

const maxText = 4 << 20 // bytes; larger files are no text that anybody reads

// File is one file of the tree. AST is nil for what is not Go.
type File struct {
	Path string // from the root, with slashes
	Src  []byte
	Fset *token.FileSet
	AST  *ast.File
}

// Test reports whether it is a Go test file.
func (f *File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Dir is the folder, "." for the root.
func (f *File) Dir() string {
	if i := strings.LastIndexByte(f.Path, '/'); i >= 0 {
		return f.Path[:i]
	}
	return "."
}

// line returns the line of a position.
func (f *File) line(p token.Pos) int { return f.Fset.Position(p).Line }

// Problem is one violation.
type Problem struct {
	Path string
	Line int
	Text string
}

func (p Problem) String() string { return fmt.Sprintf("%s:%d: %s", p.Path, p.Line, p.Text) }

// NewFile parses one file.
func NewFile(path string, src []byte) (*File, error) {
	f := &File{Path: path, Src: src}
	if !strings.HasSuffix(path, ".go") {
		return f, nil
	}
	f.Fset = token.NewFileSet()
	var err error
	f.AST, err = parser.ParseFile(f.Fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	return f, err
}

// Load reads the tree below root: what git tracks or would track, or every file outside hidden folders where there is
// no git.
func Load(root string) ([]*File, error) {
	paths, err := list(root)
	if err != nil {
		return nil, err
	}
	var files []*File
	for _, p := range paths {
		full := filepath.Join(root, filepath.FromSlash(p))
		st, err := os.Lstat(full)
		if err != nil || !st.Mode().IsRegular() || st.Size() > maxText {
			continue // deleted but still in the index, or no text
		}
		src, err := os.ReadFile(full)
		if err != nil {
			return nil, err
		}
		f, err := NewFile(p, src)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func list(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil {
		paths := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
		slices.Sort(paths)
		return slices.Compact(paths), nil
	}
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") && d.Name() != ".ci" {
			return filepath.SkipDir
		}
		if !d.IsDir() {
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			paths = append(paths, filepath.ToSlash(rel))
		}
		return nil
	})
	return paths, err
}
