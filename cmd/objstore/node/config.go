// Package node puts one node together: folders and identity, Raft hosts, internode port, drives, engine, S3 and admin
// ports, background duties; and takes it apart again in order. It is the only place that knows all of objstore.
//
// Run does everything. folders.go finds out whose folders these are and founds or joins a cluster; raft.go owns the
// hosts; serve.go the listeners; duties.go what runs in the background; info.go answers the admin API.
package node

import (
	"io"
	"log/slog"

	"objstore/internal/config"
)

// Config is one node's flags and settings.
type Config struct {
	Settings                     *config.Settings
	Name                         string
	Dirs                         []string // absolute
	S3, Admin, Internode, Gossip string   // ADDR:PORT to listen on
	BootstrapExpect              int      // nodes of a cluster to found; 0 with no Join is a cluster of one
	Join                         string   // HOST[:PORT] of a member
	TokenFile                    string
	AllowSharedDevice            bool
	Version                      string
	Out                          io.Writer // the banner
	Log                          *slog.Logger
}
