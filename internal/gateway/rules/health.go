package rules

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/answer"
)

// health answers load balancers, outside all limits: /healthz that the process runs, /readyz
// whether it wants requests, and whether it serves them as it should.
func (r *Rules) health(ctx context.Context, method, path string) *Answer {
	if method != http.MethodGet && method != http.MethodHead {
		return &Answer{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: "Only GET and HEAD are allowed here.",
			Fields: []answer.Field{{Name: "Allow", Value: "GET, HEAD"}}}
	}
	status, text := http.StatusOK, "ok\n"
	if path == "/readyz" {
		status, text = r.Readyz(ctx)
	}
	return &Answer{Status: status, Text: text, Fields: []answer.Field{
		{Name: "Content-Type", Value: "text/plain; charset=utf-8"}, {Name: "Cache-Control", Value: "no-store"},
	}}
}

// Readyz returns the answer to GET /readyz.
func (r *Rules) Readyz(ctx context.Context) (status int, text string) {
	if r.Draining.Load() {
		return http.StatusServiceUnavailable, "not ready: draining\n"
	}
	if err := r.ready.ask(ctx, r.Ready); err != nil {
		return http.StatusServiceUnavailable, "not ready: " + err.Error() + "\n"
	}
	var problems []error
	if r.Degraded != nil {
		problems = append(problems, r.Degraded())
	}
	if r.isUpstreamOut() {
		problems = append(problems, errUpstreamOut)
	}
	if err := errors.Join(problems...); err != nil {
		return http.StatusOK, "degraded: " + strings.ReplaceAll(err.Error(), "\n", "; ") + "\n"
	}
	return http.StatusOK, "ok\n"
}

var errUpstreamOut = errors.New("no address of any upstream passes its health check")

// isUpstreamOut reports whether health checks find fault with all addresses of all sites.
func (r *Rules) isUpstreamOut() bool {
	for _, s := range r.Sites {
		if !s.Pool.IsOut() {
			return false
		}
	}
	return len(r.Sites) > 0
}

// readiness remembers an answer for a second, so that strangers cannot keep the backend busy with
// the question.
type readiness struct {
	mu    sync.Mutex
	asked time.Time
	err   error
}

const readyTimeout = 2 * time.Second

func (a *readiness) ask(ctx context.Context, ready func(context.Context) error) error {
	if ready == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.asked) >= time.Second {
		// The answer is for all who ask, so it does not depend on whether this client stays.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		a.err = ready(ctx)
		a.asked = time.Now()
	}
	return a.err
}
