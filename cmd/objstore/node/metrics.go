package node

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"objstore/admin"
	"objstore/internal/ident"
	"objstore/metadata/host"
)

// startMetrics makes the registry; the sources are read at each scrape, once they are there.
func (n *node) startMetrics(context.Context) error {
	n.registry = prometheus.NewRegistry()
	m, err := admin.NewMetrics(n.registry, n.cfg.Settings.MetricsGoCollector)
	if err != nil {
		return err
	}
	n.metrics = m
	return nil
}

// exportSources adds what the components count themselves. It is called when all of them run.
func (n *node) exportSources() error {
	return admin.Sources{Node: n.cfg.Name, Version: n.cfg.Version, Drives: n.driveStats, Groups: n.groupStats, Hosts: n.hostStats,
		Cluster: n.clusterStats, Repair: n.repairStats, Memory: n.poolStats}.Register(n.registry)
}

func (n *node) driveStats() []admin.DriveStats {
	metrics := n.store.Metrics()
	status := n.store.Status()
	out := make([]admin.DriveStats, 0, len(status))
	for i, s := range status {
		m := metrics[i]
		out = append(out, admin.DriveStats{Drive: uint32(s.Drive), Path: s.Path, CapacityBytes: uint64(max(s.Capacity, 0)),
			FreeBytes: uint64(max(s.Free, 0)), Shards: uint64(max(s.Shards, 0)), ShardBytes: uint64(max(s.Used, 0)), Fenced: m.Fenced, Stuck: m.Stuck,
			Reads: uint64(m.Reads), ReadBytes: uint64(m.ReadBytes), Writes: uint64(m.ShardsWritten), WriteBytes: uint64(m.WrittenBytes),
			Syncs: uint64(m.Syncs), SyncSeconds: m.CommitLatency.Sum.Seconds(), Errors: uint64(m.ReadErrors)})
	}
	return out
}

func (n *node) groupStats() []admin.GroupStats {
	var out []admin.GroupStats
	for _, s := range n.replicas.status() {
		out = append(out, admin.GroupStats{Group: uint32(s.Group), Leader: s.Leader == s.Replica, Known: s.Leader != 0, Applied: s.Applied,
			Commit: s.Commit, Stopped: s.Stopped != ""})
	}
	return out
}

func (n *node) hostStats() []admin.HostStats {
	var out []admin.HostStats
	for i, h := range n.replicas.hosts() {
		m := h.Metrics()
		out = append(out, admin.HostStats{Drive: uint32(n.folders.drives[i].Drive), Proposals: m.Proposals, Entries: m.Applied, EntryBytes: m.LogBytes,
			Syncs: m.Syncs, SyncSeconds: m.SyncTime.Seconds(), Elections: m.Elections, SnapshotsSent: m.SnapshotsOut,
			SnapshotsReceived: m.SnapshotsIn, Rejected: m.Rejected})
	}
	return out
}

func (n *node) clusterStats() admin.ClusterStats {
	v := n.group0.View()
	st := admin.ClusterStats{Formed: v.Formed, MapEpoch: v.Epoch, Buckets: len(v.Buckets)}
	for id, nd := range v.Nodes {
		if nd.Removed {
			continue
		}
		st.Nodes++
		if n.alive(id) {
			st.NodesAlive++
		}
	}
	return st
}

func (n *node) repairStats() admin.RepairStats {
	st := admin.RepairStats{Pending: n.pending.Load(), Lost: n.lost.Load()}
	w := n.repairs.Load()
	if w == nil {
		return st
	}
	m := &w.Metrics
	count := func(c *atomic.Int64) uint64 { return uint64(max(c.Load(), 0)) }
	st.Landed, st.Rebuilt, st.Superseded = count(&m.Landed), count(&m.Rebuilt), count(&m.Superseded)
	st.GivenUp, st.Failed = count(&m.Lost), count(&m.Failed)
	st.GarbageBlobs, st.Orphans = count(&m.GarbageBlobs), count(&m.Orphans)
	st.Verified, st.Bad = count(&m.VerifiedShards), count(&m.BadShards)
	return st
}

func (n *node) poolStats() []admin.PoolStats {
	var out []admin.PoolStats
	for name, p := range n.pools {
		out = append(out, admin.PoolStats{Pool: name, BudgetBytes: p.Budget(), InUseBytes: p.InUse()})
	}
	return out
}

// raftEvent logs what an operator may have to look at, and counts everything.
func (n *node) raftEvent(d ident.Drive, e host.Event) {
	n.metrics.Event("raft_" + e.Kind.String())
	switch e.Kind {
	case host.EventStopped:
		n.cfg.Log.Error("a metadata replica was stopped", "drive", d, "group", e.Group, "why", e.Text)
	case host.EventSnapshotFailed, host.EventClock:
		n.cfg.Log.Warn("raft", "event", e.Kind.String(), "drive", d, "group", e.Group, "detail", e.Text)
	case host.EventLeader, host.EventLeaderLost, host.EventSnapshotSent, host.EventSnapshotReceived:
		n.cfg.Log.Debug("raft", "event", e.Kind.String(), "drive", d, "group", e.Group, "term", e.Term)
	}
}
