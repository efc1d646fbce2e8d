package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"objstore/internal/config"
	"objstore/internal/loadgen"
)

// benchOptions are the flags of objstore bench.
type benchOptions struct {
	access
	size string
	json bool
	cfg  loadgen.Config
}

func newBench(e env) *cobra.Command {
	o := &benchOptions{}
	c := &cobra.Command{
		Use:   "bench",
		Short: "measure an S3 endpoint",
		Long: help(`
Measure one operation against any S3 endpoint with a number of connections that each issue one request after another.
Objects that get, head, list, delete and mixed need are made first, and every object made is removed afterwards; the bucket stays (--keep
leaves it). mixed is 45 % get, 30 % head, 15 % put and 10 % delete. Rates are sums over the connections of operations by
the time each ran; percentiles are of the time from the first byte sent to the last byte read.`,
			"0  measured, no operation failed", "1  nothing could be measured", "2  flags or credentials were refused", "3  measured, but some operations failed"),
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runBench(c.Context(), e, o) },
	}
	o.flags(c, "S3")
	f := c.Flags()
	f.StringVar(&o.cfg.Op, "op", "", "put, get, head, list, delete or mixed")
	f.StringVar(&o.size, "size", "1MiB", "`size` of each object, such as 4KiB")
	f.IntVar(&o.cfg.Concurrency, "concurrency", 8, "number of connections")
	f.DurationVar(&o.cfg.Duration, "duration", 10*time.Second, "how `long` to measure")
	f.StringVar(&o.cfg.Bucket, "bucket", "objstore-bench", "bucket to use; made when it is not there")
	f.StringVar(&o.cfg.Prefix, "prefix", "", "prefix of all keys (default one for each run)")
	f.IntVar(&o.cfg.Objects, "objects", 0, "objects to prepare; for put: keys to write over again and again (default by operation)")
	f.BoolVar(&o.cfg.Unsigned, "unsigned", false, "send UNSIGNED-PAYLOAD instead of the body's SHA-256")
	f.BoolVar(&o.cfg.Verify, "verify", false, "compare every byte that is read")
	f.BoolVar(&o.cfg.NoPrepare, "no-prepare", false, "the objects are there already (from a run with --keep and the same --prefix)")
	f.BoolVar(&o.cfg.Warm, "warm", false, "read every object once before a get is measured")
	f.BoolVar(&o.cfg.Keep, "keep", false, "leave the objects in place")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return c
}

func runBench(ctx context.Context, e env, o *benchOptions) error {
	r, err := o.resolve(e)
	if err != nil {
		return err
	}
	cfg := o.cfg
	cfg.Endpoints, cfg.AccessKey, cfg.SecretKey, cfg.Region = r.s3, r.accessKey, r.secretKey, r.region
	if cfg.Size, err = config.ParseSize(o.size); err != nil {
		return usage(fmt.Errorf("--size: %w", err))
	}
	if cfg.Prefix == "" {
		cfg.Prefix = fmt.Sprintf("bench-%d/", time.Now().UnixNano())
	}
	if err := cfg.Validate(); err != nil {
		return usage(err)
	}
	if f, ok := e.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		cfg.Progress = progressLine(e)
		defer fmt.Fprint(e.err, "\r\x1b[K")
	}
	res, err := loadgen.Run(ctx, cfg)
	if err != nil {
		return err
	}
	if o.json {
		err = writeJSON(e.out, res)
	} else {
		err = writeBench(e, &res)
	}
	if err == nil && res.Errors > 0 {
		return &exitError{exitAbsent, fmt.Errorf("%d operations failed, the first with: %s", res.Errors, res.FirstError)}
	}
	return err
}

// progressLine overwrites one line of a terminal.
func progressLine(e env) func(loadgen.Progress) {
	return func(p loadgen.Progress) {
		s := max(p.Elapsed.Seconds(), 0.001)
		fmt.Fprintf(e.err, "\r\x1b[K%s %4.0f s  %d ops (%.0f/s)  %.1f MiB/s  %d errors", p.Phase, s, p.Ops, float64(p.Ops)/s, float64(p.Bytes)/s/(1<<20), p.Errors)
	}
}

func writeBench(e env, r *loadgen.Result) error {
	_, err := fmt.Fprintf(e.out, "%s %s × %d connections, %.1f s: %d ops, %d errors\n  %.1f ops/s  %.1f MiB/s  p50 %.2f ms  p99 %.2f ms\n",
		r.Op, config.FormatSize(r.Size), r.Concurrency, r.DurationS, r.Ops, r.Errors, r.OpsPerS, r.MiBPerS, r.P50MS, r.P99MS)
	if err == nil && r.Keys > 0 {
		_, err = fmt.Fprintf(e.out, "  %.0f keys/s\n", r.KeysPerS)
	}
	return err
}
