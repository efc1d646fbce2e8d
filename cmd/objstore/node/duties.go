package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/metadata"
	"objstore/metadata/host"
)

const (
	reconcileEvery = 500 * time.Millisecond // at most; a new view is acted on at once
	balanceEvery   = 20 * time.Second       // between two moves of leadership
	dutyInterval   = 250 * time.Millisecond // of the group-0 leader: one membership change each
	countEvery     = 10 * time.Second       // of repair rows, for the metrics
)

// startDuties starts what runs in the background for as long as the node does.
func (n *node) startDuties(ctx context.Context) error {
	s := n.cfg.Settings
	c, err := cluster.NewController(cluster.ControllerConfig{BucketDeps: n.bucketDeps(), Replicas: changer{n}, Lister: changer{n},
		Leading:    func() bool { return n.replicas.hosts()[0].Leader(0) == n.self },
		OnEvent:    n.clusterEvent,
		GroupCount: s.MetaGroups, Interval: dutyInterval})
	if err != nil {
		return err
	}
	if err := n.exportSources(); err != nil {
		return err
	}
	n.background(ctx, n.reconcile)
	n.background(ctx, func(ctx context.Context) {
		if err := c.Run(ctx); err != nil && ctx.Err() == nil {
			n.fatal(err)
		}
	})
	n.background(ctx, n.repair.Run)
	n.background(ctx, n.balance)
	n.background(ctx, n.countRows)
	return nil
}

// reconcile makes the replicas that the map gives this node, keeps the drives' epochs, and shows the banner once.
func (n *node) reconcile(ctx context.Context) {
	shown := false
	for {
		v := n.group0.View()
		for _, g := range sortedKeys(v.Groups) {
			for _, r := range v.Groups[g].Replicas {
				if r.Node != n.self || n.replicas.byID[r.Drive] == nil {
					continue
				}
				if err := n.replicas.ensure(ctx, g, r.ID, r.Drive, v.Groups[g].Founders); err != nil && ctx.Err() == nil {
					n.cfg.Log.Error("a metadata replica cannot be made", "group", g, "drive", r.Drive, "error", err)
				}
			}
		}
		n.followDrives(v)
		if v.Formed && !shown {
			shown = true
			n.showFormed(v)
		}
		timer := time.NewTimer(reconcileEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-n.ready.changed:
			timer.Stop()
		case <-timer.C:
			if v == n.group0.View() && !pauseUntil(ctx, n.ready.changed, time.Minute) {
				return
			}
		}
	}
}

// followDrives tells the store what group 0 says of this node's drives: the oldest map that still places shards right,
// and fences that an earlier process had to be told of.
func (n *node) followDrives(v *cluster.View) {
	for _, d := range n.folders.drives {
		var epoch uint64
		for i := range v.PGs {
			if slices.Contains(v.PGs[i].Drives, d.Drive) {
				epoch = max(epoch, v.PGs[i].Epoch)
			}
		}
		err := n.store.SetMinEpoch(d.Drive, epoch)
		if cd := v.Drives[d.Drive]; err == nil && cd != nil && cd.State == cluster.DriveFenced {
			err = n.store.Fence(d.Drive, errors.New("group 0 says that it was fenced before"))
		}
		if err != nil {
			n.cfg.Log.Error("a drive does not follow the map", "drive", d.Drive, "error", err)
		}
	}
}

// pauseUntil waits for a signal or the time; false when ctx ended.
func pauseUntil(ctx context.Context, signal <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-signal:
	case <-t.C:
	}
	return true
}

// balance hands leadership of a group to its preferred replica when that has caught up again, one group at a time, so
// that the load spreads after a node was away.
func (n *node) balance(ctx context.Context) {
	for pause(ctx, balanceEvery) {
		v := n.group0.View()
		for _, h := range n.replicas.hosts() {
			if n.handOver(ctx, v, h) {
				break
			}
		}
	}
}

func (n *node) handOver(ctx context.Context, v *cluster.View, h *host.Host) bool {
	for _, s := range h.Status() {
		g := v.Groups[s.Group]
		if s.Group == 0 || s.Leader != s.Replica || g == nil || len(g.Replicas) == 0 {
			continue
		}
		to := g.Replicas[0]
		if to.ID == s.Replica || to.Learner || !n.alive(to.Node) || s.Progress[to.ID]+16 < s.Commit {
			continue
		}
		tctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := h.TransferLeadership(tctx, s.Group, to.ID)
		cancel()
		return err == nil
	}
	return false
}

// countRows keeps the repair gauges.
func (n *node) countRows(ctx context.Context) {
	for pause(ctx, countEvery) {
		var pending, lost int64
		for _, g := range n.replicas.leads(n.self) {
			qctx, cancel := context.WithTimeout(ctx, statusTimeout)
			a, err := n.router.GroupQuery(qctx, g, &metadata.Query{Op: metadata.QueryRepairCount})
			cancel()
			if err == nil {
				pending, lost = pending+a.Pending, lost+a.Lost
			}
		}
		n.pending.Store(pending)
		n.lost.Store(lost)
	}
}

func (n *node) clusterEvent(e cluster.Event) {
	n.metrics.Event("controller_" + e.Duty)
	if e.Err != nil {
		n.cfg.Log.Debug("cluster duty failed, it is tried again", "duty", e.Duty, "detail", e.Detail, "error", e.Err)
		return
	}
	n.cfg.Log.Info("cluster duty done", "duty", e.Duty, "detail", e.Detail)
}

// showRoot prints the root credential of a cluster that was just made, once.
func (n *node) showRoot() {
	r := n.folders.root
	fmt.Fprintf(n.cfg.Out, "root access key: %s\nroot secret key: %s\nkept in %s/%s (0600); they are not shown again\n",
		r.AccessKey, r.Secret, n.folders.drives[0].dir, credentialsFile)
}

// showFormed prints what this cluster survives.
func (n *node) showFormed(v *cluster.View) {
	fmt.Fprintf(n.cfg.Out, "cluster %s: %d nodes, %d drives, profile %s\n%s\nS3 on %s, admin on %s, internode on %s\n", v.ClusterID, len(v.Nodes),
		len(v.Drives), v.Profile, strings.Join(cluster.Describe(cluster.ArithmeticOf(v)), "\n"), n.me.S3, n.me.Admin, n.me.Internode)
}

// shardBytes are this node's shard bytes by transport, as the metrics have them.
func (n *node) shardBytes() map[string]int64 {
	out := map[string]int64{}
	families, err := n.registry.Gather()
	if err != nil {
		return out
	}
	for _, f := range families {
		if f.GetName() != "objstore_shard_bytes_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "transport" {
					out[l.GetValue()] += int64(m.GetCounter().GetValue())
				}
			}
		}
	}
	return out
}

// alive is a hint: false only when gossip says that the node is gone.
func (n *node) alive(id ident.Node) bool {
	alive, known := n.liveness(id)
	return alive || !known
}
