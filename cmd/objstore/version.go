package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// version is set at link time (-ldflags "-X main.version=…", Makefile); a plain go build has none.
var version = "devel"

// versionInfo is the answer of objstore version --json.
type versionInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// versionOptions are the flags of objstore version.
type versionOptions struct {
	json bool
}

func newVersion(e env) *cobra.Command {
	o := &versionOptions{}
	c := &cobra.Command{
		Use:   "version",
		Short: "show the version of this binary",
		Long:  help("Show the version of this binary.", "0  shown"),
		Args:  noArguments,
		RunE:  func(c *cobra.Command, _ []string) error { return runVersion(c.Context(), e, o) },
	}
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return c
}

func runVersion(_ context.Context, e env, o *versionOptions) error {
	v := versionInfo{version, runtime.Version(), runtime.GOOS, runtime.GOARCH}
	if o.json {
		return writeJSON(e.out, v)
	}
	_, err := fmt.Fprintf(e.out, "objstore %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
	return err
}
