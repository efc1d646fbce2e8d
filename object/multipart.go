package object

import (
	"context"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
)

// CreateUpload opens a multipart upload.
func (e *Engine) CreateUpload(ctx context.Context, req *CreateUploadRequest) (ident.ID, error) {
	u := &metadata.Upload{ID: e.d.NewID(), Key: req.Key, Created: e.nowMS(), Headers: req.Headers, Algorithm: req.Algorithm, Composite: req.Composite}
	_, err := e.command(ctx, req.Bucket, &metadata.Command{Op: metadata.OpCreateUpload, Key: req.Key, Upload: u})
	if err != nil {
		return ident.ID{}, oerr.Wrap("object.create_upload", err)
	}
	return u.ID, nil
}

// upload returns an open upload; NoSuchUpload when it was never there, or is completed or aborted.
func (e *Engine) upload(ctx context.Context, bucket, key string, id ident.ID) (*metadata.Upload, error) {
	ans, err := e.query(ctx, bucket, &metadata.Query{Op: metadata.QueryUpload, Key: key, UploadID: id})
	if err != nil {
		return nil, oerr.Wrap("object.upload", err)
	}
	if ans.Upload == nil || ans.Upload.Done != nil {
		return nil, oerr.Errorf("object.upload", oerr.NoSuchUpload, "upload %s of key %q is not open", id, key)
	}
	return ans.Upload, nil
}

// PutPart stores one part. A part that was uploaded before under this number is replaced.
func (e *Engine) PutPart(ctx context.Context, req *PutPartRequest) (metadata.Part, error) {
	const op = "object.put_part"
	switch {
	case req.Number < 1 || req.Number > metadata.MaxParts:
		return metadata.Part{}, oerr.Errorf(op, oerr.InvalidArgument, "part number %d, expected 1 to %d", req.Number, metadata.MaxParts)
	case req.Body.Length < 0 || req.Body.Reader == nil:
		return metadata.Part{}, oerr.Errorf(op, oerr.InvalidArgument, "body of %d bytes: the length must be known", req.Body.Length)
	}
	b, err := e.bucket(ctx, req.Bucket)
	if err != nil {
		return metadata.Part{}, err
	}
	// The commit checks the upload again; this spares the writing of a part that has no place.
	if _, err := e.upload(ctx, req.Bucket, req.Key, req.UploadID); err != nil {
		return metadata.Part{}, err
	}
	part := metadata.Part{Number: uint16(req.Number), Size: req.Body.Length}
	cmd := &metadata.Command{Op: metadata.OpPutPart, Key: req.Key, UploadID: req.UploadID, Part: &part}
	var res metadata.Result
	if req.Body.Length == 0 {
		res, err = e.putEmptyPart(ctx, req, cmd)
	} else {
		res, err = e.putBlobPart(ctx, req, cmd, b.ID)
	}
	if err != nil {
		return metadata.Part{}, err
	}
	part.ModTime = res.ModTime
	return part, nil
}

func (e *Engine) putEmptyPart(ctx context.Context, req *PutPartRequest, cmd *metadata.Command) (metadata.Result, error) {
	if err := expectEOF(req.Body.Reader, 0); err != nil {
		return metadata.Result{}, err
	}
	sealed, err := seal(req.Body.Seal)
	if err != nil {
		return metadata.Result{}, err
	}
	setSealed(cmd.Part, sealed)
	cmd.Epoch = e.d.Cluster.View().Epoch
	res, err := e.command(ctx, req.Bucket, cmd)
	return res, oerr.Wrap("object.put_part", err)
}

func (e *Engine) putBlobPart(ctx context.Context, req *PutPartRequest, cmd *metadata.Command, bucket ident.ID) (metadata.Result, error) {
	spec := blobSpec{bucket: bucket, key: req.Key, version: req.UploadID, part: uint16(req.Number)}
	w, err := e.writeBlob(ctx, spec, &req.Body)
	if err != nil {
		return metadata.Result{}, err
	}
	setSealed(cmd.Part, w.sealed)
	cmd.Part.Blob, cmd.Epoch = &w.blob, w.blob.Epoch
	return e.commitBlob(ctx, w, req.Bucket, cmd)
}

func setSealed(p *metadata.Part, s Sealed) {
	p.ETag = s.ETag
	if len(s.Checksums) > 0 {
		p.Checksum = &s.Checksums[0]
	}
}

// Complete stitches the listed parts into the key's new version. A repeated Complete within a day gets the first answer.
func (e *Engine) Complete(ctx context.Context, req *CompleteRequest) (metadata.Version, error) {
	const op = "object.complete"
	ans, err := e.query(ctx, req.Bucket, &metadata.Query{Op: metadata.QueryUpload, Key: req.Key, UploadID: req.UploadID})
	if err != nil {
		return metadata.Version{}, oerr.Wrap(op, err)
	}
	u := ans.Upload
	if u == nil {
		return metadata.Version{}, oerr.Errorf(op, oerr.NoSuchUpload, "no upload %s of key %q", req.UploadID, req.Key)
	}
	if u.Done != nil {
		return completedBefore(u), nil
	}
	parts, err := e.listedParts(ctx, req)
	if err != nil {
		return metadata.Version{}, err
	}
	v := metadata.Version{ID: e.d.NewID(), Key: req.Key, Headers: u.Headers, Parts: parts}
	for i := range parts {
		v.Size += parts[i].Size
	}
	if req.Seal != nil {
		sealed, err := req.Seal(u, parts)
		if err != nil {
			return metadata.Version{}, err
		}
		v.ETag, v.Checksums = sealed.ETag, sealed.Checksums
	}
	res, err := e.command(ctx, req.Bucket, &metadata.Command{Op: metadata.OpCompleteUpload, Key: req.Key, UploadID: req.UploadID,
		Complete: req.Parts, MinPartSize: req.MinPartSize, Precondition: req.Precondition, Version: &metadata.Version{ID: v.ID},
		Checksums: v.Checksums, ETag: v.ETag, Epoch: e.d.Cluster.View().Epoch})
	if err != nil {
		return metadata.Version{}, oerr.Wrap(op, err)
	}
	if res.ETag != "" {
		v.ETag = res.ETag // another Complete was first
	}
	return settled(v, res), nil
}

func completedBefore(u *metadata.Upload) metadata.Version {
	v := metadata.Version{ID: u.Done.Version, Key: u.Key, ETag: u.Done.ETag, ModTime: u.Done.At, Headers: u.Headers}
	if u.Done.Checksum != nil {
		v.Checksums = []metadata.Checksum{*u.Done.Checksum}
	}
	return v
}

// listedParts returns the parts that req lists, as the group has them.
func (e *Engine) listedParts(ctx context.Context, req *CompleteRequest) ([]metadata.Part, error) {
	const op = "object.complete"
	for i := 1; i < len(req.Parts); i++ {
		if req.Parts[i].Number <= req.Parts[i-1].Number {
			return nil, oerr.Errorf(op, oerr.InvalidPartOrder, "part %d is listed after part %d", req.Parts[i].Number, req.Parts[i-1].Number)
		}
	}
	parts := make([]metadata.Part, 0, min(len(req.Parts), metadata.MaxParts))
	want := req.Parts
	for after := 0; len(want) > 0; {
		page, err := e.parts(ctx, req.Bucket, req.Key, req.UploadID, after, metadata.MaxListKeys)
		if err != nil {
			return nil, err
		}
		for i := range page.Parts {
			if len(want) > 0 && page.Parts[i].Number == want[0].Number {
				parts, want = append(parts, page.Parts[i]), want[1:]
			}
		}
		if !page.Truncated {
			break
		}
		after = page.Next
	}
	if len(want) > 0 {
		return nil, oerr.Errorf(op, oerr.InvalidPart, "part %d was not uploaded", want[0].Number)
	}
	for i := range parts {
		if parts[i].ETag != req.Parts[i].ETag {
			return nil, oerr.Errorf(op, oerr.InvalidPart, "part %d has etag %q, listed with %q", parts[i].Number, parts[i].ETag, req.Parts[i].ETag)
		}
	}
	return parts, nil
}

// AbortUpload removes an upload and its parts.
func (e *Engine) AbortUpload(ctx context.Context, bucket, key string, id ident.ID) error {
	_, err := e.command(ctx, bucket, &metadata.Command{Op: metadata.OpAbortUpload, Key: key, UploadID: id})
	return oerr.Wrap("object.abort_upload", err)
}

// ListParts returns up to max parts of an open upload with numbers above after.
func (e *Engine) ListParts(ctx context.Context, bucket, key string, id ident.ID, after, max int) (ListPartsResult, error) {
	if max < 0 || after < 0 {
		return ListPartsResult{}, oerr.Errorf("object.list_parts", oerr.InvalidArgument, "at most %d parts after number %d", max, after)
	}
	return e.parts(ctx, bucket, key, id, min(after, metadata.MaxParts), min(max, metadata.MaxListKeys))
}

func (e *Engine) parts(ctx context.Context, bucket, key string, id ident.ID, after, max int) (ListPartsResult, error) {
	ans, err := e.query(ctx, bucket, &metadata.Query{Op: metadata.QueryParts, Key: key, UploadID: id, AfterPart: uint16(after), Max: max})
	if err != nil {
		return ListPartsResult{}, oerr.Wrap("object.list_parts", err)
	}
	if ans.Upload == nil || ans.Upload.Done != nil {
		return ListPartsResult{}, oerr.Errorf("object.list_parts", oerr.NoSuchUpload, "upload %s of key %q is not open", id, key)
	}
	out := ListPartsResult{Upload: *ans.Upload, Parts: ans.Parts, Truncated: ans.Truncated && len(ans.Parts) > 0}
	if out.Truncated {
		out.Next = int(ans.Parts[len(ans.Parts)-1].Number)
	}
	return out, nil
}
