package cluster

import (
	"net"
	"strconv"

	"objstore/internal/oerr"
)

// applyAddNode hands out a node number. The first node founds the cluster; every later one consumes a join token.
func (s *State) applyAddNode(cmd *Command) CommandResult {
	n := cmd.Node
	if n == nil {
		return refuse(oerr.InvalidArgument, "add node: no node")
	}
	if n.ID != 0 || n.Removed {
		return refuse(oerr.InvalidArgument, "add node: numbers and states are handed out, not asked for")
	}
	if s.head.Formed && s.domainUnit() == unitDrive {
		return refuse(oerr.NotImplemented, "add node %s: this is a formed one-node cluster, whose failure domains are its drives; it cannot grow yet", quoteShort(n.Name))
	}
	if len(s.view.Nodes) >= MaxNodes {
		return refuse(oerr.InvalidArgument, "add node: the cluster has handed out %d node numbers, no more are allowed", len(s.view.Nodes))
	}
	if res := s.checkNode(n); res.Code != 0 {
		return res
	}
	if s.head.LastNode != 0 {
		t, ok := s.tokens[cmd.Token]
		if !ok {
			return refuse(oerr.PermissionDenied, "add node %s: the join token is unknown or used up", n.Name)
		}
		if t.Expires <= cmd.Now {
			return refuse(oerr.PermissionDenied, "add node %s: the join token has expired", n.Name)
		}
		s.dropToken(cmd.Token)
	}
	h := s.head
	h.LastNode = nextID(h.LastNode)
	s.setHead(h)
	added := *n
	added.ID = h.LastNode
	s.putNode(&added)
	return CommandResult{Node: added.ID}
}

// checkNode checks name and addresses, which no two members share.
func (s *State) checkNode(n *Node) CommandResult {
	if !nodeName(n.Name) {
		return refuse(oerr.InvalidArgument, "node name %s: expected 1 to %d of A-Z, a-z, 0-9, '-', '_' and '.'", quoteShort(n.Name), MaxNameLen)
	}
	for _, a := range [...]struct{ what, addr string }{{"s3", n.S3}, {"admin", n.Admin}, {"internode", n.Internode}, {"gossip", n.Gossip}} {
		if !hostPort(a.addr) {
			return refuse(oerr.InvalidArgument, "node %s: %s address %s: expected HOST:PORT", n.Name, a.what, quoteShort(a.addr))
		}
	}
	for _, id := range sortedKeys(s.view.Nodes) {
		o := s.view.Nodes[id]
		if o.Removed || o.ID == n.ID {
			continue
		}
		if o.Name == n.Name {
			return refuse(oerr.Exists, "node name %s belongs to node %d", n.Name, o.ID)
		}
		if o.Internode == n.Internode {
			return refuse(oerr.Exists, "node %s: internode address %s belongs to node %d (%s)", n.Name, n.Internode, o.ID, o.Name)
		}
	}
	return CommandResult{}
}

// applyUpdateNode takes a member's addresses and start id, or its leave.
func (s *State) applyUpdateNode(cmd *Command) CommandResult {
	n := cmd.Node
	if n == nil {
		return refuse(oerr.InvalidArgument, "update node: no node")
	}
	old := s.view.Nodes[n.ID]
	if old == nil || old.Removed {
		return refuse(oerr.InvalidArgument, "update node: node %d is no member", n.ID)
	}
	if n.Removed {
		return s.removeNode(old)
	}
	if n.Name != "" && n.Name != old.Name {
		return refuse(oerr.InvalidArgument, "update node %d: its name is %s, not %s", n.ID, old.Name, quoteShort(n.Name))
	}
	next := *old
	for _, f := range [...]struct{ to, from *string }{{&next.S3, &n.S3}, {&next.Admin, &n.Admin}, {&next.Internode, &n.Internode}, {&next.Gossip, &n.Gossip}} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	if !n.StartID.IsZero() {
		next.StartID = n.StartID
	}
	if res := s.checkNode(&next); res.Code != 0 {
		return res
	}
	if next != *old {
		s.putNode(&next)
	}
	return CommandResult{Node: n.ID}
}

// removeNode takes a node that holds no placement group out of the cluster, with its drives.
func (s *State) removeNode(old *Node) CommandResult {
	for _, id := range sortedKeys(s.view.Drives) {
		if d := s.view.Drives[id]; d.Node == old.ID && s.holdsPG(id) {
			return refuse(oerr.InvalidArgument, "remove node %d (%s): its drive %d holds placement groups", old.ID, old.Name, id)
		}
	}
	next := *old
	next.Removed = true
	s.putNode(&next)
	for _, id := range sortedKeys(s.view.Drives) {
		if d := *s.view.Drives[id]; d.Node == old.ID && d.State != DriveRemoved {
			d.State = DriveRemoved
			s.putDrive(&d)
		}
	}
	return CommandResult{Node: old.ID}
}

func nodeName(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; !alnum(c) && (c < 'A' || c > 'Z') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= MaxNameLen
}

// hostPort reports an address that a peer can dial: a host and a port from 1 to 65535.
func hostPort(s string) bool {
	if len(s) > MaxAddrLen || !printable(s) {
		return false
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return false
	}
	p, err := strconv.ParseUint(port, 10, 16)
	return err == nil && p > 0
}
