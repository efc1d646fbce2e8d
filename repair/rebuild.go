package repair

import (
	"context"
	"slices"
	"sync"

	"objstore/cluster"
	"objstore/erasure"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
)

// window is how many bytes of each source are in memory at a time. A shard of at most wholeMax bytes is built in one
// buffer: a transport may hold what was appended until the commit, and nothing that holds a buffer may wait for another.
const (
	window   = 512 << 10
	wholeMax = 1 << 20
)

// tryRow asks the drive of a row's shard, and rebuilds the shard if it has to. It sets o's landing when the shard is
// there, and o.ended when the shard is lost; then there is an error, too.
func (w *Worker) tryRow(ctx context.Context, j *job, o *outcome) error {
	row := &j.row
	if int(row.Index) >= len(row.Blob.Digests) {
		return oerr.Errorf("repair.row", oerr.Internal, "row for shard %d of a blob with %d digests", row.Index, len(row.Blob.Digests))
	}
	geo, err := geometry(&row.Blob)
	if err != nil {
		return err
	}
	d := w.drive(&row.Blob, row.Index)
	if d == nil {
		return oerr.Errorf("repair.row", oerr.Unavailable, "no drive for shard %d of placement group %d", row.Index, row.Blob.PG)
	}
	land := &metadata.Landing{Key: row.Key, Blob: row.Blob.ID, Index: row.Index, Drive: d.ID, Incarnation: d.Incarnation,
		Digest: row.Blob.Digests[row.Index]}
	ref := w.ref(&row.Blob, row.Index, d)
	ep, transport := w.deps.Dialer.Endpoint(d.Node, uint64(geo.ShardLen()))
	there, err := w.landed(ctx, ep, ref, row, geo, land.Digest)
	if ctx.Err() == nil {
		w.targets.note(d.ID, err)
	}
	if there {
		w.Metrics.Landed.Add(1)
		o.landing = land
	}
	if there || err != nil {
		return err
	}
	rctx, cancel := context.WithTimeout(ctx, byLength(rebuildTimeout, geo.ShardLen()))
	defer cancel()
	rb := &rebuild{w: w, j: j, geo: geo, ref: ref, target: ep, states: make([]sourceState, geo.N())}
	err = rb.run(rctx)
	if rb.targetErr != nil && ctx.Err() == nil {
		w.targets.note(d.ID, rb.targetErr)
	}
	switch {
	case err == nil:
		w.Metrics.Rebuilt.Add(1)
		w.deps.Count(transport, "repair", int(geo.ShardLen()))
		o.landing = land
	case rb.lost && !row.Lost:
		w.Metrics.Lost.Add(1)
		w.deps.Event("shard_lost", err.Error())
		o.ended = &metadata.RepairOutcome{Blob: row.Blob.ID, Index: row.Index, State: metadata.RepairLost}
	}
	return err
}

// landed asks the drive whether it has the shard as it was committed. An open writer is ended: there is one writer for
// each shard, and the row waits until it is gone.
func (w *Worker) landed(ctx context.Context, ep shard.Endpoint, ref shard.Ref, row *metadata.RepairRow, geo erasure.Geometry, digest uint64) (bool, error) {
	limit := callTimeout
	if row.Checked {
		limit = byLength(callTimeout, geo.ShardLen())
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// What a put left out landed whole or not at all; only what a check found wrong has to be read again.
	info, err := ep.Stat(ctx, ref, row.Checked)
	switch {
	case oerr.Is(err, oerr.ShardMissing) || oerr.IsCorrupt(err):
		return false, nil
	case err != nil:
		return false, oerr.Wrap("repair.stat", err)
	}
	switch info.State {
	case shard.StateOK:
		return info.Digest == digest, nil
	case shard.StateWriting:
		if err := ep.Delete(ctx, []shard.Ref{ref})[0]; err != nil {
			return false, oerr.Wrap("repair.cancel", err)
		}
		return false, oerr.Errorf("repair.row", oerr.InProgress, "shard %s.%d was still being written", ref.Blob, ref.Index)
	case shard.StateMissing, shard.StateCorrupt:
		return false, nil
	}
	return false, oerr.Errorf("repair.row", oerr.Busy, "state of shard %s.%d is %s", ref.Blob, ref.Index, info.State)
}

func geometry(b *metadata.Blob) (erasure.Geometry, error) {
	geo, err := erasure.NewGeometry(erasure.Profile{K: b.K, M: b.M}, b.Size)
	if err == nil && b.CellSize == 0 {
		err = oerr.Errorf("repair.geometry", oerr.Internal, "blob %s has cells of 0 bytes", b.ID)
	}
	if err != nil {
		return geo, oerr.E("repair.geometry", oerr.Internal, err)
	}
	geo.CellSize = int(b.CellSize)
	return geo, nil
}

// sourceState is what became of a shard to read from. Only what a drive said counts as gone.
type sourceState uint8

const (
	sourceGood    sourceState = iota // as far as is known
	sourceAway                       // could not be asked
	sourceCorrupt                    // some of it is wrong; elsewhere it may be right
	sourceGone                       // the drive has no such shard, or one with another digest
)

// rebuild makes one shard from k others, window by window. Shards are coded bytewise, so equal ranges of k shards give
// the same range of any other.
type rebuild struct {
	w         *Worker
	j         *job
	geo       erasure.Geometry
	ref       shard.Ref
	target    shard.Endpoint
	codec     *erasure.Codec
	states    []sourceState
	used      uint32 // bitmap of the sources that the present try read from
	lost      bool   // fewer than k shards can ever be read
	wrong     bool   // the present try made other bytes than were committed
	targetErr error  // of the drive that the shard goes to
}

// run tries until the sources that were used are those that were committed: each further try has one fewer.
func (r *rebuild) run(ctx context.Context) error {
	var err error
	if r.codec, err = r.w.codecs.Get(r.geo.Profile); err != nil {
		return oerr.E("repair.codec", oerr.Internal, err)
	}
	for {
		r.wrong, r.used = false, 0
		err = r.try(ctx)
		if !r.wrong || !r.audit(ctx) {
			return err
		}
	}
}

// try writes the shard once. What is appended becomes a shard only if it is what was committed.
func (r *rebuild) try(ctx context.Context) (err error) {
	b := &r.j.row.Blob
	length := r.geo.ShardLen()
	span := int64(window)
	if length <= wholeMax {
		span = length
	}
	var writer shard.Writer
	defer func() {
		if err != nil && writer != nil {
			writer.Abort(err)
		}
	}()
	crcs := make([]uint32, 0, shard.Blocks(uint64(length)))
	for off := int64(0); off < length; off += span {
		if crcs, err = r.span(ctx, &writer, crcs, off, int(min(span, length-off))); err != nil {
			return err
		}
	}
	if got, want := shard.Digest(crcs), b.Digests[r.ref.Index]; got != want {
		r.wrong = true
		return oerr.Errorf("repair.rebuild", oerr.Corrupt, "shard %s.%d was rebuilt with digest %016x, the commit says %016x",
			b.ID, r.ref.Index, got, want)
	}
	_, err = writer.Commit(ctx)
	r.targetErr = err
	return oerr.Wrap("repair.commit", err)
}

// span rebuilds bytes [off, off+size) of the shard in one buffer and appends them.
func (r *rebuild) span(ctx context.Context, writer *shard.Writer, crcs []uint32, off int64, size int) ([]uint32, error) {
	step, k := min(window, size), int(r.geo.K)
	buf, err := r.w.deps.Pool.Get(ctx, k*step+size)
	if err != nil {
		return crcs, oerr.Wrap("repair.buffer", err)
	}
	defer buf.Release()
	made := buf.B[k*step : k*step+size]
	for at := 0; at < size; at += step {
		n := min(step, size-at)
		if err := r.window(ctx, off+int64(at), buf.B[:k*n], made[at:at+n:at+n]); err != nil {
			return crcs, err
		}
	}
	from := len(crcs)
	crcs = shard.AppendCRCs(crcs, r.ref.Blob, r.ref.Index, uint64(off)/shard.BlockSize, made)
	if *writer == nil { // not before there is something to write: a shard that cannot be rebuilt stays as it is
		if *writer, err = r.create(ctx); err != nil {
			*writer, r.targetErr = nil, err
			return crcs, oerr.Wrap("repair.create", err)
		}
	}
	r.targetErr = (*writer).Append(ctx, buf, made, crcs[from:])
	return crcs, oerr.Wrap("repair.append", r.targetErr)
}

func (r *rebuild) create(ctx context.Context) (shard.Writer, error) {
	row := &r.j.row
	b := &row.Blob
	return r.target.Create(ctx, shard.Spec{
		Ref: r.ref, K: b.K, M: b.M, CellSize: b.CellSize, Length: uint64(r.geo.ShardLen()), BodyLen: uint64(b.Size),
		Bucket: row.Bucket, Key: row.Key, Version: row.Version, Part: row.Part,
		Writer:  shard.WriterID{Node: b.WriterNode, StartID: b.WriterStart, Put: b.WriterPut},
		Attempt: 2, Repair: true,
	})
}

// window fills made, which is bytes [off, off+len(made)) of the shard. scratch has room for k pieces of that length.
func (r *rebuild) window(ctx context.Context, off int64, scratch, made []byte) error {
	k, n, size := int(r.geo.K), r.geo.N(), len(made)
	cells := make([][]byte, n)
	var free [][]byte
	for i := range k {
		free = append(free, scratch[i*size:(i+1)*size:(i+1)*size])
	}
	for rest := r.candidates(); len(free) > 0 && len(rest) > 0; {
		ask := rest[:min(len(free), len(rest))]
		rest = rest[len(ask):]
		errs := make([]error, len(ask))
		var wg sync.WaitGroup
		for x, i := range ask[1:] {
			wg.Go(func() { errs[x+1] = r.read(ctx, i, off, free[x+1]) })
		}
		errs[0] = r.read(ctx, ask[0], off, free[0])
		wg.Wait()
		if ctx.Err() != nil {
			return oerr.E("repair.read", oerr.Unavailable, ctx.Err())
		}
		var left [][]byte
		for x, i := range ask {
			if errs[x] == nil {
				cells[i] = free[x]
				r.used |= 1 << i
				continue
			}
			left = append(left, free[x])
			r.bad(ctx, i, errs[x])
		}
		free = append(left, free[len(ask):]...)
	}
	if len(free) > 0 {
		return r.tooFew(k - len(free))
	}
	want := make([]bool, n)
	want[r.ref.Index] = true
	cells[r.ref.Index] = made[:0]
	if err := r.codec.Reconstruct(cells, want); err != nil {
		return oerr.E("repair.reconstruct", oerr.Internal, err)
	}
	return nil
}

// candidates lists the shards to read from, the likeliest to be there first.
func (r *rebuild) candidates() []int {
	var ranks [4][]int
	for i := range r.geo.N() {
		if i == int(r.ref.Index) {
			continue
		}
		rank := 0
		switch r.states[i] {
		case sourceAway, sourceGone:
			continue
		case sourceCorrupt:
			rank = 3
		default:
			if r.j.row.Blob.Missing&(1<<i) != 0 {
				rank = 2
			} else if d := r.w.drive(&r.j.row.Blob, uint8(i)); d != nil && !r.w.sources.well(d.ID) {
				rank = 1
			}
		}
		ranks[rank] = append(ranks[rank], i)
	}
	return slices.Concat(ranks[:]...)
}

// read fills piece from shard i and checks it.
func (r *rebuild) read(ctx context.Context, i int, off int64, piece []byte) error {
	d := r.w.drive(&r.j.row.Blob, uint8(i))
	if d == nil || d.State == cluster.DriveRemoved || !r.w.deps.Alive(d.Node) {
		return oerr.Errorf("repair.read", oerr.Unavailable, "the drive of shard %d is not reachable", i)
	}
	ep, transport := r.w.deps.Dialer.Endpoint(d.Node, uint64(r.geo.ShardLen()))
	rctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	crcs, err := ep.Read(rctx, shard.ReadRequest{Ref: r.w.ref(&r.j.row.Blob, uint8(i), d), Offset: uint64(off), Length: uint64(len(piece)),
		Digest: r.j.row.Blob.Digests[i]}, piece)
	if ctx.Err() == nil {
		r.w.sources.note(d.ID, err)
	}
	if err != nil {
		return err
	}
	r.w.deps.Count(transport, "repair", len(piece))
	return shard.CheckBlocks(r.ref.Blob, uint8(i), uint64(off)/shard.BlockSize, piece, crcs)
}

// bad remembers why shard i could not be read; what is missing or wrong by its drive's word is reported.
func (r *rebuild) bad(ctx context.Context, i int, err error) {
	state := sourceAway
	switch {
	case oerr.Is(err, oerr.ShardMissing), oerr.Is(err, oerr.WrongIncarnation):
		state = sourceGone
	case oerr.IsCorrupt(err):
		state = sourceCorrupt
	case oerr.Is(err, oerr.StaleEpoch):
		r.w.refresh(ctx)
	}
	known := r.states[i] == sourceCorrupt || state == sourceAway || r.j.row.Blob.Missing&(1<<i) != 0
	r.states[i] = state
	if !known {
		row := &r.j.row
		r.w.send(ctx, outcome{group: r.j.group, bucket: row.Bucket,
			report: &metadata.Report{Key: row.Key, Version: row.Version, Blob: row.Blob.ID, Index: uint8(i)}})
	}
}

// audit asks the drives of the sources that were used for the digest they sealed, and says whether one differs from
// the commit: its blocks are right in themselves, and the shard is not.
func (r *rebuild) audit(ctx context.Context) (found bool) {
	for i := range r.geo.N() {
		d := r.w.drive(&r.j.row.Blob, uint8(i))
		if r.used&(1<<i) == 0 || d == nil || i >= len(r.j.row.Blob.Digests) {
			continue
		}
		ep, _ := r.w.deps.Dialer.Endpoint(d.Node, 0)
		sctx, cancel := context.WithTimeout(ctx, callTimeout)
		info, err := ep.Stat(sctx, r.w.ref(&r.j.row.Blob, uint8(i), d), false)
		cancel()
		if err == nil && info.State == shard.StateOK && info.Digest != r.j.row.Blob.Digests[i] {
			found = true
			r.bad(ctx, i, oerr.Errorf("repair.audit", oerr.ShardMissing, "shard %s.%d has digest %016x", r.ref.Blob, i, info.Digest))
		}
	}
	return found
}

// tooFew decides between "not now" and "never": only what drives themselves said counts as gone.
func (r *rebuild) tooFew(got int) error {
	away := 0
	for _, s := range r.states {
		if s == sourceAway {
			away++
		}
	}
	b := &r.j.row.Blob
	if got+away < int(r.geo.K) {
		r.lost = true
		return oerr.Errorf("repair.read", oerr.Corrupt, "blob %s of key %q: shard %d and all but %d others are gone, %d are needed: the object is lost",
			b.ID, r.j.row.Key, r.ref.Index, got, r.geo.K)
	}
	return oerr.Errorf("repair.read", oerr.Unavailable, "blob %s: %d of the %d shards needed can be read now", b.ID, got, r.geo.K)
}
