package host

import (
	"encoding/binary"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"objstore/internal/ident"
)

// The first byte of an entry's data tells the state machine's entries from the host's own. An empty entry is raft's
// no-op at the start of a term.
const (
	entryCommand    = 1 // nonce (8), the state machine's data
	entryHashCheck  = 2 // nonce (8): each replica hashes its rows as of this entry
	entryHashVerify = 3 // nonce (8), index (8), hash (8): a majority had this hash at this index

	entryHeader     = 9
	hashVerifyLen   = entryHeader + 16
	confContextLen  = 13 // version, nonce (8), node (4)
	confContextVers = 1
)

// appendEntryData appends a command entry to dst.
func appendEntryData(dst []byte, kind byte, nonce uint64, data []byte) []byte {
	dst = append(dst, kind)
	dst = binary.LittleEndian.AppendUint64(dst, nonce)
	return append(dst, data...)
}

func hashVerifyData(nonce, index, hash uint64) []byte {
	b := appendEntryData(make([]byte, 0, hashVerifyLen), entryHashVerify, nonce, nil)
	b = binary.LittleEndian.AppendUint64(b, index)
	return binary.LittleEndian.AppendUint64(b, hash)
}

// parsedEntry is a normal entry's data taken apart; data aliases the entry.
type parsedEntry struct {
	kind        byte // 0: no-op
	nonce       uint64
	data        []byte
	index, hash uint64 // entryHashVerify
}

func parseEntry(b []byte) (parsedEntry, error) {
	if len(b) == 0 {
		return parsedEntry{}, nil
	}
	if len(b) < entryHeader {
		return parsedEntry{}, corrupt("entry data", b, "kind and nonce")
	}
	p := parsedEntry{kind: b[0], nonce: binary.LittleEndian.Uint64(b[1:]), data: b[entryHeader:]}
	switch {
	case p.kind == entryCommand:
	case p.kind == entryHashCheck && len(b) == entryHeader:
	case p.kind == entryHashVerify && len(b) == hashVerifyLen:
		p.index, p.hash = binary.LittleEndian.Uint64(b[9:]), binary.LittleEndian.Uint64(b[17:])
	default:
		return parsedEntry{}, corrupt("entry data", b[:min(len(b), 32)], "a known kind of the right length")
	}
	return p, nil
}

// confContext rides in a configuration change: who proposed it and where the replica is.
type confContext struct {
	nonce uint64
	node  ident.Node
}

func (c confContext) encode() []byte {
	b := binary.LittleEndian.AppendUint64([]byte{confContextVers}, c.nonce)
	return binary.LittleEndian.AppendUint32(b, uint32(c.node))
}

// parseConfChange takes a configuration-change entry apart.
func parseConfChange(data []byte) (*pb.ConfChange, confContext, error) {
	cc := &pb.ConfChange{}
	if err := proto.Unmarshal(data, cc); err != nil {
		return nil, confContext{}, corrupt("configuration change", data[:min(len(data), 32)], "a raftpb.ConfChange")
	}
	b := cc.GetContext()
	if len(b) != confContextLen || b[0] != confContextVers || cc.GetNodeId() == 0 {
		return nil, confContext{}, corrupt("configuration change context", b, "version 1, nonce and node")
	}
	switch cc.GetType() {
	case pb.ConfChangeAddNode, pb.ConfChangeAddLearnerNode, pb.ConfChangeRemoveNode:
	default:
		return nil, confContext{}, corrupt("configuration change", data[:min(len(data), 32)], "add, learner or remove")
	}
	return cc, confContext{nonce: binary.LittleEndian.Uint64(b[1:]), node: ident.Node(binary.LittleEndian.Uint32(b[9:]))}, nil
}

// changeMembers returns the members after cc; the old slice stays as it is.
func changeMembers(old []Member, cc *pb.ConfChange, node ident.Node) []Member {
	id := cc.GetNodeId()
	out := make([]Member, 0, len(old)+1)
	for _, m := range old {
		if m.Replica != id {
			out = append(out, m)
		}
	}
	if cc.GetType() == pb.ConfChangeRemoveNode {
		return out
	}
	m := Member{Replica: id, Node: node, Learner: cc.GetType() == pb.ConfChangeAddLearnerNode}
	at := len(out)
	for i := range out {
		if out[i].Replica > id {
			at = i
			break
		}
	}
	out = append(out, Member{})
	copy(out[at+1:], out[at:])
	out[at] = m
	return out
}
