package host

import (
	"encoding/binary"

	pb "go.etcd.io/raft/v3/raftpb"

	"objstore/internal/ident"
)

// A batch of messages to a node is version (1), the sending node (4), its clock in Unix milliseconds (8), and records.
// A record is the group (uvarint), the message type and a body. docs/formats/raft-log.md has the table. It is written
// by hand because protobuf costs a reflection walk and several allocations for each message and entry.
const (
	batchVersion = 1
	batchHeader  = 13

	recHashReport = 0xf0 // group, from, to, index, hash

	flagReject   = 1 << 0
	flagContext  = 1 << 1
	flagEntries  = 1 << 2
	flagTruncate = 1 << 3
)

// wireTypes are the message types that may travel. MsgSnap goes as a stream of chunks, local types never.
func wireType(t pb.MessageType) bool {
	switch t {
	case pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgTimeoutNow,
		pb.MsgPreVote, pb.MsgPreVoteResp:
		return true
	}
	return false
}

func appendBatchHeader(dst []byte, from ident.Node, nowMS int64) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, batchVersion), uint32(from))
	return binary.LittleEndian.AppendUint64(dst, uint64(nowMS))
}

// messageSize is an upper bound of what appendMessage adds.
func messageSize(m *pb.Message) int {
	n := 96 + len(m.Context)
	for _, e := range m.Entries {
		n += 24 + len(e.Data)
	}
	return n
}

// appendMessage appends one raft message. trunc, when not 0, is how far every member has the log.
func appendMessage(dst []byte, g ident.Group, m *pb.Message, trunc uint64) []byte {
	var flags byte
	if m.GetReject() {
		flags |= flagReject
	}
	if len(m.Context) > 0 {
		flags |= flagContext
	}
	if len(m.Entries) > 0 {
		flags |= flagEntries
	}
	if trunc != 0 {
		flags |= flagTruncate
	}
	dst = binary.AppendUvarint(dst, uint64(g))
	dst = append(dst, byte(m.GetType()), flags)
	dst = binary.AppendUvarint(dst, m.GetTo())
	dst = binary.AppendUvarint(dst, m.GetFrom())
	dst = binary.AppendUvarint(dst, m.GetTerm())
	dst = binary.AppendUvarint(dst, m.GetLogTerm())
	dst = binary.AppendUvarint(dst, m.GetIndex())
	dst = binary.AppendUvarint(dst, m.GetCommit())
	dst = binary.AppendUvarint(dst, m.GetRejectHint())
	if flags&flagTruncate != 0 {
		dst = binary.AppendUvarint(dst, trunc)
	}
	if flags&flagContext != 0 {
		dst = append(binary.AppendUvarint(dst, uint64(len(m.Context))), m.Context...)
	}
	if flags&flagEntries != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(m.Entries)))
		for _, e := range m.Entries {
			dst = append(dst, byte(e.GetType()))
			dst = binary.AppendUvarint(dst, e.GetTerm())
			dst = append(binary.AppendUvarint(dst, uint64(len(e.Data))), e.Data...)
		}
	}
	return dst
}

// hashReport says what a replica's rows hash to at an index.
type hashReport struct {
	from, to    uint64
	index, hash uint64
}

func appendHashReport(dst []byte, g ident.Group, r hashReport) []byte {
	dst = append(binary.AppendUvarint(dst, uint64(g)), recHashReport)
	dst = binary.AppendUvarint(dst, r.from)
	dst = binary.AppendUvarint(dst, r.to)
	dst = binary.AppendUvarint(dst, r.index)
	return binary.LittleEndian.AppendUint64(dst, r.hash)
}

// inMsg is a decoded message together with what its optional fields point to.
type inMsg struct {
	m      pb.Message
	typ    pb.MessageType
	f      [7]uint64 // to, from, term, log term, index, commit, reject hint
	reject bool
}

// record is one decoded record: a raft message or a hash report.
type record struct {
	group ident.Group
	msg   *pb.Message // nil: report
	trunc uint64
	hash  hashReport
}

// batchReader takes a batch apart. Entries and contexts alias the batch, which must not change afterwards.
type batchReader struct {
	from  ident.Node
	nowMS int64
	b     []byte
}

func readBatch(b []byte) (batchReader, error) {
	if len(b) < batchHeader || b[0] != batchVersion || len(b) > maxWireBatchBytes {
		return batchReader{}, corrupt("message batch", b[:min(len(b), 16)], "version 1, node and clock")
	}
	r := batchReader{from: ident.Node(binary.LittleEndian.Uint32(b[1:])), nowMS: int64(binary.LittleEndian.Uint64(b[5:])), b: b[batchHeader:]}
	if r.from == 0 {
		return batchReader{}, corrupt("message batch", b[:batchHeader], "a sending node")
	}
	return r, nil
}

// more reports whether there is another record.
func (r *batchReader) more() bool { return len(r.b) > 0 }

func (r *batchReader) uvarint(ok *bool) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		*ok = false
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *batchReader) byte(ok *bool) byte {
	if len(r.b) == 0 {
		*ok = false
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *batchReader) bytes(n uint64, ok *bool) []byte {
	if n > uint64(len(r.b)) {
		*ok = false
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *batchReader) next() (record, error) {
	start, ok := r.b, true
	g := r.uvarint(&ok)
	t := r.byte(&ok)
	rec := record{group: ident.Group(g)}
	switch {
	case !ok || g >= uint64(formatGroup):
		ok = false
	case t == recHashReport:
		rec.hash = hashReport{from: r.uvarint(&ok), to: r.uvarint(&ok), index: r.uvarint(&ok)}
		if h := r.bytes(8, &ok); ok {
			rec.hash.hash = binary.LittleEndian.Uint64(h)
		}
	case wireType(pb.MessageType(t)):
		rec.msg, rec.trunc = r.message(pb.MessageType(t), &ok)
	default:
		ok = false
	}
	if !ok {
		return record{}, corrupt("message record", start[:min(len(start), 32)], "a group, a known type and a whole body")
	}
	return rec, nil
}

func (r *batchReader) message(t pb.MessageType, ok *bool) (*pb.Message, uint64) {
	in := &inMsg{typ: t}
	flags := r.byte(ok)
	for i := range in.f {
		in.f[i] = r.uvarint(ok)
	}
	m := &in.m
	m.Type, m.To, m.From, m.Term, m.LogTerm = &in.typ, &in.f[0], &in.f[1], &in.f[2], &in.f[3]
	m.Index, m.Commit, m.RejectHint = &in.f[4], &in.f[5], &in.f[6]
	if in.reject = flags&flagReject != 0; in.reject {
		m.Reject = &in.reject
	}
	var trunc uint64
	if flags&flagTruncate != 0 {
		trunc = r.uvarint(ok)
	}
	if flags&flagContext != 0 {
		n := r.uvarint(ok)
		*ok = *ok && n <= maxContextBytes
		if *ok {
			m.Context = r.bytes(n, ok)
		}
	}
	if flags&flagEntries != 0 && *ok {
		m.Entries = r.entries(in.f[4], ok)
	}
	// A message without a term or an address would be taken for a local one.
	*ok = *ok && flags < 1<<4 && in.f[0] != 0 && in.f[1] != 0 && in.f[2] != 0 && (t == pb.MsgApp || len(m.Entries) == 0)
	return m, trunc
}

func (r *batchReader) entries(index uint64, ok *bool) []*pb.Entry {
	n := r.uvarint(ok)
	if !*ok || n == 0 || n > maxMsgEntries || n > uint64(len(r.b))/3 || index > 1<<62 { // an entry takes at least three bytes
		*ok = false
		return nil
	}
	slab := make([]entrySlab, n)
	out := make([]*pb.Entry, n)
	for i := range slab {
		s := &slab[i]
		s.typ = pb.EntryType(r.byte(ok))
		s.term, s.index = r.uvarint(ok), index+1+uint64(i)
		size := r.uvarint(ok)
		if *ok && size > 0 {
			s.e.Data = r.bytes(size, ok)
		}
		if !*ok || s.typ > pb.EntryConfChange || s.term == 0 {
			*ok = false
			return nil
		}
		out[i] = s.entry()
	}
	return out
}
