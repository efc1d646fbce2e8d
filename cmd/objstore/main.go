// Command objstore is an S3 object store for a few machines or many: `objstore server` runs one node, `objstore dev` a
// whole cluster on this machine, the other commands operate and measure them. One file for each command: its options,
// its flags, and a run function that a test can call. Assembly of a node is in cmd/objstore/node, the dev cluster's
// supervisor in cmd/objstore/devcluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], env{environ: os.Environ(), out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
