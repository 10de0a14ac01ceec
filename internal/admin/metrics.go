package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
)

// showMetrics answers GET /metrics.
func (s *Server) showMetrics(w http.ResponseWriter, r *http.Request) {
	if s.options.Metrics == nil {
		refuse(w, http.StatusNotFound, "not_found", "This server counts nothing for Prometheus.")
		return
	}
	s.options.Metrics.ServeHTTP(w, r)
}

// showLive answers GET /livez: the process answers.
func (s *Server) showLive(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") }

// showReady answers GET /readyz as the public listener does.
func (s *Server) showReady(w http.ResponseWriter, r *http.Request) {
	status, text := http.StatusOK, "ok\n"
	if s.options.Ready != nil {
		status, text = s.options.Ready(r.Context())
	}
	plain(w, status, text)
}

// plain answers with a text.
func plain(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the client may be gone
}

// MetricsHandler returns the handler of a listener for metrics and health alone. It answers any
// Host. Metrics need a token, unless Options.OpenMetrics; health never does, as at the public
// listener.
func (s *Server) MetricsHandler() http.Handler {
	next := s.serve(func(e endpoint) bool { return e.needs == Metrics }, s.allowScrape)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurity(w.Header())
		next.ServeHTTP(w, r)
	})
}

// allowScrape reports whether the listener for metrics may answer. If not, it has refused the
// request.
func (s *Server) allowScrape(w http.ResponseWriter, r *http.Request, needs Role) bool {
	if s.options.OpenMetrics || r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
		return true
	}
	r, ok := s.guard.identified(w, r)
	return ok && allowRole(w, r, needs)
}

// ServeMetrics is Serve for MetricsHandler.
func (s *Server) ServeMetrics(ctx context.Context, l net.Listener) error {
	return s.serveAt(ctx, l, s.MetricsHandler())
}
