package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"objstore/internal/oerr"
	"objstore/shard"
)

// holdLimit is the shard length, in bytes, up to which everything is held until Commit and sent at once.
const holdLimit = maxData

// writer sends one shard. Nothing is sent before there is a reason to: a shard of at most holdLimit, and the end of
// any other, waits (its buffers retained) for Commit, so that it takes one writev and one acknowledgement.
type writer struct {
	p    *peer
	ctx  context.Context // Create's: the writer dies with it
	spec shard.Spec

	meta []byte  // headers and checksums of held frames
	held []piece // frames not sent yet
	bufs []*shard.Buf
	done uint64 // bytes appended

	l      *link       // nil before the first flush
	unbind func() bool // ends the link's tie to ctx
	answer chan ending // a streaming writer's answer, read by a goroutine; nil for a held one
	err    error       // why it ended; set once
	ended  bool
}

// piece is one held frame: meta[from:to], then data.
type piece struct {
	from, to int
	data     []byte
}

// ending is the server's one answer to a write.
type ending struct {
	ack shard.Ack
	err error // farError, or the connection failed
}

// Create implements shard.Endpoint. Its errors, other than a bad spec, show in Append or Commit.
func (p *peer) Create(ctx context.Context, spec shard.Spec) (shard.Writer, error) {
	const op = "shard.tcp.create"
	p.c.n.writes.Add(1)
	if spec.Length == 0 || spec.Length%shard.Align != 0 || len(spec.Key) > maxKey {
		err := oerr.Errorf(op, oerr.InvalidArgument, "shard length %d, key of %d bytes: expected a positive multiple of %d, and at most %d", spec.Length, len(spec.Key), shard.Align, maxKey)
		p.c.n.count(err)
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, oerr.E(op, oerr.KindOf(err), err)
	}
	return &writer{p: p, ctx: ctx, spec: spec}, nil
}

// Append implements shard.Writer.
func (w *writer) Append(ctx context.Context, buf *shard.Buf, data []byte, crcs []uint32) error {
	const op = "shard.tcp.append"
	if w.ended {
		return w.endedError(op)
	}
	n := uint64(len(data))
	switch {
	case n == 0 || n > w.spec.Length-w.done || (n%shard.BlockSize != 0 && w.done+n != w.spec.Length):
		return w.fail(oerr.Errorf(op, oerr.InvalidArgument, "append of %d bytes at %d to a shard of %d", n, w.done, w.spec.Length))
	case len(crcs) != shard.Blocks(n):
		return w.fail(oerr.Errorf(op, oerr.Corrupt, "%d checksums for %d bytes, expected %d", len(crcs), n, shard.Blocks(n)))
	}
	w.done += n
	hold := w.spec.Length <= holdLimit || w.done == w.spec.Length
	var ms uint32
	if !hold {
		ms = remaining(ctx, w.p.c.cfg.OpTimeout)
	}
	for len(data) > 0 {
		k := min(len(data), maxData)
		w.hold(data[:k], crcs[:shard.Blocks(uint64(k))], ms)
		data, crcs = data[k:], crcs[shard.Blocks(uint64(k)):]
	}
	if hold {
		if buf != nil {
			buf.Retain()
			w.bufs = append(w.bufs, buf)
		}
		return nil
	}
	return w.flush(ctx, op)
}

func (w *writer) hold(data []byte, crcs []uint32, ms uint32) {
	from := len(w.meta)
	w.meta = appendCRCs(openFrame(w.meta), crcs)
	sealFrame(w.meta[from:], 0, kindData, ms, len(data))
	w.held = append(w.held, piece{from, len(w.meta), data})
}

// early looks whether the server has given up already, and ends the writer if so.
func (w *writer) early(ctx context.Context, op string) error {
	if w.answer == nil {
		return nil
	}
	select {
	case e := <-w.answer:
		w.answer = nil
		if e.err == nil {
			e.err = fmt.Errorf("%w: an acknowledgement before the commit", errFrame)
		}
		return w.finish(ctx, op, e.err)
	default:
		return nil
	}
}

// connect makes sure that there is a link, tied to Create's context; first says that nothing was sent on it.
func (w *writer) connect(ctx context.Context) (first bool, err error) {
	if w.l != nil {
		return false, nil
	}
	l, err := w.p.checkout(ctx, false)
	if err != nil {
		return false, w.fail(err)
	}
	w.l, w.unbind = l, func() bool { return true }
	if w.ctx.Done() != nil && w.ctx != ctx { // begin ties it to ctx
		w.unbind = context.AfterFunc(w.ctx, l.close)
	}
	return true, nil
}

// flush sends what is held, with the create frame in front the first time.
func (w *writer) flush(ctx context.Context, op string) error {
	if err := w.early(ctx, op); err != nil {
		return err
	}
	first, err := w.connect(ctx)
	if err != nil {
		return err
	}
	if first && w.ctx == ctx && w.ctx.Done() != nil { // the stream lives on after this call
		w.unbind = context.AfterFunc(w.ctx, w.l.close)
	}
	l := w.l
	stop := l.begin(ctx, w.p.c.cfg.OpTimeout)
	if !first {
		l.conn.SetReadDeadline(time.Time{}) // the answer comes when it comes; only Commit waits for it
	}
	err = l.write(w.frames(ctx, first, false))
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	w.release()
	if err != nil {
		return w.finish(ctx, op, err)
	}
	if first {
		l.conn.SetReadDeadline(time.Time{})
		w.listen()
	}
	return nil
}

// frames gathers what is to be written. The slices lie in l.out, w.meta and the caller's buffers.
func (w *writer) frames(ctx context.Context, create, commit bool) net.Buffers {
	l := w.l
	l.out, l.iov = l.out[:0], l.iov[:0]
	split := 0
	if create {
		l.out = appendSpec(openFrame(l.out), &w.spec)
		ms := remaining(w.ctx, maxDeadline)
		if commit { // one deadline for all of it
			ms = min(ms, remaining(ctx, w.p.c.cfg.OpTimeout))
		}
		sealFrame(l.out, 0, kindCreate, ms, 0)
		split = len(l.out)
	}
	if commit {
		var ms uint32
		if !create {
			ms = remaining(ctx, w.p.c.cfg.OpTimeout)
		}
		l.out = openFrame(l.out)
		sealFrame(l.out, split, kindCommit, ms, 0)
	}
	if create {
		l.iov = append(l.iov, l.out[:split])
	}
	for _, x := range w.held {
		l.iov = append(l.iov, w.meta[x.from:x.to], x.data)
	}
	if commit {
		l.iov = append(l.iov, l.out[split:])
	}
	return l.iov
}

// listen reads the answer while the writer is still sending: a drive that is full says so at once.
func (w *writer) listen() {
	w.answer = make(chan ending, 1)
	l, out := w.l, w.answer
	w.p.c.wg.Add(1)
	go func() {
		defer w.p.c.wg.Done()
		out <- readEnding(l)
	}()
}

func readEnding(l *link) ending {
	if _, err := answer(l, kindAck); err != nil {
		return ending{err: err}
	}
	a, err := parseMeta(l.meta, (*dec).ack)
	return ending{a, err}
}

// Commit implements shard.Writer.
func (w *writer) Commit(ctx context.Context) (shard.Ack, error) {
	const op = "shard.tcp.commit"
	switch {
	case w.ended:
		return shard.Ack{}, w.endedError(op)
	case w.done != w.spec.Length:
		return shard.Ack{}, w.fail(oerr.Errorf(op, oerr.InvalidArgument, "commit after %d bytes, expected %d", w.done, w.spec.Length))
	case w.ctx.Err() != nil:
		return shard.Ack{}, w.fail(oerr.E(op, oerr.KindOf(w.ctx.Err()), w.ctx.Err()))
	}
	if err := w.early(ctx, op); err != nil {
		return shard.Ack{}, err
	}
	first, err := w.connect(ctx)
	if err != nil {
		return shard.Ack{}, err
	}
	l := w.l
	stop := l.begin(ctx, w.p.c.cfg.OpTimeout)
	err = l.write(w.frames(ctx, first, true))
	w.release()
	if err != nil {
		stop()
		return shard.Ack{}, w.finish(ctx, op, err)
	}
	var e ending
	if w.answer == nil {
		e = readEnding(l)
	} else {
		e = <-w.answer // ends by the deadline that begin has set
		w.answer = nil
	}
	uncut := stop()
	var far *farError
	if e.err != nil && !errors.As(e.err, &far) {
		return shard.Ack{}, w.finish(ctx, op, e.err)
	}
	if w.unbind() && uncut {
		w.p.checkin(l)
	} else {
		w.p.discard(l)
	}
	w.l = nil
	if far != nil {
		return shard.Ack{}, w.fail(far.err)
	}
	w.ended = true
	w.p.c.n.bytesWritten.Add(w.spec.Length)
	return e.ack, nil
}

// finish ends the writer after err on its connection, which is closed: the far side drops the shard.
func (w *writer) finish(ctx context.Context, op string, err error) error {
	var far *farError
	isFar := errors.As(err, &far)
	l := w.l
	w.l = nil
	w.unbind()
	if isFar {
		w.p.discard(l) // in the middle of a stream
		w.drain()
		return w.fail(far.err)
	}
	w.p.broke(l, err)
	if w.answer != nil { // the server may have said why before it closed
		if e := <-w.answer; errors.As(e.err, &far) {
			w.answer = nil
			return w.fail(far.err)
		}
		w.answer = nil
	}
	if w.ctx.Err() != nil {
		ctx = w.ctx
	}
	return w.fail(connError(ctx, op, w.p.who, err))
}

// drain waits for the goroutine of listen, whose link is closed.
func (w *writer) drain() {
	if w.answer != nil {
		<-w.answer
		w.answer = nil
	}
}

// fail ends the writer with err.
func (w *writer) fail(err error) error {
	w.p.c.n.count(err)
	w.end(err)
	return err
}

func (w *writer) end(err error) {
	w.ended, w.err = true, err
	w.release()
	if w.l != nil {
		w.unbind()
		w.p.discard(w.l)
		w.l = nil
		w.drain()
	}
}

func (w *writer) endedError(op string) error {
	if w.err != nil {
		return oerr.Wrap(op, w.err)
	}
	return oerr.E(op, oerr.InvalidArgument, fmt.Errorf("shard %s.%d was committed", w.spec.Blob, w.spec.Index))
}

// release lets go of what was held.
func (w *writer) release() {
	for i, b := range w.bufs {
		b.Release()
		w.bufs[i] = nil
	}
	w.bufs, w.held, w.meta = w.bufs[:0], w.held[:0], w.meta[:0]
}

// Abort implements shard.Writer: the connection is closed, and the far side drops the shard when it sees that.
func (w *writer) Abort(cause error) {
	if w.ended {
		return
	}
	if cause == nil {
		cause = context.Canceled
	}
	w.end(oerr.E("shard.tcp.abort", oerr.Canceled, cause))
}
