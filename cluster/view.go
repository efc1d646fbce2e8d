// Package cluster is the model of group 0: nodes, drives, placement groups, spans, buckets, credentials and settings,
// the commands that change it, and the epochs that fence what was decided on an older map. The model is pure: commands
// in, state out, no clock, no I/O. Membership gossip (cluster/gossip) only hints at liveness and addresses, it never
// grants anything; certificates and join tokens are in cluster/pki.
//
// The files: view.go and command.go are the contract; state.go and apply_*.go the model; rows.go and machine.go keep it
// in group 0's rows; plan.go and planmeta.go lay out placement groups and metadata groups; arithmetic.go says what a
// layout survives; buckets.go and controller.go drive the protocols that span two groups; admit.go lets a node in;
// identity.go, lock.go and device.go (the only ones that touch a disk) say whose data folder a folder is.
//
// A View is immutable and shared. A State belongs to one goroutine. Machine and Controller are safe for concurrent use.
package cluster

import (
	"context"

	"objstore/erasure"
	"objstore/internal/ident"
)

// View is an immutable snapshot of group 0 as one node has applied it. Everybody shares it: never change one.
type View struct {
	Index     uint64 // group-0 log index it reflects
	ClusterID ident.ID
	Format    uint32 // format version of the cluster
	Expect    int    // nodes that formation waits for
	Formed    bool   // default profile, placement groups and metadata groups are fixed
	Profile   erasure.Profile
	Epoch     uint64 // of the placement-group map
	SpanEpoch uint64

	Nodes   map[ident.Node]*Node
	Drives  map[ident.Drive]*Drive
	PGs     []PG // index is ident.PG
	Groups  map[ident.Group]*Group
	Buckets map[string]*Bucket // by name; all states
	ByID    map[ident.ID]*Bucket
	Keys    map[string]*Credential // by access key
	Setting map[string]string      // cluster-wide settings

	secrets func() Secrets // a closure, so that no printer and no encoder follows it
}

// Node is a member.
type Node struct {
	ID        ident.Node `json:"id"`
	Name      string     `json:"name"`
	S3        string     `json:"s3"` // host:port of each listener, as others reach it
	Admin     string     `json:"admin"`
	Internode string     `json:"internode"`
	Gossip    string     `json:"gossip"`
	StartID   ident.ID   `json:"start_id"` // of its newest process start
	Removed   bool       `json:"removed,omitempty"`
}

// DriveState says what a drive may be used for.
type DriveState uint8

const (
	DriveActive  DriveState = iota // reads and writes
	DriveFenced                    // failed a write or sync: no writes, no metadata replica; reads are tried
	DriveRemoved                   // gone for ever
)

var driveStates = [...]string{"active", "fenced", "removed"}

func (s DriveState) String() string {
	if int(s) < len(driveStates) {
		return driveStates[s]
	}
	return "unknown"
}

// Drive is one data folder.
type Drive struct {
	ID          ident.Drive       `json:"id"`
	Node        ident.Node        `json:"node"`
	UUID        ident.ID          `json:"uuid"` // written on the drive
	Incarnation ident.Incarnation `json:"incarnation"`
	State       DriveState        `json:"state"`
	Path        string            `json:"path"`     // on its node
	Capacity    uint64            `json:"capacity"` // bytes
	// NoMeta: this incarnation was fenced once. It gets no new metadata replica, whatever its state is now: a replica id
	// (drive and incarnation) that left a group must never come back to it, it may have forgotten its vote.
	NoMeta bool `json:"no_meta,omitempty"`
}

// PG is a placement group: shard i of its blobs is on Drives[i].
type PG struct {
	ID      ident.PG
	Profile erasure.Profile
	Epoch   uint64 // map epoch that last changed this PG
	Drives  []ident.Drive
}

// Group is a metadata group (or group 0).
type Group struct {
	ID       ident.Group
	Replicas []Replica // Replicas[0] is the preferred first leader
	// Founders are the replicas the group was formed with: a replica among them bootstraps its log with exactly these
	// members, however late it starts; any other replica starts empty and is filled by the leader.
	Founders []Replica `json:",omitempty"`
}

// Replica of a group.
type Replica struct {
	ID      uint64 // host.ReplicaID
	Node    ident.Node
	Drive   ident.Drive
	Learner bool
}

// BucketState follows PROTOCOLS B.
type BucketState uint8

const (
	BucketCreating BucketState = iota
	BucketActive
	BucketDeleting
)

// Bucket is a name and its one span.
type Bucket struct {
	ID      ident.ID
	Name    string
	State   BucketState
	Created int64 // Unix milliseconds
	Owner   string
	Spans   []SpanRef // version 1: exactly one
	// Attempt is the group-0 index that last put the bucket to deleting. Only that attempt may put it back to active,
	// so that a slow one cannot revive a bucket whose span a later one has sealed.
	Attempt uint64 `json:",omitempty"`
}

// SpanRef maps a key range to its metadata group.
type SpanRef struct {
	Start, End string // [Start, End); End "" is no bound
	Generation uint64
	Group      ident.Group
}

// Credential is an access key. The secret never leaves the node except over the internode port.
type Credential struct {
	AccessKey string
	Secret    SecretString
	Root      bool
	Disabled  bool
}

// SecretString does not print itself.
type SecretString string

func (SecretString) String() string   { return "**redacted**" }
func (SecretString) GoString() string { return "**redacted**" }

// MarshalText keeps secrets out of JSON.
func (SecretString) MarshalText() ([]byte, error) { return []byte("**redacted**"), nil }

// SpanOf returns the span of key in bucket b.
func (b *Bucket) SpanOf(key string) *SpanRef {
	for i := range b.Spans {
		s := &b.Spans[i]
		if key >= s.Start && (s.End == "" || key < s.End) {
			return s
		}
	}
	return nil
}

// Source gives the newest view this node has applied, and a way to be sure of it.
type Source interface {
	// View never blocks and never returns nil after start-up.
	View() *View
	// Sync does one group-0 ReadIndex and returns the view after it: a miss in View becomes "absent" only after it.
	// Without quorum the error is oerr.Unavailable: unknown is never absent.
	Sync(ctx context.Context) (*View, error)
	// Exec proposes a group-0 command at its leader and returns after it is applied on this node.
	Exec(ctx context.Context, cmd *Command) (CommandResult, error)
}
