// Command bench measures objstore on this machine: a dev cluster of four nodes, plaintext and TLS between the nodes,
// PUT and GET of several sizes, HEAD, DELETE and LIST, with the servers' CPU and memory beside the rates. It writes
// bench.json and bench.md; `make bench` runs it. All servers and the client share this machine's cores, so the CPU
// figures are the steadier ones.
//
// main.go has the flags, cells.go what is measured, cluster.go runs the servers, proc.go reads their CPU and memory,
// report.go writes the files.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"objstore/internal/config"
)

// options are the flags.
type options struct {
	binary   string
	dir      string
	out      string
	basePort int
	sizes    []int64
	conc     []int
	ops      []string
	tls      []string
	runs     int
	duration time.Duration
	listKeys int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&o.binary, "binary", "bin/objstore", "the objstore binary to measure")
	fs.StringVar(&o.dir, "dir", "bench-data", "folder for the clusters; each is removed when it was measured")
	fs.StringVar(&o.out, "out", ".", "folder for bench.json and bench.md")
	fs.IntVar(&o.basePort, "base-port", 9400, "first port of the clusters")
	sizes := fs.String("sizes", "4KiB,128KiB,1MiB,10MiB,64MiB", "object sizes")
	conc := fs.String("concurrency", "1,8,32", "numbers of connections")
	ops := fs.String("ops", "put,get,head,delete,list", "operations")
	tls := fs.String("tls", "off,on", "values of OBJ_SHARD_TLS")
	fs.IntVar(&o.runs, "runs", 3, "runs of each cell, interleaved; the median is reported")
	fs.DurationVar(&o.duration, "duration", 4*time.Second, "length of a run")
	fs.IntVar(&o.listKeys, "list-keys", 100_000, "keys of the bucket that is listed")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	for _, s := range strings.Split(*sizes, ",") {
		n, err := config.ParseSize(s)
		if err != nil {
			return nil, err
		}
		o.sizes = append(o.sizes, n)
	}
	for _, s := range strings.Split(*conc, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("concurrency: read %q, expected a number", s)
		}
		o.conc = append(o.conc, n)
	}
	o.ops, o.tls = strings.Split(*ops, ","), strings.Split(*tls, ",")
	if o.runs < 1 || o.duration <= 0 || o.listKeys < 1 {
		return nil, fmt.Errorf("runs %d, duration %s, list-keys %d: expected more than 0", o.runs, o.duration, o.listKeys)
	}
	var err error
	o.binary, err = filepath.Abs(o.binary)
	return o, err
}

func run(ctx context.Context, o *options) error {
	rep := newReport(o)
	for _, tls := range o.tls {
		cells := o.cells(tls)
		if err := measureCluster(ctx, o, tls, cells, rep); err != nil {
			return err
		}
		if err := rep.write(o.out); err != nil { // after each cluster: hours of measuring are not lost to a later failure
			return err
		}
	}
	fmt.Printf("written: %s and %s\n", filepath.Join(o.out, "bench.json"), filepath.Join(o.out, "bench.md"))
	return nil
}
