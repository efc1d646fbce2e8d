package object

import (
	"context"
	"errors"
	"hash"
	"math/bits"
	"sync/atomic"
	"time"

	"objstore/erasure"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
)

// attempt writes one blob to one placement group. Its methods are called by one goroutine, the put's; each shard is
// written by a goroutine of its own that ends with one outcome in results, which has room for all of them. After
// committed, unknown or refused the attempt belongs to the background.
type attempt struct {
	e       *Engine
	spec    blobSpec
	blob    metadata.Blob
	g       erasure.Geometry
	codec   *erasure.Codec
	targets []target
	lease   *lease // one reference for the attempt and one for each running shard goroutine
	slots   int    // slabs that may exist at one time

	ctx     context.Context // of the shard goroutines; nil before they start
	cancel  context.CancelFunc
	results chan outcome
	sent    time.Time // when the last byte had been handed over
	class   latencyClass
	sealing atomic.Uint32 // shards whose commit was begun: they may be on their drives

	open  int    // shard goroutines without an outcome
	acked uint32 // bitmap
	errs  []error

	// of a streamed put only
	streams []*stream
	free    chan struct{} // slots
	wake    chan struct{} // a stream failed
}

// outcome is how one shard ended.
type outcome struct {
	i    int
	ack  shard.Ack
	err  error
	took time.Duration
}

// fillSingle reads a body of one slab and encodes it.
func (a *attempt) fillSingle(ctx context.Context, body *Body) (*slab, error) {
	wait, cancel := context.WithTimeout(ctx, a.e.cfg.AdmitTimeout)
	defer cancel()
	s, err := newSlab(wait, a.e.d.Pool, a.g, 0)
	if err != nil {
		return nil, err
	}
	if err = s.fill(body.Reader); err == nil {
		err = expectEOF(body.Reader, body.Length)
	}
	if err == nil {
		err = s.encode(a.codec, a.blob.ID)
	}
	if err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// startSingle sends the one slab to all drives.
func (a *attempt) startSingle(ctx context.Context, s *slab, crcs [][]uint32) {
	a.ctx, a.cancel = context.WithTimeout(context.WithoutCancel(ctx), a.e.cfg.WriteIdle)
	a.class, a.sent, a.open = latencyShard, time.Now(), a.g.N()
	a.blob.Digests = make([]uint64, a.g.N())
	for i := range a.targets {
		a.blob.Digests[i] = shard.Digest(crcs[i])
	}
	s.refs.Add(int32(a.g.N()))
	a.lease.refs.Add(int32(a.g.N()))
	for i := range a.targets {
		go a.single(i, s, crcs[i])
	}
}

// single writes shard i as a whole.
func (a *attempt) single(i int, s *slab, crcs []uint32) {
	ep, transport := a.e.d.Dialer.Endpoint(a.targets[i].node, uint64(a.g.ShardLen()))
	var ack shard.Ack
	w, err := ep.Create(a.ctx, a.shardSpec(i))
	if err == nil {
		if err = w.Append(a.ctx, s.buf, s.region(i), crcs); err == nil {
			a.sealing.Or(1 << i)
			ack, err = w.Commit(a.ctx)
		}
		if err != nil {
			w.Abort(err)
		}
	}
	if err == nil {
		a.e.d.CountShard(transport, "put", s.per)
	}
	took := time.Since(a.sent)
	s.release()
	a.lease.release()
	a.results <- outcome{i, ack, err, took}
}

// digestSingle hashes the slab beside the writes and seals the body.
func (a *attempt) digestSingle(s *slab, body *Body) (Sealed, error) {
	if s.body <= inlineDigest || len(body.Digests) == 0 {
		digestInline(body.Digests, s)
		return seal(body.Seal)
	}
	// The last hash runs here, the others beside it.
	last := len(body.Digests) - 1
	d := startDigests(body.Digests[:last])
	d.feed(s)
	digestInline([]hash.Hash{body.Digests[last]}, s)
	d.finish(false)
	return seal(body.Seal)
}

// await waits for all shards, or after the grace of those still open for the write quorum (PROTOCOLS D).
func (a *attempt) await(ctx context.Context) error {
	var timer *time.Timer
	stall := time.Now().Add(a.e.cfg.WriteIdle + a.e.cfg.GraceMax)
	quorum := a.g.WriteQuorum()
	for a.open > 0 && a.acks()+a.open >= quorum {
		until := stall
		if a.acks() >= quorum {
			until = a.graceEnd()
		}
		wait := time.Until(until)
		if wait <= 0 {
			break
		}
		if timer == nil {
			timer = time.NewTimer(wait)
			defer timer.Stop()
		} else {
			timer.Reset(wait)
		}
		select {
		case o := <-a.results:
			a.handle(o)
		case <-timer.C:
		case <-ctx.Done():
			return oerr.E("object.write", oerr.KindOf(ctx.Err()), ctx.Err())
		}
	}
	for a.open > 0 { // take along what has arrived in the meantime
		select {
		case o := <-a.results:
			a.handle(o)
			continue
		default:
		}
		break
	}
	if a.acks() < quorum {
		return a.quorumError()
	}
	a.blob.Missing = ^a.acked & (1<<a.g.N() - 1)
	if a.blob.Missing != 0 {
		a.e.d.OnEvent(Event{Kind: EventEarlyAck, Blob: a.blob.ID, Index: uint8(bits.TrailingZeros32(a.blob.Missing)), Err: errors.Join(a.errs...)})
	}
	return nil
}

func (a *attempt) acks() int { return bits.OnesCount32(a.acked) }

func (a *attempt) quorumLost() bool { return a.acks()+a.open < a.g.WriteQuorum() }

// graceEnd is when the last of the shards still open stops being waited for.
func (a *attempt) graceEnd() time.Time {
	var longest time.Duration
	for i := range a.targets {
		if a.acked>>i&1 == 1 || a.errs[i] != nil {
			continue
		}
		t := &a.targets[i]
		if t.alive {
			longest = max(longest, t.stat.limit(a.class, a.e.cfg.GraceMin, a.e.cfg.GraceMax, a.e.cfg.GraceCold))
		}
	}
	return a.sent.Add(longest)
}

// handle takes one outcome in.
func (a *attempt) handle(o outcome) {
	a.open--
	t := &a.targets[o.i]
	err := o.err
	if err == nil && (o.ack.Drive != t.ref.Drive || o.ack.Digest != a.blob.Digests[o.i]) {
		err = oerr.Errorf("object.write", oerr.Corrupt, "shard %s.%d: drive %d acknowledged digest %016x, expected drive %d and %016x",
			a.blob.ID, o.i, o.ack.Drive, o.ack.Digest, t.ref.Drive, a.blob.Digests[o.i])
	}
	if err == nil {
		a.acked |= 1 << o.i
		t.stat.took(a.class, o.took)
		return
	}
	if a.errs[o.i] == nil {
		a.errs[o.i] = err
	}
	if !oerr.Is(err, oerr.Canceled) {
		t.stat.failed(err, time.Now())
		a.e.d.OnEvent(Event{Kind: EventShardFailed, Blob: a.blob.ID, Index: uint8(o.i), Drive: t.ref.Drive, Err: err})
	}
}

func (a *attempt) sawStale() bool {
	for _, err := range a.errs {
		if stale(err) {
			return true
		}
	}
	return false
}

// quorumError says what became of each shard. It is DriveFull when full drives alone stand in the way.
func (a *attempt) quorumError() error {
	full := 0
	text := make([]error, len(a.targets))
	for i := range a.targets {
		switch {
		case a.acked>>i&1 == 1:
		case a.errs[i] == nil:
			text[i] = errNoAnswer
		default:
			text[i] = a.errs[i]
			if oerr.Is(a.errs[i], oerr.DriveFull) {
				full++
			}
		}
	}
	kind := oerr.Unavailable
	if a.g.N()-full < a.g.WriteQuorum() {
		kind = oerr.DriveFull
	}
	return oerr.Errorf("object.write", kind, "blob %s: %d of %d shards durable, expected at least %d: %w",
		a.blob.ID, a.acks(), a.g.N(), a.g.WriteQuorum(), shardErrors(a.targets, text))
}

// drop gives up an attempt that has not started.
func (a *attempt) drop() {
	a.e.flight.remove(a.blob.WriterPut)
	a.lease.release()
}
