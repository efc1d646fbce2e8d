package repair

import (
	"context"
	"fmt"

	"objstore/erasure"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
)

// window is how many bytes of each shard are in memory at a time while one is rebuilt.
const window = 512 << 10

// repairRow brings one shard back: it asks the drive first (a late shard may have landed), then rebuilds.
func (w *Worker) repairRow(ctx context.Context, row *metadata.RepairRow, out *outcomes) {
	err := w.tryRow(ctx, row, out)
	if err == nil {
		w.forget(row)
		return
	}
	w.backOff(row)
	if ctx.Err() == nil && !oerr.Is(err, oerr.Unavailable) && !oerr.Is(err, oerr.InProgress) {
		w.failed(fmt.Sprintf("shard %s.%d", row.Blob.ID, row.Index), err)
	}
}

func (w *Worker) tryRow(ctx context.Context, row *metadata.RepairRow, out *outcomes) error {
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
	ref := w.ref(&row.Blob, row.Index, d)
	ep, transport := w.deps.Dialer.Endpoint(d.Node, uint64(geo.ShardLen()))
	sctx, cancel := context.WithTimeout(ctx, statTimeout)
	// What a put left out landed whole or not at all; only what a check found wrong has to be read again.
	info, err := ep.Stat(sctx, ref, row.Checked)
	cancel()
	switch {
	case oerr.Is(err, oerr.ShardMissing):
		info.State = shard.StateMissing
	case oerr.IsCorrupt(err):
		info.State = shard.StateCorrupt
	case err != nil:
		return oerr.Wrap("repair.stat", err)
	}
	land := metadata.Landing{Key: row.Key, Blob: row.Blob.ID, Index: row.Index, Drive: d.ID, Incarnation: d.Incarnation,
		Digest: row.Blob.Digests[row.Index]}
	switch info.State {
	case shard.StateOK:
		if info.Digest == land.Digest {
			w.Metrics.Landed.Add(1)
			add(out, &out.landings, row.Bucket, land)
			return nil
		}
	case shard.StateWriting: // one writer for each shard: end it, come back when it is gone
		dctx, cancel := context.WithTimeout(ctx, statTimeout)
		defer cancel()
		err := ep.Delete(dctx, []shard.Ref{ref})[0]
		if err == nil {
			err = oerr.Errorf("repair.row", oerr.InProgress, "shard %s.%d was still being written", row.Blob.ID, row.Index)
		}
		return err
	case shard.StateUnknown:
		return oerr.Errorf("repair.row", oerr.Unavailable, "state of shard %s.%d is unknown", row.Blob.ID, row.Index)
	}
	rctx, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	rb := &rebuild{w: w, row: row, geo: geo, ref: ref, out: out}
	err = rb.run(rctx, ep, transport)
	switch {
	case err == nil:
		w.Metrics.Rebuilt.Add(1)
		add(out, &out.landings, row.Bucket, land)
	case rb.lost:
		w.Metrics.Lost.Add(1)
		if !row.Lost {
			add(out, &out.ended, row.Bucket, metadata.RepairOutcome{Blob: row.Blob.ID, Index: row.Index, State: metadata.RepairLost})
		}
	}
	return err
}

func geometry(b *metadata.Blob) (erasure.Geometry, error) {
	geo, err := erasure.NewGeometry(erasure.Profile{K: b.K, M: b.M}, b.Size)
	if err != nil {
		return geo, oerr.E("repair.geometry", oerr.Internal, err)
	}
	geo.CellSize = int(b.CellSize)
	return geo, nil
}

// rebuild makes one shard from k others, window by window. Shards are coded bytewise, so equal ranges of k shards give
// the same range of any other.
type rebuild struct {
	w    *Worker
	row  *metadata.RepairRow
	geo  erasure.Geometry
	ref  shard.Ref
	out  *outcomes
	bad  []bool // sources that turned out missing or corrupt: the drive said so
	away []bool // sources that could not be asked
	lost bool   // fewer than k shards can ever be read
}

func (r *rebuild) run(ctx context.Context, target shard.Endpoint, transport string) error {
	n := r.geo.N()
	r.bad, r.away = make([]bool, n), make([]bool, n)
	codec, err := erasure.NewCodec(r.geo.Profile)
	if err != nil {
		return oerr.E("repair.codec", oerr.Internal, err)
	}
	b := &r.row.Blob
	writer, err := target.Create(ctx, shard.Spec{
		Ref: r.ref, K: b.K, M: b.M, CellSize: b.CellSize, Length: uint64(r.geo.ShardLen()), BodyLen: uint64(b.Size),
		Bucket: r.row.Bucket, Key: r.row.Key, Version: r.row.Version, Part: r.row.Part,
		Writer:  shard.WriterID{Node: b.WriterNode, StartID: b.WriterStart, Put: b.WriterPut},
		Attempt: 2, Repair: true,
	})
	if err != nil {
		return oerr.Wrap("repair.create", err)
	}
	for off := int64(0); off < r.geo.ShardLen(); off += window {
		if err := r.window(ctx, codec, writer, off, int(min(window, r.geo.ShardLen()-off))); err != nil {
			writer.Abort(err)
			return err
		}
	}
	ack, err := writer.Commit(ctx)
	if err != nil {
		return oerr.Wrap("repair.commit", err)
	}
	r.w.deps.Count(transport, "repair", int(r.geo.ShardLen()))
	if want := b.Digests[r.row.Index]; ack.Digest != want {
		return oerr.Errorf("repair.commit", oerr.Corrupt, "rebuilt shard %s.%d has digest %016x, the commit says %016x",
			b.ID, r.row.Index, ack.Digest, want)
	}
	return nil
}

// window rebuilds bytes [off, off+size) of the shard and appends them.
func (r *rebuild) window(ctx context.Context, codec *erasure.Codec, writer shard.Writer, off int64, size int) error {
	k, n, index := int(r.geo.K), r.geo.N(), int(r.row.Index)
	buf, err := r.w.deps.Pool.Get(ctx, (k+1)*size)
	if err != nil {
		return oerr.Wrap("repair.buffer", err)
	}
	defer buf.Release()
	cells := make([][]byte, n)
	got := 0
	for i := range r.sources() {
		if got == k {
			break
		}
		piece := buf.B[got*size : (got+1)*size : (got+1)*size]
		if err := r.read(ctx, i, off, piece); err != nil {
			if ctx.Err() != nil {
				return oerr.E("repair.read", oerr.Unavailable, ctx.Err())
			}
			continue
		}
		cells[i] = piece
		got++
	}
	if got < k {
		return r.tooFew(got)
	}
	want := make([]bool, n)
	want[index] = true
	cells[index] = buf.B[k*size : (k+1)*size : (k+1)*size]
	if err := codec.Reconstruct(cells, want); err != nil {
		return oerr.E("repair.reconstruct", oerr.Internal, err)
	}
	crcs := shard.AppendCRCs(nil, r.row.Blob.ID, r.row.Index, uint64(off)/shard.BlockSize, cells[index])
	return oerr.Wrap("repair.append", writer.Append(ctx, buf, cells[index], crcs))
}

// sources yields the shards to read from: those not known missing first.
func (r *rebuild) sources() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for _, late := range []bool{false, true} {
			for i := range r.geo.N() {
				missing := r.row.Blob.Missing&(1<<i) != 0
				if i == int(r.row.Index) || r.bad[i] || r.away[i] || missing != late {
					continue
				}
				if !yield(i) {
					return
				}
			}
		}
	}
}

// read fills piece from shard i and checks it. What the drive itself says is missing or wrong is reported.
func (r *rebuild) read(ctx context.Context, i int, off int64, piece []byte) error {
	d := r.w.drive(&r.row.Blob, uint8(i))
	if d == nil || !r.w.deps.Alive(d.Node) {
		r.away[i] = true
		return oerr.Errorf("repair.read", oerr.Unavailable, "the drive of shard %d is not reachable", i)
	}
	ep, transport := r.w.deps.Dialer.Endpoint(d.Node, uint64(r.geo.ShardLen()))
	rctx, cancel := context.WithTimeout(ctx, statTimeout)
	defer cancel()
	crcs, err := ep.Read(rctx, shard.ReadRequest{Ref: r.w.ref(&r.row.Blob, uint8(i), d), Offset: uint64(off), Length: uint64(len(piece))}, piece)
	if err == nil {
		r.w.deps.Count(transport, "repair", len(piece))
		err = shard.CheckBlocks(r.row.Blob.ID, uint8(i), uint64(off)/shard.BlockSize, piece, crcs)
	}
	switch {
	case err == nil:
		return nil
	case oerr.Is(err, oerr.ShardMissing), oerr.IsCorrupt(err), oerr.Is(err, oerr.WrongIncarnation):
		r.bad[i] = true
		if r.row.Blob.Missing&(1<<i) == 0 {
			add(r.out, &r.out.reports, r.row.Bucket, metadata.Report{Key: r.row.Key, Version: r.row.Version, Blob: r.row.Blob.ID, Index: uint8(i)})
		}
	default:
		r.away[i] = true
	}
	return err
}

// tooFew decides between "not now" and "never": only what drives themselves said counts as gone.
func (r *rebuild) tooFew(got int) error {
	gone := 1 // the shard to rebuild
	for _, b := range r.bad {
		if b {
			gone++
		}
	}
	if r.geo.N()-gone < int(r.geo.K) {
		r.lost = true
		return oerr.Errorf("repair.read", oerr.Corrupt, "blob %s: %d of %d shards are gone, %d are needed: the object is lost",
			r.row.Blob.ID, gone, r.geo.N(), r.geo.K)
	}
	return oerr.Errorf("repair.read", oerr.Unavailable, "blob %s: %d of the %d shards needed can be read now", r.row.Blob.ID, got, r.geo.K)
}
