package lint

import (
	"fmt"
	"strconv"
	"strings"
)

// layer ranks a folder: a package may import its own rank and what is below. Unknown folders are refused, so that a new
// one is placed on purpose.
func layer(dir string) (int, bool) {
	top, _, _ := strings.Cut(dir, "/")
	switch top {
	case "internal":
		return 1, true
	case "erasure", "shard", "metadata", "cluster":
		return 2, true
	case "repair":
		return 3, true
	case "object":
		return 4, true
	case "s3", "admin", "client":
		return 5, true
	case "cmd", "scripts", "e2e":
		return 6, true
	}
	return 0, false
}

// forbidden are imports that a folder may not have although its layer would allow them. "" is every folder.
type forbidden struct {
	dir    string   // the folder and what is below it
	except []string // folders that may
	path   string   // the import and what is below it
	why    string
	tests  bool // in test files too
}

func forbiddenImports() []forbidden {
	return []forbidden{
		{path: "unsafe", except: []string{"internal/verbs"}, why: "unsafe code lives in internal/verbs only", tests: true},
		{path: "C", why: "the one binary builds with CGO_ENABLED=0", tests: true},
		{path: "net/http", except: []string{"s3", "admin", "cmd", "scripts", "e2e", "client"}, why: "HTTP ends at s3 and admin"},
		{dir: "admin", path: "objstore/s3", why: "admin gets authentication as a function"},
		{dir: "s3", path: "objstore/admin", why: "the two ports know nothing of each other"},
		{dir: "s3", path: "objstore/shard/rdma", why: "shard transports are below the engine"},
		{dir: "s3", path: "objstore/metadata/host", why: "the edge reaches metadata through the engine"},
		{dir: "metadata/host", path: "objstore/metadata", why: "the Raft host knows no object"},
		{dir: "erasure", path: "objstore/shard", why: "the codec is a pure function over buffers"},
		{dir: "erasure", path: "objstore/cluster", why: "the codec is a pure function over buffers"},
		{dir: "erasure", path: "objstore/metadata", why: "the codec is a pure function over buffers"},
		{dir: "shard", path: "objstore/metadata", why: "shards know no keys"},
		{dir: "internal/lint", path: "objstore", why: "the lint test imports nothing that it judges"},
		{path: "log", except: []string{"cluster/gossip"}, why: "engines return errors and emit events; the node logs through slog"},
		{path: "log/slog", except: []string{"cmd", "s3", "admin", "cluster/gossip", "internal/config", "scripts", "e2e"}, why: "engines return errors and emit events; the node logs"},
		{path: "github.com/prometheus/client_golang/prometheus/promauto", why: "no global registry"},
		{path: "github.com/prometheus/client_golang", except: []string{"admin", "cmd"}, why: "metrics are plain structs below admin"},
		{path: "math/rand", except: []string{"math/rand/v2"}, why: "use math/rand/v2 with a seed, or crypto/rand", tests: true},
	}
}

// CheckImports checks the layers and the forbidden imports.
func CheckImports(files []*File) []Problem {
	var out []Problem
	rules := forbiddenImports()
	for _, f := range files {
		if f.AST == nil {
			continue
		}
		mine, known := layer(f.Dir())
		if !known {
			out = append(out, Problem{f.Path, 1, fmt.Sprintf("folder %q is in no layer (internal/lint/imports.go)", f.Dir())})
			continue
		}
		for _, spec := range f.AST.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue
			}
			at := Problem{Path: f.Path, Line: f.line(spec.Pos())}
			if rest, ok := strings.CutPrefix(path, Module+"/"); ok && !f.Test() {
				if theirs, known := layer(rest); !known || theirs > mine {
					at.Text = fmt.Sprintf("%s imports %s, which is above it", f.Dir(), path)
					out = append(out, at)
				}
			}
			for _, r := range rules {
				if r.hits(f, path) {
					at.Text = fmt.Sprintf("imports %s: %s", path, r.why)
					out = append(out, at)
				}
			}
		}
	}
	return out
}

func (r *forbidden) hits(f *File, path string) bool {
	if f.Test() && !r.tests || !under(f.Dir(), r.dir) {
		return false
	}
	// The standard library's packages are meant one by one; a module's with all that is below.
	if exact := !strings.Contains(r.path, ".") && !strings.HasPrefix(r.path, Module); exact && path != r.path || !exact && !under(path, r.path) {
		return false
	}
	// A package below a forbidden one may import its own tree: metadata/host/x may import metadata/host.
	if strings.HasPrefix(r.path, Module) && under(path, Module+"/"+r.dir) && r.dir != "" {
		return false
	}
	for _, e := range r.except {
		if under(f.Dir(), e) || path == e {
			return false
		}
	}
	return true
}

// under reports whether dir is root or below it; every folder is under "".
func under(dir, root string) bool {
	return root == "" || dir == root || strings.HasPrefix(dir, root+"/")
}
