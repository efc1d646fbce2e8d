package object

import (
	"context"
	"io"
	"sync"

	"objstore/internal/oerr"
	"objstore/metadata"
)

// Copy makes a new object out of an existing one. The copy has blobs of its own (PROTOCOLS E).
func (e *Engine) Copy(ctx context.Context, req *CopyRequest) (CopyResult, error) {
	src, body, err := e.openCopy(ctx, req)
	if err != nil {
		return CopyResult{}, err
	}
	defer body.close()
	headers := req.Headers
	if headers == nil {
		headers = src.Headers
	}
	put := &PutRequest{Bucket: req.DstBucket, Key: req.DstKey, Headers: headers, Precondition: req.Precondition, Body: body.body(req, &src.Version)}
	res, err := e.Put(ctx, put)
	if err != nil {
		return CopyResult{}, oerr.Wrap("object.copy", err)
	}
	return CopyResult{Source: src.Version, Version: res.Version}, nil
}

// CopyPart makes a part of an open upload out of an existing object or a range of it.
func (e *Engine) CopyPart(ctx context.Context, req *CopyRequest) (CopyResult, error) {
	src, body, err := e.openCopy(ctx, req)
	if err != nil {
		return CopyResult{}, err
	}
	defer body.close()
	part, err := e.PutPart(ctx, &PutPartRequest{Bucket: req.DstBucket, Key: req.DstKey, UploadID: req.UploadID, Number: req.PartNumber,
		Body: body.body(req, &src.Version)})
	if err != nil {
		return CopyResult{}, oerr.Wrap("object.copy_part", err)
	}
	return CopyResult{Source: src.Version, Part: part}, nil
}

func (e *Engine) openCopy(ctx context.Context, req *CopyRequest) (*Object, *copyReader, error) {
	src, err := e.Open(ctx, req.SrcBucket, req.SrcKey, true)
	if err != nil {
		return nil, nil, err
	}
	if req.SrcCondition != nil {
		if err := req.SrcCondition(&src.Version); err != nil {
			return nil, nil, err
		}
	}
	off, n := int64(0), src.Size
	if req.Range != nil {
		if off, n, err = req.Range(src.Size); err != nil {
			return nil, nil, err
		}
	}
	if off < 0 || n < 0 || off > src.Size || n > src.Size-off {
		return nil, nil, oerr.Errorf("object.copy", oerr.InvalidRange, "bytes %d+%d of a source of %d", off, n, src.Size)
	}
	ctx, cancel := context.WithCancel(ctx)
	return src, &copyReader{ctx: ctx, cancel: cancel, src: src, off: off, n: n}, nil
}

// copyReader reads a range of an object as a stream, without a buffer in between. It starts with the first Read: by
// then the put that reads has its memory, so copies never hold reading memory while they wait for writing memory.
type copyReader struct {
	ctx    context.Context
	cancel context.CancelFunc
	src    *Object
	off, n int64
	r      *io.PipeReader
	wg     sync.WaitGroup
}

func (c *copyReader) body(req *CopyRequest, src *metadata.Version) Body {
	b := Body{Reader: c, Length: c.n}
	if req.Digests != nil {
		b.Digests, b.Seal = req.Digests(src)
	}
	return b
}

func (c *copyReader) Read(p []byte) (int, error) {
	if c.r == nil {
		r, w := io.Pipe()
		c.r = r
		c.wg.Go(func() {
			w.CloseWithError(c.src.WriteRange(c.ctx, w, c.off, c.n)) // nil is io.EOF
		})
	}
	return c.r.Read(p)
}

// close ends the reading and waits for it.
func (c *copyReader) close() {
	c.cancel()
	if c.r != nil {
		c.r.Close()
	}
	c.wg.Wait()
	c.src.Close()
}
