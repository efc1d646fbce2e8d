package s3

import (
	"bytes"
	"context"
	"hash"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"objstore/metadata"
	"objstore/object"
	"objstore/s3/auth/authtest"
)

// benchEngine answers without doing anything, so that only the edge is measured.
type benchEngine struct {
	*fakeEngine
	body []byte
	page object.ListResult
}

func (e *benchEngine) Put(_ context.Context, r *object.PutRequest) (object.PutResult, error) {
	if _, err := io.ReadFull(r.Body.Reader, e.body); err != nil {
		return object.PutResult{}, err
	}
	for _, d := range r.Body.Digests {
		d.(hash.Hash).Write(e.body)
	}
	s, err := r.Body.Seal()
	return object.PutResult{Version: metadata.Version{ETag: s.ETag}}, err
}

func (e *benchEngine) Open(context.Context, string, string, bool) (*object.Object, error) {
	return &object.Object{Version: metadata.Version{Size: int64(len(e.body)), ETag: "d41d8cd98f00b204e9800998ecf8427e", ModTime: 1700000000000}, Close: func() {},
		WriteRange: func(_ context.Context, w io.Writer, off, n int64) error {
			_, err := w.Write(e.body[off : off+n])
			return err
		}}, nil
}

func (e *benchEngine) List(context.Context, *object.ListRequest) (object.ListResult, error) {
	return e.page, nil
}

// nullWriter is a ResponseWriter that keeps nothing.
type nullWriter struct {
	h      http.Header
	status int
}

func (w *nullWriter) Header() http.Header         { return w.h }
func (w *nullWriter) WriteHeader(s int)           { w.status = s }
func (w *nullWriter) Write(p []byte) (int, error) { return len(p), nil }

func benchHandler(b *testing.B, size int) http.Handler {
	e := &benchEngine{fakeEngine: newFake(), body: make([]byte, size), page: entries(1000)}
	h, err := New(Config{}, Deps{Buckets: e, Objects: e, Uploads: e, Parts: e, Credentials: lookup, Health: &fakeHealth{}, Metrics: &fakeMetrics{}})
	if err != nil {
		b.Fatal(err)
	}
	return h
}

func serveBench(b *testing.B, h http.Handler, method, path string, body []byte) {
	r := httptest.NewRequest(method, "http://h.example"+path, nil)
	r.Header.Set("User-Agent", "bench/1.0 (something typical) lang/go#1.26")
	r.Header.Set("Accept-Encoding", "identity")
	if method == "PUT" {
		r.Header.Set("Content-Type", "application/octet-stream")
		r.Header.Set("Content-Length", itoa(int64(len(body))))
		r.ContentLength = int64(len(body))
	}
	signer().Sign(r, authtest.Hash(body))
	rd := bytes.NewReader(body)
	r.Body = io.NopCloser(rd)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		rd.Reset(body)
		w := &nullWriter{h: http.Header{}}
		h.ServeHTTP(w, r)
		if w.status != 200 {
			b.Fatal(w.status)
		}
	}
}

func BenchmarkPut4KiB(b *testing.B) {
	serveBench(b, benchHandler(b, 4096), "PUT", "/bucket/some/key", make([]byte, 4096))
}
func BenchmarkGet4KiB(b *testing.B) {
	serveBench(b, benchHandler(b, 4096), "GET", "/bucket/some/key", nil)
}
func BenchmarkList1000(b *testing.B) {
	serveBench(b, benchHandler(b, 1), "GET", "/bucket?list-type=2&max-keys=1000&encoding-type=url&prefix="+strings.Repeat("a", 5), nil)
}

func BenchmarkPut1MiB(b *testing.B) {
	b.SetBytes(1 << 20)
	serveBench(b, benchHandler(b, 1<<20), "PUT", "/bucket/some/key", make([]byte, 1<<20))
}
