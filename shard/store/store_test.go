package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a store on folders that outlive it, with a pool for what is appended.
type rig struct {
	t    testing.TB
	cfg  Config
	pool *shard.Pool
	*Store
}

// fastDir is a temporary folder in memory where there is room for it: most tests are about this package, not about the
// drive, and making 256 folders and syncing them costs more than what is tested. diskDir is one on a disk.
func fastDir(t testing.TB) string {
	var st unix.Statfs_t
	const tmpfs, room = 0x01021994, 1 << 30
	if unix.Statfs("/dev/shm", &st) != nil || st.Type != tmpfs || st.Bavail*uint64(st.Bsize) < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "objstore-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// onDisk moves a rig's drives to a disk.
func onDisk(t testing.TB) func(*Config) {
	return func(c *Config) {
		for i := range c.Drives {
			c.Drives[i].Path = t.TempDir()
		}
	}
}

// newRig formats n drives in temporary folders and opens them. change may alter the configuration before.
func newRig(t testing.TB, n int, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, pool: shard.NewPool(256 << 20)}
	t.Cleanup(r.pool.Close)
	r.cfg = Config{Cluster: ident.New()}
	for i := range n {
		r.cfg.Drives = append(r.cfg.Drives, DriveConfig{ID: ident.Drive(i + 1), Incarnation: 1, UUID: ident.New(), Path: fastDir(t),
			Reserve: -1, Ballast: -1, SegmentSize: minSegment})
	}
	if change != nil {
		change(&r.cfg)
	}
	for _, d := range r.cfg.Drives {
		if err := Format(nil, r.cfg.Cluster, d); err != nil {
			t.Fatal(err)
		}
	}
	r.open()
	t.Cleanup(func() {
		if r.Store != nil {
			r.Store.Close()
		}
	})
	return r
}

func (r *rig) open() {
	r.t.Helper()
	s, err := Open(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Store = s
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.Store.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// crash closes the store without what Close does to the index: rows that were not flushed are lost.
func (r *rig) crash() {
	r.t.Helper()
	for _, d := range r.order {
		d.fenceQuietly(errors.New("crash")) // Close leaves no clean mark on a fenced drive
	}
	r.close()
}

func testCtx(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func specOf(drive ident.Drive, length uint64) shard.Spec {
	return shard.Spec{Ref: shard.Ref{Drive: drive, Incarnation: 1, Epoch: 1, Blob: ident.New(), Index: 1}, K: 2, M: 2, CellSize: 64 << 10,
		Length: length, BodyLen: 2 * length, Bucket: ident.New(), Key: "folder/a key", Version: ident.New(),
		Writer: shard.WriterID{Node: 3, StartID: ident.New(), Put: 7}, Attempt: 1}
}

// content is the shard's cells: any bytes that depend on the blob.
func content(spec *shard.Spec) []byte {
	b := make([]byte, spec.Length)
	c := rand.NewChaCha8([32]byte(append(append([]byte{}, spec.Blob[:]...), make([]byte, 16)...)))
	c.Read(b)
	return b
}

// put writes a shard in pieces of at most piece bytes.
func (r *rig) put(ctx context.Context, spec shard.Spec, piece int) (shard.Ack, error) {
	w, err := r.Create(ctx, spec)
	if err != nil {
		return shard.Ack{}, err
	}
	defer w.Abort(nil)
	data := content(&spec)
	for off := 0; off < len(data); off += piece {
		p := data[off:min(off+piece, len(data))]
		if err := r.append(ctx, w, &spec, uint64(off), p); err != nil {
			return shard.Ack{}, err
		}
	}
	return w.Commit(ctx)
}

func (r *rig) append(ctx context.Context, w shard.Writer, spec *shard.Spec, off uint64, p []byte) error {
	buf, err := r.pool.Get(ctx, len(p))
	if err != nil {
		return err
	}
	defer buf.Release()
	copy(buf.B, p)
	return w.Append(ctx, buf, buf.B, shard.AppendCRCs(nil, spec.Blob, spec.Index, off/shard.BlockSize, p))
}

func (r *rig) mustPut(spec shard.Spec) shard.Ack {
	r.t.Helper()
	ack, err := r.put(testCtx(r.t), spec, 256<<10)
	if err != nil {
		r.t.Fatalf("put of %d bytes: %v", spec.Length, err)
	}
	return ack
}

// check reads a shard whole and compares it.
func (r *rig) check(spec *shard.Spec) error {
	ctx := testCtx(r.t)
	dst := make([]byte, spec.Length)
	crcs, err := r.Read(ctx, shard.ReadRequest{Ref: spec.Ref, Length: spec.Length}, dst)
	if err != nil {
		return err
	}
	if err := shard.CheckBlocks(spec.Blob, spec.Index, 0, dst, crcs); err != nil {
		return err
	}
	if !bytes.Equal(dst, content(spec)) {
		return errors.New("bytes differ though the checksums fit")
	}
	return nil
}

func (r *rig) mustCheck(spec *shard.Spec) {
	r.t.Helper()
	if err := r.check(spec); err != nil {
		r.t.Fatalf("shard %s of %d bytes: %v", spec.Blob, spec.Length, err)
	}
}

func (r *rig) state(spec *shard.Spec, verify bool) shard.Info {
	r.t.Helper()
	info, err := r.Stat(testCtx(r.t), spec.Ref, verify)
	if err != nil {
		r.t.Fatalf("stat: %v", err)
	}
	return info
}

func wantKind(t testing.TB, err error, kind oerr.Kind) {
	t.Helper()
	if !oerr.Is(err, kind) {
		t.Fatalf("error is %v (%v), expected kind %v", err, oerr.KindOf(err), kind)
	}
}

// eventually polls a condition.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); {
		if time.Now().After(deadline) {
			t.Fatalf("not so within 10 s: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

var lengths = []uint64{4 << 10, 64 << 10, 68 << 10, 512 << 10, 1<<20 - 4096, 1 << 20, 1<<20 + 4096, 5<<20 + 12288}

func TestShardsOfEveryLengthComeBackAsTheyWerePut(t *testing.T) {
	r := newRig(t, 2, onDisk(t))
	var specs []shard.Spec
	for i, n := range lengths {
		spec := specOf(ident.Drive(i%2+1), n)
		ack := r.mustPut(spec)
		if want := (shard.Ack{Drive: spec.Drive, Incarnation: 1, Digest: shard.Digest(shard.AppendCRCs(nil, spec.Blob, spec.Index, 0, content(&spec)))}); ack != want {
			t.Fatalf("ack %+v, expected %+v", ack, want)
		}
		specs = append(specs, spec)
	}
	verify := func() {
		t.Helper()
		for i := range specs {
			r.mustCheck(&specs[i])
			for _, verify := range []bool{false, true} {
				info := r.state(&specs[i], verify)
				if info.State != shard.StateOK || info.Spec != specs[i] {
					t.Fatalf("stat(verify %t) of %d bytes: %+v\nexpected %+v", verify, specs[i].Length, info, specs[i])
				}
				if st, err := os.Stat(info.Path); err != nil || st.Size() < int64(info.Offset+info.Size) {
					t.Fatalf("stat names %s, %d+%d: %v", info.Path, info.Offset, info.Size, err)
				}
			}
			_, err := r.Create(testCtx(t), specs[i])
			wantKind(t, err, oerr.Exists)
		}
	}
	verify()
	r.close()
	r.open()
	verify()
	r.crash()
	r.open()
	verify()
}

func TestRangesAreReadAtBlockBoundaries(t *testing.T) {
	r := newRig(t, 1, onDisk(t))
	for _, n := range []uint64{196 << 10, 3<<20 + 8192} {
		spec := specOf(1, n)
		r.mustPut(spec)
		want := content(&spec)
		for off := uint64(0); off < n; off += shard.BlockSize {
			for _, size := range []uint64{shard.BlockSize, 2 * shard.BlockSize, n - off} {
				if off+size > n {
					continue
				}
				dst := make([]byte, size)
				crcs, err := r.Read(testCtx(t), shard.ReadRequest{Ref: spec.Ref, Offset: off, Length: size}, dst)
				if err != nil || !bytes.Equal(dst, want[off:off+size]) {
					t.Fatalf("read of %d at %d: wrong bytes or %v", size, off, err)
				}
				if err := shard.CheckBlocks(spec.Blob, spec.Index, off/shard.BlockSize, dst, crcs); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, req := range []shard.ReadRequest{{Offset: 1, Length: 65536}, {Offset: n, Length: 4096}, {Length: n + 4096}, {Length: 4096}, {}} {
			req.Ref = spec.Ref
			_, err := r.Read(testCtx(t), req, make([]byte, req.Length))
			wantKind(t, err, oerr.InvalidArgument)
		}
	}
}

func TestRequestsFromAnotherMapAreRefusedByKind(t *testing.T) {
	r := newRig(t, 1, nil)
	spec := specOf(1, 8192)
	r.mustPut(spec)
	if err := r.SetMinEpoch(1, 5); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*shard.Ref)
		kind   oerr.Kind
	}{
		{"older epoch", func(r *shard.Ref) { r.Epoch = 4 }, oerr.StaleEpoch},
		{"older incarnation", func(r *shard.Ref) { r.Incarnation, r.Epoch = 0, 5 }, oerr.WrongIncarnation},
		{"incarnation to come", func(r *shard.Ref) { r.Incarnation, r.Epoch = 2, 5 }, oerr.Unavailable},
		{"another node's drive", func(r *shard.Ref) { r.Drive, r.Epoch = 9, 5 }, oerr.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spec
			c.change(&s.Ref)
			ctx := testCtx(t)
			_, err := r.Create(ctx, s)
			wantKind(t, err, c.kind)
			_, err = r.Read(ctx, shard.ReadRequest{Ref: s.Ref, Length: 8192}, make([]byte, 8192))
			wantKind(t, err, c.kind)
			_, err = r.Stat(ctx, s.Ref, false)
			wantKind(t, err, c.kind)
			wantKind(t, r.Delete(ctx, []shard.Ref{s.Ref})[0], c.kind)
		})
	}
	spec.Epoch = 5
	r.mustCheck(&spec)
}

func TestDeletedShardsAreMissingForEver(t *testing.T) {
	r := newRig(t, 1, nil)
	var refs []shard.Ref
	for _, n := range lengths {
		spec := specOf(1, n)
		r.mustPut(spec)
		refs = append(refs, spec.Ref)
	}
	refs = append(refs, refs[0], specOf(1, 4096).Ref) // twice, and one that never was
	for i, err := range r.Delete(testCtx(t), refs) {
		if err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
	}
	gone := func() {
		t.Helper()
		for _, ref := range refs {
			info, err := r.Stat(testCtx(t), ref, true)
			if err != nil || info.State != shard.StateMissing {
				t.Fatalf("state %v, %v, expected missing", info.State, err)
			}
			_, err = r.Read(testCtx(t), shard.ReadRequest{Ref: ref, Length: 4096}, make([]byte, 4096))
			wantKind(t, err, oerr.ShardMissing)
		}
		if st := r.Status()[0]; st.Shards != 0 || st.Used != 0 {
			t.Fatalf("status after all deletes: %+v", st)
		}
	}
	gone()
	r.crash()
	r.open()
	gone()
	r.crash()
	os.RemoveAll(r.cfg.Drives[0].Path + "/index") // the log alone knows about the deletes
	r.open()
	gone()
}

func TestListIsTheInventoryInOrder(t *testing.T) {
	r := newRig(t, 1, nil)
	want := map[rowKey]uint64{}
	for i := range 40 {
		spec := specOf(1, lengths[i%3]) // few files: they are slow
		if i%10 == 0 {
			spec.Length = 1 << 20
		}
		r.mustPut(spec)
		want[keyOf(spec.Blob, spec.Index)] = spec.Length
	}
	var after ident.ID
	var index uint8
	var last rowKey
	for n := 0; ; n++ {
		infos, err := r.List(testCtx(t), 1, after, index, 7)
		if err != nil {
			t.Fatal(err)
		}
		if len(infos) == 0 {
			break
		}
		for _, info := range infos {
			k := keyOf(info.Blob, info.Index)
			if bytes.Compare(k[:], last[:]) <= 0 || want[k] != info.Length || info.State != shard.StateOK {
				t.Fatalf("listed %+v after %x", info, last)
			}
			delete(want, k)
			last, after, index = k, info.Blob, info.Index
		}
	}
	if len(want) != 0 {
		t.Fatalf("%d shards were not listed", len(want))
	}
}

func TestConcurrentCommitsShareSyncs(t *testing.T) {
	r := newRig(t, 1, onDisk(t))
	const n = 200
	before := r.Metrics()[0]
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for range n {
		wg.Go(func() {
			_, err := r.put(testCtx(t), specOf(1, 16<<10), 64<<10)
			errs <- err
		})
	}
	wg.Wait()
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	m := r.Metrics()[0]
	if m.ShardsWritten-before.ShardsWritten != n || m.BatchOps-before.BatchOps != n {
		t.Fatalf("wrote %d shards in batches of %d operations together, expected %d", m.ShardsWritten, m.BatchOps, n)
	}
	if syncs := m.Syncs - before.Syncs; syncs > n/2 {
		t.Fatalf("%d syncs for %d concurrent writers", syncs, n)
	}
}

func TestOneWriterAtATime(t *testing.T) {
	r := newRig(t, 1, nil)
	for _, n := range []uint64{128 << 10, 2 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ctx := testCtx(t)
			spec := specOf(1, n)
			w, err := r.Create(ctx, spec)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Create(ctx, spec)
			wantKind(t, err, oerr.InProgress)
			if err := r.append(ctx, w, &spec, 0, content(&spec)[:64<<10]); err != nil {
				t.Fatal(err)
			}
			if info := r.state(&spec, false); info.State != shard.StateWriting {
				t.Fatalf("state %v, expected writing", info.State)
			}
			if err := r.Delete(ctx, []shard.Ref{spec.Ref})[0]; err != nil {
				t.Fatal(err)
			}
			wantKind(t, r.append(ctx, w, &spec, 64<<10, content(&spec)[64<<10:]), oerr.Canceled)
			_, err = w.Commit(ctx)
			wantKind(t, err, oerr.Canceled)
			w.Abort(nil)
			if info := r.state(&spec, false); info.State != shard.StateMissing {
				t.Fatalf("state %v, expected missing", info.State)
			}
			r.mustPut(spec)
			r.mustCheck(&spec)
		})
	}
	if got := r.pool.InUse(); got != 0 {
		t.Fatalf("%d bytes of buffers are still held", got)
	}
}

func TestAWriterDiesWithItsContext(t *testing.T) {
	r := newRig(t, 1, nil)
	for _, n := range []uint64{128 << 10, 4 << 20} {
		spec := specOf(1, n)
		ctx, cancel := context.WithCancel(testCtx(t))
		w, err := r.Create(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.append(ctx, w, &spec, 0, content(&spec)[:n/2]); err != nil {
			t.Fatal(err)
		}
		cancel()
		eventually(t, "the claim is gone and the buffers are back", func() bool {
			return r.order[0].claims.len() == 0 && r.pool.InUse() == 0
		})
		if info := r.state(&spec, false); info.State != shard.StateMissing {
			t.Fatalf("state %v, expected missing", info.State)
		}
		if _, err := os.Stat(shardPath(r.cfg.Drives[0].Path, keyOf(spec.Blob, spec.Index))); err == nil {
			t.Fatal("the file of a dead writer is still there")
		}
	}
}

func TestWhatIsWrongWithAnAppendIsSaid(t *testing.T) {
	r := newRig(t, 1, nil)
	for _, n := range []uint64{256 << 10, 2 << 20} {
		for _, c := range []struct {
			name string
			len  int
			bad  bool
			kind oerr.Kind
		}{
			{"empty", 0, false, oerr.InvalidArgument},
			{"short block in the middle", 4096, false, oerr.InvalidArgument},
			{"more than the shard", int(n) + 65536, false, oerr.InvalidArgument},
			{"wrong checksum", 65536, true, oerr.Corrupt},
		} {
			t.Run(fmt.Sprintf("%s/%d", c.name, n), func(t *testing.T) {
				ctx := testCtx(t)
				spec := specOf(1, n)
				w, err := r.Create(ctx, spec)
				if err != nil {
					t.Fatal(err)
				}
				data := make([]byte, c.len)
				crcs := shard.AppendCRCs(nil, spec.Blob, spec.Index, 0, data)
				if c.bad {
					data[100]++
				}
				wantKind(t, w.Append(ctx, nil, data, crcs), c.kind)
				_, err = w.Commit(ctx)
				wantKind(t, err, c.kind)
			})
		}
		spec := specOf(1, n)
		w, err := r.Create(testCtx(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Commit(testCtx(t))
		wantKind(t, err, oerr.InvalidArgument)
	}
	eventually(t, "all claims are gone", func() bool { return r.order[0].claims.len() == 0 })
}

func TestUnalignedAndOwnedDataIsCopied(t *testing.T) {
	r := newRig(t, 1, nil)
	for _, n := range []uint64{128 << 10, 1 << 20} {
		ctx := testCtx(t)
		spec := specOf(1, n)
		w, err := r.Create(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		odd := make([]byte, n+1)[1:]
		copy(odd, content(&spec))
		crcs := shard.AppendCRCs(nil, spec.Blob, spec.Index, 0, odd)
		if err := w.Append(ctx, nil, odd, crcs); err != nil {
			t.Fatal(err)
		}
		clear(odd) // no buffer was given: the data was the caller's again when Append returned
		if _, err := w.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		r.mustCheck(&spec)
	}
}
