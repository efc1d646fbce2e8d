package shardtest

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"objstore/internal/oerr"
	"objstore/shard"
)

func testRoundTrip(s *suite) {
	for _, length := range []uint64{4 << 10, 8 << 10, 60 << 10, 64 << 10, 68 << 10, 128 << 10, 1<<20 - 4096, 1 << 20, 1<<20 + 4096, 3<<20 + 64<<10, 9<<20 + 12<<10} {
		for _, piece := range []int{64 << 10, 1 << 20, 16 << 20} {
			if length > 4<<20 && piece == 64<<10 {
				continue
			}
			spec := s.spec(length)
			data, crcs := s.body(spec)
			ack, err := s.write(s.ctx, spec, data, crcs, piece)
			if err != nil {
				s.Fatalf("writing %d bytes in pieces of %d: %v", length, piece, err)
			}
			if want := (shard.Ack{Drive: s.Drive, Incarnation: s.Incarnation, Digest: shard.Digest(crcs)}); ack != want {
				s.Errorf("%d bytes: acknowledged %+v, expected %+v", length, ack, want)
			}
			got, gotCRCs, err := s.read(spec.Ref, 0, length)
			if err != nil || !bytes.Equal(got, data) || !slices.Equal(gotCRCs, crcs) {
				s.Fatalf("%d bytes in pieces of %d: read back wrong (error %v, data equal %v, checksums equal %v)",
					length, piece, err, bytes.Equal(got, data), slices.Equal(gotCRCs, crcs))
			}
		}
	}
}

func testExists(s *suite) {
	for _, length := range []uint64{64 << 10, 2 << 20} {
		spec, data, _ := s.put(length)
		other, otherCRCs := s.body(spec)
		_, err := s.write(s.ctx, spec, other, otherCRCs, 1<<20)
		s.wantKind("second write of a sealed shard", err, oerr.Exists)
		if got, _, err := s.read(spec.Ref, 0, length); err != nil || !bytes.Equal(got, data) {
			s.Errorf("the first shard of %d bytes is not what is there any more (error %v)", length, err)
		}
		spec.Index ^= 1 // another shard of the same blob is no obstacle
		if _, err := s.write(s.ctx, spec, other, shard.AppendCRCs(nil, spec.Blob, spec.Index, 0, other), 1<<20); err != nil {
			s.Errorf("write of another shard of the blob: %v", err)
		}
	}
}

func testInProgress(s *suite) {
	w, spec, data, crcs := s.open(s.ctx)
	defer w.Abort(nil)
	_, err := s.write(s.ctx, spec, data, crcs, 1<<20)
	s.wantKind("second writer", err, oerr.InProgress)
	if err := s.appendAll(s.ctx, w, data[1<<20:], crcs[16:], 1<<20); err != nil {
		s.Fatalf("the first writer, afterwards: %v", err)
	}
	if _, err := w.Commit(s.ctx); err != nil {
		s.Fatalf("the first writer's commit: %v", err)
	}
	if got, _, err := s.read(spec.Ref, 0, spec.Length); err != nil || !bytes.Equal(got, data) {
		s.Errorf("the first writer's shard is not what is there (error %v)", err)
	}
}

func testShortCommit(s *suite) {
	for _, c := range []struct{ length, sent uint64 }{{128 << 10, 0}, {128 << 10, 64 << 10}, {3 << 20, 0}, {3 << 20, 2 << 20}} {
		spec := s.spec(c.length)
		data, crcs := s.body(spec)
		w, err := s.Endpoint.Create(s.ctx, spec)
		if err != nil {
			s.Fatal(err)
		}
		if err := s.appendAll(s.ctx, w, data[:c.sent], crcs, 1<<20); err != nil {
			s.Fatal(err)
		}
		_, err = w.Commit(s.ctx)
		s.wantKind("commit of a short shard", err, oerr.InvalidArgument)
		w.Abort(nil)
		s.eventually("nothing is left of it", func() bool { return s.state(spec.Ref) == shard.StateMissing })
	}
}

func testBadAppends(s *suite) {
	spec := s.spec(192 << 10)
	data, crcs := s.body(spec)
	for _, c := range []struct {
		name  string
		sizes []int
	}{
		{"nothing", []int{0}},
		{"a short block before the end", []int{4 << 10, 64 << 10}},
		{"more than the shard's length", []int{128 << 10, 128 << 10}},
	} {
		spec.Blob = s.id()
		crcs = shard.AppendCRCs(nil, spec.Blob, spec.Index, 0, data)
		w, err := s.Endpoint.Create(s.ctx, spec)
		if err != nil {
			s.Fatal(err)
		}
		off := 0
		for _, n := range c.sizes {
			if err != nil {
				break
			}
			b := s.fill(make([]byte, max(n, 1)))
			copy(b.B, data[min(off, len(data)):])
			first := min(off/shard.BlockSize, len(crcs))
			err = w.Append(s.ctx, b, b.B[:n], append(slices.Clone(crcs[first:]), 0, 0, 0)[:shard.Blocks(uint64(n))])
			b.Release()
			off += n
		}
		if err == nil {
			_, err = w.Commit(s.ctx)
		}
		s.wantKind("append of "+c.name, err, oerr.InvalidArgument, oerr.Corrupt)
		w.Abort(nil)
		s.eventually("nothing is left of it", func() bool { return s.state(spec.Ref) == shard.StateMissing })
	}
	if _, err := s.Endpoint.Create(s.ctx, s.spec(0)); !oerr.Is(err, oerr.InvalidArgument) {
		s.Errorf("shard of length 0: %v", err)
	}
	if _, err := s.Endpoint.Create(s.ctx, s.spec(4097)); !oerr.Is(err, oerr.InvalidArgument) {
		s.Errorf("shard of length 4097: %v", err)
	}
}

func testWrongCRC(s *suite) {
	for _, length := range []uint64{4 << 10, 192 << 10, 3 << 20} {
		for _, name := range []string{"checksum", "data", "count", "place"} {
			spec := s.spec(length)
			data, crcs := s.body(spec)
			switch name {
			case "checksum":
				crcs[len(crcs)-1] ^= 1
			case "data":
				data[len(data)/2] ^= 1
			case "count":
				crcs = append(crcs, 0)
			case "place": // right checksums of the same bytes as another blob's
				crcs = shard.AppendCRCs(nil, s.id(), spec.Index, 0, data)
			}
			w, err := s.Endpoint.Create(s.ctx, spec)
			if err != nil {
				s.Fatal(err)
			}
			b := s.fill(data)
			err = w.Append(s.ctx, b, b.B, crcs)
			b.Release()
			if err == nil {
				_, err = w.Commit(s.ctx)
			}
			if !oerr.IsCorrupt(err) {
				s.Errorf("%d bytes, wrong %s: got %v, expected Corrupt", length, name, err)
			}
			w.Abort(nil)
			s.eventually("nothing is left of it", func() bool { return s.state(spec.Ref) == shard.StateMissing })
		}
	}
}

func testAbort(s *suite) {
	w, spec, data, crcs := s.open(s.ctx)
	w.Abort(errors.New("changed my mind"))
	w.Abort(nil) // no-op
	if err := s.appendAll(s.ctx, w, data[1<<20:], crcs[16:], 1<<20); err == nil {
		s.Error("append after abort succeeded")
	}
	if _, err := w.Commit(s.ctx); err == nil {
		s.Error("commit after abort succeeded")
	}
	s.eventually("the aborted shard is gone", func() bool { return s.state(spec.Ref) == shard.StateMissing })
	if _, err := s.write(s.ctx, spec, data, crcs, 1<<20); err != nil {
		s.Errorf("writing it again: %v", err)
	}
	small := s.spec(64 << 10)
	data, crcs = s.body(small)
	w, err := s.Endpoint.Create(s.ctx, small)
	if err != nil {
		s.Fatal(err)
	}
	if err := s.appendAll(s.ctx, w, data, crcs, 64<<10); err != nil {
		s.Fatal(err)
	}
	w.Abort(nil)
	s.eventually("the small aborted shard is gone", func() bool { return s.state(small.Ref) == shard.StateMissing })
}

func testWriterDiesWithContext(s *suite) {
	ctx, cancel := context.WithCancel(s.ctx)
	w, spec, data, crcs := s.open(ctx)
	cancel()
	s.eventually("the far side has dropped the writer", func() bool { return s.state(spec.Ref) == shard.StateMissing })
	err := s.appendAll(s.ctx, w, data[1<<20:], crcs[16:], 1<<20)
	if err == nil {
		_, err = w.Commit(s.ctx)
	}
	if err == nil {
		s.Error("a writer outlived its context")
	}
	w.Abort(nil)
	spec.Attempt++
	if _, err := s.write(s.ctx, spec, data, crcs, 1<<20); err != nil {
		s.Errorf("the next attempt: %v", err)
	}
}

func testAfterCommit(s *suite) {
	for _, length := range []uint64{64 << 10, 2 << 20} {
		spec := s.spec(length)
		data, crcs := s.body(spec)
		w, err := s.Endpoint.Create(s.ctx, spec)
		if err != nil {
			s.Fatal(err)
		}
		if err := s.appendAll(s.ctx, w, data, crcs, 1<<20); err != nil {
			s.Fatal(err)
		}
		if _, err := w.Commit(s.ctx); err != nil {
			s.Fatal(err)
		}
		w.Abort(nil) // no-op
		if _, err := w.Commit(s.ctx); err == nil {
			s.Error("a second commit succeeded")
		}
		if got := s.state(spec.Ref); got != shard.StateOK {
			s.Errorf("state %v after commit and abort, expected ok", got)
		}
	}
}
