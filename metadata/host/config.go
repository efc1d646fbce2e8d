package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"objstore/internal/ident"
)

// Limits that are not settings. Bytes unless said otherwise.
const (
	maxBatchBytes      = 1 << 20  // one batch of messages to a node; a single larger message travels alone
	maxWireBatchBytes  = 16 << 20 // what a received batch may have: entries larger than maxBatchBytes travel alone
	maxContextBytes    = 256      // context of a message or a configuration change
	maxMsgEntries      = 1 << 17  // entries in one message
	maxReplicas        = 16       // members of one group, learners included
	maxGroupsPerHost   = 4096     // replicas on one drive
	maxProposalBatch   = 256 << 10
	maxWaiters         = 16384 // proposals of one group without an outcome
	maxReadWaiters     = 16384 // reads of one group without an outcome
	maxControlQueue    = 1024  // membership and control calls waiting for the loop
	maxApplyBatchBytes = 4 << 20
	maxHashesKept      = 4        // own hashes and open comparisons remembered for each group
	entryOverhead      = 64       // what an entry costs beside its data, for accounting
	scanPageBytes      = 1 << 20  // of log entries read from the store at a time
	maxStageFileBytes  = 64 << 20 // one staged table of a received snapshot
)

// Limits are the settings that bound a host; zero fields get the defaults.
type Limits struct {
	MaxEntry          int    // largest proposal (1 MiB + 4 KiB)
	MaxSizePerMsg     uint64 // entries in one append message (512 KiB)
	MaxInflightMsgs   int    // append messages to one follower without an answer (256)
	MaxInflightBytes  uint64 // (8 MiB)
	MaxUncommitted    uint64 // leader's uncommitted tail of one group (8 MiB)
	MaxCommittedBatch uint64 // entries of one group being applied (4 MiB)
	QueueBytes        int    // messages waiting for the loop, and proposals waiting for the loop, each (16 MiB)
	QueueProposals    int    // proposals waiting for the loop (8192)
	EntryCache        int64  // recent log entries kept in memory, all groups (8 MiB)
	BlockCache        int64  // Pebble's block cache beside its memtables, shared by both stores (8 MiB)
	LogMemTable       uint64 // (16 MiB; Pebble keeps at most two)
	StateMemTable     uint64 // (8 MiB; Pebble keeps at most two)
	LogKeepEntries    uint64 // entries of one group kept for followers that lag, below the flushed state (10,000)
	LogKeepBytes      uint64 // the same in bytes (16 MiB)
	SnapshotChunk     int    // (512 KiB, at most 1 MiB)
	SnapshotsOut      int    // sent at a time (1)
	PromoteLag        uint64 // entries a learner may lag behind the commit index when it is promoted (128)
}

// Config makes a host. Dir, Node, StateMachines and Sender are required.
type Config struct {
	Dir  string
	FS   vfs.FS // nil: the operating system's
	Node ident.Node

	TickInterval  time.Duration // 100 ms
	ElectionTicks int           // a follower campaigns after ElectionTicks+1 … ElectionTicks+5 ticks without a leader (15)
	HeartbeatTick int           // 2

	// HashTicks is how many ticks a leader lets pass between two comparisons of its replicas' hashes (6000 = 10 min);
	// negative: none. Nothing is compared while nothing was applied since the last comparison.
	HashTicks int

	StateMachines func(ident.Group) StateMachine
	Sender        Sender

	Now     func() int64 // Unix milliseconds
	Seed    uint64       // of the election jitter and the proposal nonces; 0: random
	OnEvent func(Event)  // must not block; nil: none
	// Fatal is called when the log store failed a write or sync. It is expected to end the process; when it returns,
	// the host does nothing any more.
	Fatal func(error)

	Limits Limits
}

// clock rule (PROTOCOLS D): a leader whose clock is further than this off its peers' median steps down.
const (
	maxClockOffsetMS   = 5000
	clockPeerExpiryMS  = 10000 // a peer's offset counts this long after its last batch
	minClockPeers      = 2     // with a single peer nobody can say which of the two is wrong
	clockTransferTicks = 10    // ticks between two attempts to hand over leadership for that reason
)

func (c *Config) setDefaults() {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	def(&c.TickInterval, 100*time.Millisecond)
	def(&c.ElectionTicks, 15)
	def(&c.HeartbeatTick, 2)
	def(&c.HashTicks, 6000)
	if c.Now == nil {
		c.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if c.OnEvent == nil {
		c.OnEvent = func(Event) {}
	}
	if c.Fatal == nil {
		c.Fatal = func(err error) { panic(fmt.Sprintf("host: %v", err)) }
	}
	l := &c.Limits
	def(&l.MaxEntry, 1<<20+4<<10)
	def(&l.MaxSizePerMsg, 512<<10)
	def(&l.MaxInflightMsgs, 256)
	def(&l.MaxInflightBytes, 8<<20)
	def(&l.MaxUncommitted, 8<<20)
	def(&l.MaxCommittedBatch, 4<<20)
	def(&l.QueueBytes, 16<<20)
	def(&l.QueueProposals, 8192)
	def(&l.EntryCache, 8<<20)
	def(&l.BlockCache, 8<<20)
	def(&l.LogMemTable, 16<<20)
	def(&l.StateMemTable, 8<<20)
	def(&l.LogKeepEntries, 10000)
	def(&l.LogKeepBytes, 16<<20)
	def(&l.SnapshotChunk, 512<<10)
	def(&l.SnapshotsOut, 1)
	def(&l.PromoteLag, 128)
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Validate returns every problem at once. Zero fields with a default are no problem.
func (c Config) Validate() error {
	c.setDefaults()
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Dir == "", "host: Dir is empty")
	bad(c.Node == 0, "host: Node is 0")
	bad(c.StateMachines == nil, "host: StateMachines is nil")
	bad(c.Sender == nil, "host: Sender is nil")
	bad(c.TickInterval < time.Millisecond, "host: TickInterval %s, expected at least 1ms", c.TickInterval)
	bad(c.HeartbeatTick < 1 || c.ElectionTicks < 3*c.HeartbeatTick,
		"host: ElectionTicks %d, HeartbeatTick %d, expected at least 3 heartbeats in an election timeout", c.ElectionTicks, c.HeartbeatTick)
	l := c.Limits
	bad(l.MaxEntry < 0 || l.MaxEntry > maxWireBatchBytes/2, "host: MaxEntry %d, expected at most %d", l.MaxEntry, maxWireBatchBytes/2)
	bad(l.MaxSizePerMsg > maxWireBatchBytes/2, "host: MaxSizePerMsg %d, expected at most %d", l.MaxSizePerMsg, maxWireBatchBytes/2)
	bad(l.MaxInflightBytes < l.MaxSizePerMsg, "host: MaxInflightBytes %d is below MaxSizePerMsg %d", l.MaxInflightBytes, l.MaxSizePerMsg)
	bad(l.MaxInflightMsgs < 1, "host: MaxInflightMsgs %d, expected at least 1", l.MaxInflightMsgs)
	bad(l.SnapshotChunk < 1<<10 || l.SnapshotChunk > 1<<20, "host: SnapshotChunk %d, expected 1 KiB to 1 MiB", l.SnapshotChunk)
	bad(l.SnapshotsOut < 1, "host: SnapshotsOut %d, expected at least 1", l.SnapshotsOut)
	return errors.Join(errs...)
}

// EventKind says what happened.
type EventKind uint8

const (
	EventLeader           EventKind = iota + 1 // this replica became leader
	EventLeaderLost                            // this replica is no longer leader
	EventStopped                               // a replica was stopped; Text says why
	EventConfChange                            // a membership change was applied
	EventSnapshotSent                          //
	EventSnapshotFailed                        // Text says why; it is tried again
	EventSnapshotReceived                      // installed
	EventClock                                 // this node's clock is off its peers' median; leadership is handed over
	EventTruncated                             // the log was cut
	EventStore                                 // a store failed in the background and tries again; Text says how
)

var eventNames = [...]string{"", "leader", "leader_lost", "stopped", "conf_change", "snapshot_sent", "snapshot_failed",
	"snapshot_received", "clock", "truncated", "store"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event_%d", uint8(k))
}

// Event is told to Config.OnEvent.
type Event struct {
	Kind    EventKind
	Group   ident.Group
	Replica uint64
	Term    uint64
	Index   uint64
	Text    string
}
