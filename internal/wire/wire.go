// Package wire is the one protocol between nodes: length-prefixed frames on TCP, under mutual TLS 1.3, many calls on
// one connection. Raft messages, metadata calls, control calls and (on connections of their own) shards use it.
// docs/formats/internode.md has the byte tables, docs/decisions/0001-internode-framing.md says why it is not gRPC.
//
// A method is authorised by the role in the peer's certificate before its handler runs. Every call has a deadline; it
// travels as remaining milliseconds, never as a clock time. Errors cross as an oerr.Kind and a text.
//
// It must not import anything above internal. Server and Client are safe for concurrent use.
//
//	wire.go     methods, roles, Handler, Caller
//	frame.go    the byte layout, errors on the wire
//	batch.go    BatchConn: many TLS records in one system call
//	outbox.go   the coalescing writer of a connection
//	server.go   listeners, handshakes, refusals; rpc.go serves calls on one connection
//	client.go   Client; link.go one connection to one peer; once.go a call without a Client (join)
//	metrics.go  counters of both sides
package wire

import (
	"context"

	"objstore/internal/ident"
)

// Method numbers a call. Values are part of the wire format: append, never reuse.
type Method uint16

const (
	MethodPing          Method = 1  // empty request and reply: measures the round trip
	MethodRaft          Method = 2  // one-way: a batch of Raft messages (metadata/host)
	MethodSnapshot      Method = 3  // a chunk of a Raft snapshot (metadata/host)
	MethodPropose       Method = 4  // propose a command to a metadata group's leader (metadata/router)
	MethodQuery         Method = 5  // a linearizable read at a metadata group's leader (metadata/router)
	MethodClusterExec   Method = 6  // propose a group-0 command at its leader (cluster)
	MethodClusterSync   Method = 7  // a group-0 ReadIndex: reply is the applied index to wait for (cluster)
	MethodJoin          Method = 8  // the only method open to a peer without a certificate (cluster/pki)
	MethodShardTicket   Method = 9  // one-time ticket for a plaintext shard connection (shard/tcp, OBJ_SHARD_TLS=off)
	MethodDisown        Method = 10 // ask a gateway process whether it still holds a blob in flight (repair)
	MethodAdmin         Method = 11 // admin API fan-out between nodes (admin)
	MethodReplicaStatus Method = 12 // status of this node's Raft replicas (cluster controller)
	MethodReplicaChange Method = 13 // create or remove a Raft replica, change membership at the leader (cluster controller)
	MethodReportShard   Method = 14 // a check found a shard bad: make a repair row (repair)
)

// Role says what a peer's certificate allows.
type Role uint8

const (
	RoleNone Role = iota // no certificate: Join only
	RoleNode             // a member of this cluster
)

// Peer is who sent a request, from its certificate, never from the request itself.
type Peer struct {
	Node ident.Node
	Role Role
}

// Handler answers one call. req is owned by the wire package and valid only until the handler returns; the reply is
// handed over to the wire package. It runs on a goroutine of its own, at most ServerConfig.MaxConcurrent at a time for
// each connection; beyond that calls are answered Busy. ctx ends at the call's deadline or when the connection breaks.
//
// One-way messages are different: they run one after the other in the order they were sent, because Raft pays for
// reordering with probes. While their handler runs, nothing else is read from that connection (which carries one-way
// messages only), so it must not wait for anything; its ctx ends with the connection, its reply and error are dropped
// (errors are counted).
type Handler func(ctx context.Context, peer Peer, req []byte) (reply []byte, err error)

// Caller is how other packages reach a node; *Client implements it.
type Caller interface {
	// Call sends req to node and waits for the reply. ctx must have a deadline. req may be reused after return; the
	// reply belongs to the caller. Errors from the far handler come back with their oerr.Kind; a node that cannot be
	// reached, or a connection that broke before the reply, is Unavailable (the request may have been executed).
	Call(ctx context.Context, node ident.Node, m Method, req []byte) (reply []byte, err error)
	// Send queues a one-way message, without blocking; it is dropped when the bounded queue is full or the node is
	// not reachable, and reports whether it was queued. msg is handed over.
	Send(node ident.Node, m Method, msg []byte) bool
}
