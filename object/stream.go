package object

import (
	"context"
	"encoding/binary"
	"io"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"objstore/internal/oerr"
	"objstore/shard"
)

// stream is one shard of a body of several slabs.
type stream struct {
	ctx    context.Context
	cancel context.CancelFunc
	in     chan *slab    // never full: no more than the attempt's slots exist
	done   atomic.Int64  // slabs taken
	err    error         // why it failed; set before failed
	failed atomic.Bool   //
	given  bool          // up by the put's goroutine
	table  xxhash.Digest // of its checksums; the put's goroutine's
}

// writeStream writes a body slab by slab.
func (a *attempt) writeStream(ctx context.Context, body *Body) (Sealed, error) {
	a.startStreams(ctx)
	d := startDigests(body.Digests)
	err := a.pump(ctx, body.Reader, d)
	if err != nil {
		a.cancel()
	}
	a.endStreams()
	d.finish(err != nil)
	if err != nil {
		return Sealed{}, err
	}
	sealed, err := seal(body.Seal)
	if err != nil {
		return Sealed{}, err
	}
	return sealed, a.await(ctx)
}

func (a *attempt) startStreams(ctx context.Context) {
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	a.class, a.open = latencyTail, a.g.N()
	a.free, a.wake = make(chan struct{}, a.slots), make(chan struct{}, 1)
	for range a.slots {
		a.free <- struct{}{}
	}
	a.lease.refs.Add(int32(a.g.N()))
	a.streams = make([]*stream, a.g.N())
	for i := range a.streams {
		st := &stream{in: make(chan *slab, a.slots)}
		st.ctx, st.cancel = context.WithCancel(a.ctx)
		st.table.Reset()
		a.streams[i] = st
		go a.run(i, st)
	}
}

// endStreams tells the streams that nothing more comes: they commit, unless they were cancelled.
func (a *attempt) endStreams() {
	a.sent = time.Now()
	a.blob.Digests = make([]uint64, a.g.N())
	for i, st := range a.streams {
		a.blob.Digests[i] = st.table.Sum64()
		close(st.in)
	}
}

// pump reads, encodes and hands out all slabs.
func (a *attempt) pump(ctx context.Context, r io.Reader, d *digester) error {
	count := slabCount(a.g)
	for num := range count {
		if err := a.slot(ctx, num); err != nil {
			return err
		}
		s, err := a.nextSlab(ctx, r, num)
		if err != nil {
			return err
		}
		d.feed(s)
		if err = s.encode(a.codec, a.blob.ID); err == nil && num == count-1 {
			err = expectEOF(r, a.g.BodyLen)
		}
		if err == nil {
			a.hand(s)
		}
		s.release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) nextSlab(ctx context.Context, r io.Reader, num int64) (*slab, error) {
	wait, cancel := context.WithTimeout(ctx, a.e.cfg.WriteIdle)
	defer cancel()
	s, err := newSlab(wait, a.e.d.Pool, a.g, num)
	if err != nil {
		return nil, err
	}
	s.freed = a.free
	if err := s.fill(r); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// hand gives a slab to all streams that still write.
func (a *attempt) hand(s *slab) {
	var b [4]byte
	for i, st := range a.streams {
		for _, c := range s.crcs[i] {
			binary.LittleEndian.PutUint32(b[:], c)
			st.table.Write(b[:])
		}
		if a.live(st) {
			s.refs.Add(1)
			st.in <- s
		}
	}
}

func (a *attempt) live(st *stream) bool { return !st.given && !st.failed.Load() }

// slot waits until slab num may exist. A stream that alone holds the put up is given up after a while, if a quorum is
// left without it: quickly when its drive is known to be slow or dead.
func (a *attempt) slot(ctx context.Context, num int64) error {
	if err := a.enough(); err != nil {
		return err
	}
	select {
	case <-a.free:
		return nil
	default:
	}
	began := time.Now()
	timer := time.NewTimer(a.e.cfg.GraceMin)
	defer timer.Stop()
	for {
		select {
		case <-a.free:
			return nil
		case <-a.wake:
			if err := a.enough(); err != nil {
				return err
			}
		case <-ctx.Done():
			return oerr.E("object.write", oerr.KindOf(ctx.Err()), ctx.Err())
		case <-timer.C:
			waited := time.Since(began)
			if waited > a.e.cfg.WriteIdle+a.e.cfg.Laggard {
				return oerr.Errorf("object.write", oerr.Unavailable, "blob %s: no progress at slab %d for %s", a.blob.ID, num, waited.Round(time.Millisecond))
			}
			a.dropLaggards(num, waited)
			timer.Reset(max(a.e.cfg.Laggard-waited, a.e.cfg.Laggard/4))
		}
	}
}

// dropLaggards gives up the streams that have not taken the slab whose slot is wanted.
func (a *attempt) dropLaggards(num int64, waited time.Duration) {
	late, left := uint32(0), 0
	for i, st := range a.streams {
		switch {
		case !a.live(st):
		case st.done.Load() <= num-int64(a.slots):
			late |= 1 << i
		default:
			left++
		}
	}
	if left < a.g.WriteQuorum() {
		return
	}
	for i, st := range a.streams {
		t := &a.targets[i]
		if late>>i&1 == 0 || (waited < a.e.cfg.Laggard && t.alive && !t.stat.isSuspect(time.Now())) {
			continue
		}
		st.given = true
		st.cancel()
		err := oerr.Errorf("object.write", oerr.DeadlineExceeded, "shard %d held the put up for %s", i, waited.Round(time.Millisecond))
		t.stat.failed(err, time.Now())
		a.errs[i] = err
		a.e.d.OnEvent(Event{Kind: EventShardDropped, Blob: a.blob.ID, Index: uint8(i), Drive: t.ref.Drive, Err: err})
	}
}

// enough fails when a quorum cannot be had any more.
func (a *attempt) enough() error {
	live := 0
	for i, st := range a.streams {
		if a.live(st) {
			live++
		} else if st.failed.Load() && a.errs[i] == nil {
			a.errs[i] = st.err
		}
	}
	if live < a.g.WriteQuorum() {
		return a.quorumError()
	}
	return nil
}

// run is shard i's goroutine.
func (a *attempt) run(i int, st *stream) {
	ep, transport := a.e.d.Dialer.Endpoint(a.targets[i].node, uint64(a.g.ShardLen()))
	w, err := ep.Create(st.ctx, a.shardSpec(i))
	if err != nil {
		a.streamFailed(st, err)
	}
	var ack shard.Ack
	for s := range st.in {
		if err == nil {
			if err = a.append(st, w, s, i); err != nil {
				a.streamFailed(st, err)
			} else {
				a.e.d.CountShard(transport, "put", s.per)
			}
		}
		st.done.Add(1)
		s.release()
	}
	if err == nil {
		err = st.ctx.Err()
	}
	if err == nil {
		ack, err = a.seal(st, w, i)
	}
	if err != nil && w != nil {
		w.Abort(err)
	}
	st.cancel()
	a.lease.release()
	a.results <- outcome{i, ack, err, time.Since(a.sent)}
}

func (a *attempt) append(st *stream, w shard.Writer, s *slab, i int) error {
	ctx, cancel := context.WithTimeout(st.ctx, a.e.cfg.WriteIdle)
	defer cancel()
	return w.Append(ctx, s.buf, s.region(i), s.crcs[i])
}

func (a *attempt) seal(st *stream, w shard.Writer, i int) (shard.Ack, error) {
	a.sealing.Or(1 << i)
	ctx, cancel := context.WithTimeout(st.ctx, a.e.cfg.WriteIdle)
	defer cancel()
	return w.Commit(ctx)
}

func (a *attempt) streamFailed(st *stream, err error) {
	st.err = err
	st.failed.Store(true)
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
