package s3

import (
	"net/http"
	"time"
)

// responseWriter counts, and gives each stretch of writing a deadline: a client that takes nothing for the idle time
// loses its connection.
type responseWriter struct {
	http.ResponseWriter
	rc     *http.ResponseController
	idle   time.Duration
	armed  time.Time
	status int
	bytes  int64
}

func newResponseWriter(w http.ResponseWriter, idle time.Duration) *responseWriter {
	rw := &responseWriter{ResponseWriter: w, rc: http.NewResponseController(w), idle: idle}
	rw.arm() // an older request on this connection may have left a deadline that has passed
	return rw
}

// arm renews the deadline when a good part of it is used; it costs a timer, so not at every write.
func (w *responseWriter) arm() {
	now := time.Now()
	if now.Sub(w.armed) < w.idle/4 {
		return
	}
	w.armed = now
	_ = w.rc.SetWriteDeadline(now.Add(w.idle)) // a writer without deadlines (a test's recorder) does without
}

func (w *responseWriter) WriteHeader(status int) {
	w.arm()
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	total := 0
	for {
		w.arm()
		n, err := w.ResponseWriter.Write(p[:min(len(p), writePiece)])
		total += n
		w.bytes += int64(n)
		if p = p[n:]; err != nil || len(p) == 0 {
			return total, err
		}
	}
}

// bodyWriter sends the status with the first byte, so that a read that fails before it can still become an error.
type bodyWriter struct {
	w      *responseWriter
	status int
}

func (b *bodyWriter) Write(p []byte) (int, error) {
	if b.w.status == 0 {
		b.w.WriteHeader(b.status)
	}
	return b.w.Write(p)
}

// set sets a header whose name is canonical already.
func (w *responseWriter) set(name, value string) { w.Header()[name] = []string{value} }

// send writes a whole answer.
func (q *request) send(status int, contentType string, body []byte) {
	q.w.set("Content-Type", contentType)
	q.w.set("Content-Length", itoa(int64(len(body))))
	q.w.WriteHeader(status)
	if q.r.Method != http.MethodHead {
		_, _ = q.w.Write(body) // a client that went away cannot be told
	}
}

// sendXML writes a buffer made by newXML and gives it back.
func (q *request) sendXML(status int, x *xmlBuf) error {
	q.send(status, "application/xml", x.b)
	x.release()
	return nil
}

// sendEmpty writes an answer without a body.
func (q *request) sendEmpty(status int) error {
	if status != http.StatusNoContent {
		q.w.set("Content-Length", "0")
	}
	q.w.WriteHeader(status)
	return nil
}
