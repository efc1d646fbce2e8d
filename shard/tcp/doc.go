// Package tcp carries shards between nodes over TCP: Client is a shard.Endpoint for each remote node, Server puts a local
// shard.Endpoint on the connections that internal/wire accepts.
//
// A connection carries one operation at a time; a client checks one out of a small pool for each peer, so that a slow
// write never stands in front of a read, and TCP itself is the back-pressure. A small shard is one writev and one
// acknowledgement: create, data and commit travel together. Large reads come in frames of at most 1 MiB, large writes
// are received into pooled buffers of that size. Checksums travel with the cells; the server checks them before it hands
// the data to the store, the reader of the object checks them on its side.
//
// Connections are TLS 1.3 with both certificates (wire.ALPNShard), or, when configured so, plaintext, authenticated by
// one-time tickets that were fetched over the mutual TLS of internal/wire. docs/formats/internode.md has the byte tables.
//
// It must not import anything above shard. Client, the endpoints it gives out, Server and Tickets are safe for
// concurrent use; a writer belongs to one goroutine.
//
//	frame.go    header of a frame; codec.go what stands in the frames
//	link.go     one connection: framing, gathered writes, deadlines
//	client.go   Client and its configuration; peer.go connections to one node
//	endpoint.go Read, Stat, Delete, List; writer.go Create
//	server.go   Server; serve.go one connection's operations
//	ticket.go   tickets for plaintext connections
package tcp
