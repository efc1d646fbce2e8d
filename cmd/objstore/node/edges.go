package node

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"objstore/admin"
	"objstore/cluster"
	"objstore/internal/oerr"
	"objstore/s3"
	"objstore/s3/apierr"
	"objstore/s3/auth"
)

// Limits of the admin port; the S3 port has its own (s3.ConfigureServer).
const (
	headerTimeout = 30 * time.Second // from a request's first byte to the end of its head
	keepAlive     = 2 * time.Minute  // an idle client connection
)

// startEdges opens the S3 and the admin port.
func (n *node) startEdges(context.Context) error {
	s := n.cfg.Settings
	var access *slog.Logger
	if s.AccessLog {
		access = n.cfg.Log
	}
	h, err := s3.New(s3.Config{Region: s.S3Region, Domain: s.S3Domain, HostID: n.cfg.Name, MaxRequests: s.MaxRequests, IdleTimeout: s.IdleTimeout},
		s3.Deps{Buckets: n.engine, Objects: n.engine, Uploads: n.engine, Parts: n.engine, Credentials: n.credential, Health: n,
			Logger: access, Metrics: s3Metrics{n.metrics}})
	if err != nil {
		return err
	}
	verifier, err := auth.New(auth.Config{Region: s.S3Region, Lookup: n.credential})
	if err != nil {
		return err
	}
	a, err := admin.New(admin.Config{Authenticate: func(r *http.Request) error { return n.authenticate(verifier, r) },
		Metrics: n.registry, Settings: s, Pprof: s.AdminPprof}, n)
	if err != nil {
		return err
	}
	// For commands that are given only the folder.
	if err := writeState(n.folders.drives[0].dir, endpointsFile, endpoints{S3: "http://" + n.me.S3, Admin: "http://" + n.me.Admin}); err != nil {
		return err
	}
	n.s3Server = n.serveHTTP("s3", h, s3.ConfigureServer)
	n.adminServer = n.serveHTTP("admin", a, func(srv *http.Server) { srv.ReadHeaderTimeout, srv.IdleTimeout = headerTimeout, keepAlive })
	return nil
}

func (n *node) serveHTTP(listener string, h http.Handler, limits func(*http.Server)) *http.Server {
	srv := &http.Server{Handler: h, MaxHeaderBytes: s3.MaxHeaderBytes, ErrorLog: slog.NewLogLogger(n.cfg.Log.Handler(), slog.LevelDebug)}
	limits(srv)
	l := n.listeners[listener]
	n.wg.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.fatal(err)
		}
	})
	return srv
}

// authenticate lets the root credential in.
func (n *node) authenticate(v *auth.Verifier, r *http.Request) error {
	q, err := auth.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return oerr.E("admin.auth", oerr.InvalidArgument, err)
	}
	g, err := v.Verify(r.Context(), r, r.URL.EscapedPath(), q)
	if err != nil {
		kind := oerr.PermissionDenied
		var ae *apierr.Error
		if errors.As(err, &ae) && ae.Code == apierr.ServiceUnavailable {
			kind = oerr.Unavailable
		}
		return oerr.E("admin.auth", kind, err)
	}
	if c := n.group0.View().Keys[g.AccessKey]; c == nil || !c.Root {
		return oerr.Errorf("admin.auth", oerr.PermissionDenied, "only the root credential may administer")
	}
	return nil
}

// s3Metrics counts requests.
type s3Metrics struct{ m *admin.Metrics }

// ObserveRequest implements s3.Metrics.
func (s s3Metrics) ObserveRequest(op string, status int, _ string, in, out int64, d time.Duration) {
	s.m.S3(op, status, in, out, d)
}

// Token implements admin.Node.
func (n *node) Token(ctx context.Context, ttl time.Duration) (admin.Token, error) {
	if ttl <= 0 {
		ttl = n.cfg.Settings.TokenTTL
	}
	now := time.Now()
	t, err := cluster.NewJoinToken(ctx, n.group0, now, ttl)
	if err != nil {
		return admin.Token{}, err
	}
	return admin.Token{Token: t.Text(), Expires: now.Add(ttl)}, nil
}
