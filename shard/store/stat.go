package store

import (
	"context"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// stat implements Store.Stat for one drive.
func (d *drive) stat(ctx context.Context, ref shard.Ref, verify bool) (shard.Info, error) {
	key := keyOf(ref.Blob, ref.Index)
	if w := d.claims.writer(key); w != nil {
		return shard.Info{Spec: *w.about(), State: shard.StateWriting}, nil
	}
	e := d.gate.enter()
	defer d.gate.leave(e)
	r, ok, err := d.index.get(key)
	if err != nil {
		return shard.Info{}, oerr.Wrap("store.stat", err)
	}
	if !ok {
		return shard.Info{Spec: shard.Spec{Ref: ref}, State: shard.StateMissing}, nil
	}
	info, err := d.inspect(ctx, key, r, verify)
	if err != nil {
		return shard.Info{}, oerr.Wrap("store.stat", err)
	}
	if info.Spec.Blob.IsZero() || info.State == shard.StateMissing {
		info.Spec = shard.Spec{Ref: ref, Length: r.Length}
	}
	return info, nil
}

// inspect looks at a shard that has a row. The error is for what could not be found out.
func (d *drive) inspect(ctx context.Context, key rowKey, r row, verify bool) (shard.Info, error) {
	info := d.infoOf(key, &r)
	if r.Kind == rowRecord {
		info.Path, info.Offset = d.segmentPath(r.Segment), r.Offset
	} else {
		info.Path = shardPath(d.cfg.Path, key)
	}
	info.Size = uint64(r.size())
	if r.Torn {
		info.Detail = "the file has no end mark"
		return info, nil
	}
	var spec shard.Spec
	var err error
	if verify {
		spec, err = d.verifyShard(ctx, key, r)
	} else {
		spec, err = d.readHeader(ctx, key, &r)
	}
	switch {
	case err == nil:
		info.Spec = spec
	case oerr.IsCorrupt(err):
		info.State, info.Detail = shard.StateCorrupt, err.Error()
		if verify {
			d.fds.forget(fdKey{shard: key})
		}
	case oerr.Is(err, oerr.ShardMissing):
		info.State, info.Detail = shard.StateMissing, err.Error()
	default:
		return shard.Info{}, err
	}
	return info, nil
}

// infoOf is what the row alone says.
func (d *drive) infoOf(key rowKey, r *row) shard.Info {
	info := shard.Info{State: shard.StateOK, Digest: r.Digest}
	info.Ref = shard.Ref{Drive: d.cfg.ID, Incarnation: d.cfg.Incarnation, Blob: key.blob(), Index: key.index()}
	info.Length = r.Length
	if r.Torn {
		info.State = shard.StateCorrupt
	}
	return info
}

// readHeader reads and checks the header alone (and a file's footer when the file was not open).
func (d *drive) readHeader(ctx context.Context, key rowKey, r *row) (shard.Spec, error) {
	b := make([]byte, headerSize)
	if _, err := d.readAt(ctx, key, r, 0, b); err != nil {
		return shard.Spec{}, err
	}
	return d.checkHeader(b, key, r)
}

// checkHeader decodes a header that must be that of the row.
func (d *drive) checkHeader(b []byte, key rowKey, r *row) (shard.Spec, error) {
	h, err := decodeHeader(b)
	if err != nil {
		return shard.Spec{}, err
	}
	s := &h.Spec
	if h.owner != d.owner || keyOf(s.Blob, s.Index) != key || s.Length != r.Length {
		return shard.Spec{}, corrupt("shard %s.%d: read the header of shard %s.%d with length %d on drive %s, expected length %d on drive %s",
			key.blob(), key.index(), s.Blob, s.Index, s.Length, h.UUID, r.Length, d.owner.UUID)
	}
	if r.Kind == rowRecord && (h.Kind != kindRecord || h.Segment != r.Segment || h.Offset != r.Offset || h.Digest != r.Digest) {
		return shard.Spec{}, corrupt("shard %s.%d: read the header of a record at %d:%d with digest %016x, expected %d:%d and %016x",
			key.blob(), key.index(), h.Segment, h.Offset, h.Digest, r.Segment, r.Offset, r.Digest)
	}
	if r.Kind == rowFile && h.Kind != kindFile {
		return shard.Spec{}, corrupt("shard %s.%d: read a header of kind %d, expected %d", key.blob(), key.index(), h.Kind, kindFile)
	}
	return *s, nil
}

// verifyShard reads every byte of a shard past the page cache where that is possible, and checks it.
func (d *drive) verifyShard(ctx context.Context, key rowKey, r row) (shard.Spec, error) {
	return onDevice(ctx, d, func() (shard.Spec, error) {
		buf, err := d.bounce.Get(ctx, headerSize+readPiece)
		if err != nil {
			return shard.Spec{}, err
		}
		defer buf.Release()
		path := shardPath(d.cfg.Path, key)
		if r.Kind == rowRecord {
			path = d.segmentPath(r.Segment)
		}
		f, err := d.openDirect(path)
		if err != nil {
			return shard.Spec{}, d.readFailed(err)
		}
		defer f.Close()
		if r.Kind == rowRecord {
			return d.verifyRecord(f, buf.B, key, &r)
		}
		return d.verifyFile(ctx, f, buf.B, key, &r)
	}, nil)
}

// openDirect opens for reading past the page cache, or through it where that is not possible.
func (d *drive) openDirect(path string) (File, error) {
	f, err := d.fs.Open(path, d.openFlags(syscall.O_RDONLY))
	if d.direct && errors.Is(err, unix.EINVAL) {
		f, err = d.fs.Open(path, syscall.O_RDONLY)
	}
	return f, err
}

func (d *drive) verifyRecord(f File, b []byte, key rowKey, r *row) (shard.Spec, error) {
	b = b[:headerSize+r.Length]
	if err := d.readExactly(f, b, int64(r.Offset), key); err != nil {
		return shard.Spec{}, err
	}
	spec, err := d.checkHeader(b[:headerSize], key, r)
	if err != nil {
		return shard.Spec{}, err
	}
	return spec, shard.CheckBlocks(key.blob(), key.index(), 0, b[headerSize:], r.table())
}

func (d *drive) verifyFile(ctx context.Context, f File, b []byte, key rowKey, r *row) (shard.Spec, error) {
	if err := d.readExactly(f, b[:headerSize], 0, key); err != nil {
		return shard.Spec{}, err
	}
	spec, err := d.checkHeader(b[:headerSize], key, r)
	if err != nil {
		return shard.Spec{}, err
	}
	fb := b[:footerSize(r.Length)]
	if err := d.readExactly(f, fb, headerSize+int64(r.Length), key); err != nil {
		return shard.Spec{}, err
	}
	ft, err := decodeFooter(fb)
	if err == nil {
		err = checkFooter(&ft, d.owner, key, r)
	}
	if err != nil {
		return shard.Spec{}, err
	}
	if want := stripes(r.Length, spec.CellSize); ft.Stripes != want {
		return shard.Spec{}, corrupt("shard %s.%d: read %d stripes, expected %d", key.blob(), key.index(), ft.Stripes, want)
	}
	return spec, d.verifyCells(ctx, f, b[:readPiece], key.blob(), key.index(), r.Length, ft.CRCs)
}

func (d *drive) verifyCells(ctx context.Context, f File, b []byte, blob ident.ID, index uint8, length uint64, crcs []uint32) error {
	for off := uint64(0); off < length; off += readPiece {
		if err := ctx.Err(); err != nil {
			return oerr.E("store.verify", oerr.KindOf(err), err)
		}
		p := b[:min(readPiece, length-off)]
		if err := d.readExactly(f, p, headerSize+int64(off), keyOf(blob, index)); err != nil {
			return err
		}
		first := off / shard.BlockSize
		if err := shard.CheckBlocks(blob, index, first, p, crcs[first:int(first)+shard.Blocks(uint64(len(p)))]); err != nil {
			return err
		}
	}
	return nil
}

func (d *drive) readExactly(f File, b []byte, pos int64, key rowKey) error {
	n, err := f.Pread(b, pos)
	if err != nil {
		return d.readFailed(err)
	}
	if n < len(b) {
		return corrupt("shard %s.%d: read %d bytes at %d, expected %d: truncated", key.blob(), key.index(), n, pos, len(b))
	}
	return nil
}
