package object

import (
	"context"
	"io"

	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
)

// Open looks an object up: one metadata read. withBody false is for HEAD; WriteRange of an inline body fails then.
func (e *Engine) Open(ctx context.Context, bucket, key string, withBody bool) (*Object, error) {
	const op = "object.open"
	ans, err := e.query(ctx, bucket, &metadata.Query{Op: metadata.QueryGet, Key: key, WithBody: withBody})
	if err != nil {
		return nil, oerr.Wrap(op, err)
	}
	v := ans.Version
	if v == nil || v.DeleteMarker {
		return nil, oerr.Errorf(op, oerr.NoSuchKey, "no object %q in bucket %q", key, bucket)
	}
	if v.Inline && withBody && int64(len(ans.Body)) != v.Size {
		return nil, oerr.Errorf(op, oerr.Corrupt, "object %q has an inline body of %d bytes, its row says %d", key, len(ans.Body), v.Size)
	}
	o := &Object{Version: *v, Close: func() {}}
	o.WriteRange = func(ctx context.Context, w io.Writer, off, n int64) error {
		if off < 0 || n < 0 || off > v.Size || n > v.Size-off {
			return oerr.Errorf("object.read", oerr.InvalidRange, "bytes %d+%d of a body of %d", off, n, v.Size)
		}
		switch {
		case n == 0:
			return nil
		case v.Inline && !withBody:
			return oerr.Errorf("object.read", oerr.InvalidArgument, "object %q was opened without its body", key)
		case v.Inline:
			_, err := w.Write(ans.Body[off : off+n])
			return err
		}
		return e.writeParts(ctx, w, bucket, v, off, n)
	}
	return o, nil
}

// writeParts writes bytes [off, off+n) of an object that lives in blobs.
func (e *Engine) writeParts(ctx context.Context, w io.Writer, bucket string, v *metadata.Version, off, n int64) error {
	var at int64 // of the part in the body
	for i := range v.Parts {
		p := &v.Parts[i]
		from, to := max(off, at)-at, min(off+n, at+p.Size)-at
		at += p.Size
		if from >= to {
			continue
		}
		if p.Blob == nil || p.Blob.Size != p.Size {
			return oerr.Errorf("object.read", oerr.Corrupt, "object %q part %d: %d bytes without a blob of that size", v.Key, p.Number, p.Size)
		}
		src, err := e.newSource(ctx, bucket, v.Key, v.ID, p.Blob)
		if err != nil {
			return err
		}
		if err := e.writeBlobRange(ctx, w, src, from, to-from); err != nil {
			return err
		}
	}
	if at < off+n {
		return oerr.Errorf("object.read", oerr.Corrupt, "object %q: its parts hold %d bytes, its row says %d", v.Key, at, v.Size)
	}
	return nil
}

// source is a blob to read. It may be shared by reads of several windows, one after the other or at one time.
type source struct {
	bucket, key string
	version     ident.ID
	blob        *metadata.Blob
	g           erasure.Geometry
	codec       *erasure.Codec
	targets     []target
}

func (e *Engine) newSource(ctx context.Context, bucket, key string, version ident.ID, blob *metadata.Blob) (*source, error) {
	g, err := erasure.StoredGeometry(erasure.Profile{K: blob.K, M: blob.M}, blob.Size, blob.CellSize)
	if err != nil {
		return nil, oerr.E("object.read", oerr.Corrupt, err)
	}
	codec, err := e.codecs.Get(g.Profile)
	if err != nil {
		return nil, oerr.E("object.read", oerr.Internal, err)
	}
	ts, err := e.targets(e.d.Cluster.View(), blob.PG, blob.ID, g.N())
	if err != nil { // this node's view may be older than the blob
		v, serr := e.sync(ctx)
		if serr != nil {
			return nil, serr
		}
		if ts, err = e.targets(v, blob.PG, blob.ID, g.N()); err != nil {
			return nil, err
		}
	}
	return &source{bucket: bucket, key: key, version: version, blob: blob, g: g, codec: codec, targets: ts}, nil
}

// window is a run of body bytes that is fetched at one time.
type window struct{ off, n int64 }

// windowAt returns the window of [off, end) that begins at off: to the end of its slab.
func windowAt(g erasure.Geometry, off, end int64) window {
	size := slabStripes(g) * g.StripeSize()
	return window{off, min(end, (off/size+1)*size) - off}
}

// writeBlobRange writes body bytes [off, off+n) of a blob. A range of several windows is read ahead by one.
func (e *Engine) writeBlobRange(ctx context.Context, w io.Writer, src *source, off, n int64) error {
	win := windowAt(src.g, off, off+n)
	if win.n == n {
		f, err := e.fetch(ctx, src, win)
		if err != nil {
			return err
		}
		defer f.release()
		return f.writeTo(w)
	}
	ctx, cancel := context.WithCancel(ctx)
	ahead := make(chan fetched) // unbuffered: one window being written, one ready or being fetched
	go e.readAhead(ctx, src, off, off+n, ahead)
	defer func() {
		cancel()
		for f := range ahead { // until readAhead has ended
			f.release()
		}
	}()
	for f := range ahead {
		if f.err != nil {
			return f.err
		}
		err := f.writeTo(w)
		f.release()
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// fetched is a window, or why it could not be had.
type fetched struct {
	*fetch
	err error
}

func (f fetched) release() {
	if f.fetch != nil {
		f.fetch.release()
	}
}

// readAhead fetches the windows of [off, end) in order and closes out after the last, or after an error. It ends with ctx.
func (e *Engine) readAhead(ctx context.Context, src *source, off, end int64, out chan<- fetched) {
	defer close(out)
	for off < end {
		win := windowAt(src.g, off, end)
		off += win.n
		f, err := e.fetch(ctx, src, win)
		select {
		case out <- fetched{f, err}:
		case <-ctx.Done():
			fetched{f, err}.release()
			return
		}
		if err != nil {
			return
		}
	}
}
