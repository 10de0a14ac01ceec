package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/upstream"
)

// A HealthCheck asks every address of every site whether it serves. The check's connection is its
// own. See upstream.Check.
type HealthCheck struct {
	// Path is asked for by GET, with a query if it has one, under the base path of the site. Empty:
	// there are no checks.
	Path  string
	Every time.Duration // 0: CheckEvery

	within time.Duration // 0: Every, and 10 s at most; otherwise only in tests
}

// CheckEvery is how often an address is checked.
const CheckEvery = 5 * time.Second

// maxCheck is how long a check may take at most.
const maxCheck = 10 * time.Second

// CheckHealthPath returns why a path is not one of a health check: it must begin with a slash and
// be valid in a request line as it is.
func CheckHealthPath(path string) error {
	u, err := url.ParseRequestURI(path)
	if err != nil || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "# \\") || u.RequestURI() != path {
		return fmt.Errorf("health check path %q: expected a path such as /healthz, without a host, blanks or #", path)
	}
	return nil
}

// check returns what is wrong with the checks.
func (h *HealthCheck) check() error {
	if h.Path == "" {
		return nil
	}
	if h.Every < 0 {
		return errors.New("health checks: the time between two must not be negative")
	}
	return CheckHealthPath(h.Path)
}

// startChecks checks the addresses of all sites until ctx ends. The result waits for their end.
func (g *Gateway) startChecks(ctx context.Context) (wait func()) {
	h := g.options.HealthCheck
	if h.Path == "" {
		return func() {}
	}
	var all sync.WaitGroup
	for _, site := range g.rules.Sites {
		all.Go(func() { site.Pool.Check(ctx, checkOf(site, h)) })
	}
	return all.Wait
}

// checkOf returns the checks of a site. A backend may serve several hosts, so it is asked for the
// site's own if that is one name.
func checkOf(s *rules.Site, h HealthCheck) upstream.Check {
	c := upstream.Check{Target: s.EscapedBase + h.Path, Every: h.Every, Within: h.within}
	if c.Every == 0 {
		c.Every = CheckEvery
	}
	if c.Within == 0 {
		c.Within = min(c.Every, maxCheck)
	}
	if !strings.HasPrefix(s.Host, "*") {
		c.Host = s.Host
	}
	return c
}
