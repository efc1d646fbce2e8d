package gossip

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/memberlist"

	"objstore/internal/ident"
)

// Meta is what each member says of itself: version 1, node number (big-endian), start id.
const (
	metaVersion = 1
	metaLen     = 1 + 4 + 16
)

func encodeMeta(n ident.Node, start ident.ID) []byte {
	b := binary.BigEndian.AppendUint32([]byte{metaVersion}, uint32(n))
	return append(b, start[:]...)
}

func decodeMeta(b []byte) (ident.Node, ident.ID, error) {
	if len(b) != metaLen || b[0] != metaVersion {
		return 0, ident.ID{}, fmt.Errorf("member data: read %d bytes, expected %d of version %d", len(b), metaLen, metaVersion)
	}
	n := ident.Node(binary.BigEndian.Uint32(b[1:]))
	if n == 0 {
		return 0, ident.ID{}, fmt.Errorf("member data: node number 0")
	}
	return n, ident.ID(b[5:]), nil
}

// delegate is what memberlist calls. It calls events from one goroutine at a time.
type delegate struct{ g *Gossip }

// NodeMeta says who this node is.
func (d delegate) NodeMeta(limit int) []byte {
	if limit < metaLen {
		return nil // memberlist allows 512 bytes
	}
	return encodeMeta(d.g.cfg.Node, d.g.cfg.StartID)
}

// NotifyMsg and the next three: gossip carries nothing but liveness.
func (delegate) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (delegate) MergeRemoteState([]byte, bool) {}

// NotifyAlive refuses a member whose name and number do not agree.
func (delegate) NotifyAlive(n *memberlist.Node) error {
	id, _, err := decodeMeta(n.Meta)
	if err == nil && n.Name != memberName(id) {
		err = fmt.Errorf("member %.64q says it is node %d", n.Name, id)
	}
	return err
}

// NotifyJoin implements memberlist.EventDelegate.
func (d delegate) NotifyJoin(n *memberlist.Node) { d.note(n, true) }

// NotifyUpdate implements memberlist.EventDelegate.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.note(n, true) }

// NotifyLeave implements memberlist.EventDelegate; a failed node leaves, too.
func (d delegate) NotifyLeave(n *memberlist.Node) { d.note(n, false) }

func (d delegate) note(n *memberlist.Node, alive bool) {
	id, start, err := decodeMeta(n.Meta)
	if err != nil || id == d.g.cfg.Node {
		return
	}
	g := d.g
	next := peer{alive: alive, startID: start, addr: n.Address()}
	g.mu.Lock()
	old, known := g.mu.nodes[id]
	g.mu.nodes[id] = next
	g.mu.Unlock()
	if g.cfg.OnChange != nil && (!known || old.alive != alive || old.startID != start) {
		g.cfg.OnChange(id, alive)
	}
}
