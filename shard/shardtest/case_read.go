package shardtest

import (
	"bytes"
	"slices"
	"sync"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

func testReadRanges(s *suite) {
	for _, length := range []uint64{4 << 10, 64 << 10, 200 << 10, 2<<20 + 68<<10} {
		spec, data, crcs := s.put(length)
		blocks := uint64(shard.Blocks(length))
		try := func(from, to uint64) { // blocks
			off, end := from*shard.BlockSize, min(to*shard.BlockSize, length)
			got, gotCRCs, err := s.read(spec.Ref, off, end-off)
			if err != nil || !bytes.Equal(got, data[off:end]) || !slices.Equal(gotCRCs, crcs[from:to]) {
				s.Fatalf("shard of %d, bytes %d to %d: read wrong (error %v)", length, off, end, err)
			}
			if err := shard.CheckBlocks(spec.Blob, spec.Index, from, got, gotCRCs); err != nil {
				s.Fatalf("checking what was read: %v", err)
			}
		}
		for i := range blocks {
			try(i, i+1)
			try(i, blocks)
			try(0, i+1)
		}
		for range 20 {
			from := s.rng.Uint64N(blocks)
			try(from, from+1+s.rng.Uint64N(blocks-from))
		}
	}
}

func testBadReads(s *suite) {
	const length = 196 << 10
	spec, data, _ := s.put(length)
	for _, c := range []struct{ off, n uint64 }{
		{0, 0}, {4096, 64 << 10}, {0, 4096}, {64 << 10, 60 << 10}, {length, 64 << 10}, {192 << 10, 64 << 10}, {0, 256 << 10},
		{1 << 62, 64 << 10}, {64 << 10, 1<<30 - 64<<10},
	} {
		dst := make([]byte, min(c.n, 1<<20))
		if uint64(len(dst)) != c.n {
			continue // too much to allocate; the next one covers a length that lies
		}
		_, err := s.Endpoint.Read(s.ctx, shard.ReadRequest{Ref: spec.Ref, Offset: c.off, Length: c.n}, dst)
		s.wantKind("read that does not fit", err, oerr.InvalidArgument)
	}
	_, err := s.Endpoint.Read(s.ctx, shard.ReadRequest{Ref: spec.Ref, Length: 128 << 10}, make([]byte, 64<<10))
	s.wantKind("read into a buffer of another length", err, oerr.InvalidArgument)
	got, crcs, err := s.read(spec.Ref, 0, length)
	if err != nil || !bytes.Equal(got, data) {
		s.Errorf("a good read afterwards: %v", err)
	}
	dst := make([]byte, length)
	digest := shard.Digest(crcs)
	_, err = s.Endpoint.Read(s.ctx, shard.ReadRequest{Ref: spec.Ref, Length: length, Digest: digest ^ 1}, dst)
	s.wantKind("read of a shard that is not the committed one", err, oerr.Corrupt)
	if _, err = s.Endpoint.Read(s.ctx, shard.ReadRequest{Ref: spec.Ref, Length: length, Digest: digest}, dst); err != nil {
		s.Errorf("read of the committed shard: %v", err)
	}
}

func testMissing(s *suite) {
	ref := s.spec(4096).Ref
	_, _, err := s.read(ref, 0, 64<<10)
	s.wantKind("read of an absent shard", err, oerr.ShardMissing)
	if got := s.state(ref); got != shard.StateMissing {
		s.Errorf("state of an absent shard is %v", got)
	}
	info, err := s.Endpoint.Stat(s.ctx, ref, true)
	if err != nil || info.State != shard.StateMissing {
		s.Errorf("verifying an absent shard: %v, %v", info.State, err)
	}
	w, spec, _, _ := s.open(s.ctx)
	_, _, err = s.read(spec.Ref, 0, 64<<10)
	s.wantKind("read of an unsealed shard", err, oerr.ShardMissing, oerr.InProgress)
	w.Abort(nil)
}

func testDelete(s *suite) {
	small, _, _ := s.put(64 << 10)
	large, _, _ := s.put(2 << 20)
	kept, data, _ := s.put(64 << 10)
	absent := s.spec(4096).Ref
	for range 2 { // the second time everything is absent
		for i, err := range s.Endpoint.Delete(s.ctx, []shard.Ref{small.Ref, absent, large.Ref}) {
			if err != nil {
				s.Errorf("delete %d: %v", i, err)
			}
		}
		for _, ref := range []shard.Ref{small.Ref, large.Ref} {
			if got := s.state(ref); got != shard.StateMissing {
				s.Errorf("state after delete: %v", got)
			}
			_, _, err := s.read(ref, 0, 64<<10)
			s.wantKind("read after delete", err, oerr.ShardMissing)
		}
	}
	if got, _, err := s.read(kept.Ref, 0, 64<<10); err != nil || !bytes.Equal(got, data) {
		s.Errorf("the shard that was not deleted: %v", err)
	}
	if errs := s.Endpoint.Delete(s.ctx, nil); len(errs) != 0 {
		s.Errorf("delete of nothing: %v", errs)
	}
	many := make([]shard.Ref, 2500)
	for i := range many {
		many[i] = s.spec(4096).Ref
	}
	if errs := s.Endpoint.Delete(s.ctx, many); len(errs) != len(many) || errs[len(errs)-1] != nil {
		s.Errorf("delete of %d: %d answers, the last %v", len(many), len(errs), errs[len(errs)-1])
	}
	again, againData, _ := s.put(64 << 10)
	if got, _, err := s.read(again.Ref, 0, 64<<10); err != nil || !bytes.Equal(got, againData) {
		s.Errorf("a shard written after deletes: %v", err)
	}
}

func testDeleteCancelsWriter(s *suite) {
	w, spec, data, crcs := s.open(s.ctx)
	if errs := s.Endpoint.Delete(s.ctx, []shard.Ref{spec.Ref}); errs[0] != nil {
		s.Fatalf("delete of a shard being written: %v", errs[0])
	}
	err := s.appendAll(s.ctx, w, data[1<<20:], crcs[16:], 1<<20)
	if err == nil {
		_, err = w.Commit(s.ctx)
	}
	if err == nil {
		s.Error("a writer committed after its shard was deleted")
	}
	w.Abort(nil)
	if got := s.state(spec.Ref); got != shard.StateMissing {
		s.Errorf("state after delete: %v", got)
	}
	if _, err := s.write(s.ctx, spec, data, crcs, 1<<20); err != nil {
		s.Errorf("writing it afresh: %v", err)
	}
}

func testList(s *suite) {
	want := map[memKey]shard.Info{}
	var keys []memKey
	for i := range 30 {
		length := uint64(64 << 10)
		if i%7 == 0 {
			length = 1<<20 + 4096
		}
		spec, _, crcs := s.put(length)
		k := memKey{spec.Blob, spec.Index}
		want[k] = shard.Info{Spec: shard.Spec{Ref: spec.Ref, Length: length}, State: shard.StateOK, Digest: shard.Digest(crcs)}
		keys = append(keys, k)
	}
	w, _, _, _ := s.open(s.ctx) // what is not sealed is not listed as ok
	defer w.Abort(nil)
	slices.SortFunc(keys, memKey.compare)
	for _, page := range []int{1, 7, 30, 31, 5000} {
		var got []memKey
		var after ident.ID
		var index uint8
		for {
			infos, err := s.Endpoint.List(s.ctx, s.Drive, after, index, page)
			if err != nil {
				s.Fatalf("List: %v", err)
			}
			if len(infos) > page {
				s.Fatalf("%d rows, asked for %d", len(infos), page)
			}
			for _, in := range infos {
				after, index = in.Blob, in.Index
				if in.State == shard.StateWriting {
					continue
				}
				k := memKey{in.Blob, in.Index}
				got = append(got, k)
				if e := want[k]; in.State != e.State || in.Length != e.Length || in.Digest != e.Digest || in.Drive != s.Drive {
					s.Errorf("row %+v, expected %+v", in, e)
				}
			}
			if len(infos) < page {
				break
			}
		}
		if !slices.Equal(got, keys) {
			s.Errorf("pages of %d: %d rows, expected %d in order", page, len(got), len(keys))
		}
	}
}

func testStat(s *suite) {
	for _, length := range []uint64{64 << 10, 1<<20 + 4096} {
		spec, _, crcs := s.put(length)
		for _, verify := range []bool{false, true} {
			info, err := s.Endpoint.Stat(s.ctx, spec.Ref, verify)
			if err != nil {
				s.Fatalf("Stat: %v", err)
			}
			got := info.Spec
			got.Epoch, got.Attempt, got.Repair = spec.Epoch, spec.Attempt, spec.Repair // of the request, not the shard
			if info.State != shard.StateOK || info.Digest != shard.Digest(crcs) || got != spec {
				s.Errorf("Stat verify=%v of %d bytes:\n got %+v\nwant %+v", verify, length, info, spec)
			}
			if info.Path == "" || info.Path[0] != '/' || info.Size < length {
				s.Errorf("path %q, size %d of a shard of %d", info.Path, info.Size, length)
			}
		}
	}
}

func testUnknownDrive(s *suite) {
	spec := s.spec(64 << 10)
	spec.Drive = 9999
	data, crcs := s.body(spec)
	_, err := s.write(s.ctx, spec, data, crcs, 64<<10)
	notAbsent := func(what string, err error) {
		s.Helper()
		if err == nil || oerr.Is(err, oerr.ShardMissing) || oerr.Is(err, oerr.WrongIncarnation) {
			s.Errorf("%s on a drive this node does not have: %v", what, err)
		}
	}
	notAbsent("write", err)
	_, _, err = s.read(spec.Ref, 0, 64<<10)
	notAbsent("read", err)
	info, err := s.Endpoint.Stat(s.ctx, spec.Ref, false)
	if err == nil && info.State != shard.StateUnknown {
		s.Errorf("Stat on a drive this node does not have: %v", info.State)
	}
	notAbsent("delete", s.Endpoint.Delete(s.ctx, []shard.Ref{spec.Ref})[0])
	_, err = s.Endpoint.List(s.ctx, 9999, ident.ID{}, 0, 10)
	notAbsent("list", err)
}

func testConcurrent(s *suite) {
	const workers, rounds = 8, 6
	type job struct {
		spec shard.Spec
		data []byte
		crcs []uint32
	}
	jobs := make([][]job, workers)
	for i := range jobs {
		for r := range rounds {
			length := []uint64{4 << 10, 64 << 10, 300 << 10, 1 << 20, 2<<20 + 4096, 64 << 10}[r]
			spec := s.spec(length)
			data, crcs := s.body(spec)
			jobs[i] = append(jobs[i], job{spec, data, crcs})
		}
	}
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for r, j := range jobs[i] {
				if _, err := s.write(s.ctx, j.spec, j.data, j.crcs, 1<<20); err != nil {
					s.Errorf("worker %d write %d: %v", i, r, err)
					return
				}
				for range 3 {
					got, crcs, err := s.read(j.spec.Ref, 0, j.spec.Length)
					if err != nil || !bytes.Equal(got, j.data) || !slices.Equal(crcs, j.crcs) {
						s.Errorf("worker %d read %d: wrong (error %v)", i, r, err)
						return
					}
				}
				if r%2 == 1 {
					if errs := s.Endpoint.Delete(s.ctx, []shard.Ref{j.spec.Ref}); errs[0] != nil {
						s.Errorf("worker %d delete %d: %v", i, r, errs[0])
					}
				}
			}
		})
	}
	wg.Wait()
	infos, err := s.Endpoint.List(s.ctx, s.Drive, ident.ID{}, 0, 1000)
	if err != nil || len(infos) != workers*rounds/2 {
		s.Errorf("%d shards are left (error %v), expected %d", len(infos), err, workers*rounds/2)
	}
}
