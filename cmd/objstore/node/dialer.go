package node

import (
	"sync"

	"objstore/internal/ident"
	"objstore/shard"
)

// dialer finds the endpoint for a node's shards: this node's drives directly, others over TCP.
type dialer struct {
	self  ident.Node
	local shard.Endpoint
	tcp   func(ident.Node) shard.Endpoint
	mu    struct {
		sync.RWMutex
		peers map[ident.Node]shard.Endpoint
	}
}

func newDialer(self ident.Node, local shard.Endpoint, tcp func(ident.Node) shard.Endpoint) *dialer {
	d := &dialer{self: self, local: local, tcp: tcp}
	d.mu.peers = map[ident.Node]shard.Endpoint{}
	return d
}

// Endpoint implements shard.Dialer.
func (d *dialer) Endpoint(node ident.Node, _ uint64) (shard.Endpoint, string) {
	if node == d.self {
		return d.local, "local"
	}
	d.mu.RLock()
	ep := d.mu.peers[node]
	d.mu.RUnlock()
	if ep != nil {
		return ep, "tcp"
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if ep = d.mu.peers[node]; ep == nil {
		ep = d.tcp(node)
		d.mu.peers[node] = ep
	}
	return ep, "tcp"
}
