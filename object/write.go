package object

import (
	"context"
	"time"

	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
)

// blobSpec says what a blob is part of.
type blobSpec struct {
	bucket  ident.ID
	key     string
	version ident.ID // or the upload's id, for a part
	part    uint16
}

// written is a blob whose shards are durable by the rule of PROTOCOLS D, and that nothing refers to yet. Exactly one of
// committed, unknown and refused ends it.
type written struct {
	*attempt
	sealed Sealed
}

// writeBlob streams a body into shards. When it fails, what was written is cleaned up in the background.
func (e *Engine) writeBlob(ctx context.Context, spec blobSpec, body *Body) (*written, error) {
	a, err := e.newAttempt(ctx, spec, body.Length)
	if err != nil {
		return nil, err
	}
	if slabCount(a.g) == 1 {
		return e.writeSingle(ctx, a, body)
	}
	sealed, err := a.writeStream(ctx, body)
	if err != nil {
		a.refused(err)
		return nil, err
	}
	return &written{a, sealed}, nil
}

// writeSingle writes a body of one slab, all of which is at hand: when a placement group gives no quorum, another is
// tried once.
func (e *Engine) writeSingle(ctx context.Context, a *attempt, body *Body) (*written, error) {
	s, err := a.fillSingle(ctx, body)
	if err != nil {
		a.refused(err)
		return nil, err
	}
	defer s.release()
	a.startSingle(ctx, s, s.crcs)
	sealed, err := a.digestSingle(s, body)
	if err == nil {
		err = a.await(ctx)
		if err != nil && ctx.Err() == nil && a.quorumLost() {
			if a, err = a.again(ctx, s, err); err != nil {
				return nil, err
			}
		}
	}
	if err != nil {
		a.refused(err)
		return nil, err
	}
	return &written{a, sealed}, nil
}

// again writes s to another placement group, under a new blob id and in the memory of the first attempt, which is
// cleaned up.
func (a *attempt) again(ctx context.Context, s *slab, cause error) (*attempt, error) {
	e := a.e
	if a.sawStale() {
		if _, err := e.sync(ctx); err != nil {
			a.refused(cause)
			return nil, cause
		}
	}
	a.lease.retain() // for b, as long as a still holds it
	b, err := e.place(a.spec, a.g, a.codec, a.lease, a.slots)
	if err != nil {
		a.lease.release()
	}
	sick := 0
	if err == nil {
		for i := range b.targets {
			if t := &b.targets[i]; !t.alive || t.stat.isSuspect(time.Now()) || t.stat.isFull(time.Now()) {
				sick++
			}
		}
		if b.g.N()-sick < b.g.WriteQuorum() { // the same drives again: it would end the same
			b.drop()
			err = cause
		}
	}
	a.refused(cause)
	if err != nil {
		return nil, cause
	}
	b.startSingle(ctx, s, s.checksum(b.blob.ID))
	if err := b.await(ctx); err != nil {
		b.refused(err)
		return nil, err
	}
	return b, nil
}

// newAttempt admits a blob of this length and chooses its place.
func (e *Engine) newAttempt(ctx context.Context, spec blobSpec, length int64) (*attempt, error) {
	v := e.d.Cluster.View()
	if !v.Formed {
		return nil, oerr.Errorf("object.place", oerr.Unavailable, "the cluster is not formed yet (view %d)", v.Index)
	}
	g, err := erasure.NewGeometry(v.Profile, length)
	if err != nil {
		return nil, oerr.E("object.write", oerr.InvalidArgument, err)
	}
	codec, err := e.codecs.Get(g.Profile)
	if err != nil {
		return nil, oerr.E("object.write", oerr.Internal, err)
	}
	slabs := min(slabCount(g), slabsPerPut)
	weight := poolClass(slabSize(g))
	if slabs > 2 && slabs*weight > e.admit.put.size {
		slabs = 2 // a wide profile on a small pool: still one to fill and one on its way
	}
	if slabs*weight > e.admit.put.size {
		return nil, oerr.Errorf("object.admit", oerr.Unavailable, "profile %s needs %d bytes of buffers for a put, this node has %d",
			g.Profile, slabs*weight, e.admit.put.size)
	}
	lease, err := e.admit.put.enter(ctx, slabs*weight, e.cfg.AdmitTimeout)
	if err != nil {
		return nil, err
	}
	a, err := e.place(spec, g, codec, lease, int(slabs))
	if err != nil {
		lease.release()
		return nil, err
	}
	return a, nil
}

// place chooses id and placement group of a blob by the newest view. The attempt owns one reference of lease if there is
// no error.
func (e *Engine) place(spec blobSpec, g erasure.Geometry, codec *erasure.Codec, l *lease, slots int) (*attempt, error) {
	v := e.d.Cluster.View()
	if v.Profile != g.Profile {
		return nil, oerr.Errorf("object.place", oerr.Unavailable, "default profile changed from %s to %s", g.Profile, v.Profile)
	}
	id := e.d.NewID()
	pg, err := e.choosePG(v, id)
	if err != nil {
		return nil, err
	}
	ts, err := e.targets(v, pg.ID, id, g.N())
	if err != nil {
		return nil, err
	}
	a := &attempt{e: e, spec: spec, g: g, codec: codec, targets: ts, lease: l, slots: slots}
	a.blob = metadata.Blob{ID: id, PG: pg.ID, Epoch: v.Epoch, K: g.K, M: g.M, CellSize: uint32(g.CellSize), Size: g.BodyLen,
		WriterNode: e.cfg.Node, WriterStart: e.cfg.StartID, WriterPut: e.put.Add(1)}
	a.results = make(chan outcome, g.N())
	a.errs = make([]error, g.N())
	e.flight.add(a.blob.WriterPut, id)
	return a, nil
}

// shardSpec is what shard i's header records.
func (a *attempt) shardSpec(i int) shard.Spec {
	return shard.Spec{
		Ref: a.targets[i].ref, K: a.g.K, M: a.g.M, CellSize: uint32(a.g.CellSize), Length: uint64(a.g.ShardLen()), BodyLen: uint64(a.g.BodyLen),
		Bucket: a.spec.bucket, Key: a.spec.key, Version: a.spec.version, Part: a.spec.part,
		Writer: shard.WriterID{Node: a.blob.WriterNode, StartID: a.blob.WriterStart, Put: a.blob.WriterPut}, Attempt: 1,
	}
}
