package lint

import (
	"testing"
)

func TestTheTreeFollowsTheRules(t *testing.T) {
	files, err := Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("only %d files found: the tree was not read", len(files))
	}
	for _, rule := range []struct {
		name  string
		check func([]*File) []Problem
	}{{"imports", CheckImports}, {"state", CheckState}, {"style", CheckStyle}, {"settings", CheckSettings}, {"text", CheckText}, {"names", CheckNamedFiles}} {
		t.Run(rule.name, func(t *testing.T) {
			for _, p := range rule.check(files) {
				t.Error(p)
			}
		})
	}
}

func TestExceptionsStillExist(t *testing.T) {
	files, err := Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for _, f := range files {
		paths[f.Path] = true
	}
	for path, why := range longFiles() {
		if !paths[path] || why == "" {
			t.Errorf("%s: no such file, or no reason", path)
		}
	}
}
