package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newCluster(e env) *cobra.Command {
	c := &cobra.Command{
		Use:   "cluster",
		Short: "manage membership",
		Long:  help("Manage a cluster's membership.", "see the commands"),
		Args:  noArguments,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newClusterToken(e))
	return c
}

// tokenOptions are the flags of objstore cluster token.
type tokenOptions struct {
	adminOptions
	ttl time.Duration
}

func newClusterToken(e env) *cobra.Command {
	o := &tokenOptions{}
	c := &cobra.Command{
		Use:   "token",
		Short: "make a one-time token for a node that joins",
		Long: help(`
Make a token with which one node may join the cluster, once, before it expires. It also names the cluster's certificate
authority, so that the joining node knows whom it talks to. Write it to a file and give the file to
objstore server --join HOST --token-file FILE.`,
			"0  the token is on standard output", "1  no node could make one", "2  flags or credentials were refused"),
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runClusterToken(c.Context(), e, o) },
	}
	o.register(c)
	c.Flags().DurationVar(&o.ttl, "ttl", 0, "`time` until it expires (default the server's OBJ_TOKEN_TTL)")
	return c
}

func runClusterToken(ctx context.Context, e env, o *tokenOptions) error {
	c, err := o.client(e)
	if err != nil {
		return err
	}
	t, err := c.Token(ctx, o.ttl)
	if err != nil {
		return err
	}
	if o.json {
		return writeJSON(e.out, t)
	}
	fmt.Fprintln(e.out, t.Token)
	return nil
}
