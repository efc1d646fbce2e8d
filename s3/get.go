package s3

import (
	"net/http"

	"objstore/metadata"
	"objstore/object"
	"objstore/s3/apierr"
)

func getObject(q *request) error  { return q.read(true) }
func headObject(q *request) error { return q.read(false) }

// read serves GetObject and HeadObject; they differ in the body only.
func (q *request) read(body bool) error {
	if err := q.checkVersion(); err != nil {
		return err
	}
	part, err := q.partParam()
	if err != nil {
		return err
	}
	obj, err := q.h.deps.Objects.Open(q.ctx(), q.bucket, q.key, body)
	if err != nil {
		return err
	}
	defer obj.Close()
	v := &obj.Version
	q.w.set("Etag", `"`+v.ETag+`"`)
	q.w.set("Last-Modified", seconds(v.ModTime).UTC().Format(http.TimeFormat))
	q.w.set("Accept-Ranges", "bytes")
	cond := readConditions(q.r.Header)
	if err := cond.check(v, false); err != nil {
		for _, p := range v.Headers { // a 304 renews what a cache has (RFC 9110 §15.4.5)
			if p.Name == "Cache-Control" || p.Name == "Expires" {
				q.w.set(p.Name, p.Value)
			}
		}
		return err
	}
	s, partial, err := q.selectBytes(v, part)
	if err != nil {
		q.w.set("Content-Range", "bytes */"+itoa(v.Size))
		return err
	}
	setStored(q.w, v.Headers)
	if err := q.override(); err != nil {
		return err
	}
	q.setReadChecksums(v, part, partial)
	q.w.set("Content-Length", itoa(s.n))
	status := http.StatusOK
	if partial {
		status = http.StatusPartialContent
		q.w.set("Content-Range", s.contentRange(v.Size))
	}
	return q.sendBody(obj, s, status, body)
}

// partParam reads partNumber; 0 is none.
func (q *request) partParam() (int, error) {
	if !q.query.Has("partNumber") {
		return 0, nil
	}
	if q.r.Header["Range"] != nil {
		return 0, apierr.Errorf(apierr.InvalidRequest, "Cannot specify both Range header and partNumber query parameter")
	}
	return q.partNumber()
}

// selectBytes is the run of bytes that was asked for, and whether that makes the answer a partial one.
func (q *request) selectBytes(v *metadata.Version, part int) (span, bool, error) {
	whole := span{0, v.Size}
	if part > 0 {
		s, err := partSpan(v, part)
		if err == nil && v.Multipart() {
			q.w.set("X-Amz-Mp-Parts-Count", itoa(int64(len(v.Parts))))
		}
		return s, err == nil && s.n > 0, err
	}
	h := q.r.Header["Range"]
	if len(h) != 1 || !rangeStillValid(q.r.Header, v) {
		return whole, false, nil
	}
	s, ok, err := parseRange(h[0], v.Size)
	if !ok {
		return whole, false, err
	}
	return s, true, nil
}

// setReadChecksums adds the checksums if they were asked for and describe what is sent: the whole object, or a part
// that has one of its own.
func (q *request) setReadChecksums(v *metadata.Version, part int, partial bool) {
	if q.r.Header["X-Amz-Checksum-Mode"] == nil {
		return
	}
	switch {
	case part > 0 && v.Multipart():
		if c := v.Parts[part-1].Checksum; c != nil {
			setChecksums(q.w, []metadata.Checksum{*c}, 1)
			q.w.set("X-Amz-Checksum-Type", typeName(len(v.Checksums) > 0 && v.Checksums[0].Composite))
		}
	case !partial || part > 0:
		setChecksums(q.w, v.Checksums, len(v.Parts))
	}
}

// sendBody streams the bytes. An error before the first of them is an answer like any other; after it the connection
// is aborted (fail sees that).
func (q *request) sendBody(obj *object.Object, s span, status int, body bool) error {
	if !body || s.n == 0 {
		q.w.WriteHeader(status)
		return nil
	}
	before := q.w.bytes
	err := obj.WriteRange(q.ctx(), &bodyWriter{q.w, status}, s.off, s.n)
	if err == nil && q.w.bytes-before != s.n {
		err = apierr.Errorf(apierr.InternalError, "the engine wrote %d of %d bytes", q.w.bytes-before, s.n)
	}
	return err
}

// lastModified is a time as CopyObject's answer shows it.
func lastModified(x *xmlBuf, ms int64) { x.time("LastModified", ms/1000*1000) }
