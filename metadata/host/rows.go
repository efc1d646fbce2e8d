package host

import (
	"encoding/binary"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Keys of both stores start with the group, four bytes big endian, and a kind byte. docs/formats/raft-log.md has the
// byte tables.
const (
	logIdentity = 0x00 // log store: replica id and whether it was destroyed
	logHard     = 0x01 // log store: term, vote, commit
	logTrunc    = 0x02 // log store: index and term of the entry before the first one kept
	logEntry    = 0x03 // log store: entries, index eight bytes big endian

	stateMeta = 0x00 // state store: applied index and term, members
	stateRow  = 0x01 // state store: the state machine's rows

	prefixLen   = 5
	rowVersion  = 1
	formatGroup = ident.Group(0xffffffff) // pseudo group of the format row
)

func putPrefix(dst []byte, g ident.Group, kind byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(g)), kind)
}

func prefix(g ident.Group, kind byte) []byte { return putPrefix(make([]byte, 0, prefixLen), g, kind) }

// groupEnd is the first key after everything of the group.
func groupEnd(g ident.Group) []byte { return binary.BigEndian.AppendUint32(nil, uint32(g)+1) }

func entryKey(dst []byte, g ident.Group, index uint64) []byte {
	return binary.BigEndian.AppendUint64(putPrefix(dst, g, logEntry), index)
}

// identity of a replica on this drive. A destroyed one never comes back under its id.
type identity struct {
	replica   uint64
	destroyed bool
}

func (i identity) encode() []byte {
	b := binary.LittleEndian.AppendUint64([]byte{rowVersion}, i.replica)
	if i.destroyed {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeIdentity(b []byte) (identity, error) {
	if len(b) != 10 || b[0] != rowVersion || b[9] > 1 {
		return identity{}, corrupt("identity row", b, "10 bytes, version 1")
	}
	return identity{replica: binary.LittleEndian.Uint64(b[1:]), destroyed: b[9] == 1}, nil
}

// hardState is raft's, as plain values.
type hardState struct{ term, vote, commit uint64 }

func (h hardState) encode(dst []byte) []byte {
	dst = append(dst, rowVersion)
	dst = binary.LittleEndian.AppendUint64(dst, h.term)
	dst = binary.LittleEndian.AppendUint64(dst, h.vote)
	return binary.LittleEndian.AppendUint64(dst, h.commit)
}

func decodeHardState(b []byte) (hardState, error) {
	if len(b) != 25 || b[0] != rowVersion {
		return hardState{}, corrupt("hard state row", b, "25 bytes, version 1")
	}
	return hardState{
		term: binary.LittleEndian.Uint64(b[1:]), vote: binary.LittleEndian.Uint64(b[9:]), commit: binary.LittleEndian.Uint64(b[17:]),
	}, nil
}

// entryID is an index and the term of the entry there.
type entryID struct{ index, term uint64 }

func (e entryID) encode(dst []byte) []byte {
	dst = append(dst, rowVersion)
	dst = binary.LittleEndian.AppendUint64(dst, e.index)
	return binary.LittleEndian.AppendUint64(dst, e.term)
}

func decodeEntryID(b []byte) (entryID, error) {
	if len(b) != 17 || b[0] != rowVersion {
		return entryID{}, corrupt("truncation row", b, "17 bytes, version 1")
	}
	return entryID{index: binary.LittleEndian.Uint64(b[1:]), term: binary.LittleEndian.Uint64(b[9:])}, nil
}

// An entry's value is version, type, term (uvarint) and the data.
func entryValueLen(e *pb.Entry) int { return 2 + uvarintLen(e.GetTerm()) + len(e.Data) }

func putEntryValue(dst []byte, e *pb.Entry) {
	dst[0], dst[1] = rowVersion, byte(e.GetType())
	n := binary.PutUvarint(dst[2:], e.GetTerm())
	copy(dst[2+n:], e.Data)
}

// decodeEntryValue's result owns its memory.
func decodeEntryValue(index uint64, b []byte) (*pb.Entry, error) {
	if len(b) < 3 || b[0] != rowVersion || b[1] > byte(pb.EntryConfChange) {
		return nil, corrupt("log entry", b[:min(len(b), 16)], "version 1 and a known entry type")
	}
	term, n := binary.Uvarint(b[2:])
	if n <= 0 {
		return nil, corrupt("log entry", b[:min(len(b), 16)], "a term")
	}
	slab := &entrySlab{term: term, index: index, typ: pb.EntryType(b[1])}
	if data := b[2+n:]; len(data) > 0 {
		slab.e.Data = slices.Clone(data)
	}
	return slab.entry(), nil
}

// entrySlab is an entry together with what its optional fields point to: one allocation instead of four.
type entrySlab struct {
	e           pb.Entry
	typ         pb.EntryType
	term, index uint64
}

func (s *entrySlab) entry() *pb.Entry {
	s.e.Type, s.e.Term, s.e.Index = &s.typ, &s.term, &s.index
	return &s.e
}

// appliedMeta stands in the state store, in the same batch as the rows it speaks of: how far the group is applied, and
// the members as of that entry.
type appliedMeta struct {
	entryID
	members []Member // ascending by replica
}

func (m *appliedMeta) encode() []byte {
	b := m.entryID.encode(make([]byte, 0, 18+13*len(m.members)))
	b = append(b, byte(len(m.members)))
	for _, x := range m.members {
		b = binary.LittleEndian.AppendUint64(b, x.Replica)
		b = binary.LittleEndian.AppendUint32(b, uint32(x.Node))
		if x.Learner {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

func decodeAppliedMeta(b []byte) (appliedMeta, error) {
	const want = "version 1, index, term and up to 16 members in ascending order"
	if len(b) < 18 {
		return appliedMeta{}, corrupt("applied row", b, want)
	}
	id, err := decodeEntryID(b[:17])
	n := int(b[17])
	if err != nil || n > maxReplicas || len(b) != 18+13*n {
		return appliedMeta{}, corrupt("applied row", b, want)
	}
	m := appliedMeta{entryID: id}
	for p := b[18:]; len(p) > 0; p = p[13:] {
		x := Member{Replica: binary.LittleEndian.Uint64(p), Node: ident.Node(binary.LittleEndian.Uint32(p[8:])), Learner: p[12] == 1}
		if x.Replica == 0 || p[12] > 1 || (len(m.members) > 0 && m.members[len(m.members)-1].Replica >= x.Replica) {
			return appliedMeta{}, corrupt("applied row", b, want)
		}
		m.members = append(m.members, x)
	}
	return m, nil
}

// confState is what raft calls the members.
func confState(members []Member) *pb.ConfState {
	cs := &pb.ConfState{}
	for _, m := range members {
		if m.Learner {
			cs.Learners = append(cs.Learners, m.Replica)
		} else {
			cs.Voters = append(cs.Voters, m.Replica)
		}
	}
	return cs
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

func corrupt(what string, read []byte, expected string) error {
	return oerr.Errorf("host.decode", oerr.Corrupt, "%s: read %x, expected %s", what, read, expected)
}
