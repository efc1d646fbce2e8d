package object

import "objstore/internal/ident"

// EventKind says what an Event reports.
type EventKind uint8

const (
	EventShardFailed  EventKind = iota + 1 // a shard of a put was refused or failed; Err says why
	EventShardDropped                      // a stream held a put up and was given up
	EventEarlyAck                          // a put was committed with a shard missing
	EventLanded                            // a late shard became durable
	EventHedged                            // a read was late, another shard was asked
	EventDegraded                          // body bytes were rebuilt
	EventShardBad                          // a shard was read and is missing or corrupt; reported for repair
	EventAbandoned                         // a failed put's blob was abandoned, its shards removed where reachable
	EventLeftOrphan                        // a failed put could not be cleaned up now; orphan collection will find it
)

var eventNames = [...]string{"", "shard_failed", "shard_dropped", "early_ack", "landed", "hedged", "degraded", "shard_bad", "abandoned", "left_orphan"}

// String returns the kind's name as it stands in metrics labels and logs.
func (k EventKind) String() string { return eventNames[k] }

// Event is something an operator may want to count or to see. The engine emits events and never logs.
type Event struct {
	Kind  EventKind
	Blob  ident.ID
	Index uint8       // shard
	Drive ident.Drive // 0 when it concerns no single drive
	Err   error       // why, if known
}
