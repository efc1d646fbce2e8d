package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"objstore/internal/oerr"
)

func newAdmin(e env) *cobra.Command {
	c := &cobra.Command{
		Use:   "admin",
		Short: "look at a cluster and its objects",
		Long:  help("Look at a cluster and its objects through the admin port of any node.", "see the commands"),
		Args:  noArguments,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newAdminInfo(e), newAdminObject(e))
	return c
}

// adminOptions are the flags of the admin commands.
type adminOptions struct {
	access
	json bool
}

func (o *adminOptions) register(c *cobra.Command) {
	o.flags(c, "admin")
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
}

func newAdminInfo(e env) *cobra.Command {
	o := &adminOptions{}
	c := &cobra.Command{
		Use:   "info",
		Short: "show nodes, drives, groups and repair",
		Long: help(`
Show the cluster as the first node that answers sees it: nodes and drives with their state, capacity and leaders, the
map epoch, and how many shards wait for repair. A node that cannot be asked is unknown or dead, never absent.`,
			"0  shown", "1  no node answered", "2  flags or credentials were refused"),
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runAdminInfo(c.Context(), e, o) },
	}
	o.register(c)
	return c
}

func runAdminInfo(ctx context.Context, e env, o *adminOptions) error {
	c, err := o.client(e)
	if err != nil {
		return err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return err
	}
	return show(e.out, o.json, &info)
}

func newAdminObject(e env) *cobra.Command {
	o := &adminOptions{}
	c := &cobra.Command{
		Use:   "object BUCKET/KEY",
		Short: "show and check every shard of an object",
		Long: help(`
Read every shard of the object's current version and show where it lies and in which state it is: ok, missing, corrupt,
or unknown when its node could not be asked. Repair of what is bad is queued.`,
			"0  shown, whatever the states are", "1  no node could answer", "2  flags, arguments or credentials were refused", "3  no such bucket or key"),
		Args: oneArgument("BUCKET/KEY"),
		RunE: func(c *cobra.Command, args []string) error { return runAdminObject(c.Context(), e, o, args[0]) },
	}
	o.register(c)
	return c
}

func runAdminObject(ctx context.Context, e env, o *adminOptions, name string) error {
	bucket, key, ok := strings.Cut(name, "/")
	if !ok || bucket == "" || key == "" {
		return usage(fmt.Errorf("object: read %q, expected BUCKET/KEY", name))
	}
	c, err := o.client(e)
	if err != nil {
		return err
	}
	report, err := c.Object(ctx, bucket, key)
	if oerr.Is(err, oerr.NoSuchBucket) || oerr.Is(err, oerr.NoSuchKey) || oerr.Is(err, oerr.NoSuchVersion) {
		return &exitError{exitAbsent, err}
	}
	if err != nil {
		return err
	}
	return show(e.out, o.json, &report)
}

// show prints v for people or for programs.
func show(w io.Writer, asJSON bool, v interface{ WriteTable(io.Writer) error }) error {
	if !asJSON {
		return v.WriteTable(w)
	}
	return writeJSON(w, v)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
