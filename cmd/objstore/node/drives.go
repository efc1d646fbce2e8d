package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sys/unix"

	"objstore/admin"
	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/shard/store"
)

// capacity returns the size of the file system under dir in bytes, 0 when it cannot be told.
func capacity(dir string) uint64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0
	}
	return st.Blocks * uint64(st.Bsize)
}

func driveConfig(cfg *Config, d drive) store.DriveConfig {
	s := cfg.Settings
	return store.DriveConfig{ID: d.Drive, Incarnation: d.Incarnation, UUID: d.DriveUUID, Path: d.dir,
		Reserve: s.DriveReserveBytes, Ballast: s.DriveBallastBytes, SegmentSize: s.DriveSegmentBytes}
}

func formatStore(cfg *Config, id ident.ID, d drive) error {
	if err := store.Format(nil, id, driveConfig(cfg, d)); err != nil {
		return fmt.Errorf("data folder %s: %w", d.dir, err)
	}
	return nil
}

// startDrives opens the shard store. A drive that cannot be opened is fenced by it; the others serve.
func (n *node) startDrives(ctx context.Context) error {
	cfg := store.Config{Cluster: n.folders.creds.Cluster,
		OnFence: func(id ident.Drive, cause error) { n.driveFenced(ctx, id, cause) }}
	fenced := n.folders.fenced()
	for _, d := range n.folders.drives {
		dc := driveConfig(&n.cfg, d)
		_, dc.Fenced = fenced[d.Drive]
		cfg.Drives = append(cfg.Drives, dc)
	}
	s := n.cfg.Settings
	cfg.Limits = store.Limits{ReadWorkers: s.DriveReadWorkers, WriteWorkers: s.DriveWriteWorkers, FenceAfter: s.DriveStuckTimeout}
	st, err := store.Open(cfg)
	if err != nil {
		return err
	}
	n.store = st
	n.closing(st.Close)
	return nil
}

// driveFenced tells group 0 that a drive takes no more writes: placement and metadata replicas avoid it from now on. A
// drive may be fenced as early as it is opened, when this node has no group 0 to tell yet.
func (n *node) driveFenced(ctx context.Context, id ident.Drive, cause error) {
	n.cfg.Log.Error("drive is fenced: it takes no more writes until it is replaced", "drive", id, "cause", cause)
	n.metrics.Event("drive_fenced")
	n.background(ctx, func(ctx context.Context) {
		for !n.registered.Load() {
			if !pause(ctx, 200*time.Millisecond) {
				return
			}
		}
		if err := n.tellFenced(ctx, id); err != nil && ctx.Err() == nil {
			n.cfg.Log.Warn("group 0 could not be told of the fenced drive", "drive", id, "error", err)
		}
	})
}

func (n *node) tellFenced(ctx context.Context, id ident.Drive) error {
	d := n.group0.View().Drives[id]
	if d == nil || d.State != cluster.DriveActive {
		return nil
	}
	return n.tell(ctx, &cluster.Command{Op: cluster.OpDriveState, RequestID: ident.New(),
		Drive: &cluster.Drive{ID: id, Incarnation: d.Incarnation, State: cluster.DriveFenced}})
}

// fencedFile says in each folder of a node which of its drives failed a metadata write or sync: they are fenced from the
// next start on.
const fencedFile = "fenced.json"

const fenceWrite = 2 * time.Second // for writing it down

// metadataFailed ends the process by design: what was not synced may be lost, and only a start knows what is there. The
// drive is never trusted again; it is remembered wherever this node can still write.
func (n *node) metadataFailed(d drive, cause error) {
	if errors.Is(cause, unix.ENOSPC) { // full, not broken: nothing that was acknowledged is in doubt
		n.fatal(fmt.Errorf("drive %d at %s is full and its metadata cannot be written: make room, then start the node again: %w", d.Drive, d.dir, cause))
		return
	}
	fenced := n.folders.fenced()
	fenced[d.Drive] = cause.Error()
	written := make(chan struct{})
	go func() { // a drive that hangs must not keep the process
		defer close(written)
		for _, o := range n.folders.drives {
			if err := writeState(o.dir, fencedFile, fenced); err != nil {
				n.cfg.Log.Error("the fence could not be written down here", "folder", o.dir, "error", err)
			}
		}
	}()
	limit := time.NewTimer(fenceWrite)
	defer limit.Stop()
	select {
	case <-written:
	case <-limit.C:
	}
	n.fatal(fmt.Errorf("drive %d at %s failed a metadata write or sync and is fenced from now on; start the node again without repairing it, "+
		"the others take over its metadata: %w", d.Drive, d.dir, cause))
}

// fenced reads what metadataFailed wrote, from any folder.
func (f *folders) fenced() map[ident.Drive]string {
	out := map[ident.Drive]string{}
	for _, d := range f.drives {
		one := map[ident.Drive]string{}
		if readState(d.dir, fencedFile, &one) == nil { // unreadable: the drive itself failed; another folder has it too
			maps.Copy(out, one)
		}
	}
	return out
}

// ownDrives describes this node's drives for the admin API.
func (n *node) ownDrives() []admin.DriveInfo {
	var out []admin.DriveInfo
	for _, s := range n.store.Status() {
		state := s.State
		if state == "ok" {
			state = cluster.DriveActive.String()
		}
		out = append(out, admin.DriveInfo{ID: uint32(s.Drive), Node: uint32(n.self), Incarnation: uint32(s.Incarnation), Path: s.Path, State: state,
			CapacityBytes: uint64(max(s.Capacity, 0)), FreeBytes: uint64(max(s.Free, 0)), Shards: uint64(max(s.Shards, 0)),
			ShardBytes: uint64(max(s.Used, 0)), DirectIO: s.DirectIO, Cause: s.Cause})
	}
	return out
}
