package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A checked backend passes its checks or fails them, and counts the requests that it gets.
type checked struct {
	url    *url.URL
	status atomic.Int64
	asked  atomic.Int64
	checks atomic.Pointer[string] // the Host and target of the last
}

func newChecked(t *testing.T, status int64) *checked {
	t.Helper()
	b := new(checked)
	b.status.Store(status)
	var o Options
	behind(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/base/up" {
			b.asked.Add(1)
			return
		}
		seen := r.Host + r.RequestURI
		b.checks.Store(&seen)
		w.WriteHeader(int(b.status.Load()))
	})(&o)
	b.url = o.Sites[0].Upstreams[0]
	b.url.Path = "/base"
	return b
}

// An address that fails its health checks gets no request, with either engine, and the checks are
// for the site's host under its base path. /readyz reports that all fail.
func TestAnAddressThatFailsItsHealthCheckGetsNoRequest(t *testing.T) {
	sick, well := newChecked(t, 503), newChecked(t, 204)
	e := open(t, nil, func(o *Options) {
		o.Sites = []Site{{Upstreams: []*url.URL{sick.url, well.url}}}
		o.HealthCheck = HealthCheck{Path: "/up?deep=1", Every: 50 * time.Millisecond, within: patience}
	})
	up := func(n int) func() bool {
		return func() bool {
			all := 0
			for _, s := range e.gateway.Upstreams() {
				if s.Well {
					all++
				}
			}
			return all == n
		}
	}
	eventually(t, "a check fails", up(1))
	c := e.caller()
	for range 10 {
		c.request("POST /v1/wp/status", "Content-Length: 0")
		if res, body := c.readAnswer("POST"); res.StatusCode != 200 {
			t.Fatalf("%d %s", res.StatusCode, body)
		}
	}
	if sick.asked.Load() != 0 || well.asked.Load() != 10 {
		t.Errorf("the sick address got %d requests, the other %d", sick.asked.Load(), well.asked.Load())
	}
	if got, want := *sick.checks.Load(), sick.url.Host+"/base/up?deep=1"; got != want {
		t.Errorf("checked %s, want %s", got, want)
	}
	ready := func() string { return text(t, e.ask("GET /readyz")) }
	if got := ready(); got != "ok\n" {
		t.Errorf("/readyz %q while one address is well", got)
	}
	well.status.Store(500)
	eventually(t, "both fail", up(0))
	if got := ready(); got != "degraded: no address of any upstream passes its health check\n" {
		t.Errorf("/readyz %q while both fail", got)
	}
	// the checks may be wrong: an address is tried all the same
	want(t, e.ask("GET /elsewhere"), 200, "", "")
	sick.status.Store(200)
	eventually(t, "one is back", up(1))
	if got := ready(); got != "ok\n" {
		t.Errorf("/readyz %q after one is back", got)
	}
	before := sick.asked.Load()
	e.ask("GET /elsewhere")
	if sick.asked.Load() != before+1 {
		t.Error("the address that is back gets no request")
	}
	e.stop()
	for _, u := range []*url.URL{sick.url, well.url} {
		line := fmt.Sprintf("is down: others are preferred until it answers again\" upstream=http://%s ", u.Host)
		if n := strings.Count(e.log.String(), line); n != 1 {
			t.Errorf("the log has %d times that %s is down:\n%s", n, u.Host, e.log)
		}
	}
}

func TestHealthChecksAreForTheHostOfTheSite(t *testing.T) {
	named, wide := newChecked(t, 200), newChecked(t, 200)
	open(t, nil, func(o *Options) {
		o.Sites = []Site{{Host: "api.example.com", Upstreams: []*url.URL{named.url}}, {Host: "*.example.com", Upstreams: []*url.URL{wide.url}}}
		o.HealthCheck = HealthCheck{Path: "/up", Every: 50 * time.Millisecond, within: patience}
	})
	eventually(t, "both are checked", func() bool { return named.checks.Load() != nil && wide.checks.Load() != nil })
	if got := *named.checks.Load(); got != "api.example.com/base/up" {
		t.Errorf("a site with a name is asked for %s", got)
	}
	if got := *wide.checks.Load(); got != wide.url.Host+"/base/up" {
		t.Errorf("a site with many names is asked for %s", got)
	}
}

func TestAHealthCheckAsksForAPath(t *testing.T) {
	for _, good := range []string{"/", "/up", "/up?deep=1", "/a%20b"} {
		if err := CheckHealthPath(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "up", "http://h/up", "//h/up", "/a b", "/up#x", "/a\r\nHost: b", "/%zz", `/\h`} {
		if CheckHealthPath(bad) == nil {
			t.Errorf("%q is taken for a path", bad)
		}
	}
}
