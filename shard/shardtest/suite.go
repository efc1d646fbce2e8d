package shardtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// Subject is one endpoint under test, with an empty drive, and hooks that reach behind it. A case that needs a hook
// which is nil is skipped.
type Subject struct {
	Endpoint    shard.Endpoint
	Drive       ident.Drive
	Incarnation ident.Incarnation // of the drive; 0 means 1
	Epoch       uint64            // map epoch the drive accepts; 0 means 1
	Pools       []*shard.Pool     // must have nothing handed out when the case ends

	SetMinEpoch func(epoch uint64)                        // the drive learns of a newer map
	Format      func()                                    // the drive is emptied and gets its next incarnation
	Corrupt     func(ref shard.Ref, offset uint64) bool   // flips a bit of a sealed shard's cells
	Hang        func() (release func())                   // calls hang until their context ends
	SetFull     func(full bool)                           // the drive is below its reserve
	SetFenced   func(fenced bool)                         // the drive failed
	SetDown     func(down bool)                           // the node is not reachable
	Fail        func(kind oerr.Kind, op Op) (undo func()) // calls of op fail with kind
}

// Factory makes a fresh Subject for each case; it registers its own clean-up with t.
type Factory func(t *testing.T) Subject

// limit bounds every wait of the suite.
const limit = 20 * time.Second

// suite is one case's state.
type suite struct {
	*testing.T
	Subject
	pool *shard.Pool
	rng  *rand.Rand
	ctx  context.Context
}

// Run runs every case, or those whose names contain one of only, against endpoints made by f. The cases run one after
// the other; seeds are printed.
func Run(t *testing.T, f Factory, only ...string) {
	for _, c := range []struct {
		name string
		run  func(*suite)
	}{
		{"a shard of any length comes back with the checksums it was written with", testRoundTrip},
		{"reads at every block boundary", testReadRanges},
		{"reads that do not fit are refused", testBadReads},
		{"a sealed shard is not written again", testExists},
		{"a second writer of one shard is refused", testInProgress},
		{"a short commit is refused", testShortCommit},
		{"appends that do not fit are refused", testBadAppends},
		{"wrong checksums are refused", testWrongCRC},
		{"abort leaves nothing", testAbort},
		{"a writer dies with its context", testWriterDiesWithContext},
		{"a writer has ended after commit", testAfterCommit},
		{"what is absent is missing", testMissing},
		{"delete is idempotent and exact", testDelete},
		{"delete cancels an open writer", testDeleteCancelsWriter},
		{"list is in order and pages", testList},
		{"stat tells what the header records", testStat},
		{"an unknown drive is not an empty one", testUnknownDrive},
		{"many shards at once", testConcurrent},
		{"an older incarnation is refused", testIncarnation},
		{"an older map is refused", testEpoch},
		{"a flipped bit is found and repaired", testCorrupt},
		{"a hung drive does not hang its callers", testHang},
		{"a cancelled caller returns at once", testCancel},
		{"a full drive refuses writes and serves reads", testFull},
		{"a fenced drive refuses writes", testFenced},
		{"an unreachable node is unavailable and comes back", testDown},
		{"errors keep their kind", testKinds},
	} {
		if len(only) == 0 || slices.ContainsFunc(only, func(o string) bool { return strings.Contains(c.name, o) }) {
			t.Run(c.name, func(t *testing.T) { runCase(t, f, c.run) })
		}
	}
}

func runCase(t *testing.T, f Factory, run func(*suite)) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // runs after the factory's own clean-up
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := &suite{T: t, Subject: f(t), pool: shard.NewPool(256 << 20), rng: rand.New(rand.NewPCG(seed, 1))}
	t.Cleanup(s.pool.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 3*limit)
	defer cancel()
	s.ctx = ctx
	if s.Incarnation == 0 {
		s.Incarnation = 1
	}
	if s.Epoch == 0 {
		s.Epoch = 1
	}
	run(s)
	for i, p := range append(slices.Clone(s.Pools), s.pool) {
		s.eventually(fmt.Sprintf("pool %d has all buffers back (%d bytes are out)", i, p.InUse()), func() bool { return p.InUse() == 0 })
	}
}

// eventually polls until f holds; failing that it ends the case.
func (s *suite) eventually(what string, f func() bool) {
	s.Helper()
	for end := time.Now().Add(limit); !f(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func (s *suite) need(what string, have bool) {
	s.Helper()
	if !have {
		s.Skipf("this endpoint has no hook %s", what)
	}
}

func (s *suite) id() (id ident.ID) {
	for i := range id {
		id[i] = byte(s.rng.Uint32())
	}
	return id
}

// spec describes a new shard of this length.
func (s *suite) spec(length uint64) shard.Spec {
	return shard.Spec{
		Ref: shard.Ref{Drive: s.Drive, Incarnation: s.Incarnation, Epoch: s.Epoch, Blob: s.id(), Index: uint8(s.rng.IntN(4))},
		K:   2, M: 2, CellSize: 64 << 10, Length: length, BodyLen: 2 * length,
		Bucket: s.id(), Key: "some/key ünd more", Version: s.id(), Part: 7,
		Writer: shard.WriterID{Node: 1, StartID: s.id(), Put: 42}, Attempt: 1,
	}
}

// body returns length random bytes and their checksums.
func (s *suite) body(spec shard.Spec) ([]byte, []uint32) {
	data := make([]byte, spec.Length)
	rand.NewChaCha8([32]byte(append(spec.Blob[:], spec.Version[:]...))).Read(data)
	return data, shard.AppendCRCs(nil, spec.Blob, spec.Index, 0, data)
}

// fill returns a buffer of the suite's pool with a copy of data.
func (s *suite) fill(data []byte) *shard.Buf {
	s.Helper()
	b, err := s.pool.Get(s.ctx, len(data))
	if err != nil {
		s.Fatalf("buffer of %d bytes: %v", len(data), err)
	}
	copy(b.B, data)
	return b
}

// appendAll appends data in pieces; each buffer is released as soon as Append returns, as a real caller would.
func (s *suite) appendAll(ctx context.Context, w shard.Writer, data []byte, crcs []uint32, piece int) error {
	for off := 0; off < len(data); off += piece {
		n := min(piece, len(data)-off)
		b := s.fill(data[off : off+n])
		first := off / shard.BlockSize
		err := w.Append(ctx, b, b.B, crcs[first:first+shard.Blocks(uint64(n))])
		b.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes a whole shard; an error may come from any of the three steps, since transports may delay it.
func (s *suite) write(ctx context.Context, spec shard.Spec, data []byte, crcs []uint32, piece int) (shard.Ack, error) {
	w, err := s.Endpoint.Create(ctx, spec)
	if err != nil {
		return shard.Ack{}, err
	}
	if err := s.appendAll(ctx, w, data, crcs, piece); err != nil {
		w.Abort(err)
		return shard.Ack{}, err
	}
	ack, err := w.Commit(ctx)
	if err != nil {
		w.Abort(err)
	}
	return ack, err
}

// put writes a new shard of random bytes, which must work.
func (s *suite) put(length uint64) (shard.Spec, []byte, []uint32) {
	s.Helper()
	spec := s.spec(length)
	data, crcs := s.body(spec)
	if _, err := s.write(s.ctx, spec, data, crcs, 1<<20); err != nil {
		s.Fatalf("writing a shard of %d bytes: %v", length, err)
	}
	return spec, data, crcs
}

// open begins a shard of two MiB and appends the first, so that every transport has told the far side.
func (s *suite) open(ctx context.Context) (shard.Writer, shard.Spec, []byte, []uint32) {
	s.Helper()
	spec := s.spec(2 << 20)
	data, crcs := s.body(spec)
	w, err := s.Endpoint.Create(ctx, spec)
	if err != nil {
		s.Fatalf("Create: %v", err)
	}
	if err := s.appendAll(ctx, w, data[:1<<20], crcs[:16], 1<<20); err != nil {
		s.Fatalf("Append: %v", err)
	}
	s.eventually("the writer shows in Stat", func() bool { return s.state(spec.Ref) == shard.StateWriting })
	return w, spec, data, crcs
}

func (s *suite) state(ref shard.Ref) shard.State {
	s.Helper()
	info, err := s.Endpoint.Stat(s.ctx, ref, false)
	if err != nil {
		s.Fatalf("Stat: %v", err)
	}
	return info.State
}

func (s *suite) read(ref shard.Ref, off, n uint64) ([]byte, []uint32, error) {
	dst := make([]byte, n)
	crcs, err := s.Endpoint.Read(s.ctx, shard.ReadRequest{Ref: ref, Offset: off, Length: n}, dst)
	return dst, crcs, err
}

func (s *suite) wantKind(what string, err error, kinds ...oerr.Kind) {
	s.Helper()
	for _, k := range kinds {
		if oerr.Is(err, k) {
			return
		}
	}
	s.Errorf("%s: got %v (kind %v), expected %v", what, err, oerr.KindOf(err), kinds)
}
