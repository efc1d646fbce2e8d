package shardtest

import (
	"bytes"
	"context"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

func testIncarnation(s *suite) {
	s.need("Format", s.Format != nil)
	old, data, crcs := s.put(64 << 10)
	s.Format()
	_, _, err := s.read(old.Ref, 0, 64<<10)
	s.wantKind("read of an older incarnation", err, oerr.WrongIncarnation)
	_, err = s.Endpoint.Stat(s.ctx, old.Ref, false)
	s.wantKind("stat of an older incarnation", err, oerr.WrongIncarnation)
	s.wantKind("delete in an older incarnation", s.Endpoint.Delete(s.ctx, []shard.Ref{old.Ref})[0], oerr.WrongIncarnation)
	fresh := old
	fresh.Blob = s.id()
	_, err = s.write(s.ctx, fresh, data, shard.AppendCRCs(nil, fresh.Blob, fresh.Index, 0, data), 64<<10)
	s.wantKind("write to an older incarnation", err, oerr.WrongIncarnation)
	now := old
	now.Incarnation++
	_, _, err = s.read(now.Ref, 0, 64<<10)
	s.wantKind("read of what the older incarnation had", err, oerr.ShardMissing)
	ack, err := s.write(s.ctx, now, data, crcs, 64<<10)
	if err != nil || ack.Incarnation != now.Incarnation {
		s.Errorf("write to the new incarnation: %+v, %v", ack, err)
	}
}

func testEpoch(s *suite) {
	s.need("SetMinEpoch", s.SetMinEpoch != nil)
	spec, data, _ := s.put(64 << 10)
	s.SetMinEpoch(s.Epoch + 5)
	_, _, err := s.read(spec.Ref, 0, 64<<10)
	s.wantKind("read with an older map", err, oerr.StaleEpoch)
	other := s.spec(64 << 10)
	body, crcs := s.body(other)
	_, err = s.write(s.ctx, other, body, crcs, 64<<10)
	s.wantKind("write with an older map", err, oerr.StaleEpoch)
	spec.Epoch = s.Epoch + 5
	if got, _, err := s.read(spec.Ref, 0, 64<<10); err != nil || !bytes.Equal(got, data) {
		s.Errorf("read with the new map: %v", err)
	}
	spec.Epoch += 10 // the caller may be ahead of the drive
	if _, _, err := s.read(spec.Ref, 0, 64<<10); err != nil {
		s.Errorf("read with a map newer than the drive's: %v", err)
	}
}

func testCorrupt(s *suite) {
	s.need("Corrupt", s.Corrupt != nil)
	for _, length := range []uint64{64 << 10, 200 << 10, 2<<20 + 4096} {
		spec, data, crcs := s.put(length)
		at := s.rng.Uint64N(length)
		if !s.Corrupt(spec.Ref, at) {
			s.Fatalf("the hook did not find the shard")
		}
		// Either the endpoint notices, or the checksums it returns give it away: it never passes the reader's check.
		got, gotCRCs, err := s.read(spec.Ref, 0, length)
		if err == nil {
			err = shard.CheckBlocks(spec.Blob, spec.Index, 0, got, gotCRCs)
		}
		if !oerr.IsCorrupt(err) {
			s.Errorf("byte %d of %d flipped: read says %v, expected Corrupt", at, length, err)
		}
		info, err := s.Endpoint.Stat(s.ctx, spec.Ref, true)
		if err != nil || info.State != shard.StateCorrupt || info.Detail == "" {
			s.Errorf("byte %d of %d flipped: Stat says %v %q, %v, expected corrupt and why", at, length, info.State, info.Detail, err)
		}
		spec.Repair, spec.Attempt = true, 2
		if _, err := s.write(s.ctx, spec, data, crcs, 1<<20); err != nil {
			s.Errorf("repair: %v", err)
			continue
		}
		if got, _, err := s.read(spec.Ref, 0, length); err != nil || !bytes.Equal(got, data) {
			s.Errorf("read after repair: %v", err)
		}
		if info, err := s.Endpoint.Stat(s.ctx, spec.Ref, true); err != nil || info.State != shard.StateOK {
			s.Errorf("Stat after repair: %v, %v", info.State, err)
		}
	}
	absent := s.spec(64 << 10)
	absent.Repair = true
	data, crcs := s.body(absent)
	if _, err := s.write(s.ctx, absent, data, crcs, 64<<10); err != nil {
		s.Errorf("rebuild of an absent shard: %v", err)
	}
}

// calls runs each operation once and tells check how it ended.
func (s *suite) calls(ctx context.Context, present shard.Spec, check func(what string, err error)) {
	_, err := s.Endpoint.Read(ctx, shard.ReadRequest{Ref: present.Ref, Length: present.Length}, make([]byte, present.Length))
	check("read", err)
	_, err = s.Endpoint.Stat(ctx, present.Ref, false)
	check("stat", err)
	check("delete", s.Endpoint.Delete(ctx, []shard.Ref{s.spec(4096).Ref})[0])
	_, err = s.Endpoint.List(ctx, s.Drive, ident.ID{}, 0, 10)
	check("list", err)
	for _, length := range []uint64{64 << 10, 3 << 20} {
		spec := s.spec(length)
		data, crcs := s.body(spec)
		_, err = s.write(ctx, spec, data, crcs, 1<<20)
		check("write", err)
	}
}

func testHang(s *suite) {
	s.need("Hang", s.Hang != nil)
	spec, data, _ := s.put(64 << 10)
	release := s.Hang()
	for i := range 6 { // each operation gets a deadline of its own
		ctx, cancel := context.WithTimeout(s.ctx, 30*time.Millisecond)
		start, n := time.Now(), 0
		s.calls(ctx, spec, func(what string, err error) {
			if n == i {
				s.wantKind(what+" on a hung drive", err, oerr.DeadlineExceeded)
			} else if err == nil {
				s.Errorf("%s on a hung drive succeeded", what)
			}
			n++
		})
		cancel()
		if d := time.Since(start); d > 5*time.Second {
			s.Errorf("calls with a deadline of 30 ms took %v", d)
		}
	}
	release()
	s.eventually("the drive serves again", func() bool {
		got, _, err := s.read(spec.Ref, 0, 64<<10)
		return err == nil && bytes.Equal(got, data)
	})
}

func testCancel(s *suite) {
	s.need("Hang", s.Hang != nil)
	spec, _, _ := s.put(64 << 10)
	release := s.Hang()
	defer release()
	ctx, cancel := context.WithCancel(s.ctx)
	time.AfterFunc(20*time.Millisecond, cancel)
	start := time.Now()
	s.calls(ctx, spec, func(what string, err error) { s.wantKind(what+" when the caller goes away", err, oerr.Canceled) })
	if d := time.Since(start); d > 5*time.Second {
		s.Errorf("cancelled calls took %v", d)
	}
}

func testFull(s *suite) {
	s.need("SetFull", s.SetFull != nil)
	old, data, _ := s.put(64 << 10)
	s.SetFull(true)
	for _, length := range []uint64{64 << 10, 5 << 20} {
		spec := s.spec(length)
		body, crcs := s.body(spec)
		_, err := s.write(s.ctx, spec, body, crcs, 1<<20)
		s.wantKind("write to a full drive", err, oerr.DriveFull)
		if got := s.state(spec.Ref); got != shard.StateMissing {
			s.Errorf("a refused shard is %v", got)
		}
	}
	if got, _, err := s.read(old.Ref, 0, 64<<10); err != nil || !bytes.Equal(got, data) {
		s.Errorf("read from a full drive: %v", err)
	}
	s.SetFull(false)
	s.put(64 << 10)
}

func testFenced(s *suite) {
	s.need("SetFenced", s.SetFenced != nil)
	s.SetFenced(true)
	for _, length := range []uint64{64 << 10, 5 << 20} {
		spec := s.spec(length)
		body, crcs := s.body(spec)
		_, err := s.write(s.ctx, spec, body, crcs, 1<<20)
		s.wantKind("write to a fenced drive", err, oerr.DriveFenced)
	}
}

func testDown(s *suite) {
	s.need("SetDown", s.SetDown != nil)
	spec, data, _ := s.put(64 << 10)
	w, open, rest, crcs := s.open(s.ctx)
	s.SetDown(true)
	s.calls(s.ctx, spec, func(what string, err error) { s.wantKind(what+" on an unreachable node", err, oerr.Unavailable) })
	err := s.appendAll(s.ctx, w, rest[1<<20:], crcs[16:], 1<<20)
	if err == nil {
		_, err = w.Commit(s.ctx)
	}
	s.wantKind("commit on an unreachable node", err, oerr.Unavailable)
	w.Abort(nil)
	s.SetDown(false)
	s.eventually("the node serves again", func() bool {
		got, _, err := s.read(spec.Ref, 0, 64<<10)
		return err == nil && bytes.Equal(got, data)
	})
	s.eventually("the interrupted shard is gone", func() bool { return s.state(open.Ref) == shard.StateMissing })
}

func testKinds(s *suite) {
	s.need("Fail", s.Fail != nil)
	spec, _, _ := s.put(64 << 10)
	for _, kind := range []oerr.Kind{oerr.Busy, oerr.Corrupt, oerr.Unavailable, oerr.Internal} {
		undo := s.Fail(kind, OpRead)
		_, _, err := s.read(spec.Ref, 0, 64<<10)
		s.wantKind("read", err, kind)
		undo()
		for _, length := range []uint64{64 << 10, 2 << 20} {
			for _, op := range []Op{OpCreate, OpAppend, OpCommit} {
				undo = s.Fail(kind, op)
				x := s.spec(length)
				data, crcs := s.body(x)
				_, err = s.write(s.ctx, x, data, crcs, 1<<20)
				s.wantKind("write of "+op.String(), err, kind)
				undo()
				if _, err := s.write(s.ctx, x, data, crcs, 1<<20); err != nil { // whatever the failure left is out of the way
					s.eventually("writing after a failed "+op.String(), func() bool {
						_, err = s.write(s.ctx, x, data, crcs, 1<<20)
						return err == nil
					})
				}
			}
		}
	}
}
