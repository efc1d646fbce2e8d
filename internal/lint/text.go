package lint

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

var (
	settingName = regexp.MustCompile(`\bOBJ_[A-Z0-9_]*[A-Z0-9]\b`)
	// machinePath finds folders of the machine that something was written on. The names are put together here, so that
	// this file does not find itself.
	machinePath = regexp.MustCompile("(^|[\\s\"'`(=:,])/(" + "work" + "|" + "root" + "|" + "home/[a-z]+" + ")/")
)

// CheckText looks through every text file: settings that do not exist, and absolute paths of some machine.
func CheckText(files []*File) []Problem {
	known := knownSettings(files)
	var out []Problem
	for _, f := range files {
		if bytes.IndexByte(f.Src, 0) >= 0 || strings.HasSuffix(f.Path, "go.sum") || strings.Contains(f.Path, "testdata/") {
			continue
		}
		for i, line := range strings.Split(string(f.Src), "\n") {
			if m := machinePath.FindString(line); m != "" {
				out = append(out, Problem{f.Path, i + 1, fmt.Sprintf("names a folder of one machine: %q", strings.TrimSpace(m))})
			}
			if f.Test() || strings.HasPrefix(f.Path, "internal/lint/") || f.AST == nil && !isDoc(f.Path) {
				continue
			}
			for _, name := range settingName.FindAllString(line, -1) {
				if !known[name] && plannedSettings()[name] == "" {
					out = append(out, Problem{f.Path, i + 1, name + " is no setting: a process would refuse it"})
				}
			}
		}
	}
	return out
}

// CheckNamedFiles finds file names in docs/ARCHITECTURE.md that are not there: in backquotes, either a path from the root
// or the name of a file in the folder of the path before it.
func CheckNamedFiles(files []*File) []Problem {
	const page = "docs/ARCHITECTURE.md"
	named := regexp.MustCompile("`([a-z0-9_/]+\\.go)`")
	there := map[string]bool{}
	for _, f := range files {
		there[f.Path] = true
	}
	var out []Problem
	for _, f := range files {
		if f.Path != page {
			continue
		}
		dir := "."
		for i, line := range strings.Split(string(f.Src), "\n") {
			for _, m := range named.FindAllStringSubmatch(line, -1) {
				path := m[1]
				if slash := strings.LastIndexByte(path, '/'); slash >= 0 {
					dir = path[:slash]
				} else {
					path = dir + "/" + path
				}
				if !there[path] {
					out = append(out, Problem{page, i + 1, "names " + path + ", which is not there"})
				}
			}
		}
	}
	return out
}

// knownSettings takes the names out of the table in internal/config: the first argument of the ...Entry calls.
func knownSettings(files []*File) map[string]bool {
	known := map[string]bool{}
	entry := regexp.MustCompile(`Entry\("(OBJ_[A-Z0-9_]+)"`)
	for _, f := range files {
		if f.Dir() == "internal/config" && !f.Test() {
			for _, m := range entry.FindAllStringSubmatch(string(f.Src), -1) {
				known[m[1]] = true
			}
		}
	}
	return known
}
