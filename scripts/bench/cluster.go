package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"objstore/cmd/objstore/devcluster"
)

const (
	upTimeout   = 75 * time.Second
	downTimeout = 15 * time.Second
	benchNodes  = 4
)

// measureCluster runs one cluster and measures its cells in interleaved runs.
func measureCluster(ctx context.Context, o *options, tls string, cells []*cell, rep *report) (err error) {
	dir := filepath.Join(o.dir, "tls-"+tls)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	fmt.Printf("cluster with OBJ_SHARD_TLS=%s\n", tls)
	s, stop, err := start(ctx, o, dir, tls)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(), os.RemoveAll(dir)) }()
	if err := prepare(ctx, o, s, cells); err != nil {
		return err
	}
	for range o.runs {
		for _, c := range cells {
			if err := c.measure(ctx, o, s); err != nil {
				return err
			}
		}
	}
	for _, c := range cells {
		rep.add(c)
	}
	return nil
}

// start runs objstore dev and waits for its dev.json.
func start(ctx context.Context, o *options, dir, tls string) (*devcluster.State, func() error, error) {
	cmd := exec.Command(o.binary, "dev", "--dir", dir, "--nodes", strconv.Itoa(benchNodes), "--base-port", strconv.Itoa(o.basePort))
	// Deleted shards are removed soon, because put runs write more than the drive holds.
	cmd.Env = append(os.Environ(), "OBJ_SHARD_TLS="+tls, "OBJ_GARBAGE_GRACE=5s")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	stop := func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-exited:
			return err
		case <-time.After(downTimeout):
			cmd.Process.Kill()
			return fmt.Errorf("objstore dev did not stop within %s", downTimeout)
		}
	}
	deadline := time.Now().Add(upTimeout)
	for {
		s, err := devcluster.ReadState(dir)
		if err == nil {
			return s, stop, nil
		}
		select {
		case e := <-exited:
			return nil, nil, fmt.Errorf("objstore dev ended: %w", e)
		case <-ctx.Done():
			return nil, nil, errors.Join(ctx.Err(), stop())
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return nil, nil, errors.Join(err, stop())
		}
	}
}
