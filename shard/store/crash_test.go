package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"objstore/internal/oerr"
	"objstore/shard"
)

// flip changes one byte of a file, behind the store's back.
func flip(t testing.TB, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
}

func TestOneFlippedByteAnywhereIsFound(t *testing.T) {
	for _, n := range []uint64{4 << 10, 200 << 10, 1 << 20, 2<<20 + 8192} {
		r := newRig(t, 1, nil)
		size := int64(n) + headerSize
		places := map[string]int64{"header magic": 0, "header identity": 70, "header key": keyAt + 3, "header checksum": headerSize - 1,
			"first cell byte": headerSize, "middle": headerSize + int64(n/2), "last cell byte": size - 1}
		if n >= shard.SegmentLimit {
			places["footer magic"], places["footer table"] = size+1, size+footerTableAt+5
			places["footer checksum"] = size + int64(footerSize(n)) - 2
		}
		for name, off := range places {
			t.Run(fmt.Sprintf("%s of %d", name, n), func(t *testing.T) {
				spec := specOf(1, n)
				r.mustPut(spec)
				r.mustCheck(&spec)
				info := r.state(&spec, true)
				flip(t, info.Path, int64(info.Offset)+off)
				bad := r.state(&spec, true)
				if bad.State != shard.StateCorrupt || bad.Detail == "" || bad.Digest != info.Digest || bad.Path != info.Path {
					t.Fatalf("after the flip: %+v", bad)
				}
				inCells := off >= headerSize && off < size
				if err := r.check(&spec); (inCells || off >= size) != (err != nil) || (err != nil && !oerr.IsCorrupt(err)) {
					t.Fatalf("read after a flip in %s: %v", name, err)
				}
				again := spec
				again.Repair, again.Attempt = true, 2
				if ack := r.mustPut(again); ack.Digest != info.Digest {
					t.Fatalf("repaired with digest %x, expected %x", ack.Digest, info.Digest)
				}
				r.mustCheck(&again)
				if info := r.state(&again, true); info.State != shard.StateOK {
					t.Fatalf("after the repair: %v %s", info.State, info.Detail)
				}
			})
		}
	}
}

func TestATruncatedFileIsCorrupt(t *testing.T) {
	r := newRig(t, 1, nil)
	for _, cut := range []int64{1, headerSize, 1 << 20, 1<<20 + headerSize + 100} {
		spec := specOf(1, 1<<20)
		r.mustPut(spec)
		r.mustCheck(&spec)
		info := r.state(&spec, false)
		if err := os.Truncate(info.Path, int64(info.Size)-cut); err != nil {
			t.Fatal(err)
		}
		if info := r.state(&spec, true); info.State != shard.StateCorrupt {
			t.Fatalf("cut by %d: %v", cut, info.State)
		}
		if err := r.check(&spec); !oerr.IsCorrupt(err) {
			t.Fatalf("cut by %d: read gives %v", cut, err)
		}
	}
}

func TestAFailedRepairLeavesTheOldShard(t *testing.T) {
	r := newRig(t, 1, nil)
	for _, n := range []uint64{64 << 10, 2 << 20} {
		spec := specOf(1, n)
		r.mustPut(spec)
		again := spec
		again.Repair = true
		w, err := r.Create(testCtx(t), again)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.append(testCtx(t), w, &again, 0, content(&again)[:64<<10]); err != nil {
			t.Fatal(err)
		}
		w.Abort(nil)
		eventually(t, "the claim is gone", func() bool { return r.order[0].claims.len() == 0 })
		r.mustCheck(&spec)
		r.crash()
		r.open()
		r.mustCheck(&spec)
	}
	if m, _ := filepath.Glob(r.cfg.Drives[0].Path + "/shards/*/*" + repairSuffix); len(m) != 0 {
		t.Fatalf("%v were left", m)
	}
}

// TestAStaleOrMissingIndexIsRebuilt takes the index away, or puts back an old one, under every mixture of operations.
func TestAStaleOrMissingIndexIsRebuilt(t *testing.T) {
	for _, c := range []string{"missing", "stale", "damaged", "intact"} {
		t.Run(c, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			r := newRig(t, 1, onDisk(t))
			dir := r.cfg.Drives[0].Path
			alive, dead := map[rowKey]shard.Spec{}, map[rowKey]shard.Spec{}
			step := func(n int) {
				for range n {
					spec := specOf(1, lengths[rng.IntN(6)])
					r.mustPut(spec)
					alive[keyOf(spec.Blob, spec.Index)] = spec
					for k, old := range alive {
						switch rng.IntN(6) {
						case 0:
							if err := r.Delete(testCtx(t), []shard.Ref{old.Ref})[0]; err != nil {
								t.Fatal(err)
							}
							dead[k] = old
							delete(alive, k)
						case 1:
							old.Repair = true
							r.mustPut(old)
							alive[k] = old
						}
						break
					}
				}
			}
			step(40)
			r.crash()
			if c == "stale" {
				if err := os.CopyFS(dir+"/old", os.DirFS(dir+"/index")); err != nil {
					t.Fatal(err)
				}
			}
			r.open()
			step(40)
			r.crash()
			switch c {
			case "missing":
				os.RemoveAll(dir + "/index")
			case "stale":
				os.RemoveAll(dir + "/index")
				if err := os.Rename(dir+"/old", dir+"/index"); err != nil {
					t.Fatal(err)
				}
			case "damaged":
				m, _ := filepath.Glob(dir + "/index/MANIFEST-*")
				for _, p := range m {
					flip(t, p, 20)
				}
			}
			r.open()
			for _, spec := range alive {
				r.mustCheck(&spec)
				if info := r.state(&spec, true); info.State != shard.StateOK {
					t.Fatalf("%v: %s", info.State, info.Detail)
				}
			}
			for _, spec := range dead {
				if info := r.state(&spec, true); info.State != shard.StateMissing {
					t.Fatalf("a deleted shard of %d bytes is %v", spec.Length, info.State)
				}
			}
			if st := r.Status()[0]; st.Shards != int64(len(alive)) {
				t.Fatalf("status counts %d shards, expected %d", st.Shards, len(alive))
			}
			step(5)
		})
	}
}

// TestATornTailIsIgnoredAndWhatFollowsIsFound tears records in the middle of the log that the index has lost.
func TestATornTailIsIgnoredAndWhatFollowsIsFound(t *testing.T) {
	for _, c := range []struct {
		name string
		tear func(t *testing.T, info shard.Info)
	}{
		{"header lost", func(t *testing.T, info shard.Info) { zero(t, info.Path, int64(info.Offset), headerSize) }},
		{"cells lost", func(t *testing.T, info shard.Info) {
			zero(t, info.Path, int64(info.Offset)+headerSize, int64(info.Size)-headerSize)
		}},
		{"last page lost", func(t *testing.T, info shard.Info) {
			zero(t, info.Path, int64(info.Offset+info.Size)-headerSize, headerSize)
		}},
		{"header torn", func(t *testing.T, info shard.Info) { zero(t, info.Path, int64(info.Offset)+128, 128) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, onDisk(t))
			var specs []shard.Spec
			for range 9 {
				spec := specOf(1, 128<<10)
				r.mustPut(spec)
				specs = append(specs, spec)
			}
			torn := map[int]bool{3: true, 4: true, 8: true}
			for i := range torn {
				c.tear(t, r.state(&specs[i], false))
			}
			r.crash()
			os.RemoveAll(r.cfg.Drives[0].Path + "/index")
			r.open()
			for i := range specs {
				if info := r.state(&specs[i], true); torn[i] != (info.State == shard.StateMissing) {
					t.Fatalf("record %d is %v", i, info.State)
				}
			}
			for i := range torn {
				r.mustPut(specs[i])
			}
			r.crash()
			r.open()
			for i := range specs {
				r.mustCheck(&specs[i])
			}
		})
	}
}

func zero(t testing.TB, path string, off, n int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, n), off); err != nil {
		t.Fatal(err)
	}
}

// TestRecordsThatAClientForgedAreNotFound stores an object whose bytes are a copy of a record, at the offset that the
// record says, and loses the index: the copy must not come to life.
func TestRecordsThatAClientForgedAreNotFound(t *testing.T) {
	r := newRig(t, 1, nil)
	victim := specOf(1, 4096)
	r.mustPut(victim)
	info := r.state(&victim, false)
	forged := make([]byte, info.Size)
	f, err := os.Open(info.Path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(forged, int64(info.Offset)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	h, err := decodeHeader(forged[:headerSize])
	if err != nil {
		t.Fatal(err)
	}
	carrier := specOf(1, 64<<10)
	h.Offset += info.Size + headerSize // where the carrier's first cell will be
	h.Generation = carrier.Blob        // what a client cannot know
	h.encode(forged[:headerSize])
	w, err := r.Create(testCtx(t), carrier)
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, carrier.Length)
	copy(body, forged)
	if err := r.append(testCtx(t), w, &carrier, 0, body); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(testCtx(t), []shard.Ref{victim.Ref})[0]; err != nil {
		t.Fatal(err)
	}
	zero(t, info.Path, int64(info.Offset+info.Size), headerSize) // the carrier's header: the scan walks through its cells
	r.crash()
	os.RemoveAll(r.cfg.Drives[0].Path + "/index")
	r.open()
	if info := r.state(&victim, false); info.State != shard.StateMissing {
		t.Fatalf("a forged record is %v", info.State)
	}
}

func TestUnfinishedFilesGoAtOpenAndFinishedOnesStay(t *testing.T) {
	r := newRig(t, 1, nil)
	done, torn, cells := specOf(1, 1<<20), specOf(1, 1<<20), specOf(1, 1<<20)
	r.mustPut(done)
	r.mustPut(torn)
	r.mustPut(cells)
	a, b := r.state(&torn, false), r.state(&cells, false)
	r.crash() // the rows are lost with it: nothing was flushed since
	zero(t, a.Path, int64(a.Size)-int64(footerSize(1<<20)), int64(footerSize(1<<20)))
	flip(t, b.Path, headerSize+5) // the footer arrived, a cell did not
	leftover := filepath.Join(shardDir(r.cfg.Drives[0].Path, 7), strings.Repeat("07", 16)+".03")
	if err := os.WriteFile(leftover, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	r.open()
	r.mustCheck(&done)
	for _, spec := range []*shard.Spec{&torn, &cells} {
		if info := r.state(spec, true); info.State != shard.StateMissing {
			t.Fatalf("an unfinished file is %v", info.State)
		}
	}
	for _, p := range []string{a.Path, b.Path, leftover} {
		if _, err := os.Stat(p); err == nil {
			t.Fatalf("%s is still there", p)
		}
	}
	// With the whole index gone they are kept as corrupt: nobody can tell a torn file from a damaged one.
	r.mustPut(torn)
	p := r.state(&torn, false)
	r.crash()
	flip(t, p.Path, int64(p.Size)-1)
	os.RemoveAll(r.cfg.Drives[0].Path + "/index")
	r.open()
	if info := r.state(&torn, false); info.State != shard.StateCorrupt {
		t.Fatalf("a damaged file is %v", info.State)
	}
	torn.Repair = true
	r.mustPut(torn)
	r.mustCheck(&torn)
}
