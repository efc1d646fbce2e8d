package config

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// Row is one setting as it is shown.
type Row struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Kind    string `json:"kind"`   // switch, choice, text, secret, number, size or duration
	Bounds  string `json:"bounds"` // what is accepted
	Help    string `json:"help"`
}

// Rows returns the effective table in its order. A secret's value is not shown, only whether there is one.
func (s *Settings) Rows() []Row {
	entries := table(s)
	rows := make([]Row, 0, len(entries))
	for _, e := range entries {
		v := e.show()
		if e.secret && v != "" {
			v = "**redacted**"
		}
		rows = append(rows, Row{e.name, v, e.def, e.kind, e.bounds, e.help})
	}
	return rows
}

// WriteTable prints the settings for people; those that differ from their default carry a star.
func (s *Settings) WriteTable(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SETTING\tVALUE\tDEFAULT\tACCEPTED")
	for _, r := range s.Rows() {
		star := ""
		if r.Value != r.Default {
			star = " *"
		}
		bounds := r.Bounds
		if bounds == "" {
			bounds = r.Kind
		}
		fmt.Fprintf(tw, "%s\t%s%s\t%s\t%s\n", r.Name, dash(r.Value), star, dash(r.Default), bounds)
	}
	return tw.Flush()
}

// WriteJSON prints the settings for programs, as one array.
func (s *Settings) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(s.Rows())
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
