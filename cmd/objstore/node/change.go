package node

import (
	"context"
	"encoding/json"
	"slices"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/metadata"
	"objstore/metadata/host"
)

// change is MethodReplicaChange's request.
type change struct {
	Op     string      `json:"op"` // create, add, promote, remove
	Group  ident.Group `json:"group"`
	Member host.Member `json:"member"`
}

// changer changes memberships for the cluster controller: it implements cluster.ReplicaChanger and cluster.SpanLister.
type changer struct{ n *node }

// Status implements cluster.ReplicaChanger: the members are asked until one says that it leads.
func (c changer) Status(ctx context.Context, g ident.Group) (host.GroupStatus, error) {
	var best host.GroupStatus
	last := error(oerr.Errorf("node.replicas", oerr.Unavailable, "group %d: no leader was found", g))
	for _, id := range c.n.membersOf(g) {
		st, err := c.ask(ctx, id, g)
		switch {
		case err != nil:
			last = err
		case st.LeaderOn == id && st.Leader == st.Replica && st.Term >= best.Term:
			best = st
		}
	}
	if best.Replica == 0 {
		return best, last
	}
	return best, nil
}

func (c changer) ask(ctx context.Context, id ident.Node, g ident.Group) (host.GroupStatus, error) {
	req, err := json.Marshal(change{Group: g})
	if err != nil {
		return host.GroupStatus{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var raw []byte
	if id == c.n.self {
		raw, err = c.n.handleReplicaStatus(ctx, wire.Peer{Node: id, Role: wire.RoleNode}, req)
	} else {
		raw, err = c.n.client.Call(ctx, id, wire.MethodReplicaStatus, req)
	}
	var st host.GroupStatus
	if err == nil {
		err = json.Unmarshal(raw, &st)
	}
	return st, err
}

// membersOf lists the nodes that may have a replica of g, this one first.
func (n *node) membersOf(g ident.Group) []ident.Node {
	v := n.group0.View()
	out := []ident.Node{n.self}
	if grp := v.Groups[g]; grp != nil && g != 0 {
		for _, r := range grp.Replicas {
			if !slices.Contains(out, r.Node) {
				out = append(out, r.Node)
			}
		}
		return out
	}
	for _, id := range sortedKeys(v.Nodes) {
		if id != n.self && !v.Nodes[id].Removed {
			out = append(out, id)
		}
	}
	return out
}

func (n *node) handleReplicaStatus(_ context.Context, _ wire.Peer, req []byte) ([]byte, error) {
	var c change
	if err := json.Unmarshal(req, &c); err != nil {
		return nil, oerr.E("node.replica_status", oerr.InvalidArgument, err)
	}
	var found *host.GroupStatus
	for _, st := range n.replicas.status() {
		if st.Group == c.Group && (found == nil || st.Leader == st.Replica) {
			found = &st
		}
	}
	if found == nil {
		return nil, oerr.Errorf("node.replica_status", oerr.Unavailable, "no replica of group %d here", c.Group)
	}
	return json.Marshal(found)
}

// AddLearner implements cluster.ReplicaChanger.
func (c changer) AddLearner(ctx context.Context, g ident.Group, m host.Member) error {
	if err := c.send(ctx, m.Node, change{"create", g, m}); err != nil {
		return err
	}
	return c.atLeader(ctx, change{"add", g, m})
}

// Promote implements cluster.ReplicaChanger.
func (c changer) Promote(ctx context.Context, g ident.Group, replica uint64) error {
	return c.atLeader(ctx, change{"promote", g, host.Member{Replica: replica}})
}

// Remove implements cluster.ReplicaChanger.
func (c changer) Remove(ctx context.Context, g ident.Group, replica uint64) error {
	return c.atLeader(ctx, change{"remove", g, host.Member{Replica: replica}})
}

func (c changer) atLeader(ctx context.Context, ch change) error {
	st, err := c.Status(ctx, ch.Group)
	if err != nil {
		return err
	}
	return c.send(ctx, st.LeaderOn, ch)
}

func (c changer) send(ctx context.Context, to ident.Node, ch change) error {
	req, err := json.Marshal(ch)
	if err != nil {
		return err
	}
	if to == c.n.self {
		_, err = c.n.handleReplicaChange(ctx, wire.Peer{Node: to, Role: wire.RoleNode}, req)
	} else {
		_, err = c.n.client.Call(ctx, to, wire.MethodReplicaChange, req)
	}
	return err
}

func (n *node) handleReplicaChange(ctx context.Context, _ wire.Peer, req []byte) ([]byte, error) {
	const op = "node.replica_change"
	var c change
	if err := json.Unmarshal(req, &c); err != nil {
		return nil, oerr.E(op, oerr.InvalidArgument, err)
	}
	if c.Op == "create" {
		d := ident.Drive(c.Member.Replica >> 32)
		if n.replicas.byID[d] == nil {
			return nil, oerr.Errorf(op, oerr.InvalidArgument, "drive %d is not on node %d", d, n.self)
		}
		return nil, n.replicas.ensure(ctx, c.Group, c.Member.Replica, d, nil)
	}
	var leader *host.Host
	var st host.GroupStatus
	for _, h := range n.replicas.hosts() {
		for _, s := range h.Status() {
			if s.Group == c.Group && s.Leader == s.Replica && s.Stopped == "" {
				leader, st = h, s
			}
		}
	}
	if leader == nil {
		return nil, oerr.Errorf(op, oerr.NotLeader, "group %d is not led here", c.Group)
	}
	switch c.Op {
	case "add":
		return nil, leader.AddLearner(ctx, c.Group, c.Member)
	case "promote":
		return nil, leader.Promote(ctx, c.Group, c.Member.Replica)
	case "remove":
		if c.Member.Replica == st.Replica { // another one takes over first; the controller comes back to it
			for _, m := range st.Members {
				if m.Replica != st.Replica && !m.Learner {
					return nil, leader.TransferLeadership(ctx, c.Group, m.Replica)
				}
			}
		}
		return nil, leader.Remove(ctx, c.Group, c.Member.Replica)
	}
	return nil, oerr.Errorf(op, oerr.InvalidArgument, "no such change: %.40q", c.Op)
}

// Spans implements cluster.SpanLister.
func (c changer) Spans(ctx context.Context, g ident.Group) ([]metadata.Span, error) {
	a, err := c.n.router.GroupQuery(ctx, g, &metadata.Query{Op: metadata.QuerySpans, Max: metadata.MaxListKeys})
	if err != nil {
		return nil, err
	}
	return a.Spans, nil
}
