package main

import (
	"context"

	"github.com/spf13/cobra"

	"objstore/internal/config"
)

// configOptions are the flags of objstore config.
type configOptions struct {
	json bool
}

func newConfig(e env) *cobra.Command {
	o := &configOptions{}
	c := &cobra.Command{
		Use:   "config",
		Short: "show every setting with its value here",
		Long: help(`
Show every setting with the value that the present environment gives it, its default and what is accepted; a star marks
what differs from the default. Secrets are not shown.`,
			"0  shown", "2  a setting is unknown or its value is refused; all of them are named"),
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runConfig(c.Context(), e, o) },
	}
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return c
}

func runConfig(_ context.Context, e env, o *configOptions) error {
	s, err := config.Load(e.environ)
	if err != nil {
		return usage(err)
	}
	if o.json {
		return s.WriteJSON(e.out)
	}
	return s.WriteTable(e.out)
}
