package s3

import (
	"net/http"
	"time"

	"objstore/s3/apierr"
)

// retryAfter is what a 503 tells its client to wait, in seconds.
const retryAfter = "1"

// refusalWait is how long a refused request may take to deliver a body nobody wants.
const refusalWait = 5 * time.Second

// fail answers with an error. When part of a body has gone out already there is no honest answer left, and the
// connection is aborted: never short with 200.
func (q *request) fail(err error) {
	q.err = err
	if q.w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	e := apierr.From(err)
	q.hurryBody(e.Code)
	h := q.w.Header()
	clearEntityHeaders(h, e.Code)
	if e.Code.Status() == http.StatusServiceUnavailable {
		h["Retry-After"] = []string{retryAfter}
	}
	switch {
	case e.Code == apierr.NotModified:
		q.w.WriteHeader(http.StatusNotModified)
		return
	case e.Code == apierr.ClientClosed:
		q.w.WriteHeader(http.StatusServiceUnavailable) // nobody reads it
		return
	}
	x := newXML()
	x.raw("<Error>")
	x.elem("Code", e.Code.String())
	x.elem("Message", e.Text())
	if q.bucket != "" {
		x.elem("BucketName", q.bucket)
	}
	if q.key != "" {
		x.elem("Key", q.key)
	}
	for _, f := range e.Fields {
		x.elem(f.Name, f.Value)
	}
	path, _ := wirePath(q.r)
	x.elem("Resource", path)
	x.elem("RequestId", q.id)
	x.elem("HostId", q.h.cfg.HostID)
	x.raw("</Error>")
	_ = q.sendXML(e.Code.Status(), x)
}

// hurryBody bounds the time in which net/http, before it writes the answer, reads what is left of a small body that
// the handler did not finish: a client that stopped sending gets none.
func (q *request) hurryBody(code apierr.Code) {
	if q.r.ContentLength == 0 || q.body != nil && q.body.ended {
		return
	}
	wait := min(refusalWait, q.h.cfg.IdleTimeout/2) // well before the deadline of the answer
	if code == apierr.RequestTimeout {
		wait = 0
	}
	_ = q.w.rc.SetReadDeadline(time.Now().Add(wait))
}

// clearEntityHeaders removes what described a body that will not come.
func clearEntityHeaders(h http.Header, code apierr.Code) {
	for name := range h {
		switch name {
		case "X-Amz-Request-Id", "X-Amz-Id-2", "Server", "X-Amz-Bucket-Region":
		case "Etag", "Last-Modified", "Cache-Control", "Expires":
			if code != apierr.NotModified {
				delete(h, name)
			}
		case "Content-Range":
			if code != apierr.InvalidRange && code != apierr.InvalidPartNumber {
				delete(h, name)
			}
		default:
			delete(h, name)
		}
	}
}
