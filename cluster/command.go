package cluster

import (
	"objstore/erasure"
	"objstore/internal/ident"
)

// Op says which group-0 command an entry is. Entries are JSON: group 0 changes rarely and is read by people.
type Op string

const (
	OpInit         Op = "init"          // first entry: cluster id, format, root credential, CA (sealed), expected nodes
	OpAddNode      Op = "add_node"      // hands out a node number; consumes a join token
	OpUpdateNode   Op = "update_node"   // addresses and start id, at each start; with Removed: the node leaves for ever
	OpAddDrive     Op = "add_drive"     // hands out a drive number
	OpDriveState   Op = "drive_state"   // fence, activate, new incarnation
	OpForm         Op = "form"          // fixes default profile, PG table and metadata groups, once
	OpSetReplicas  Op = "set_replicas"  // a group's members changed
	OpCreateBucket Op = "create_bucket" // name → creating, with a random id and a group
	OpBucketState  Op = "bucket_state"  // creating → active, active → deleting, deleting → active
	OpRemoveBucket Op = "remove_bucket" // deleting → gone
	OpAddToken     Op = "add_token"     // hash and expiry of a one-time join token
	OpSetSetting   Op = "set_setting"
)

// Command is one group-0 entry. Only the fields that Op names are set. Now is stamped by the leader.
type Command struct {
	Op        Op       `json:"op"`
	RequestID ident.ID `json:"request_id"`
	Now       int64    `json:"now,omitempty"` // Unix milliseconds
	// FirstIndex is the group-0 index the proposer had applied when it first tried this request id; 0 on the first try.
	// A retry older than the dedup window is answered OutcomeUnknown and never applied.
	FirstIndex uint64 `json:"first_index,omitempty"`

	ClusterID  ident.ID          `json:"cluster_id,omitzero"`
	Format     uint32            `json:"format,omitempty"`
	Expect     int               `json:"expect,omitempty"`
	AccessKey  string            `json:"access_key,omitempty"`
	Secret     string            `json:"secret,omitempty"`
	CACert     []byte            `json:"ca_cert,omitempty"`
	CAKey      []byte            `json:"ca_key,omitempty"`
	GossipKey  []byte            `json:"gossip_key,omitempty"`
	Node       *Node             `json:"node,omitempty"`
	Drive      *Drive            `json:"drive,omitempty"`
	Token      string            `json:"token,omitempty"` // hex SHA-256 of the token
	Expires    int64             `json:"expires,omitempty"`
	Profile    erasure.Profile   `json:"profile,omitzero"`
	PGCount    int               `json:"pg_count,omitempty"`
	GroupCount int               `json:"group_count,omitempty"`
	Group      ident.Group       `json:"group,omitempty"`
	Replicas   []Replica         `json:"replicas,omitempty"`
	Bucket     string            `json:"bucket,omitempty"`
	BucketID   ident.ID          `json:"bucket_id,omitzero"`
	Owner      string            `json:"owner,omitempty"`
	State      uint8             `json:"state,omitempty"`
	Attempt    uint64            `json:"attempt,omitempty"` // OpBucketState deleting → active: the Attempt it undoes
	Settings   map[string]string `json:"settings,omitempty"`
}

// CommandResult is what apply answers. Code 0 is success, else 1 + oerr.Kind.
type CommandResult struct {
	Code   uint8       `json:"code,omitempty"`
	Detail string      `json:"detail,omitempty"`
	Node   ident.Node  `json:"node,omitempty"`
	Drive  ident.Drive `json:"drive,omitempty"`
	Bucket *Bucket     `json:"bucket,omitempty"`
	Index  uint64      `json:"index,omitempty"`
}
