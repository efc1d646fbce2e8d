package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"objstore/cmd/objstore/devcluster"
	"objstore/internal/config"
)

// devOptions are the flags of objstore dev.
type devOptions struct {
	dir      string
	nodes    int
	drives   int
	host     string
	basePort int
}

// What a new dev cluster has unless it is told otherwise.
const (
	devDir      = "dev-data"
	devNodes    = 4
	devDrives   = 1
	devHost     = "127.0.0.1"
	devBasePort = 9000
)

func newDev(e env) *cobra.Command {
	o := &devOptions{}
	c := &cobra.Command{
		Use:   "dev",
		Short: "run a whole cluster on this machine",
		Long: help(fmt.Sprintf(`
Run a cluster of several nodes on this machine, each a process of its own, until SIGTERM or SIGINT. It is for trying
objstore out and for tests: all drives share this machine's device and fate.

Node ni listens on base-port + 10·(i-1): S3, admin, internode and gossip on this port and the three after it. Everything
lies in DIR: DIR/ni/d1… are the data folders, DIR/ni/log is the node's log. When every node is ready (within 60 s)
DIR/dev.json says where they are and with which credentials; it is removed at the stop. Started again on the same DIR,
the cluster continues with the data that is there. A node that dies is not started again by itself.

Unless given, nodes, drives, host and base-port are those that DIR was made with, at first %d, %d, %s and %d.`, devNodes, devDrives, devHost, devBasePort),
			"0  stopped in order", "1  a node failed or was not ready in time; its log is quoted", "2  flags or settings were refused"),
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runDev(c.Context(), e, o) },
	}
	c.Flags().StringVar(&o.dir, "dir", devDir, "`folder` for everything")
	c.Flags().IntVar(&o.nodes, "nodes", 0, "number of nodes")
	c.Flags().IntVar(&o.drives, "drives", 0, "number of data folders for each node")
	c.Flags().StringVar(&o.host, "host", "", "local IP `address` to listen on")
	c.Flags().IntVar(&o.basePort, "base-port", 0, "first `port`")
	c.AddCommand(newDevNode(e, "kill", "kill one node (SIGKILL)", devcluster.Kill), newDevNode(e, "start", "start one node again and wait until it is ready", devcluster.Start))
	return c
}

// config makes the cluster's configuration out of flags, memory and defaults.
func (o *devOptions) config(e env) (devcluster.Config, error) {
	settings, err := config.Load(e.environ)
	if err != nil {
		return devcluster.Config{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return devcluster.Config{}, err
	}
	c := devcluster.Config{Dir: o.dir, Nodes: o.nodes, Drives: o.drives, Host: o.host, BasePort: o.basePort, Region: settings.S3Region, Exec: exe,
		Env: e.environ, Out: e.out, AccessKey: settings.RootAccessKey, SecretKey: settings.RootSecretKey}
	if err := devcluster.Remember(o.dir, &c); err != nil {
		return c, err
	}
	if c.Nodes == 0 {
		c.Nodes = devNodes
	}
	if c.Drives == 0 {
		c.Drives = devDrives
	}
	if c.BasePort == 0 {
		c.BasePort = devBasePort
	}
	c.Host = first(c.Host, devHost)
	return c, c.Validate()
}

func runDev(ctx context.Context, e env, o *devOptions) error {
	c, err := o.config(e)
	if err != nil {
		return usage(err)
	}
	fmt.Fprintf(e.out, "starting %d nodes with %d drive(s) each in %s …\n", c.Nodes, c.Drives, c.Dir)
	if err := devcluster.Run(ctx, c, func(s *devcluster.State) { greet(e, o.dir, s) }); err != nil {
		return err
	}
	fmt.Fprintln(e.out, "stopped")
	return nil
}

// greet prints what to paste next.
func greet(e env, dir string, s *devcluster.State) {
	fmt.Fprintf(e.out, "%d nodes are ready:\n", len(s.Nodes))
	for _, n := range s.Nodes {
		fmt.Fprintf(e.out, "  %s  S3 %s  admin %s  pid %d\n", n.Name, n.S3, n.Admin, n.PID)
	}
	self := os.Args[0]
	fmt.Fprintf(e.out, `
Paste into another shell:

  export AWS_ACCESS_KEY_ID=%s
  export AWS_SECRET_ACCESS_KEY=%s
  export AWS_DEFAULT_REGION=%s
  export AWS_ENDPOINT_URL=%s
  aws s3 mb s3://demo
  aws s3 cp /etc/services s3://demo/
  aws s3 ls s3://demo
  %[5]s admin info --dir %[6]s
  %[5]s dev kill n2 --dir %[6]s
  %[5]s dev start n2 --dir %[6]s

Ctrl-C stops the cluster; the data stays in %[6]s.
`, s.AccessKey, s.SecretKey, s.Region, s.Nodes[0].S3, self, dir)
}

// newDevNode makes dev kill and dev start.
func newDevNode(e env, op, short string, do func(ctx context.Context, dir, node string) (int, error)) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   op + " NAME",
		Short: short,
		Long: help(short+`. NAME is n1, n2, … of the dev cluster that runs in DIR.`,
			"0  done", "1  it could not be done: no cluster runs there, no such node, or it is in that state already", "2  flags or arguments were refused"),
		Args: oneArgument("a node's name, such as n2"),
		RunE: func(c *cobra.Command, args []string) error {
			pid, err := do(c.Context(), dir, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(e.out, "%s (pid %d): %s\n", args[0], pid, map[string]string{"kill": "killed", "start": "ready"}[op])
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", devDir, "`folder` of the running dev cluster")
	return c
}
