package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/shard"
	"objstore/shard/shardtest"
)

func someSpec() shard.Spec {
	return shard.Spec{Ref: shard.Ref{Drive: 3, Incarnation: 1, Epoch: 9, Blob: ident.ID{1, 2}, Index: 3}, K: 2, M: 2, CellSize: 64 << 10,
		Length: 64 << 10, BodyLen: 100_000, Bucket: ident.ID{3}, Key: "käse", Version: ident.ID{4}, Part: 5,
		Writer: shard.WriterID{Node: 6, StartID: ident.ID{7}, Put: 8}, Attempt: 2, Repair: true}
}

func sealed(kind byte, data int, meta []byte) []byte {
	b := append(openFrame(nil), meta...)
	sealFrame(b, 0, kind, 0, data)
	return b
}

func TestFrameBytesAreAsDocumented(t *testing.T) {
	b := append(openFrame(nil), 0xaa, 0xbb)
	sealFrame(b, 0, kindStat, 1500, 0)
	want := []byte{6, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0xdc, 5, 0, 0, 0, 0, 0, 0}
	if !bytes.Equal(b[:20], want) || len(b) != 26 {
		t.Errorf("frame\n got % x\nwant % x and 6 more", b, want)
	}
	s := someSpec()
	if n := len(appendSpec(nil, &s)); n != 124+len(s.Key) {
		t.Errorf("a spec has %d bytes, documented are 124 and the key", n)
	}
	if n := len(appendRef(nil, s.Ref)); n != 33 {
		t.Errorf("a ref has %d bytes, documented are 33", n)
	}
}

func TestTheLargestAnswersFitAFrame(t *testing.T) {
	errs := make([]error, maxRefs)
	for i := range errs {
		errs[i] = oerr.Errorf("op", oerr.Unavailable, "%s", bytes.Repeat([]byte("x"), 500))
	}
	if n := len(appendErrors(nil, errs)); n > maxMeta {
		t.Errorf("%d delete errors take %d bytes", maxRefs, n)
	}
	if n := 2 + maxRows*len(appendRow(nil, &shard.Info{})); n > maxMeta {
		t.Errorf("%d rows take %d bytes", maxRows, n)
	}
	if n := 2 + maxRefs*len(appendRef(nil, shard.Ref{})); n > maxMeta {
		t.Errorf("%d refs take %d bytes", maxRefs, n)
	}
	info := shard.Info{Spec: someSpec(), Path: string(make([]byte, 10_000)), Detail: string(make([]byte, 10_000))}
	info.Key = string(make([]byte, 10_000))
	if n := len(appendInfo(nil, &info)); n > maxMeta {
		t.Errorf("an info takes %d bytes", n)
	}
}

func TestTicketsExpireAndAreBoundedForEachNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewTickets()
		b, err := s.issue(1, 2)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ticketLife - time.Second)
		node, proof, ok := s.take([ticketHalf]byte(b))
		if !ok || node != 1 || !bytes.Equal(proof[:], b[ticketHalf:ticketSize]) {
			t.Errorf("a ticket of 29 s: node %d, %v", node, ok)
		}
		time.Sleep(2 * time.Second)
		if _, _, ok := s.take([ticketHalf]byte(b[ticketSize:])); ok {
			t.Error("a ticket of 31 s was taken")
		}
		for i := 0; i < ticketsPerNode/ticketBatch; i++ {
			if _, err := s.issue(1, ticketBatch); err != nil {
				t.Fatalf("batch %d: %v", i, err)
			}
		}
		if _, err := s.issue(1, 1); !oerr.Is(err, oerr.Busy) {
			t.Errorf("ticket beyond the limit: %v", err)
		}
		if _, err := s.issue(2, 1); err != nil {
			t.Errorf("another node's ticket: %v", err)
		}
		time.Sleep(ticketLife + time.Second)
		if _, err := s.issue(1, ticketBatch); err != nil {
			t.Errorf("after the old ones expired: %v", err)
		}
	})
}

func FuzzFrame(f *testing.F) {
	s := someSpec()
	f.Add(sealed(kindCreate, 0, appendSpec(nil, &s)))
	f.Add(sealed(kindData, 4096, make([]byte, 4)))
	f.Add(sealed(kindError, 0, []byte{1, 0, 'x'}))
	f.Add(bytes.Repeat([]byte{0xff}, headerSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < headerSize {
			return
		}
		h, err := parseHeader(in)
		if err != nil {
			return
		}
		if h.meta > maxMeta || h.data > maxData {
			t.Fatalf("accepted meta %d, data %d", h.meta, h.data)
		}
		meta := in[headerSize:]
		if len(meta) < int(h.meta) {
			return
		}
		meta = meta[:h.meta]
		if checkMeta(in, meta, h.crc) != nil {
			return
		}
		again := append(openFrame(nil), meta...)
		if sealFrame(again, 0, h.kind, h.deadline, int(h.data)); !bytes.Equal(again, in[:headerSize+int(h.meta)]) {
			t.Fatalf("written again it differs:\n% x\n% x", in, again)
		}
	})
}

// FuzzMeta runs every decoder over arbitrary bytes: what is accepted must come out the same when written again.
func FuzzMeta(f *testing.F) {
	s := someSpec()
	info := shard.Info{Spec: s, State: shard.StateCorrupt, Digest: 1, Path: "/a", Offset: 2, Size: 3, Detail: "d"}
	read := shard.ReadRequest{Ref: s.Ref, Length: 64 << 10}
	f.Add(byte(0), appendSpec(nil, &s))
	f.Add(byte(1), appendInfo(nil, &info))
	f.Add(byte(2), appendRead(nil, &read))
	f.Add(byte(3), appendAck(nil, shard.Ack{Drive: 1, Incarnation: 2, Digest: 3}))
	f.Add(byte(4), append([]byte{1, 0}, appendRef(nil, s.Ref)...))
	f.Add(byte(5), append([]byte{1, 0}, appendRow(nil, &info)...))
	f.Add(byte(6), appendErrors(nil, []error{nil, errors.New("x")}))
	f.Fuzz(func(t *testing.T, which byte, in []byte) {
		var again []byte
		var err error
		switch which % 7 {
		case 0:
			var v shard.Spec
			v, err = parseMeta(in, (*dec).spec)
			again = appendSpec(nil, &v)
		case 1:
			var v shard.Info
			v, err = parseMeta(in, (*dec).info)
			again = appendInfo(nil, &v)
		case 2:
			var v shard.ReadRequest
			v, err = parseMeta(in, (*dec).read)
			again = appendRead(nil, &v)
		case 3:
			var v shard.Ack
			v, err = parseMeta(in, (*dec).ack)
			again = appendAck(nil, v)
		case 4:
			var v []shard.Ref
			v, err = parseMeta(in, (*dec).refs)
			again = le.AppendUint16(nil, uint16(len(v)))
			for _, r := range v {
				again = appendRef(again, r)
			}
		case 5:
			var v []shard.Info
			v, err = parseMeta(in, func(d *dec) []shard.Info { return d.rows(maxRows) })
			again = le.AppendUint16(nil, uint16(len(v)))
			for i := range v {
				again = appendRow(again, &v[i])
			}
		case 6:
			if _, err = parseMeta(in, func(d *dec) []error { return d.errors(2) }); err != nil && !errors.Is(err, errFrame) {
				t.Fatalf("error %v, expected errFrame", err)
			}
			return // texts are cut and flags normalised: not the same bytes
		}
		if err == nil && !reflect.DeepEqual(again, in) {
			t.Fatalf("decoder %d: written again it differs:\n% x\n% x", which%7, in, again)
		}
	})
}

// FuzzServe feeds a connection arbitrary frames: it must end when they end and leave no buffer, writer or goroutine.
func FuzzServe(f *testing.F) {
	s := someSpec()
	s.Length = 8 << 10 // small inputs mutate faster
	frames := EncodeWrite(s, make([]byte, 8<<10))
	all := bytes.Join(frames[:], nil)
	read := shard.ReadRequest{Ref: s.Ref, Length: 64 << 10}
	f.Add(all)
	f.Add(all[:len(all)-30])
	f.Add(append(append([]byte(nil), all...), sealed(kindRead, 0, appendRead(nil, &read))...))
	f.Add(sealed(kindDelete, 0, append([]byte{1, 0}, appendRef(nil, s.Ref)...)))
	f.Add(sealed(kindStat, 0, append(appendRef(nil, s.Ref), 1)))
	f.Add(sealed(kindList, 0, append(append(le.AppendUint32(nil, 3), make([]byte, 17)...), 10, 0)))
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, in []byte) {
		m := shardtest.NewMem(3)
		pool := shard.NewPool(2 << 20)
		defer pool.Close()
		srv, err := NewServer(m, pool, ServerConfig{FrameLimit: time.Second, StreamIdle: time.Second, Idle: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(io.Discard, near) })
		done := make(chan struct{})
		go func() {
			defer close(done)
			srv.ServeConn(context.Background(), far, wire.Peer{Node: 1, Role: wire.RoleNode})
		}()
		near.SetWriteDeadline(time.Now().Add(5 * time.Second))
		near.Write(in)
		near.Close()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("the connection did not end")
		}
		wg.Wait()
		if pool.InUse() != 0 || m.Writers() != 0 {
			t.Fatalf("%d bytes of buffers and %d writers are left", pool.InUse(), m.Writers())
		}
	})
}
