package object

import (
	"context"
	"hash"
	"io"

	"objstore/internal/oerr"
	"objstore/metadata"
)

// Put stores an object: small bodies in the metadata row, others as a blob. Nothing is visible before the commit, and
// nothing of a put that failed stays visible.
func (e *Engine) Put(ctx context.Context, req *PutRequest) (PutResult, error) {
	const op = "object.put"
	if req.Body.Length < 0 || req.Body.Reader == nil {
		return PutResult{}, oerr.Errorf(op, oerr.InvalidArgument, "body of %d bytes: the length must be known", req.Body.Length)
	}
	v := metadata.Version{ID: e.d.NewID(), Key: req.Key, Size: req.Body.Length, Headers: req.Headers}
	cmd := &metadata.Command{Op: metadata.OpPut, Key: req.Key, Version: &v, Precondition: req.Precondition}
	if req.Body.Length <= e.cfg.MaxInline {
		return e.putInline(ctx, req, cmd)
	}
	b, err := e.bucket(ctx, req.Bucket)
	if err != nil {
		return PutResult{}, err
	}
	w, err := e.writeBlob(ctx, blobSpec{bucket: b.ID, key: req.Key, version: v.ID}, &req.Body)
	if err != nil {
		return PutResult{}, err
	}
	v.ETag, v.Checksums = w.sealed.ETag, w.sealed.Checksums
	v.Parts = []metadata.Part{{Size: v.Size, Blob: &w.blob}}
	cmd.Epoch = w.blob.Epoch
	res, err := e.commitBlob(ctx, w, req.Bucket, cmd)
	if err != nil {
		return PutResult{}, err
	}
	return PutResult{Version: settled(v, res)}, nil
}

// putInline stores a body that fits into the metadata row.
func (e *Engine) putInline(ctx context.Context, req *PutRequest, cmd *metadata.Command) (PutResult, error) {
	body := make([]byte, req.Body.Length)
	if n, err := io.ReadFull(req.Body.Reader, body); err == io.EOF || err == io.ErrUnexpectedEOF {
		return PutResult{}, oerr.Errorf("object.body", oerr.InvalidArgument, "body ended after %d bytes, expected %d: %w", n, len(body), io.ErrUnexpectedEOF)
	} else if err != nil {
		return PutResult{}, err
	}
	if err := expectEOF(req.Body.Reader, req.Body.Length); err != nil {
		return PutResult{}, err
	}
	for _, h := range req.Body.Digests {
		h.Write(body)
	}
	sealed, err := seal(req.Body.Seal)
	if err != nil {
		return PutResult{}, err
	}
	v := cmd.Version
	v.ETag, v.Checksums, v.Inline = sealed.ETag, sealed.Checksums, len(body) > 0
	cmd.Body = body
	cmd.Epoch = e.d.Cluster.View().Epoch
	res, err := e.command(ctx, req.Bucket, cmd)
	if err != nil {
		return PutResult{}, oerr.Wrap("object.put", err)
	}
	return PutResult{Version: settled(*v, res)}, nil
}

// settled fills in what apply decided.
func settled(v metadata.Version, res metadata.Result) metadata.Version {
	v.Seq, v.ModTime = res.Seq, res.ModTime
	if !res.Version.IsZero() {
		v.ID = res.Version
	}
	return v
}

func seal(f func() (Sealed, error)) (Sealed, error) {
	if f == nil {
		return Sealed{}, nil
	}
	return f()
}

// commitBlob proposes the command that makes a written blob visible and settles the blob by the outcome.
func (e *Engine) commitBlob(ctx context.Context, w *written, bucket string, cmd *metadata.Command) (metadata.Result, error) {
	// By id: the shards' headers name the bucket by id, and orphan collection believes them.
	res, err := e.commandByID(ctx, w.spec.bucket, cmd)
	switch {
	case err == nil:
		w.committed()
		return res, nil
	case !refused(oerr.KindOf(err)):
		w.unknown() // it may have been committed, or may be yet: never abandon it
		return metadata.Result{}, oerr.Wrap("object.commit", err)
	}
	w.refused(err)
	switch oerr.KindOf(err) {
	case oerr.NoSuchBucket:
		if b, berr := e.sync(ctx); berr == nil && b.Buckets[bucket] != nil && b.Buckets[bucket].ID != w.spec.bucket {
			return metadata.Result{}, oerr.Errorf("object.commit", oerr.Unavailable, "bucket %q was removed and made again during the put", bucket)
		}
	case oerr.StaleEpoch, oerr.Abandoned:
		return metadata.Result{}, oerr.E("object.commit", oerr.Unavailable, err)
	}
	return metadata.Result{}, oerr.Wrap("object.commit", err)
}

// refused reports whether a command with this error has not been and will not be applied.
func refused(k oerr.Kind) bool {
	switch k {
	case oerr.InvalidArgument, oerr.NoSuchBucket, oerr.NoSuchKey, oerr.NoSuchVersion, oerr.NoSuchUpload, oerr.PreconditionFailed,
		oerr.InvalidPart, oerr.InvalidPartOrder, oerr.EntityTooSmall, oerr.StaleEpoch, oerr.Abandoned, oerr.PermissionDenied:
		return true
	}
	return false
}

// Delete removes the current version. Absent is success.
func (e *Engine) Delete(ctx context.Context, bucket, key string, pre metadata.Precondition) error {
	_, err := e.command(ctx, bucket, &metadata.Command{Op: metadata.OpDelete, Key: key, Precondition: pre})
	return oerr.Wrap("object.delete", err)
}

// digestInline feeds a single slab to the hashes on this goroutine.
func digestInline(hs []hash.Hash, s *slab) {
	for p := range s.pieces() {
		for _, h := range hs {
			h.Write(p)
		}
	}
}
