package node

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
)

const (
	probeEvery   = time.Second // an answer to /-/ready is at most this old
	probeTimeout = 3 * time.Second
	probeBytes   = 4 << 10
)

// readiness caches the last probe, so that many askers cost one.
type readiness struct {
	changed chan struct{}
	mu      sync.Mutex
	at      time.Time
	err     error
}

// Live implements s3.Health: the process answers.
func (n *node) Live(context.Context) error { return nil }

// Ready implements s3.Health: this node can take a write now. It is tried, not inferred.
func (n *node) Ready(ctx context.Context) error {
	n.ready.mu.Lock()
	defer n.ready.mu.Unlock()
	if !n.ready.at.IsZero() && time.Since(n.ready.at) < probeEvery && n.ready.err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	n.ready.err = n.probe(ctx)
	n.ready.at = time.Now()
	return n.ready.err
}

func (n *node) probe(ctx context.Context) error {
	v := n.group0.View()
	switch {
	case !n.registered.Load():
		return oerr.Errorf("ready", oerr.Unavailable, "group 0 does not know this process yet")
	case !v.Formed:
		return oerr.Errorf("ready", oerr.Unavailable, "the cluster waits for %d nodes", v.Expect)
	}
	if err := n.probeShard(ctx, v); err != nil {
		return err
	}
	return n.probeMetadata(ctx, v)
}

// probeShard writes, syncs and removes a shard on the first drive here that takes writes. A node whose drives are all
// full or fenced is ready as long as others' drives take what clients write through it.
func (n *node) probeShard(ctx context.Context, v *cluster.View) error {
	for _, d := range n.folders.drives {
		cd := v.Drives[d.Drive]
		if cd == nil || cd.State != cluster.DriveActive {
			continue
		}
		err := n.probeDrive(ctx, cd, v.Epoch)
		if oerr.Is(err, oerr.DriveFull) || oerr.Is(err, oerr.DriveFenced) {
			continue
		}
		return err
	}
	return n.writable(v)
}

func (n *node) probeDrive(ctx context.Context, d *cluster.Drive, epoch uint64) error {
	buf, err := n.pools["repair"].Get(ctx, probeBytes)
	if err != nil {
		return err
	}
	defer buf.Release()
	rand.Read(buf.B)
	ref := shard.Ref{Drive: d.ID, Incarnation: d.Incarnation, Epoch: epoch, Blob: ident.New()}
	w, err := n.store.Create(ctx, shard.Spec{Ref: ref, K: 1, CellSize: probeBytes, Length: probeBytes, BodyLen: probeBytes, Attempt: 1,
		Bucket: ref.Blob, Version: ref.Blob, Key: "probe", Writer: shard.WriterID{Node: n.self, StartID: n.start}})
	if err != nil {
		return fmt.Errorf("drive %d: %w", d.ID, err)
	}
	if err := w.Append(ctx, buf, buf.B, shard.AppendCRCs(nil, ref.Blob, 0, 0, buf.B)); err != nil {
		w.Abort(err)
		return fmt.Errorf("drive %d: %w", d.ID, err)
	}
	if _, err := w.Commit(ctx); err != nil {
		return fmt.Errorf("drive %d: %w", d.ID, err)
	}
	return n.store.Delete(ctx, []shard.Ref{ref})[0]
}

// probeMetadata commits an entry that changes nothing in one metadata group, and reads another.
func (n *node) probeMetadata(ctx context.Context, v *cluster.View) error {
	groups := sortedKeys(v.Groups)
	pick := func() ident.Group { var b [1]byte; rand.Read(b[:]); return groups[int(b[0])%len(groups)] }
	write, read := pick(), pick()
	if write == 0 || read == 0 {
		write, read = groups[len(groups)-1], groups[len(groups)-1]
	}
	if _, err := n.router.GroupCommand(ctx, write, &metadata.Command{Op: metadata.OpGarbageDone, Bucket: ident.New(), Blobs: []ident.ID{ident.New()}}); err != nil && !oerr.Is(err, oerr.NoSuchBucket) {
		return err
	}
	_, err := n.router.GroupQuery(ctx, read, &metadata.Query{Op: metadata.QueryRepairCount})
	return err
}

// Cluster implements s3.Health: enough of the cluster is there to read and write everything.
func (n *node) Cluster(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*probeTimeout)
	defer cancel()
	v, err := n.group0.Sync(ctx)
	if err != nil {
		return err
	}
	if !v.Formed {
		return oerr.Errorf("cluster", oerr.Unavailable, "the cluster waits for %d nodes", v.Expect)
	}
	if err := n.writable(v); err != nil {
		return err
	}
	for _, g := range sortedKeys(v.Groups) {
		if g == 0 {
			continue
		}
		if _, err := n.router.GroupQuery(ctx, g, &metadata.Query{Op: metadata.QueryRepairCount}); err != nil {
			return err
		}
	}
	return nil
}

// writable says whether some placement group has a write quorum of drives that are active on nodes not known down.
func (n *node) writable(v *cluster.View) error {
	for i := range v.PGs {
		up := 0
		for _, id := range v.PGs[i].Drives {
			if d := v.Drives[id]; d != nil && d.State == cluster.DriveActive && n.alive(d.Node) {
				up++
			}
		}
		if up >= v.PGs[i].Profile.WriteQuorum() {
			return nil
		}
	}
	return oerr.Errorf("cluster", oerr.Unavailable, "no placement group has enough drives up to take a write")
}
