package node

import (
	"context"
	"net"

	"objstore/cluster/gossip"
	"objstore/internal/ident"
)

// startGossip begins to hear who seems to be alive. What it says steers, it decides nothing.
func (n *node) startGossip(context.Context) error {
	bind := n.cfg.Gossip
	if host, port, err := net.SplitHostPort(bind); err == nil && host == "" {
		bind = net.JoinHostPort("0.0.0.0", port)
	}
	g, err := gossip.Start(gossip.Config{Cluster: n.folders.creds.Cluster, Node: n.self, StartID: n.start, Bind: bind, Advertise: n.me.Gossip,
		Keys: n.gossipKeys(), Seeds: n.gossipSeeds, OnChange: n.livenessChanged, Log: n.cfg.Log,
		Refused: func() { n.metrics.Event("gossip_refused") }})
	if err != nil {
		return err
	}
	n.gossip.Store(g)
	n.closing(g.Close)
	return nil
}

// gossipKeys are group 0's key and the one handed over at the join, should group 0 not have been read yet.
func (n *node) gossipKeys() [][]byte {
	if k := n.group0.View().Secrets().GossipKey; len(k) > 0 {
		return [][]byte{k}
	}
	return [][]byte{n.folders.creds.Gossip}
}

func (n *node) gossipSeeds() []string {
	var out []string
	v := n.group0.View()
	for _, id := range sortedKeys(v.Nodes) {
		if nd := v.Nodes[id]; id != n.self && !nd.Removed {
			out = append(out, nd.Gossip)
		}
	}
	return out
}

// livenessChanged hears that a node went or came. A node that came back gets its repairs now, over new connections.
func (n *node) livenessChanged(id ident.Node, alive bool) {
	n.cfg.Log.Info("node seems", "node", id, "alive", alive)
	if !alive || id == n.self {
		return
	}
	n.client.Reset(id)
	n.shards.Reset(id)
	if r := n.repairs.Load(); r != nil {
		r.Kick()
	}
}

// liveness is what gossip last heard; unknown when it has heard nothing yet.
func (n *node) liveness(id ident.Node) (alive, known bool) {
	if id == n.self {
		return true, true
	}
	if g := n.gossip.Load(); g != nil {
		return g.Alive(id)
	}
	return false, false
}
