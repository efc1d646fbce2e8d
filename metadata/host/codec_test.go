package host

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

func sampleMessages() []*pb.Message {
	return []*pb.Message{
		{Type: pb.MsgHeartbeat.Enum(), To: new(uint64(2)), From: new(uint64(1)), Term: new(uint64(3)), Commit: new(uint64(9)), Context: []byte("12345678")},
		{Type: pb.MsgAppResp.Enum(), To: new(uint64(1)), From: new(uint64(2)), Term: new(uint64(3)), Index: new(uint64(10)), Reject: new(true), RejectHint: new(uint64(4)), LogTerm: new(uint64(2))},
		{Type: pb.MsgApp.Enum(), To: new(uint64(2)), From: new(uint64(1)), Term: new(uint64(3)), Index: new(uint64(10)), LogTerm: new(uint64(3)), Commit: new(uint64(10)),
			Entries: []*pb.Entry{
				{Type: pb.EntryNormal.Enum(), Term: new(uint64(3)), Index: new(uint64(11)), Data: []byte("hello")},
				{Type: pb.EntryConfChange.Enum(), Term: new(uint64(3)), Index: new(uint64(12)), Data: bytes.Repeat([]byte("x"), 300)},
				{Type: pb.EntryNormal.Enum(), Term: new(uint64(3)), Index: new(uint64(13))},
			}},
	}
}

func sampleBatch() []byte {
	b := appendBatchHeader(nil, 5, 1700000000123)
	for i, m := range sampleMessages() {
		b = appendMessage(b, ident.Group(i+1), m, uint64(i)*1000)
	}
	return appendHashReport(b, 9, hashReport{from: 1, to: 2, index: 77, hash: 0xfeedfacecafebeef})
}

func TestABatchComesBackAsItWasSent(t *testing.T) {
	r, err := readBatch(sampleBatch())
	if err != nil || r.from != 5 || r.nowMS != 1700000000123 {
		t.Fatalf("header: %+v %v", r, err)
	}
	for i, want := range sampleMessages() {
		rec, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		if rec.group != ident.Group(i+1) || rec.trunc != uint64(i)*1000 {
			t.Fatalf("record %d: group %d, trunc %d", i, rec.group, rec.trunc)
		}
		// Fields that are absent and fields that are zero are the same to the engine.
		if g, w := normal(rec.msg), normal(want); !proto.Equal(g, w) {
			t.Fatalf("record %d: read %v, expected %v", i, g, w)
		}
	}
	rec, err := r.next()
	if err != nil || rec.msg != nil || rec.hash != (hashReport{1, 2, 77, 0xfeedfacecafebeef}) || r.more() {
		t.Fatalf("report: %+v %v", rec, err)
	}
}

func normal(m *pb.Message) *pb.Message {
	c := &pb.Message{Type: m.Type, To: new(m.GetTo()), From: new(m.GetFrom()), Term: new(m.GetTerm()), LogTerm: new(m.GetLogTerm()),
		Index: new(m.GetIndex()), Commit: new(m.GetCommit()), RejectHint: new(m.GetRejectHint()), Reject: new(m.GetReject()), Context: m.Context}
	for _, e := range m.Entries {
		c.Entries = append(c.Entries, &pb.Entry{Type: e.GetType().Enum(), Term: new(e.GetTerm()), Index: new(e.GetIndex()), Data: e.Data})
	}
	return c
}

func TestTheFormatsStayAsTheyAre(t *testing.T) {
	meta := appliedMeta{entryID{7, 3}, []Member{{Replica: 1<<32 | 1, Node: 1}, {Replica: 2<<32 | 1, Node: 2, Learner: true}}}
	entry := &pb.Entry{Type: pb.EntryNormal.Enum(), Term: new(uint64(300)), Index: new(uint64(8)), Data: []byte("abc")}
	value := make([]byte, entryValueLen(entry))
	putEntryValue(value, entry)
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"entry key", entryKey(nil, 3, 258), "00000003030000000000000102"},
		{"entry value", value, "0100ac02616263"},
		{"identity", identity{replica: 1<<32 | 1}.encode(), "01010000000100000000"},
		{"hard state", hardState{3, 1<<32 | 1, 9}.encode(nil), "01030000000000000001000000010000000900000000000000"},
		{"truncation", entryID{7, 3}.encode(nil), "0107000000000000000300000000000000"},
		{"applied", meta.encode(), "0107000000000000000300000000000000020100000001000000010000000001000000020000000200000001"},
		{"command", appendEntryData(nil, entryCommand, 5, []byte("abc")), "010500000000000000616263"},
		{"hash verify", hashVerifyData(5, 6, 7), "03050000000000000006000000000000000700000000000000"},
		{"conf context", confContext{5, 6}.encode(), "01050000000000000006000000"},
		{"batch", appendMessage(appendBatchHeader(nil, 5, 1000), 3, sampleMessages()[0], 8), "0105000000e8030000000000000308" + "0a" + "02010300000900" + "08" + "083132333435363738"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: wrote %s, expected %s", c.name, got, c.want)
		}
	}
}

func TestMessagesThatMustNotTravelAreRefused(t *testing.T) {
	for _, typ := range []pb.MessageType{pb.MsgHup, pb.MsgProp, pb.MsgBeat, pb.MsgSnap, pb.MsgTransferLeader, pb.MsgReadIndex, pb.MsgStorageAppendResp, pb.MsgCheckQuorum} {
		b := appendMessage(appendBatchHeader(nil, 1, 0), 1, &pb.Message{Type: typ.Enum(), To: new(uint64(1)), From: new(uint64(2)), Term: new(uint64(1))}, 0)
		r, err := readBatch(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.next(); !oerr.IsCorrupt(err) {
			t.Errorf("%s was read: %v", typ, err)
		}
	}
	zero := appendMessage(appendBatchHeader(nil, 1, 0), 1, &pb.Message{Type: pb.MsgApp.Enum(), To: new(uint64(1)), From: new(uint64(2))}, 0)
	r, _ := readBatch(zero)
	if _, err := r.next(); !oerr.IsCorrupt(err) {
		t.Errorf("a message without a term was read: %v", err)
	}
}

func TestReconcileSettlesLogAndStateAfterACrash(t *testing.T) {
	entry := func(i, term uint64) *pb.Entry { return &pb.Entry{Index: new(i), Term: new(term)} }
	log := func(trunc entryID, hs hardState, es ...*pb.Entry) *groupLog {
		l := &groupLog{s: &logStore{cacheLm: 1 << 20}, trunc: trunc, last: trunc, hs: hs, cacheFirst: trunc.index + 1}
		l.appended(es)
		return l
	}
	for _, c := range []struct {
		name    string
		log     *groupLog
		applied entryID
		reset   bool
		bad     bool
		last    entryID
		hs      hardState
	}{
		{"nothing to do", log(entryID{1, 1}, hardState{2, 5, 3}, entry(2, 1), entry(3, 2)), entryID{2, 1}, false, false, entryID{3, 2}, hardState{2, 5, 3}},
		{"the commit index was not written", log(entryID{1, 1}, hardState{2, 5, 1}, entry(2, 1), entry(3, 2)), entryID{3, 2}, false, false, entryID{3, 2}, hardState{2, 5, 3}},
		{"a snapshot beyond the log", log(entryID{1, 1}, hardState{2, 5, 1}, entry(2, 1)), entryID{9, 4}, true, false, entryID{9, 4}, hardState{4, 0, 9}},
		{"a snapshot in a log that went another way", log(entryID{1, 1}, hardState{4, 5, 1}, entry(2, 1), entry(3, 2), entry(4, 2)), entryID{3, 3}, true, false, entryID{3, 3}, hardState{4, 5, 3}},
		{"an empty replica", log(entryID{}, hardState{}), entryID{}, false, false, entryID{}, hardState{}},
		{"a state store that lost what was flushed", log(entryID{5, 1}, hardState{2, 5, 6}, entry(6, 2)), entryID{3, 1}, false, true, entryID{}, hardState{}},
		{"a log that lost committed entries", log(entryID{1, 1}, hardState{2, 5, 6}, entry(2, 1)), entryID{2, 1}, false, true, entryID{}, hardState{}},
	} {
		reset, why := reconcile(c.log, c.applied)
		if (why != "") != c.bad {
			t.Errorf("%s: %q", c.name, why)
			continue
		}
		if c.bad {
			continue
		}
		if reset != c.reset || c.log.last != c.last || c.log.hs != c.hs {
			t.Errorf("%s: reset %t, last %+v, hard state %+v, expected %t, %+v, %+v", c.name, reset, c.log.last, c.log.hs, c.reset, c.last, c.hs)
		}
	}
}

func FuzzBatch(f *testing.F) {
	f.Add(sampleBatch())
	f.Add(appendBatchHeader(nil, 1, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := readBatch(b)
		if err != nil {
			return
		}
		for r.more() {
			rec, err := r.next()
			if err != nil {
				return
			}
			if rec.msg == nil {
				continue
			}
			again := appendMessage(appendBatchHeader(nil, 1, 0), rec.group, rec.msg, rec.trunc)
			r2, err := readBatch(again)
			if err != nil {
				t.Fatal(err)
			}
			rec2, err := r2.next()
			if err != nil || !proto.Equal(normal(rec2.msg), normal(rec.msg)) {
				t.Fatalf("read %v, wrote and read %v: %v", rec.msg, rec2.msg, err)
			}
		}
	})
}

func FuzzRows(f *testing.F) {
	meta := appliedMeta{entryID{7, 3}, []Member{{Replica: 1, Node: 1}}}
	e := &pb.Entry{Type: pb.EntryNormal.Enum(), Term: new(uint64(3)), Index: new(uint64(8)), Data: []byte("abc")}
	v := make([]byte, entryValueLen(e))
	putEntryValue(v, e)
	cc, _ := proto.Marshal(&pb.ConfChange{Type: pb.ConfChangeAddNode.Enum(), NodeId: new(uint64(3)), Context: confContext{1, 2}.encode()})
	for _, b := range [][]byte{meta.encode(), v, cc, identity{replica: 3}.encode(), hardState{1, 2, 3}.encode(nil), entryID{1, 2}.encode(nil),
		hashVerifyData(1, 2, 3), appendEntryData(nil, entryCommand, 9, []byte("x"))} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeAppliedMeta(b); err == nil && !bytes.Equal(m.encode(), b) {
			t.Fatalf("applied row %x came back as %x", b, m.encode())
		}
		if i, err := decodeIdentity(b); err == nil && !bytes.Equal(i.encode(), b) {
			t.Fatalf("identity row %x came back as %x", b, i.encode())
		}
		if h, err := decodeHardState(b); err == nil && !bytes.Equal(h.encode(nil), b) {
			t.Fatalf("hard state row %x came back as %x", b, h.encode(nil))
		}
		if id, err := decodeEntryID(b); err == nil && !bytes.Equal(id.encode(nil), b) {
			t.Fatalf("truncation row %x came back as %x", b, id.encode(nil))
		}
		_, _ = decodeEntryValue(1, b)
		_, _ = parseEntry(b)
		_, _, _ = parseConfChange(b)
	})
}

func FuzzSnapshotChunk(f *testing.F) {
	info := chunkInfo{stream: ident.ID{1}, group: 3, to: 2, from: 1, node: 1, term: 4, flags: chunkFirst | chunkLast}
	meta := (&appliedMeta{entryID{7, 3}, nil}).encode()
	b := binary.LittleEndian.AppendUint16(info.header(nil), uint16(len(meta)))
	b = append(append(b, meta...), 1, 1, 'k', 'v')
	f.Add(append(b, 0, 0, 0, 0, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseChunk(b)
		if err != nil {
			return
		}
		if got := append(h.header(nil), h.body...); !bytes.Equal(got, b) {
			t.Fatalf("chunk %x came back as %x", b, got)
		}
		for body := h.body; len(body) > 0; {
			_, _, rest, err := nextRow(body)
			if err != nil {
				return
			}
			if len(rest) >= len(body) {
				t.Fatal("a row took nothing")
			}
			body = rest
		}
	})
}
