package admin

import "time"

// Node states as Info has them. Unknown is not dead: nobody has heard either way.
const (
	StateAlive   = "alive"
	StateDead    = "dead"
	StateUnknown = "unknown"
)

// Info is the cluster as one node sees it. Sizes are bytes.
type Info struct {
	ClusterID  string           `json:"cluster_id"`
	Format     uint32           `json:"format"`
	Formed     bool             `json:"formed"`
	Expect     int              `json:"expect"` // nodes that formation waits for
	Profile    string           `json:"profile"`
	MapEpoch   uint64           `json:"map_epoch"`
	PGs        int              `json:"pgs"`
	Version    string           `json:"version"` // of the node that answers
	AnsweredBy uint32           `json:"answered_by"`
	Nodes      []NodeInfo       `json:"nodes"`
	Drives     []DriveInfo      `json:"drives"`
	Groups     []GroupInfo      `json:"groups"`
	Repair     RepairInfo       `json:"repair"`
	Buckets    int              `json:"buckets"`
	Survives   []string         `json:"survives,omitempty"`        // what the cluster survives, in sentences
	Transport  map[string]int64 `json:"transport_bytes,omitempty"` // shard bytes of the answering node by transport
	Warnings   []string         `json:"warnings,omitempty"`        // what could not be found out, and what needs a hand
}

// NodeInfo is one node.
type NodeInfo struct {
	ID        uint32 `json:"id"`
	Name      string `json:"name"`
	State     string `json:"state"` // alive, dead or unknown
	S3        string `json:"s3"`    // host:port of each listener
	Admin     string `json:"admin"`
	Internode string `json:"internode"`
	Leaders   int    `json:"leaders"` // groups that it leads, as the answering node knows
}

// DriveInfo is one drive. Capacity and free are 0 when its node did not answer.
type DriveInfo struct {
	ID            uint32 `json:"id"`
	Node          uint32 `json:"node"`
	Incarnation   uint32 `json:"incarnation"`
	Path          string `json:"path"`
	State         string `json:"state"` // active, fenced, removed; unknown when its node did not answer
	CapacityBytes uint64 `json:"capacity_bytes"`
	FreeBytes     uint64 `json:"free_bytes"`
	Shards        uint64 `json:"shards"`
	ShardBytes    uint64 `json:"shard_bytes"`
	DirectIO      bool   `json:"direct_io"`
	Cause         string `json:"cause,omitempty"` // of a fence
}

// GroupInfo is one Raft group.
type GroupInfo struct {
	ID      uint32       `json:"id"`
	Leader  uint32       `json:"leader"` // node, 0 unknown
	Term    uint64       `json:"term"`
	Applied uint64       `json:"applied"` // at the answering node or at the leader
	Members []MemberInfo `json:"members"`
	Stopped string       `json:"stopped,omitempty"` // why a replica was stopped
}

// MemberInfo is one replica.
type MemberInfo struct {
	Node    uint32 `json:"node"`
	Drive   uint32 `json:"drive"`
	Learner bool   `json:"learner,omitempty"`
	Match   uint64 `json:"match,omitempty"` // log index it has, when its leader said so
}

// RepairInfo counts over all groups. Known is false when a group did not answer: the numbers are then too low.
type RepairInfo struct {
	Pending int64 `json:"pending"`
	Lost    int64 `json:"lost"`
	Known   bool  `json:"known"`
}

// Shard states as ObjectReport has them.
const (
	ShardOK      = "ok"
	ShardMissing = "missing"
	ShardCorrupt = "corrupt"
	ShardUnknown = "unknown" // its node could not be asked
)

// ObjectReport is one object version and all of its shards, flat over multipart parts. Each shard was read to find its
// state. An object whose body lives in its metadata row has no shards.
type ObjectReport struct {
	Bucket  string        `json:"bucket"`
	Key     string        `json:"key"`
	Version string        `json:"version"`
	Size    int64         `json:"size"`
	ETag    string        `json:"etag"`
	Profile string        `json:"profile"`
	Inline  bool          `json:"inline"`
	Shards  []ShardReport `json:"shards"`
}

// ShardReport is one shard. Offset and Length are bytes from the start of the file at Path.
type ShardReport struct {
	Part   int    `json:"part"` // 0 for an object that was put in one piece
	Blob   string `json:"blob"`
	Index  int    `json:"index"`
	Node   string `json:"node"`
	Drive  uint32 `json:"drive"`
	Path   string `json:"path"` // absolute, on the node
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	State  string `json:"state"` // ok, missing, corrupt or unknown
	Detail string `json:"detail,omitempty"`
	Queued bool   `json:"queued,omitempty"` // a repair row was made for it
}

// Token is a fresh one-time join token.
type Token struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// Error is the body of every answer that is not 2xx.
type Error struct {
	Kind    string `json:"kind"` // oerr kind
	Message string `json:"message"`
}
