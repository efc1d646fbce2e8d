// Package lint checks the architecture of the whole repository in one Go test: who imports whom, no mutable state at
// package level, no init functions, file and function length, documentation of packages and settings, and a few habits.
// The rules are in docs/ARCHITECTURE.md; each has an example in rules_test.go that it must find.
//
// load.go reads the tree, imports.go has the layers, state.go what packages may declare, style.go form and tests,
// text.go what is looked for in every text file. Exceptions are listed, with their reasons, in exceptions.go.
package lint
