package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"objstore/cmd/objstore/devcluster"
	"objstore/internal/loadgen"
)

// cell is one combination and what its runs gave.
type cell struct {
	tls  string
	op   string
	size int64
	conc int
	runs []sample
}

// sample is one run.
type sample struct {
	loadgen.Result
	ServerCPU float64 // seconds of all servers
	ClientCPU float64 // seconds
	PeakNode  int64   // bytes, largest of the servers
	PeakSum   int64   // bytes, all servers
}

const (
	smallSize      = 4 << 10   // bytes; of head, delete
	readSet        = 512 << 20 // bytes of the objects that gets read
	deleteKeys     = 20_000    // enough for 4 s
	settleFree     = 12 << 30  // bytes; wait for deleted shards to be gone below it
	settleTimeout  = 90 * time.Second
	settleInterval = time.Second
	bucket         = "bench"
)

// cells lists what one cluster is measured with.
func (o *options) cells(tls string) []*cell {
	var cells []*cell
	has := func(op string) bool { return slices.Contains(o.ops, op) }
	for _, op := range []string{"put", "get"} {
		for _, size := range o.sizes {
			for _, conc := range o.conc {
				if has(op) {
					cells = append(cells, &cell{tls: tls, op: op, size: size, conc: conc})
				}
			}
		}
	}
	for _, op := range []string{"head", "delete"} {
		if has(op) {
			cells = append(cells, &cell{tls: tls, op: op, size: smallSize, conc: 8})
		}
	}
	if has("list") {
		cells = append(cells, &cell{tls: tls, op: "list", conc: 8})
	}
	return cells
}

// load returns the configuration of one run of the cell.
func (c *cell) load(o *options, s *devcluster.State) loadgen.Config {
	l := loadgen.Config{AccessKey: s.AccessKey, SecretKey: s.SecretKey, Region: s.Region, Bucket: bucket, Op: c.op, Size: c.size,
		Concurrency: c.conc, Duration: o.duration, Prefix: fmt.Sprintf("%s-%d/", c.op, c.size)}
	for _, n := range s.Nodes {
		l.Endpoints = append(l.Endpoints, n.S3)
	}
	switch c.op {
	case "get", "head":
		l.Prefix = fmt.Sprintf("read-%d/", c.size)
		l.Objects = int(max(16, min(1000, readSet/c.size)))
		l.NoPrepare, l.Keep = true, true
	case "list":
		l.Prefix, l.Objects = "list/", o.listKeys
		l.NoPrepare, l.Keep = true, true
	case "delete":
		l.Objects = deleteKeys
	}
	return l
}

// prepare makes the objects that get, head and list cells read, and reads the former once.
func prepare(ctx context.Context, o *options, s *devcluster.State, cells []*cell) error {
	done := map[string]bool{}
	for _, c := range cells {
		l := c.load(o, s)
		if !l.NoPrepare || done[l.Prefix] {
			continue
		}
		done[l.Prefix] = true
		fmt.Printf("  preparing %s (%d objects)\n", l.Prefix, l.Objects)
		l.NoPrepare, l.Warm, l.Duration, l.Concurrency = false, true, 10*time.Millisecond, 8
		if _, err := loadgen.Run(ctx, l); err != nil {
			return fmt.Errorf("prepare %s: %w", l.Prefix, err)
		}
	}
	return nil
}

// measure makes one run of the cell.
func (c *cell) measure(ctx context.Context, o *options, s *devcluster.State) error {
	settle(ctx, o.dir)
	var before, after usage
	var errs [2]error
	l := c.load(o, s)
	l.Measuring = func(begins bool) {
		if begins {
			errs[0] = resetPeaks(s)
			before, errs[1] = readUsage(s)
			return
		}
		var err error
		if after, err = readUsage(s); err != nil {
			errs[1] = err
		}
	}
	res, err := loadgen.Run(ctx, l)
	for _, e := range append(errs[:], err) {
		if e != nil {
			return fmt.Errorf("%s %d × %d: %w", c.op, c.size, c.conc, e)
		}
	}
	c.runs = append(c.runs, sample{Result: res, ServerCPU: after.servers - before.servers, ClientCPU: after.client - before.client,
		PeakNode: after.peakNode, PeakSum: after.peakSum})
	fmt.Printf("  tls %-3s %-6s %8d × %-2d  %9.1f/s  %8.1f MiB/s  %6.2f ms CPU/op  %d errors\n", c.tls, c.op, c.size, c.conc, res.OpsPerS, res.MiBPerS,
		1000*(after.servers-before.servers)/float64(max(1, res.Ops)), res.Errors)
	return nil
}

// settle waits while the drive is short of space, for the shards of deleted objects to be removed.
func settle(ctx context.Context, dir string) {
	deadline := time.Now().Add(settleTimeout)
	t := time.NewTicker(settleInterval)
	defer t.Stop()
	for time.Now().Before(deadline) && freeBytes(dir) < settleFree {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
	if freeBytes(dir) < settleFree {
		fmt.Fprintf(os.Stderr, "  less than %d bytes are free in %s; the next run may fail\n", int64(settleFree), dir)
	}
}
