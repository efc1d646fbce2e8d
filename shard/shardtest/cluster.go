package shardtest

import (
	"context"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// Cluster is n nodes in memory, numbered from 1; node i has drive i. It is a shard.Dialer.
type Cluster struct {
	// Local is the node whose shards count as "local"; 0 makes all of them "tcp". Set it before use.
	Local ident.Node
	mems  []*Mem
}

// NewCluster returns n nodes with one empty drive each.
func NewCluster(n int) *Cluster {
	c := &Cluster{}
	for i := range n {
		c.mems = append(c.mems, NewMem(ident.Drive(i+1)))
	}
	return c
}

// Node returns node i's endpoint, i from 1; nil when there is no such node.
func (c *Cluster) Node(i ident.Node) *Mem {
	if i < 1 || int(i) > len(c.mems) {
		return nil
	}
	return c.mems[i-1]
}

// Nodes returns the number of nodes.
func (c *Cluster) Nodes() int { return len(c.mems) }

// SetFault installs one fault function on every node.
func (c *Cluster) SetFault(f Fault) {
	for _, m := range c.mems {
		m.SetFault(f)
	}
}

// Shards returns the number of sealed shards on all nodes.
func (c *Cluster) Shards() int {
	n := 0
	for _, m := range c.mems {
		n += m.Shards()
	}
	return n
}

// Writers returns the number of open writers on all nodes.
func (c *Cluster) Writers() int {
	n := 0
	for _, m := range c.mems {
		n += m.Writers()
	}
	return n
}

// Endpoint implements shard.Dialer. An unknown node is an endpoint whose every call is Unavailable.
func (c *Cluster) Endpoint(node ident.Node, _ uint64) (shard.Endpoint, string) {
	m := c.Node(node)
	if m == nil {
		m = NewMem() // no drives: every lookup is Unavailable
	}
	if node == c.Local && node != 0 {
		return m, "local"
	}
	return m, "tcp"
}

// Down returns an endpoint whose every call is Unavailable at once.
func Down() shard.Endpoint {
	m := NewMem()
	m.SetFault(func(context.Context, Call) error {
		return oerr.Errorf("shardtest.down", oerr.Unavailable, "node is down")
	})
	return m
}
