package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"

	"objstore/cmd/objstore/node"
	"objstore/internal/config"
)

const (
	maxFolders = 64
	maxExpect  = 32
)

// serverOptions are the flags of objstore server.
type serverOptions struct {
	name                         string
	s3, admin, internode, gossip string
	expect                       int
	join, tokenFile              string
	sharedDevice                 bool
	dirs                         []string
}

func newServer(e env) *cobra.Command {
	o := &serverOptions{}
	c := &cobra.Command{
		Use:   "server DIR…",
		Short: "run one node on these data folders",
		Long: help(`
Run one node. Each DIR is a data folder on a drive of its own; two folders on one device are refused unless
--allow-shared-device is given, because such a pair survives nothing that one folder would not.

On empty folders, without other flags, the server makes a cluster of one node, generates credentials, shows them once
and keeps them in DIR/credentials.json (the first DIR), readable by the owner only. For a cluster of several nodes start
the first with --bootstrap-expect N, get a token for each of the others from it (objstore cluster token) and start them
with --join HOST[:9002] --token-file FILE. When the N nodes are there the cluster forms by itself and fixes its erasure
coding. On folders that belong to a node already, these flags are ignored.

Settings are OBJ_ environment variables; objstore config lists them. An unknown or bad one is refused by name.
SIGTERM and SIGINT stop the node in order.`,
			"0  stopped in order", "1  the node failed; the last line says why", "2  flags, folders or settings were refused"),
		Args: func(c *cobra.Command, args []string) error {
			o.dirs = args
			return usage(o.validate())
		},
		RunE: func(c *cobra.Command, _ []string) error { return runServer(c.Context(), e, o) },
	}
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "`name` of the node (default the host's name)")
	f.StringVar(&o.s3, "s3", ":9000", "`ADDR:PORT` for S3 clients")
	f.StringVar(&o.admin, "admin", ":9001", "`ADDR:PORT` for the admin API and metrics")
	f.StringVar(&o.internode, "internode", ":9002", "`ADDR:PORT` for the other nodes")
	f.StringVar(&o.gossip, "gossip", ":7946", "`ADDR:PORT` for liveness gossip, TCP and UDP")
	f.IntVar(&o.expect, "bootstrap-expect", 0, "found a cluster of `N` nodes")
	f.StringVar(&o.join, "join", "", "`HOST[:PORT]` of a member's internode port: join its cluster")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the one-time token for --join")
	f.BoolVar(&o.sharedDevice, "allow-shared-device", false, "accept two data folders on one device")
	return c
}

// validate returns every problem at once.
func (o *serverOptions) validate() error {
	var p []error
	if len(o.dirs) == 0 || len(o.dirs) > maxFolders {
		p = append(p, fmt.Errorf("read %d data folders, expected 1 to %d (objstore server --help)", len(o.dirs), maxFolders))
	}
	seen := map[string]bool{}
	for i, d := range o.dirs {
		abs, err := filepath.Abs(d)
		if err != nil || d == "" {
			p = append(p, fmt.Errorf("data folder %q: no such path: %w", d, err))
			continue
		}
		if seen[abs] {
			p = append(p, fmt.Errorf("data folder %s is given twice", abs))
		}
		seen[abs] = true
		o.dirs[i] = abs
	}
	for _, a := range []struct{ flag, addr string }{{"s3", o.s3}, {"admin", o.admin}, {"internode", o.internode}, {"gossip", o.gossip}} {
		if _, port, err := net.SplitHostPort(a.addr); err != nil || !validPort(port) {
			p = append(p, fmt.Errorf("--%s: read %q, expected ADDR:PORT", a.flag, a.addr))
		}
	}
	if o.expect < 0 || o.expect > maxExpect {
		p = append(p, fmt.Errorf("--bootstrap-expect: read %d, expected 1 to %d", o.expect, maxExpect))
	}
	if o.expect > 0 && o.join != "" {
		p = append(p, errors.New("--bootstrap-expect and --join: read both, expected one: a node founds a cluster or joins one"))
	}
	if (o.join != "") != (o.tokenFile != "") {
		p = append(p, errors.New("--join and --token-file: read one of them, expected both or none"))
	}
	return errors.Join(p...)
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func runServer(ctx context.Context, e env, o *serverOptions) error {
	settings, err := config.Load(e.environ)
	if err != nil {
		return usage(err)
	}
	if o.name == "" {
		if o.name, err = os.Hostname(); err != nil {
			return usage(fmt.Errorf("--name: not given, and the host has none: %w", err))
		}
	}
	limitMemory(e, settings)
	if err := settings.WriteTable(e.out); err != nil {
		return err
	}
	err = node.Run(ctx, node.Config{
		Settings: settings, Name: o.name, Dirs: o.dirs, S3: o.s3, Admin: o.admin, Internode: o.internode, Gossip: o.gossip,
		BootstrapExpect: o.expect, Join: o.join, TokenFile: o.tokenFile, AllowSharedDevice: o.sharedDevice,
		Version: version, Out: e.out, Log: newLogger(e, settings),
	})
	if refused := (node.Refused{}); errors.As(err, &refused) {
		return usage(err)
	}
	return err
}

// limitMemory applies the memory settings; who sets Go's own variables knows better.
func limitMemory(e env, s *config.Settings) {
	if s.MemoryLimitBytes > 0 && e.get("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(s.MemoryLimitBytes)
	}
	if e.get("GOGC") == "" {
		debug.SetGCPercent(s.GCPercent)
	}
}

func newLogger(e env, s *config.Settings) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(e.err, o))
	}
	return slog.New(slog.NewTextHandler(e.err, o))
}
