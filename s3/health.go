package s3

import (
	"log/slog"
	"net/http"
)

// serveHealth answers the unauthenticated checks. No bucket can be called "-", so they hide no object. They take no
// slot: a busy node is still alive.
func (h *Handler) serveHealth(w http.ResponseWriter, r *http.Request, path string) {
	var err error
	switch path {
	case "/-/live":
		err = h.deps.Health.Live(r.Context())
	case "/-/ready":
		err = h.deps.Health.Ready(r.Context())
	case "/-/cluster":
		err = h.deps.Health.Cluster(r.Context())
	default:
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	status, body := http.StatusOK, "{\"status\":\"ok\"}\n"
	if err != nil {
		status, body = http.StatusServiceUnavailable, "{\"status\":\"unavailable\"}\n"
		w.Header().Set("Retry-After", retryAfter)
		if h.deps.Logger != nil {
			h.deps.Logger.Warn("health check failed", slog.String("check", path), slog.String("err", err.Error()))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}
