package admin

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Sources are read at each scrape. A nil function contributes nothing. They must answer from memory: a scrape waits
// for no drive and no other node.
type Sources struct {
	Node    string // label on objstore_cluster_info
	Version string
	Drives  func() []DriveStats
	Groups  func() []GroupStats
	Hosts   func() []HostStats
	Cluster func() ClusterStats
	Repair  func() RepairStats
	Memory  func() []PoolStats
}

// DriveStats are one local drive's counters since the process started.
type DriveStats struct {
	Drive         uint32
	Path          string
	CapacityBytes uint64
	FreeBytes     uint64
	Shards        uint64
	ShardBytes    uint64
	Fenced        bool
	Stuck         int // operations past their deadline now
	Reads         uint64
	ReadBytes     uint64
	Writes        uint64
	WriteBytes    uint64
	Syncs         uint64
	SyncSeconds   float64 // sum over syncs
	Errors        uint64
	Rejected      uint64 // refused because a queue was full
}

// GroupStats are one local replica's.
type GroupStats struct {
	Group   uint32
	Leader  bool // this node leads
	Known   bool // somebody leads
	Applied uint64
	Commit  uint64
	Stopped bool
}

// HostStats are one Raft host's counters (one for each metadata drive).
type HostStats struct {
	Drive             uint32
	Proposals         uint64
	Entries           uint64
	EntryBytes        uint64
	Syncs             uint64
	SyncSeconds       float64
	Elections         uint64
	SnapshotsSent     uint64
	SnapshotsReceived uint64
	Rejected          uint64
}

// ClusterStats are the node's view of the cluster.
type ClusterStats struct {
	Formed     bool
	MapEpoch   uint64
	Nodes      int
	NodesAlive int
	Buckets    int
}

// RepairStats are what the repair worker last knew of the rows of the groups that this node leads, and what it has done
// since the process started.
type RepairStats struct {
	Pending int64
	Lost    int64

	Landed, Rebuilt, Superseded uint64 // repair rows that ended well
	GivenUp                     uint64 // repair rows that ended lost
	Failed                      uint64 // tries that will be made again
	GarbageBlobs                uint64 // deleted blobs removed from all drives
	Orphans                     uint64 // blobs abandoned
	Verified, Bad               uint64 // shards that the background check read; of those found bad
}

// PoolStats are one buffer pool's.
type PoolStats struct {
	Pool        string
	BudgetBytes int64
	InUseBytes  int64
}

// Register adds the sources to reg.
func (s Sources) Register(reg prometheus.Registerer) error { return reg.Register(&collector{s}) }

// collector turns sources into metrics. It is unchecked (Describe sends nothing): which series exist depends on the
// drives and groups that are here.
type collector struct{ s Sources }

func (c *collector) Describe(chan<- *prometheus.Desc) {}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	e := emitter{ch}
	e.gauge("cluster_info", "Always 1.", 1, "node", c.s.Node, "version", c.s.Version)
	if c.s.Drives != nil {
		for _, d := range c.s.Drives() {
			e.drive(d)
		}
	}
	if c.s.Groups != nil {
		for _, g := range c.s.Groups() {
			e.group(g)
		}
	}
	if c.s.Hosts != nil {
		for _, h := range c.s.Hosts() {
			e.host(h)
		}
	}
	if c.s.Cluster != nil {
		v := c.s.Cluster()
		e.gauge("cluster_formed", "1 when the cluster is formed.", flag(v.Formed))
		e.gauge("cluster_map_epoch", "Epoch of the placement-group map that this node follows.", float64(v.MapEpoch))
		e.gauge("cluster_nodes", "Nodes of the cluster.", float64(v.Nodes))
		e.gauge("cluster_nodes_alive", "Nodes that gossip has heard of lately.", float64(v.NodesAlive))
		e.gauge("cluster_buckets", "Buckets.", float64(v.Buckets))
	}
	if c.s.Repair != nil {
		v := c.s.Repair()
		e.gauge("repair_pending", "Repair rows of the groups that this node leads.", float64(v.Pending))
		e.gauge("repair_lost", "Shards that cannot be rebuilt, in those groups.", float64(v.Lost))
		for _, o := range []struct {
			outcome string
			n       uint64
		}{{"landed", v.Landed}, {"rebuilt", v.Rebuilt}, {"superseded", v.Superseded}, {"lost", v.GivenUp}, {"failed", v.Failed}} {
			e.counter("repair_done_total", "Repair rows worked off, by outcome; a failed one is tried again.", float64(o.n), "outcome", o.outcome)
		}
		e.counter("repair_garbage_blobs_total", "Deleted blobs whose shards were removed.", float64(v.GarbageBlobs))
		e.counter("repair_orphan_blobs_total", "Blobs without a reference that were abandoned.", float64(v.Orphans))
		e.counter("repair_verified_shards_total", "Shards that the background check read.", float64(v.Verified))
		e.counter("repair_bad_shards_total", "Shards that the background check found missing or corrupt.", float64(v.Bad))
	}
	if c.s.Memory != nil {
		for _, p := range c.s.Memory() {
			e.gauge("shard_buffer_budget_bytes", "Limit of a buffer pool.", float64(p.BudgetBytes), "pool", p.Pool)
			e.gauge("shard_buffer_in_use_bytes", "Bytes of a buffer pool that are handed out.", float64(p.InUseBytes), "pool", p.Pool)
		}
	}
}

type emitter struct{ ch chan<- prometheus.Metric }

func (e emitter) gauge(name, help string, v float64, labels ...string) {
	e.send(prometheus.GaugeValue, name, help, v, labels)
}

func (e emitter) counter(name, help string, v float64, labels ...string) {
	e.send(prometheus.CounterValue, name, help, v, labels)
}

// send takes labels as name, value, name, value.
func (e emitter) send(t prometheus.ValueType, name, help string, v float64, labels []string) {
	names, values := make([]string, 0, len(labels)/2), make([]string, 0, len(labels)/2)
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	e.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("objstore_"+name, help, names, nil), t, v, values...)
}

func (e emitter) drive(d DriveStats) {
	l := []string{"drive", id(d.Drive), "path", d.Path}
	e.gauge("drive_capacity_bytes", "Size of the drive's file system.", float64(d.CapacityBytes), l...)
	e.gauge("drive_free_bytes", "Free space of the drive's file system.", float64(d.FreeBytes), l...)
	e.gauge("drive_shards", "Sealed shards on the drive.", float64(d.Shards), l...)
	e.gauge("drive_shard_bytes", "Bytes of sealed shards on the drive.", float64(d.ShardBytes), l...)
	e.gauge("drive_fenced", "1 when the drive failed a write or sync and takes no part.", flag(d.Fenced), l...)
	e.gauge("drive_stuck_operations", "Operations that are past their deadline.", float64(d.Stuck), l...)
	e.counter("drive_reads_total", "Reads.", float64(d.Reads), l...)
	e.counter("drive_read_bytes_total", "Bytes read.", float64(d.ReadBytes), l...)
	e.counter("drive_writes_total", "Writes.", float64(d.Writes), l...)
	e.counter("drive_write_bytes_total", "Bytes written.", float64(d.WriteBytes), l...)
	e.counter("drive_syncs_total", "Syncs.", float64(d.Syncs), l...)
	e.counter("drive_sync_seconds_total", "Time spent in syncs.", d.SyncSeconds, l...)
	e.counter("drive_errors_total", "Operations that failed.", float64(d.Errors), l...)
	e.counter("drive_rejected_total", "Operations refused because a queue was full.", float64(d.Rejected), l...)
}

func (e emitter) group(g GroupStats) {
	l := []string{"group", id(g.Group)}
	e.gauge("meta_leader", "1 when this node leads the group.", flag(g.Leader), l...)
	e.gauge("meta_has_leader", "1 when a leader of the group is known here.", flag(g.Known), l...)
	e.gauge("meta_applied_index", "Last log index applied here.", float64(g.Applied), l...)
	e.gauge("meta_commit_index", "Last log index known to be committed.", float64(g.Commit), l...)
	e.gauge("meta_stopped", "1 when the replica was stopped because its rows differ.", flag(g.Stopped), l...)
}

func (e emitter) host(h HostStats) {
	l := []string{"drive", id(h.Drive)}
	e.counter("meta_proposals_total", "Proposals made on this node.", float64(h.Proposals), l...)
	e.counter("meta_entries_total", "Log entries written.", float64(h.Entries), l...)
	e.counter("meta_entry_bytes_total", "Bytes of log entries written.", float64(h.EntryBytes), l...)
	e.counter("meta_syncs_total", "Syncs of the metadata log.", float64(h.Syncs), l...)
	e.counter("meta_sync_seconds_total", "Time spent in syncs of the metadata log.", h.SyncSeconds, l...)
	e.counter("meta_elections_total", "Elections that a replica here began.", float64(h.Elections), l...)
	e.counter("meta_snapshots_sent_total", "Snapshots sent.", float64(h.SnapshotsSent), l...)
	e.counter("meta_snapshots_received_total", "Snapshots installed.", float64(h.SnapshotsReceived), l...)
	e.counter("meta_rejected_total", "Proposals and messages refused because a queue was full.", float64(h.Rejected), l...)
}

func id(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
