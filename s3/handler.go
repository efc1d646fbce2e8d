package s3

import (
	"context"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/gorilla/mux"

	"objstore/internal/oerr"
	"objstore/s3/apierr"
	"objstore/s3/auth"
)

// Handler serves the S3 port.
type Handler struct {
	cfg    Config
	deps   Deps
	auth   *auth.Verifier
	routes *router
	slots  chan struct{} // one for each request being served
	now    func() time.Time
}

// New makes the handler of the S3 port.
func New(cfg Config, deps Deps) (http.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := deps.validate(); err != nil {
		return nil, err
	}
	cfg.fill()
	if deps.Now == nil {
		deps.Now = time.Now
	}
	v, err := auth.New(auth.Config{Region: cfg.Region, Lookup: deps.Credentials, Now: deps.Now})
	if err != nil {
		return nil, err
	}
	h := &Handler{cfg: cfg, deps: deps, auth: v, routes: newRouter(operations()), now: deps.Now,
		slots: make(chan struct{}, cfg.MaxRequests)}
	// One catch-all. Without SkipClean and UseEncodedPath keys with "//", ".." or "%2F" would be redirected or changed.
	m := mux.NewRouter().SkipClean(true).UseEncodedPath()
	m.PathPrefix("/").HandlerFunc(h.serve)
	m.NotFoundHandler = http.HandlerFunc(h.serve)
	return m, nil
}

// request is one request on its way through the handler.
type request struct {
	h     *Handler
	r     *http.Request
	w     *responseWriter
	id    string
	start time.Time
	target
	query auth.Query
	grant *auth.Grant
	op    *route
	body  *bodyReader // nil until a handler opens the body
	err   error       // what went wrong, for the log
}

func (q *request) ctx() context.Context { return q.r.Context() }

// opName is the label of the request's operation.
func (q *request) opName() string {
	if q.op == nil {
		return "unknown"
	}
	return q.op.name
}

// serve takes a request through all the gates and writes exactly one answer.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	path, raw := wirePath(r)
	if strings.HasPrefix(path, "/-/") && virtualBucket(r.Host, h.cfg.Domain) == "" {
		h.serveHealth(w, r, path)
		return
	}
	q := &request{h: h, r: r, id: requestID(), start: h.now()}
	q.w = newResponseWriter(w, h.cfg.IdleTimeout)
	header := w.Header()
	header["X-Amz-Request-Id"] = []string{q.id}
	header["X-Amz-Id-2"] = []string{h.cfg.HostID}
	header["Server"] = serverHeader
	defer q.finish()
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		q.fail(apierr.New(apierr.SlowDown))
		return
	}
	if err := q.run(path, raw); err != nil {
		q.fail(err)
	}
}

var serverHeader = []string{"objstore"}

// wirePath is the path and query as they came, still escaped.
func wirePath(r *http.Request) (path, query string) {
	if uri := r.RequestURI; uri != "" && uri[0] == '/' {
		path, query, _ = strings.Cut(uri, "?")
		return path, query
	}
	return r.URL.EscapedPath(), r.URL.RawQuery
}

// run passes the gates in their order: nothing before the signature tells whether anything exists.
func (q *request) run(path, raw string) error {
	var err error
	if q.target, err = parseTarget(path, q.r.Host, q.h.cfg.Domain); err != nil {
		return err
	}
	if q.query, err = auth.ParseQuery(raw); err != nil {
		return err
	}
	q.op = q.h.routes.match(q.level(), q.r.Method, q.query, q.r.Header)
	if q.op != nil && q.op.name == "PostObject" && q.r.Header["Authorization"] == nil {
		return q.notBuilt() // its credential is in the form, which is not read
	}
	if q.grant, err = q.h.auth.Verify(q.ctx(), q.r, path, q.query); err != nil {
		return err
	}
	if q.op == nil {
		return apierr.New(apierr.MethodNotAllowed).With("Method", printable(q.r.Method))
	}
	if q.op.handle == nil {
		return q.notBuilt()
	}
	if err := q.checkNames(); err != nil {
		return err
	}
	if q.grant.Presigned {
		if q.query, err = hoist(q.r.Header, q.query); err != nil {
			return err
		}
		if q.op = q.h.routes.match(q.level(), q.r.Method, q.query, q.r.Header); q.op == nil || q.op.handle == nil {
			return q.notBuilt()
		}
	}
	if err := q.h.routes.checkParams(q.op, q.query); err != nil {
		return err
	}
	if err := q.checkHeaders(); err != nil {
		return err
	}
	if !q.op.body {
		if err := q.emptyBody(); err != nil {
			return err
		}
	}
	return q.op.handle(q)
}

func (q *request) notBuilt() error {
	return apierr.Errorf(apierr.NotImplemented, "The operation %s is not implemented.", q.opName())
}

// finish tells metrics and log; it runs on the way out of a panic too.
func (q *request) finish() {
	d := q.h.now().Sub(q.start)
	var in int64
	if q.body != nil {
		in = q.body.n
	}
	status, code := q.w.status, ""
	if status == 0 {
		status = http.StatusInternalServerError // a panic before any answer: net/http closes the connection
	}
	if q.err != nil {
		e := apierr.From(q.err)
		code = e.Code.String()
		if e.Code == apierr.ClientClosed {
			status = apierr.StatusClientClosed
		}
	}
	if q.h.deps.Metrics != nil {
		q.h.deps.Metrics.ObserveRequest(q.opName(), status, code, in, q.w.bytes, d)
	}
	q.log(status, code, in, d)
}

func (q *request) log(status int, code string, in int64, d time.Duration) {
	log := q.h.deps.Logger
	if log == nil {
		return
	}
	lv := slog.LevelInfo
	aborted := q.err != nil && status < 300
	if status >= 500 && status != http.StatusNotImplemented || aborted {
		lv = slog.LevelError
	}
	if !log.Enabled(context.Background(), lv) {
		return
	}
	attrs := make([]slog.Attr, 0, 13)
	attrs = append(attrs, slog.String("request_id", q.id), slog.String("op", q.opName()), slog.String("bucket", printable(q.bucket)))
	if q.key != "" {
		attrs = append(attrs, slog.String("key_hash", strconv.FormatUint(xxhash.Sum64String(q.key), 16)))
	}
	attrs = append(attrs, slog.Int("status", status), slog.Int64("bytes_in", in), slog.Int64("bytes_out", q.w.bytes),
		slog.Float64("duration_ms", float64(d.Microseconds())/1000), slog.String("remote", q.r.RemoteAddr))
	if code != "" {
		attrs = append(attrs, slog.String("code", code))
	}
	if aborted {
		attrs = append(attrs, slog.Bool("aborted", true))
	}
	if lv == slog.LevelError && q.err != nil {
		attrs = append(attrs, slog.String("kind", oerr.KindOf(q.err).String()), slog.String("err", q.err.Error()))
	}
	log.LogAttrs(context.Background(), lv, "request", attrs...)
}

// requestID is 16 hexadecimal digits; it identifies, it protects nothing.
func requestID() string {
	var b [8]byte
	n := rand.Uint64()
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
	var s [16]byte
	hex.Encode(s[:], b[:])
	return strings.ToUpper(string(s[:]))
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
