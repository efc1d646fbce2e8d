package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"objstore/internal/ident"
	"objstore/shard"
)

const (
	deadlineSlack = time.Second            // deadlines this fresh are not set again
	watchAfter    = 50 * time.Millisecond  // an operation that takes longer is watched: is the client still there?
	watchEvery    = 100 * time.Millisecond // from then on
)

// serverConn is one connection's operations, one after the other.
type serverConn struct {
	s       *Server
	l       *link
	ctx     context.Context
	read    time.Time // the read deadline that is set
	written time.Time // when the write deadline was set
	watch   *time.Timer
}

// serve runs operations until the connection ends.
func (s *Server) serve(ctx context.Context, l *link) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer l.close()
	defer context.AfterFunc(ctx, l.close)()
	s.n.conns.Add(1)
	defer s.n.conns.Add(-1)
	c := &serverConn{s: s, l: l, ctx: ctx}
	c.watch = time.AfterFunc(time.Hour, func() {
		if l.hungUp() {
			cancel() // nobody waits for the answer: let the store stop
		} else {
			c.watch.Reset(watchEvery)
		}
	})
	defer c.watch.Stop()
	c.watch.Stop()
	// The client waits for the proof of its ticket in front of the first answer.
	proof := l.proof
	l.proof = nil
	if proof != nil {
		c.writeDeadline()
		if _, err := l.conn.Write(proof); err != nil {
			return
		}
	}
	for {
		c.readDeadline(s.cfg.Idle)
		h, err := l.next()
		if err == nil {
			err = c.operation(h)
		}
		if err != nil {
			if errors.Is(err, errFrame) {
				s.refuse(l.conn, "frame", err)
			} else if err != io.EOF && ctx.Err() == nil {
				s.n.broken.Add(1)
			}
			return
		}
	}
}

// hungUp reports whether the peer has closed the connection, whatever is still to be read from it.
func (l *link) hungUp() bool {
	t := l.tcp()
	if t == nil {
		return false
	}
	sc, err := t.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = sc.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		gone = err == nil && info.State != unix.BPF_TCP_ESTABLISHED
	})
	return gone || err != nil
}

// readDeadline lets the next read take about limit. Setting one costs a timer change, so it is kept while it is close.
func (c *serverConn) readDeadline(limit time.Duration) {
	want := time.Now().Add(limit)
	if d := want.Sub(c.read); d < 0 || d > limit/8 {
		c.read = want
		c.l.conn.SetReadDeadline(want)
	}
}

func (c *serverConn) writeDeadline() {
	if now := time.Now(); now.Sub(c.written) > deadlineSlack {
		c.written = now
		c.l.conn.SetWriteDeadline(now.Add(c.s.cfg.FrameLimit))
	}
}

// operation answers one request. An error ends the connection.
func (c *serverConn) operation(h header) error {
	c.watch.Reset(watchAfter)
	defer c.watch.Stop()
	if h.kind == kindCreate {
		return c.write(h)
	}
	ctx, cancel := c.context(c.ctx, h)
	defer cancel()
	n := &c.s.n
	switch h.kind {
	case kindRead:
		n.reads.Add(1)
		req, err := parseMeta(c.l.meta, (*dec).read)
		if err != nil {
			return err
		}
		return c.cells(ctx, req)
	case kindStat:
		n.stats.Add(1)
		return c.stat(ctx)
	case kindDelete:
		n.deletes.Add(1)
		return c.delete(ctx)
	case kindList:
		n.lists.Add(1)
		return c.list(ctx)
	}
	return fmt.Errorf("%w: read kind %d between operations", errFrame, h.kind)
}

// context applies a frame's deadline.
func (c *serverConn) context(parent context.Context, h header) (context.Context, context.CancelFunc) {
	if h.deadline == 0 {
		return parent, func() {}
	}
	return context.WithTimeout(parent, time.Duration(h.deadline)*time.Millisecond)
}

// cells answers a read with frames of at most 1 MiB, or with an error in place of any of them.
func (c *serverConn) cells(ctx context.Context, req shard.ReadRequest) error {
	buf, err := c.s.pool.Get(ctx, int(min(req.Length, maxData)))
	if err != nil {
		return c.fail(err)
	}
	defer buf.Release()
	for left := req.Length; left > 0; {
		n := min(left, maxData)
		crcs, err := c.s.ep.Read(ctx, shard.ReadRequest{Ref: req.Ref, Offset: req.Offset, Length: n, Digest: req.Digest}, buf.B[:n])
		if err != nil {
			return c.fail(err)
		}
		c.writeDeadline()
		c.l.open()
		c.l.out = appendCRCs(c.l.out, crcs)
		if err := c.l.send(kindCells, 0, buf.B[:n]); err != nil {
			return err
		}
		c.s.n.bytesRead.Add(n)
		req.Offset += n
		left -= n
	}
	return nil
}

func (c *serverConn) stat(ctx context.Context) error {
	verify := false
	ref, err := parseMeta(c.l.meta, func(d *dec) shard.Ref {
		r := d.ref()
		verify = d.bool()
		return r
	})
	if err != nil {
		return err
	}
	info, err := c.s.ep.Stat(ctx, ref, verify)
	if err != nil {
		return c.fail(err)
	}
	c.l.open()
	c.l.out = appendInfo(c.l.out, &info)
	return c.answer(kindInfo)
}

func (c *serverConn) delete(ctx context.Context) error {
	refs, err := parseMeta(c.l.meta, (*dec).refs)
	if err != nil {
		return err
	}
	errs := c.s.ep.Delete(ctx, refs)
	for i, err := range errs {
		c.s.n.count(err)
		if err != nil {
			errs[i] = errorOf(err)
		}
	}
	c.l.open()
	c.l.out = appendErrors(c.l.out, errs)
	return c.answer(kindDeleted)
}

func (d *dec) refs() []shard.Ref {
	n := int(d.u16())
	if n == 0 || n > maxRefs {
		d.fail("read %d refs, expected 1 to %d", n, maxRefs)
		return nil
	}
	refs := make([]shard.Ref, 0, n)
	for i := 0; i < n && d.err == nil; i++ {
		refs = append(refs, d.ref())
	}
	return refs
}

func (c *serverConn) list(ctx context.Context) error {
	var after ident.ID
	var index uint8
	var max int
	drive, err := parseMeta(c.l.meta, func(d *dec) ident.Drive {
		drive := ident.Drive(d.u32())
		after, index, max = d.id(), d.u8(), int(d.u16())
		if max == 0 || max > maxRows {
			d.fail("read %d rows wanted, expected 1 to %d", max, maxRows)
		}
		return drive
	})
	if err != nil {
		return err
	}
	rows, err := c.s.ep.List(ctx, drive, after, index, max)
	if err != nil {
		return c.fail(err)
	}
	rows = rows[:min(len(rows), max)]
	c.l.open()
	c.l.out = le.AppendUint16(c.l.out, uint16(len(rows)))
	for i := range rows {
		c.l.out = appendRow(c.l.out, &rows[i])
	}
	return c.answer(kindListed)
}

// answer sends the frame begun with open.
func (c *serverConn) answer(kind byte) error {
	c.writeDeadline()
	return c.l.send(kind, 0, nil)
}

// fail answers with an error; the connection goes on.
func (c *serverConn) fail(err error) error {
	c.s.n.count(err)
	c.l.open()
	c.l.out = appendError(c.l.out, err)
	return c.answer(kindError)
}
