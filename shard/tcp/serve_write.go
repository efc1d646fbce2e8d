package tcp

import (
	"context"
	"fmt"
	"io"

	"objstore/internal/oerr"
	"objstore/shard"
)

// incoming is one shard being received.
type incoming struct {
	c      *serverConn
	ctx    context.Context
	spec   shard.Spec
	w      shard.Writer
	buf    *shard.Buf // of a small shard: all of it, so that nothing waits for a second buffer while it holds one
	done   uint64     // bytes received
	failed bool       // answered with an error; the rest is read and dropped
}

// write receives one shard. The client gets exactly one answer: an error as soon as there is one, else the
// acknowledgement. After an error what the client had already sent is read and dropped up to its commit.
func (c *serverConn) write(h header) (err error) {
	spec, err := parseMeta(c.l.meta, (*dec).spec)
	if err != nil {
		return err
	}
	c.s.n.writes.Add(1)
	ctx, cancel := c.context(c.ctx, h)
	defer cancel()
	in := &incoming{c: c, ctx: ctx, spec: spec}
	defer func() {
		if in.w != nil {
			in.w.Abort(err) // no-op after Commit
		}
		if in.buf != nil {
			in.buf.Release()
		}
	}()
	if in.w, err = c.s.ep.Create(ctx, spec); err != nil {
		in.w = nil
		if err := in.refuse(err); err != nil {
			return err
		}
	}
	for {
		if in.buf == nil {
			c.readDeadline(c.s.cfg.StreamIdle)
		} else { // a small shard comes in one piece: nobody holds a buffer while he thinks
			c.readDeadline(c.s.cfg.FrameLimit)
		}
		h, err := c.l.next()
		if err != nil {
			return unexpected(err)
		}
		switch h.kind {
		case kindData:
			if err := in.data(h); err != nil {
				return err
			}
		case kindCommit:
			return in.commit(h)
		case kindAbort:
			return nil
		default:
			return fmt.Errorf("%w: read kind %d inside a write", errFrame, h.kind)
		}
	}
}

// refuse answers with err, once.
func (in *incoming) refuse(err error) error {
	in.failed = true
	if in.w != nil {
		in.w.Abort(err)
		in.w = nil
	}
	return in.c.fail(err)
}

// data receives one frame of cells, checks them, and hands them to the store. Errors of the store are answered; the
// error returned is the connection's.
func (in *incoming) data(h header) error {
	c, n := in.c, uint64(h.data)
	if !in.failed && (n > in.spec.Length-in.done || in.done%shard.BlockSize != 0) {
		if err := in.refuse(oerr.Errorf("shard.tcp.write", oerr.InvalidArgument, "%d bytes at %d of a shard of %d", n, in.done, in.spec.Length)); err != nil {
			return err
		}
	}
	c.readDeadline(c.s.cfg.FrameLimit)
	if in.failed {
		return discard(c.l, int64(n))
	}
	crcs := parseCRCs(make([]uint32, 0, shard.Blocks(n)), c.l.meta) // the store may keep them
	buf, dst, err := in.room(n)
	if err != nil {
		if err := in.refuse(err); err != nil {
			return err
		}
		return discard(c.l, int64(n))
	}
	if buf != in.buf {
		defer buf.Release()
	}
	if err := c.l.cells(dst); err != nil {
		return err
	}
	c.s.n.bytesWritten.Add(n)
	first := in.done / shard.BlockSize
	in.done += n
	if err := shard.CheckBlocks(in.spec.Blob, in.spec.Index, first, dst, crcs); err != nil {
		return in.refuse(err)
	}
	ctx, cancel := c.context(in.ctx, h)
	defer cancel()
	if err := in.w.Append(ctx, buf, dst, crcs); err != nil {
		return in.refuse(err)
	}
	return nil
}

// room returns where the next n bytes go.
func (in *incoming) room(n uint64) (*shard.Buf, []byte, error) {
	if in.spec.Length > holdLimit {
		buf, err := in.c.s.pool.Get(in.ctx, int(n))
		if err != nil {
			return nil, nil, err
		}
		return buf, buf.B, nil
	}
	if in.buf == nil {
		buf, err := in.c.s.pool.Get(in.ctx, int(in.spec.Length))
		if err != nil {
			return nil, nil, err
		}
		in.buf = buf
	}
	return in.buf, in.buf.B[in.done : in.done+n], nil
}

func discard(l *link, n int64) error {
	_, err := io.CopyN(io.Discard, l.br, n)
	return unexpected(err)
}

func (in *incoming) commit(h header) error {
	if in.failed {
		return nil // answered
	}
	ctx, cancel := in.c.context(in.ctx, h)
	defer cancel()
	ack, err := in.w.Commit(ctx)
	if err != nil {
		return in.refuse(err)
	}
	in.w = nil
	c := in.c
	c.l.open()
	c.l.out = appendAck(c.l.out, ack)
	return c.answer(kindAck)
}
