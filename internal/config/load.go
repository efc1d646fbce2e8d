package config

import (
	"errors"
	"fmt"
	"strings"
)

// Prefix starts the name of every setting.
const Prefix = "OBJ_"

// maxNameDistance is how many letters a misspelt name may differ in to be offered as what was meant.
const maxNameDistance = 4

// Default returns the settings of an empty environment.
func Default() *Settings {
	s := new(Settings)
	for _, e := range table(s) {
		if err := e.set(e.def); err != nil && e.def != "" {
			panic(fmt.Sprintf("config: default of %s: %v", e.name, err)) // a broken table, caught by every test
		}
	}
	return s
}

// Load reads the settings from an environment in the form of os.Environ. The error names every problem at once, with
// what was read and what was expected; variables without the prefix are not looked at.
func Load(environ []string) (*Settings, error) {
	s := Default()
	rows := table(s)
	byName := make(map[string]entry, len(rows))
	for _, e := range rows {
		byName[e.name] = e
	}
	var problems []error
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, Prefix) {
			continue
		}
		e, ok := byName[name]
		if !ok {
			problems = append(problems, unknown(name, rows))
			continue
		}
		if err := e.set(value); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	problems = append(problems, s.check()...)
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return s, nil
}

// check finds what no single row can see.
func (s *Settings) check() []error {
	var problems []error
	if (s.RootAccessKey == "") != (s.RootSecretKey == "") {
		problems = append(problems, errors.New("OBJ_ROOT_ACCESS_KEY and OBJ_ROOT_SECRET_KEY: read one of them, expected both or none"))
	}
	if s.RDMAInternode {
		problems = append(problems, errors.New("OBJ_RDMA_INTERNODE: read \"on\", expected off: "+
			"this build has no RDMA transport between nodes (docs/configuration.md, section RDMA); shards travel over TCP"))
	}
	return problems
}

func unknown(name string, rows []entry) error {
	best, distance := "", maxNameDistance+1
	for _, e := range rows {
		if d := editDistance(name, e.name); d < distance {
			best, distance = e.name, d
		}
	}
	if best == "" {
		return fmt.Errorf("%s: no such setting (objstore config lists them all)", name)
	}
	return fmt.Errorf("%s: no such setting; did you mean %s?", name, best)
}

// editDistance is Levenshtein's, over bytes: names are ASCII, and a name that is not is merely far from all of them.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
