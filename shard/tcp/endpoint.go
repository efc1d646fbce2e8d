package tcp

import (
	"context"
	"fmt"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

var _ shard.Endpoint = (*peer)(nil)

// answer reads the next frame and expects kind; the far side's error comes as a farError.
func answer(l *link, kind byte) (header, error) {
	h, err := l.next()
	switch {
	case err != nil:
		return h, unexpected(err)
	case h.kind == kindError:
		return h, &farError{remoteError(l.meta)}
	case h.kind != kind:
		return h, fmt.Errorf("%w: read kind %d, expected %d", errFrame, h.kind, kind)
	}
	return h, nil
}

// Read implements shard.Endpoint: one request, then frames of at most 1 MiB, each read straight into dst.
func (p *peer) Read(ctx context.Context, req shard.ReadRequest, dst []byte) (crcs []uint32, err error) {
	const op = "shard.tcp.read"
	p.c.n.reads.Add(1)
	defer func() { p.c.n.count(err) }()
	if uint64(len(dst)) != req.Length || req.Length == 0 || req.Offset%shard.BlockSize != 0 {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "read of %d bytes at %d into %d", req.Length, req.Offset, len(dst))
	}
	err = p.do(ctx, op, func(l *link) error {
		l.open()
		l.out = appendRead(l.out, &req)
		if err := l.send(kindRead, remaining(ctx, p.c.cfg.OpTimeout), nil); err != nil {
			return err
		}
		crcs = make([]uint32, 0, shard.Blocks(req.Length))
		for done := 0; done < len(dst); {
			h, err := answer(l, kindCells)
			if err != nil {
				return err
			}
			end := done + int(h.data)
			if end > len(dst) || (h.data%shard.BlockSize != 0 && end != len(dst)) {
				return fmt.Errorf("%w: read %d bytes of cells at %d of %d", errFrame, h.data, done, len(dst))
			}
			crcs = parseCRCs(crcs, l.meta)
			if err := l.cells(dst[done:end]); err != nil {
				return err
			}
			done = end
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.c.n.bytesRead.Add(req.Length)
	return crcs, nil
}

// Stat implements shard.Endpoint.
func (p *peer) Stat(ctx context.Context, ref shard.Ref, verify bool) (info shard.Info, err error) {
	p.c.n.stats.Add(1)
	defer func() { p.c.n.count(err) }()
	err = p.do(ctx, "shard.tcp.stat", func(l *link) error {
		l.open()
		l.out = appendBool(appendRef(l.out, ref), verify)
		if err := l.send(kindStat, remaining(ctx, p.c.cfg.OpTimeout), nil); err != nil {
			return err
		}
		if _, err := answer(l, kindInfo); err != nil {
			return err
		}
		info, err = parseMeta(l.meta, (*dec).info)
		return err
	})
	if err != nil {
		return shard.Info{}, err
	}
	return info, nil
}

// Delete implements shard.Endpoint, 1,024 refs in a frame.
func (p *peer) Delete(ctx context.Context, refs []shard.Ref) []error {
	errs := make([]error, 0, len(refs))
	for len(refs) > 0 {
		n := min(len(refs), maxRefs)
		errs = append(errs, p.delete(ctx, refs[:n])...)
		refs = refs[n:]
	}
	return errs
}

func (p *peer) delete(ctx context.Context, refs []shard.Ref) (errs []error) {
	p.c.n.deletes.Add(1)
	err := p.do(ctx, "shard.tcp.delete", func(l *link) error {
		l.open()
		l.out = le.AppendUint16(l.out, uint16(len(refs)))
		for _, r := range refs {
			l.out = appendRef(l.out, r)
		}
		if err := l.send(kindDelete, remaining(ctx, p.c.cfg.OpTimeout), nil); err != nil {
			return err
		}
		if _, err := answer(l, kindDeleted); err != nil {
			return err
		}
		var err error
		errs, err = parseMeta(l.meta, func(d *dec) []error { return d.errors(len(refs)) })
		return err
	})
	p.c.n.count(err)
	if err != nil {
		errs = make([]error, len(refs))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// List implements shard.Endpoint. It asks again until max rows are there or the drive has no more.
func (p *peer) List(ctx context.Context, drive ident.Drive, after ident.ID, afterIndex uint8, max int) ([]shard.Info, error) {
	const op = "shard.tcp.list"
	p.c.n.lists.Add(1)
	if max <= 0 {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "list of %d shards", max)
	}
	var all []shard.Info
	for len(all) < max {
		want := min(max-len(all), maxRows)
		rows, err := p.list(ctx, op, drive, after, afterIndex, want)
		if err != nil {
			p.c.n.count(err)
			return nil, err
		}
		all = append(all, rows...)
		if len(rows) < want {
			break
		}
		after, afterIndex = rows[len(rows)-1].Blob, rows[len(rows)-1].Index
	}
	return all, nil
}

func (p *peer) list(ctx context.Context, op string, drive ident.Drive, after ident.ID, afterIndex uint8, want int) (rows []shard.Info, err error) {
	err = p.do(ctx, op, func(l *link) error {
		l.open()
		l.out = le.AppendUint32(l.out, uint32(drive))
		l.out = append(append(l.out, after[:]...), afterIndex)
		l.out = le.AppendUint16(l.out, uint16(want))
		if err := l.send(kindList, remaining(ctx, p.c.cfg.OpTimeout), nil); err != nil {
			return err
		}
		if _, err := answer(l, kindListed); err != nil {
			return err
		}
		rows, err = parseMeta(l.meta, func(d *dec) []shard.Info { return d.rows(want) })
		return err
	})
	return rows, err
}

func (d *dec) rows(want int) []shard.Info {
	n := int(d.u16())
	if n > want {
		d.fail("read %d rows, expected at most %d", n, want)
		return nil
	}
	rows := make([]shard.Info, 0, n)
	for i := 0; i < n && d.err == nil; i++ {
		rows = append(rows, d.row())
	}
	return rows
}
