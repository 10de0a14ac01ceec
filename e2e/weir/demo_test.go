package weir

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/cli"
)

// The traffic of --demo comes through the public listener, where the access log sees it, and goes
// before the server does.
func TestADemoVisitsItselfAndLeavesNothing(t *testing.T) {
	s := serveWeir(t, "--demo", "--access-log=on", "--policy", policyFile(t, `
limiters:
  - name: everything
    routes: [/*]
    windows: [6000 per minute by ip]
  - name: typing
    routes: [POST /api/v1/widget/typing]
    windows: [3 per minute by ip]`))
	for _, line := range []string{
		`path=/api/v1/widget/init .*status=201`, `path=/api/v1/widget/typing .*status=204`, `path=/api/v1/widget/typing .*status=429`,
		`path=/v1/wp/documents .*status=200`, `path=/api/v1/widget/coupon/apply`,
	} {
		if _, err := s.stderr.await(regexp.MustCompile(line)); err != nil {
			t.Fatal(err)
		}
	}
	s.end(t)
	if m := regexp.MustCompile(`(?m)^traffic +of its own.*--demo`).FindString(s.stdout.String()); m == "" {
		t.Errorf("start-up does not say that it visits itself:\n%s", s.stdout)
	}
	said, _, code := weirCommand(t.Context(), t, "token", "list", "--data", s.data)
	if code != 0 || strings.Count(said, "demo-traffic") != 2 || strings.Count(said, "revoked") != 2 {
		t.Errorf("status %d; want both tokens of the demo revoked:\n%s", code, said)
	}
	again := serveIn(t, s.data)
	if _, err := again.stdout.await(ready); err != nil {
		t.Fatal(err)
	}
	if said := again.stdout.String(); strings.Contains(said, "demo-traffic") || !strings.Contains(said, "--workspace demo ") {
		t.Errorf("the next start offers the demo's workspace:\n%s", said)
	}
	again.end(t)
}

func TestADemoVisitsNobodyElse(t *testing.T) {
	for _, args := range [][]string{
		{"--upstream", "http://127.0.0.1:1"}, {"--tls-cert", "a.pem", "--tls-key", "a.key"},
		{"--proxy-protocol", "--trusted-proxies", "127.0.0.0/8"},
	} {
		_, said, code := weirCommand(t.Context(), t, append([]string{"serve", "--listen", "127.0.0.1:0", "--demo"}, args...)...)
		if code != cli.Misused || !strings.Contains(said, "error: --demo ") || !strings.Contains(said, "hint: leave ") {
			t.Errorf("serve --demo %v: status %d, %q; want 2, and why", args, code, said)
		}
	}
}
