package store

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"objstore/internal/oerr"
	"objstore/shard"
)

// onDevice runs f, which may wait for the device, on a goroutine that holds one of the pool's slots, and waits for it
// until ctx ends. Then f is left to itself, and drop gets its result if that comes after all.
func onDevice[T any](ctx context.Context, d *drive, f func() (T, error), drop func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var none T
	slot, err := d.reads.acquire(ctx)
	if err != nil {
		return none, err
	}
	answer := make(chan result, 1)
	var settled atomic.Bool // whoever sets it decides: the job that its result is taken, the caller that it is not
	d.jobs.Add(1)
	go func() {
		defer d.jobs.Add(-1)
		v, err := f()
		d.reads.release(slot)
		if settled.CompareAndSwap(false, true) {
			answer <- result{v, err}
		} else if drop != nil && err == nil {
			drop(v)
		}
	}()
	select {
	case r := <-answer:
		return r.v, r.err
	case <-ctx.Done():
		if settled.CompareAndSwap(false, true) {
			return none, oerr.E("store.io", oerr.KindOf(ctx.Err()), ctx.Err())
		}
		r := <-answer
		return r.v, r.err
	}
}

// read implements Store.Read for one drive.
func (d *drive) read(ctx context.Context, req *shard.ReadRequest, dst []byte) ([]uint32, error) {
	const op = "store.read"
	start := time.Now()
	if uint64(len(dst)) != req.Length || req.Length == 0 || req.Offset%shard.BlockSize != 0 {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "read of %d bytes at %d into %d", req.Length, req.Offset, len(dst))
	}
	e := d.gate.enter()
	defer d.gate.leave(e)
	key := keyOf(req.Blob, req.Index)
	r, ok, err := d.index.get(key)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, oerr.Errorf(op, oerr.ShardMissing, "no shard %s.%d on drive %d", req.Blob, req.Index, req.Drive)
	case r.Torn:
		return nil, oerr.Errorf(op, oerr.Corrupt, "shard %s.%d on drive %d has no end mark", req.Blob, req.Index, req.Drive)
	case req.Digest != 0 && req.Digest != r.Digest:
		return nil, oerr.Errorf(op, oerr.Corrupt, "shard %s.%d on drive %d has digest %016x, the commit says %016x", req.Blob, req.Index, req.Drive, r.Digest, req.Digest)
	case req.Offset >= r.Length || req.Length > r.Length-req.Offset || (req.Length%shard.BlockSize != 0 && req.Offset+req.Length != r.Length):
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "read of %d bytes at %d from a shard of %d", req.Length, req.Offset, r.Length)
	}
	table, err := d.readAt(ctx, key, &r, headerSize+int64(req.Offset), dst)
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	if r.Kind == rowRecord {
		table = r.table()
	}
	first := int(req.Offset / shard.BlockSize)
	crcs := append([]uint32(nil), table[first:first+shard.Blocks(req.Length)]...)
	d.met.reads.Add(1)
	d.met.readBytes.Add(int64(len(dst)))
	d.met.readLatency.observe(time.Since(start))
	return crcs, nil
}

// readAt fills dst from off bytes after the beginning of the shard's header: from the page cache right here, from the
// device through a bounce buffer on another goroutine. It returns a file's checksum table.
func (d *drive) readAt(ctx context.Context, key rowKey, r *row, off int64, dst []byte) (table []uint32, err error) {
	fk := fdKey{shard: key}
	if r.Kind == rowRecord {
		fk = segmentFD(r.Segment)
		off += int64(r.Offset)
	}
	e := d.fds.get(fk)
	done := 0
	if e != nil {
		done = e.f.PreadCached(dst, off)
		table = e.crcs
		d.fds.release(e)
	}
	for done < len(dst) {
		n := min(len(dst)-done, readPiece)
		if table, err = d.readDevice(ctx, fk, key, r, off+int64(done), dst[done:done+n]); err != nil {
			return nil, err
		}
		done += n
	}
	return table, nil
}

// deviceRead is what a job brings back.
type deviceRead struct {
	buf   *shard.Buf
	table []uint32
}

func (d *drive) readDevice(ctx context.Context, fk fdKey, key rowKey, r *row, pos int64, dst []byte) ([]uint32, error) {
	rowCopy, n := *r, len(dst)
	got, err := onDevice(ctx, d, func() (deviceRead, error) {
		// The job takes the buffer itself, so that it is released exactly once whoever sees the end.
		buf, err := d.bounce.Get(ctx, n)
		if err != nil {
			return deviceRead{}, err
		}
		table, err := d.readInto(fk, key, &rowCopy, pos, buf.B)
		if err != nil {
			buf.Release()
		}
		return deviceRead{buf, table}, err
	}, func(v deviceRead) { v.buf.Release() })
	if err != nil {
		return nil, err
	}
	copy(dst, got.buf.B)
	got.buf.Release()
	d.met.deviceReads.Add(1)
	return got.table, nil
}

// readInto runs on a job's goroutine: it opens the file if need be and reads.
func (d *drive) readInto(fk fdKey, key rowKey, r *row, pos int64, b []byte) ([]uint32, error) {
	e := d.fds.get(fk)
	if e == nil {
		var err error
		if e, err = d.openForRead(fk, key, r); err != nil {
			return nil, err
		}
	}
	defer d.fds.release(e)
	n, err := e.f.Pread(b, pos)
	if err != nil {
		return nil, d.readFailed(err)
	}
	if n < len(b) {
		d.fds.forget(fk)
		return nil, corrupt("shard %s.%d: read %d bytes at %d, expected %d: truncated", key.blob(), key.index(), n, pos, len(b))
	}
	return e.crcs, nil
}

// openForRead opens a segment, or a shard file whose footer it checks and keeps.
func (d *drive) openForRead(fk fdKey, key rowKey, r *row) (*fdEntry, error) {
	gen := d.fds.generation()
	if r.Kind == rowRecord {
		f, err := d.fs.Open(d.segmentPath(r.Segment), syscall.O_RDONLY)
		if err != nil {
			return nil, d.readFailed(err)
		}
		f.Fadvise(0, 0, unix.FADV_RANDOM) // exactly what is asked for, in one request: neighbours are other objects
		return d.fds.add(fk, gen, f, nil), nil
	}
	f, err := d.fs.Open(shardPath(d.cfg.Path, key), syscall.O_RDONLY)
	if err != nil {
		return nil, d.readFailed(err)
	}
	ft, err := d.readFooter(f, key, r)
	if err != nil {
		f.Close()
		return nil, err
	}
	return d.fds.add(fk, gen, f, ft.CRCs), nil
}

func (d *drive) readFooter(f File, key rowKey, r *row) (footer, error) {
	b := make([]byte, footerSize(r.Length))
	n, err := f.Pread(b, headerSize+int64(r.Length))
	if err != nil {
		return footer{}, d.readFailed(err)
	}
	if n < len(b) {
		return footer{}, corrupt("shard %s.%d: read %d bytes of footer, expected %d: truncated", key.blob(), key.index(), n, len(b))
	}
	ft, err := decodeFooter(b)
	if err != nil {
		return footer{}, fmt.Errorf("shard %s.%d: %w", key.blob(), key.index(), err)
	}
	return ft, checkFooter(&ft, d.owner, key, r)
}

func checkFooter(ft *footer, o owner, key rowKey, r *row) error {
	if ft.owner != o || keyOf(ft.Blob, ft.Index) != key || ft.Length != r.Length || ft.Digest != r.Digest {
		return corrupt("shard %s.%d: read a footer of shard %s.%d with length %d and digest %016x on drive %s, expected length %d and digest %016x",
			key.blob(), key.index(), ft.Blob, ft.Index, ft.Length, ft.Digest, ft.UUID, r.Length, r.Digest)
	}
	return nil
}

// readFailed classifies a failed open or read. Only the file's own absence is absence: with its folder gone too, nothing
// is known.
func (d *drive) readFailed(err error) error {
	switch {
	case isNotExist(err):
		if _, serr := d.fs.Statfs(filepath.Join(d.cfg.Path, superName)); serr == nil {
			return oerr.E("store.read", oerr.ShardMissing, err)
		}
	case isTransient(err):
		return oerr.E("store.read", oerr.Busy, err)
	}
	d.met.readErrors.Add(1)
	return oerr.E("store.read", oerr.Unavailable, err)
}
