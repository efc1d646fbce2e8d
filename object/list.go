package object

import (
	"context"
	"strings"

	"objstore/internal/oerr"
	"objstore/metadata"
)

// List returns one page of current versions. Version 1 gives each bucket one span, so one group answers.
func (e *Engine) List(ctx context.Context, req *ListRequest) (ListResult, error) {
	if req.Max < 0 {
		return ListResult{}, oerr.Errorf("object.list", oerr.InvalidArgument, "at most %d keys asked for", req.Max)
	}
	if req.Max == 0 { // still an answer about the bucket
		_, err := e.bucket(ctx, req.Bucket)
		return ListResult{}, err
	}
	ans, err := e.query(ctx, req.Bucket, &metadata.Query{Op: metadata.QueryList, Prefix: req.Prefix, Delimiter: req.Delimiter,
		After: req.After, Max: min(req.Max, metadata.MaxListKeys)})
	if err != nil {
		return ListResult{}, oerr.Wrap("object.list", err)
	}
	return ListResult{Entries: ans.Entries, Prefixes: ans.Prefixes, Truncated: ans.Truncated, Next: ans.Next}, nil
}

// uploadPages bounds how many pages of uploads one ListUploads reads on behalf of a delimiter.
const uploadPages = 16

// ListUploads returns one page of open uploads in (key, id) order. With a delimiter, uploads below one common prefix
// count as one.
func (e *Engine) ListUploads(ctx context.Context, req *ListUploadsRequest) (ListUploadsResult, error) {
	var out ListUploadsResult
	if req.Max <= 0 {
		_, err := e.bucket(ctx, req.Bucket)
		return out, err
	}
	limit := min(req.Max, metadata.MaxListKeys)
	q := &metadata.Query{Op: metadata.QueryUploads, Prefix: req.Prefix, After: req.KeyMarker, AfterUpload: req.UploadIDMarker, Max: limit}
	given := "" // the common prefix that the marker lies in was given before
	if p, ok := commonPrefix(req.KeyMarker, req.Prefix, req.Delimiter); ok {
		given = p
	}
	for range uploadPages {
		ans, err := e.query(ctx, req.Bucket, q)
		if err != nil {
			return ListUploadsResult{}, oerr.Wrap("object.list_uploads", err)
		}
		for i := range ans.Uploads {
			u := &ans.Uploads[i]
			p, common := commonPrefix(u.Key, req.Prefix, req.Delimiter)
			if common && p == given {
				out.NextKey, out.NextID = u.Key, u.ID
				continue
			}
			if len(out.Uploads)+len(out.Prefixes) == limit {
				out.Truncated = true
				return out, nil
			}
			out.NextKey, out.NextID = u.Key, u.ID
			if common {
				given = p
				out.Prefixes = append(out.Prefixes, p)
			} else {
				out.Uploads = append(out.Uploads, *u)
			}
		}
		if !ans.Truncated || len(ans.Uploads) == 0 {
			out.NextKey, out.NextID = "", [16]byte{}
			return out, nil
		}
		last := &ans.Uploads[len(ans.Uploads)-1]
		q.After, q.AfterUpload = last.Key, last.ID
	}
	out.Truncated = true
	return out, nil
}

// commonPrefix returns the run of key up to and with the first delimiter after prefix.
func commonPrefix(key, prefix, delimiter string) (string, bool) {
	if delimiter == "" || !strings.HasPrefix(key, prefix) {
		return "", false
	}
	i := strings.Index(key[len(prefix):], delimiter)
	if i < 0 {
		return "", false
	}
	return key[:len(prefix)+i+len(delimiter)], true
}
