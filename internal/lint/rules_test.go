package lint

import (
	"fmt"
	"strings"
	"testing"
)

const doc = "// Package x is an example.\npackage x\n"

// TestEachRuleFindsItsExample shows that every rule can fail, and that what it allows passes.
func TestEachRuleFindsItsExample(t *testing.T) {
	long := doc + "\nfunc f() {\n" + strings.Repeat("\tg()\n", maxFunctionLines) + "}\n"
	for i, c := range []struct {
		check func([]*File) []Problem
		path  string
		src   string
		want  string // "" is no problem
	}{
		{CheckImports, "shard/a.go", doc + "\nimport _ \"objstore/object\"\n", "above it"},
		{CheckImports, "object/a.go", doc + "\nimport _ \"objstore/shard\"\n", ""},
		{CheckImports, "object/a_test.go", doc + "\nimport _ \"objstore/s3\"\n", ""},
		{CheckImports, "novel/a.go", doc, "in no layer"},
		{CheckImports, "object/a.go", doc + "\nimport _ \"net/http\"\n", "HTTP ends"},
		{CheckImports, "object/a.go", doc + "\nimport _ \"net/http/pprof\"\n", ""},
		{CheckImports, "s3/a.go", doc + "\nimport _ \"net/http\"\n", ""},
		{CheckImports, "shard/tcp/a_test.go", doc + "\nimport _ \"unsafe\"\n", "internal/verbs only"},
		{CheckImports, "internal/verbs/a.go", doc + "\nimport _ \"unsafe\"\n", ""},
		{CheckImports, "admin/a.go", doc + "\nimport _ \"objstore/s3/auth\"\n", "as a function"},
		{CheckImports, "metadata/host/a.go", doc + "\nimport _ \"objstore/metadata\"\n", "knows no object"},
		{CheckImports, "metadata/host/sim/a.go", doc + "\nimport _ \"objstore/metadata/host\"\n", ""},
		{CheckImports, "metadata/a.go", doc + "\nimport _ \"objstore/metadata/host\"\n", ""},
		{CheckImports, "repair/a.go", doc + "\nimport _ \"log/slog\"\n", "the node logs"},
		{CheckImports, "repair/a.go", doc + "\nimport _ \"math/rand\"\n", "math/rand/v2"},
		{CheckImports, "repair/a.go", doc + "\nimport _ \"math/rand/v2\"\n", ""},
		{CheckImports, "repair/a.go", doc + "\nimport _ \"github.com/prometheus/client_golang/prometheus\"\n", "plain structs"},

		{CheckState, "object/a.go", doc + "\nfunc init() {}\n", "func init"},
		{CheckState, "object/a.go", doc + "\nvar counter int\n", "no value"},
		{CheckState, "object/a.go", doc + "\nvar mu = sync.Mutex{}\n", "neither a sentinel"},
		{CheckState, "object/a.go", doc + "\nvar cache = newCache()\n", "neither a sentinel"},
		{CheckState, "object/a.go", doc + "\nvar state = &T{}\n", "neither a sentinel"},
		{CheckState, "object/a.go", doc + "\nvar table = map[string]int{}\n\nfunc f() { table[\"a\"] = 1 }\n", "assigned to"},
		{CheckState, "object/a.go", doc + "\nvar n = 1\n\nfunc f() { n++ }\n", "assigned to"},
		{CheckState, "object/a.go", doc + "\nvar errX = errors.New(\"x\")\n", ""},
		{CheckState, "object/a.go", doc + "\nvar names = [...]string{\"a\"}\n\nvar _ I = (*T)(nil)\n", ""},
		{CheckState, "object/a.go", doc + "\nvar table = func() (t [256]bool) { return t }()\n", ""},
		{CheckState, "object/a.go", doc + "\nvar pool = sync.Pool{}\n", ""},
		{CheckState, "object/a.go", doc + "\n//go:embed x\nvar text string\n", ""},
		{CheckState, "cmd/objstore/a.go", doc + "\nvar version string\n", ""},

		{CheckStyle, "object/a.go", "package x\n", "no doc comment"},
		{CheckStyle, "object/a.go", doc + "func  f() {}\n", "gofmt"},
		{CheckStyle, "object/a.go", long, fmt.Sprintf("%d lines", maxFunctionLines+2)},
		{CheckStyle, "object/a.go", doc + strings.Repeat("\n// x\n", maxFileLines/2), "at most 600"},
		{CheckStyle, "object/a_test.go", doc + "\nfunc f() { time.Sleep(1) }\n", "time.Sleep"},
		{CheckStyle, "object/a_test.go", doc + "\nfunc f() {\n\tfor !g() {\n\t\ttime.Sleep(1)\n\t}\n}\n", "time.Sleep"},
		{CheckStyle, "object/a_test.go", doc + "\nfunc f() {\n\tfor time.Now().Before(d) {\n\t\ttime.Sleep(1)\n\t}\n}\n", ""},
		{CheckStyle, "object/a_test.go", doc + "\nimport _ \"testing/synctest\"\n\nfunc f() { time.Sleep(1) }\n", ""},

		{CheckSettings, "internal/config/a.go", doc + "\ntype Settings struct{ Ignored bool }\n", "Ignored is read by nothing"},

		{CheckNamedFiles, "docs/ARCHITECTURE.md", "`docs/gone.go`\n", "docs/gone.go, which is not there"},
		{CheckNamedFiles, "docs/ARCHITECTURE.md", "`object/` and go\n", ""},

		{CheckText, "README.md", "see /" + "root/x\n", "folder of one machine"},
		{CheckText, "README.md", "run in \"/" + "work/main\"\n", "folder of one machine"},
		{CheckText, "README.md", "a bucket/" + "root/x\n", ""},
		{CheckText, "README.md", "set `OBJ_NO_SUCH=1`\n", "OBJ_NO_SUCH is no setting"},
		{CheckText, "README.md", "the OBJ_META_… settings\n", ""},
	} {
		f, err := NewFile(c.path, []byte(c.src))
		if err != nil {
			t.Fatalf("example %d: %v", i, err)
		}
		got := c.check([]*File{f})
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0].Text, c.want)) {
			t.Errorf("example %d (%s):\n%s\ngot %v, want %q", i, c.path, c.src, got, c.want)
		}
	}
}

func TestAKnownSettingMayBeNamed(t *testing.T) {
	var files []*File
	for path, src := range map[string]string{
		"internal/config/a.go": doc + "\ntype Settings struct{ Known bool }\n\nvar _ = switchEntry(\"OBJ_KNOWN\", 0)\n",
		"README.md":            "set OBJ_KNOWN=on\n",
		"cmd/objstore/b.go":    doc + "\nvar _ = s.Known\n",
	} {
		f, err := NewFile(path, []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if got := append(CheckText(files), CheckSettings(files)...); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}
