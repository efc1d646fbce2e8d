package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"objstore/internal/config"
	"objstore/internal/oerr"
)

const (
	requestTimeout  = 30 * time.Second // of one admin request; profiles take as long as they were asked for
	maxConcurrent   = 32               // admin requests at once
	scrapeTimeout   = 10 * time.Second
	maxScrapes      = 4
	maxTokenTTL     = 7 * 24 * time.Hour
	minTokenTTL     = time.Minute
	maxProfileTime  = 2 * time.Minute
	maxAdminBody    = 64 << 10 // bytes; no request has a body that matters
	retryAfterSecs  = "1"
	contentTypeJSON = "application/json"
)

// Node is what the API asks of the node. Errors carry an oerr.Kind; Unavailable says that too few nodes answered.
type Node interface {
	// Info never waits for a node that does not answer longer than ctx: what is not known is said to be unknown.
	Info(ctx context.Context) (Info, error)
	// Object reads every shard of the current version and queues repair of what it finds bad.
	Object(ctx context.Context, bucket, key string) (ObjectReport, error)
	// Token makes a one-time join token.
	Token(ctx context.Context, ttl time.Duration) (Token, error)
}

// Config is what New needs beside the node.
type Config struct {
	// Authenticate verifies the signature and that the credential may administer. A nil error lets the request in.
	// PermissionDenied is 403, Unavailable 503.
	Authenticate func(*http.Request) error
	Metrics      prometheus.Gatherer
	Settings     *config.Settings
	Pprof        bool
}

// Validate returns every problem at once.
func (c *Config) Validate() error {
	var p []error
	if c.Authenticate == nil {
		p = append(p, errors.New("admin: Authenticate is nil"))
	}
	if c.Metrics == nil {
		p = append(p, errors.New("admin: Metrics is nil"))
	}
	if c.Settings == nil {
		p = append(p, errors.New("admin: Settings is nil"))
	}
	return errors.Join(p...)
}

// api serves the admin port.
type api struct {
	cfg   Config
	node  Node
	slots chan struct{}
}

// New returns the handler of the admin port.
func New(cfg Config, node Node) (http.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &api{cfg: cfg, node: node, slots: make(chan struct{}, maxConcurrent)}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{Timeout: scrapeTimeout, MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.ContinueOnError}))
	mux.HandleFunc("GET /-/live", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.Handle("GET /v1/info", a.root(a.info))
	mux.Handle("GET /v1/object", a.root(a.object))
	mux.Handle("POST /v1/token", a.root(a.token))
	mux.Handle("GET /v1/config", a.root(a.config))
	if cfg.Pprof {
		a.profiles(mux)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, oerr.Errorf("admin", oerr.NotImplemented, "no such admin call: %s %s", r.Method, r.URL.Path))
	})
	return mux, nil
}

// root lets only authenticated requests through, a bounded number at once, each with a deadline.
func (a *api) root(f func(context.Context, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case a.slots <- struct{}{}:
			defer func() { <-a.slots }()
		default:
			writeError(w, oerr.Errorf("admin", oerr.Busy, "%d admin requests are in progress", maxConcurrent))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxAdminBody)
		if err := a.cfg.Authenticate(r); err != nil {
			writeError(w, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		v, err := f(ctx, r)
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	})
}

func (a *api) info(ctx context.Context, _ *http.Request) (any, error) { return a.node.Info(ctx) }

func (a *api) object(ctx context.Context, r *http.Request) (any, error) {
	bucket, key := r.URL.Query().Get("bucket"), r.URL.Query().Get("key")
	if bucket == "" || key == "" {
		return nil, oerr.Errorf("admin.object", oerr.InvalidArgument, "read bucket %q and key %q, expected both", bucket, key)
	}
	return a.node.Object(ctx, bucket, key)
}

func (a *api) token(ctx context.Context, r *http.Request) (any, error) {
	ttl := a.cfg.Settings.TokenTTL
	if s := r.URL.Query().Get("ttl"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < minTokenTTL || d > maxTokenTTL {
			return nil, oerr.Errorf("admin.token", oerr.InvalidArgument, "ttl: read %q, expected a duration from %s to %s", s, minTokenTTL, maxTokenTTL)
		}
		ttl = d
	}
	return a.node.Token(ctx, ttl)
}

func (a *api) config(context.Context, *http.Request) (any, error) { return a.cfg.Settings.Rows(), nil }

// profiles serves net/http/pprof behind the root credential. A profile may take longer than requestTimeout, never
// longer than maxProfileTime.
func (a *api) profiles(mux *http.ServeMux) {
	guard := func(h http.HandlerFunc) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := a.cfg.Authenticate(r); err != nil {
				writeError(w, err)
				return
			}
			if s := r.URL.Query().Get("seconds"); s != "" {
				if n, err := strconv.Atoi(s); err != nil || n < 0 || time.Duration(n)*time.Second > maxProfileTime {
					writeError(w, oerr.Errorf("admin.pprof", oerr.InvalidArgument, "seconds: read %q, expected 0 to %d", s, int(maxProfileTime.Seconds())))
					return
				}
			}
			h(w, r)
		})
	}
	mux.Handle("GET /debug/pprof/", guard(pprof.Index))
	mux.Handle("GET /debug/pprof/cmdline", guard(pprof.Cmdline))
	mux.Handle("GET /debug/pprof/profile", guard(pprof.Profile))
	mux.Handle("GET /debug/pprof/symbol", guard(pprof.Symbol))
	mux.Handle("GET /debug/pprof/trace", guard(pprof.Trace))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"kind":"internal","message":"the answer has no JSON form"}`)
	}
	w.Header().Set("Content-Type", contentTypeJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}

func writeError(w http.ResponseWriter, err error) {
	kind := oerr.KindOf(err)
	status := statusOf(kind)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfterSecs)
	}
	writeJSON(w, status, Error{Kind: kind.String(), Message: err.Error()})
}

// statusOf is the one table from kinds to HTTP status on this port.
func statusOf(k oerr.Kind) int {
	switch k {
	case oerr.InvalidArgument:
		return http.StatusBadRequest
	case oerr.PermissionDenied:
		return http.StatusForbidden
	case oerr.NoSuchBucket, oerr.NoSuchKey, oerr.NoSuchVersion, oerr.NoSuchUpload:
		return http.StatusNotFound
	case oerr.NotImplemented:
		return http.StatusNotImplemented
	case oerr.Unavailable, oerr.Busy, oerr.DeadlineExceeded, oerr.OutcomeUnknown, oerr.NotLeader, oerr.StaleEpoch, oerr.Closed, oerr.Canceled:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
