package s3

import (
	"net/http"

	"objstore/object"
	"objstore/s3/apierr"
)

func putObject(q *request) error {
	headers, err := storedHeaders(q.r.Header)
	if err != nil {
		return err
	}
	pre, err := precondition(q.r.Header)
	if err != nil {
		return err
	}
	p, err := q.openBody(MaxPutSize, apierr.EntityTooLarge, true)
	if err != nil {
		return err
	}
	defer p.close()
	res, err := q.h.deps.Objects.Put(q.ctx(), &object.PutRequest{Bucket: q.bucket, Key: q.key, Body: p.engineBody(), Headers: headers, Precondition: pre})
	if err != nil {
		return err
	}
	q.w.set("Etag", `"`+res.Version.ETag+`"`)
	setChecksums(q.w, res.Version.Checksums, 0)
	return q.sendEmpty(http.StatusOK)
}
