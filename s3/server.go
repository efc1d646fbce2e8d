package s3

import (
	"net/http"
	"time"
)

// ConfigureServer sets what the edge needs on the http.Server that serves it: bounded headers, and a deadline for a
// client that connects and sends none. Bodies have their own deadlines, so ReadTimeout and WriteTimeout stay 0.
func ConfigureServer(srv *http.Server) {
	srv.MaxHeaderBytes = MaxHeaderBytes
	srv.ReadHeaderTimeout = 20 * time.Second
	srv.IdleTimeout = 3 * time.Minute
	srv.ReadTimeout = 0
	srv.WriteTimeout = 0
}
