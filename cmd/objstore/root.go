package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Exit statuses that every command shares; each help text lists the ones that it has.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // flags, arguments, settings
	exitAbsent = 3 // what was asked for does not exist, or not everything went well: see the command
)

// env is what a command has of its surroundings, so that tests can give it others.
type env struct {
	environ  []string
	out, err io.Writer
}

// get returns the value of an environment variable, the last one when it is there twice.
func (e env) get(name string) string {
	for i := len(e.environ) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(e.environ[i], "="); ok && k == name {
			return v
		}
	}
	return ""
}

// exitError is an error with a status of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

// execute runs the command line and returns the exit status. Every error is printed here, once.
func execute(ctx context.Context, args []string, e env) int {
	root := newRoot(e)
	root.SetArgs(args)
	root.SetOut(e.out)
	root.SetErr(e.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(e.err, "objstore: %s\n", strings.TrimRight(line, "\n"))
	}
	var ee *exitError
	if errors.As(err, &ee) {
		return ee.code
	}
	return exitFailed
}

func newRoot(e env) *cobra.Command {
	root := &cobra.Command{
		Use:           "objstore",
		Short:         "an S3 object store over erasure-coded shards with Raft metadata",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newServer(e), newDev(e), newAdmin(e), newCluster(e), newConfig(e), newVersion(e), newHealthcheck(e), newBench(e))
	return root
}

// noArguments and the like make a usage error of a wrong number of arguments.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("%s: read the argument %q, expected none (%s --help)", c.CommandPath(), args[0], c.CommandPath()))
	}
	return nil
}

func oneArgument(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(fmt.Errorf("%s: read %d arguments, expected %s", c.CommandPath(), len(args), what))
		}
		return nil
	}
}

// help joins the text of a command and its exit statuses.
func help(text string, statuses ...string) string {
	return strings.TrimSpace(text) + "\n\nEXIT STATUS\n  " + strings.Join(statuses, "\n  ")
}
