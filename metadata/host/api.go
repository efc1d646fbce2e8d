// Package host runs Raft groups: the engine go.etcd.io/raft/v3 is a pure step function, everything around it is here.
// A host drives all replicas of one drive: one shared log store and one shared state store (two Pebble instances),
// batched messages, snapshots, leadership transfer, learners and one-at-a-time replacement.
//
// core.go is the deterministic part: inputs (ticks, messages, proposals, completions) go in, outputs come out, no
// goroutine, no clock, no network; the simulation drives it. host.go wraps it with goroutines. Storage goes through
// Pebble's vfs.FS, so the simulation runs over its crashable file system. Rules: PROTOCOLS G.
package host

import (
	"context"

	"objstore/internal/ident"
)

// Reader is a consistent view of one group's state. Keys are relative to the group; the host adds the prefix.
type Reader interface {
	// Get returns the value, valid until the Reader is closed (by the host) or, in apply, until the next write.
	Get(key []byte) (value []byte, ok bool, err error)
	// Iter iterates over [lower, upper) in key order; upper nil is the group's end. Close it.
	Iter(lower, upper []byte) (Iterator, error)
}

// Iterator is positioned before its first row.
type Iterator interface {
	Next() bool // moves on; false at the end or on error
	SeekGE(key []byte) bool
	Key() []byte   // valid until the next move
	Value() []byte // valid until the next move
	Close() error  // returns the iteration's error, too
}

// ReadWriter is what apply sees: reads include the writes of this batch.
type ReadWriter interface {
	Reader
	Set(key, value []byte) error
	Delete(key []byte) error
	DeleteRange(lower, upper []byte) error
}

// StateMachine is a group's state machine. Apply must be a pure function of the group's rows and the entry. An error
// from Apply stops the replica (it means a broken store, never a bad request: those are results).
type StateMachine interface {
	// Apply applies one committed entry and returns the result for its proposer. data is valid during the call.
	Apply(rw ReadWriter, group ident.Group, index uint64, data []byte) (result []byte, err error)
	// Stamp is called by the leader just before it proposes: it may rewrite data (put its clock in). It returns the
	// data to propose. nowMS is Unix milliseconds.
	Stamp(data []byte, nowMS int64) []byte
	// Applied is called after a batch of entries is applied and visible, with the index of the last; never concurrently
	// for one group. It must not block.
	Applied(group ident.Group, index uint64)
}

// Member is one replica of a group.
type Member struct {
	Replica uint64     // Raft id: (drive << 32 | incarnation), never reused
	Node    ident.Node // where it is
	Learner bool
}

// ReplicaID makes the Raft id for a drive's incarnation.
func ReplicaID(d ident.Drive, i ident.Incarnation) uint64 { return uint64(d)<<32 | uint64(i) }

// Sender carries host messages to a node; wire's client does it (one bidirectional stream for each peer pair).
type Sender interface {
	// SendRaft queues a batch of encoded messages, without blocking; false when dropped. The batch is handed over. It
	// goes to HandleRaft of every host of that node; a node with several hosts gets batches for itself, too.
	SendRaft(node ident.Node, batch []byte) bool
	// SendSnapshot streams a snapshot; it blocks until the receiver has installed it or failed. chunks returns the next
	// chunk, valid until its next call, and io.EOF after the last one. Each chunk goes, in order, to HandleSnapshot of
	// the receiving node's host (SnapshotTarget tells which one); the call for the last one returns after the install.
	SendSnapshot(ctx context.Context, node ident.Node, chunks func() ([]byte, error)) error
}

// Proposal's outcome: Index is the log index, Data what Apply returned.
type Applied struct {
	Index uint64
	Data  []byte
}

// GroupStatus is for admin info, metrics and the cluster controller.
type GroupStatus struct {
	Group    ident.Group
	Replica  uint64
	Leader   uint64     // replica id, 0 unknown
	LeaderOn ident.Node // 0 unknown
	Term     uint64
	Applied  uint64
	Commit   uint64
	Last     uint64
	Members  []Member
	Progress map[uint64]uint64 // leader only: match index of each replica
	Stopped  string            // why the replica was stopped (hash mismatch), empty when running
}

// API is what the rest of objstore uses of a host; *Host implements it. Errors: oerr.NotLeader (nothing was proposed),
// oerr.OutcomeUnknown (proposed, then leadership was lost or ctx ended), oerr.Unavailable, oerr.Closed.
type API interface {
	// Propose stamps, proposes and waits for apply on this node.
	Propose(ctx context.Context, g ident.Group, data []byte) (Applied, error)
	// ReadIndex returns when everything acknowledged before the call is applied here. Leader only (NotLeader else).
	ReadIndex(ctx context.Context, g ident.Group) (applied uint64, err error)
	// View calls f with a consistent reader of the group's applied state, without any linearizability of its own.
	View(g ident.Group, f func(r Reader) error) error
	// Leader returns the node that leads, 0 if unknown.
	Leader(g ident.Group) ident.Node
	// Status of all replicas here.
	Status() []GroupStatus
}
