package gateway

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// A denied client gets a 403 that a script can read, without fields of a window that nobody read,
// and neither engine lets it reach the backend.
func TestADeniedClientIsAnswered403ByBothEngines(t *testing.T) {
	seen := new(recorder)
	for name, change := range map[string]func(*Options){"net/http": func(*Options) {}, "fast": behind(t, seen.ServeHTTP)} {
		t.Run(name, func(t *testing.T) {
			e := open(t, seen, func(o *Options) {
				change(o)
				p := testPolicy(t)
				for i := range p.Limiters {
					p.Limiters[i].Deny = []weir.Who{{Network: netip.MustParsePrefix("127.0.0.0/8")}}
				}
				o.Decider = testDecider(t, p)
			})
			for _, method := range []string{"GET", "HEAD", "POST"} {
				res := e.ask(method+" /api/v1/widget/x", "Origin: https://shop.test")
				body := text(t, res)
				if res.StatusCode != http.StatusForbidden || method != "HEAD" && !strings.HasPrefix(body, `{"error":{"code":"forbidden","message":"`) || method == "HEAD" && body != "" {
					t.Errorf("%s: %s %s", method, res.Status, body)
				}
				for field, want := range map[string]string{
					"Content-Type": "application/json", "Cache-Control": "no-store", "Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": exposed,
					"X-RateLimit-Limit": "", "X-RateLimit-Remaining": "", "X-RateLimit-Reset": "", "Retry-After": "",
				} {
					if got := res.Header.Get(field); got != want {
						t.Errorf("%s: %s: %q, want %q", method, field, got, want)
					}
				}
				if len(res.Header["Date"]) != 1 {
					t.Errorf("%s: Date %q", method, res.Header["Date"])
				}
			}
			if res := e.ask("GET /elsewhere"); res.StatusCode == http.StatusForbidden {
				t.Error("a path that no limiter covers is denied")
			}
			e.stop()
			if log := e.access.String(); strings.Count(log, "status=403") != 3 || strings.Count(log, "limiter=widget-other outcome=denied") != 3 {
				t.Errorf("access log %q", log)
			}
		})
	}
	if s, reached := seen.last(); reached && s.limiter != "" {
		t.Errorf("a denied request reached the backend: %v", s)
	}
}
