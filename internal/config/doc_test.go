package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	docBegin = "<!-- settings: begin (written by go test ./internal/config -update) -->\n"
	docEnd   = "<!-- settings: end -->\n"
)

var update = flag.Bool("update", false, "rewrite the table in the docs")

// TestTheTableInTheDocsIsCurrent compares docs/configuration.md with the table; -update rewrites it.
func TestTheTableInTheDocsIsCurrent(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "configuration.md")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), docBegin)
	_, tail, ok2 := strings.Cut(rest, docEnd)
	if !ok || !ok2 {
		t.Fatalf("%s: the markers around the table are missing", path)
	}
	var table strings.Builder
	table.WriteString("| setting | kind | default | accepted | what it does |\n|---|---|---|---|---|\n")
	for _, r := range Default().Rows() {
		bounds := strings.ReplaceAll(r.Bounds, "|", ", ")
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", r.Name, r.Kind, dash(r.Default), dash(bounds), r.Help)
	}
	want := head + docBegin + table.String() + docEnd + tail
	if want == string(b) {
		return
	}
	if !*update {
		t.Fatalf("%s: the table differs from the code; run go test ./internal/config -update", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
