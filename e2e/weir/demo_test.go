package weir

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/cli"
)

// The traffic of --demo passes the public listener, so the access log has it. It
// stops before the server does.
func TestTheDemosTrafficLeavesNothing(t *testing.T) {
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
		t.Errorf("the start-up text does not mention the demo's traffic:\n%s", s.stdout)
	}
	output, _, code := weirCommand(t.Context(), t, "token", "list", "--data", s.data)
	if code != 0 || strings.Count(output, "demo-traffic") != 2 || strings.Count(output, "revoked") != 2 {
		t.Errorf("status %d; want both tokens of the demo revoked:\n%s", code, output)
	}
	again := serveIn(t, s.data)
	if _, err := again.stdout.await(ready); err != nil {
		t.Fatal(err)
	}
	if output := again.stdout.String(); strings.Contains(output, "demo-traffic") || !strings.Contains(output, "--workspace demo ") {
		t.Errorf("the next start offers the demo's workspace:\n%s", output)
	}
	again.end(t)
}

func TestDemoRejectsFlagsThatItsTrafficCannotUse(t *testing.T) {
	for _, args := range [][]string{
		{"--upstream", "http://127.0.0.1:1"}, {"--tls-cert", "a.pem", "--tls-key", "a.key"},
		{"--proxy-protocol", "--trusted-proxies", "127.0.0.0/8"},
	} {
		_, output, code := weirCommand(t.Context(), t, append([]string{"serve", "--listen", "127.0.0.1:0", "--demo"}, args...)...)
		if code != cli.Misused || !strings.Contains(output, "error: --demo ") || !strings.Contains(output, "hint: leave ") {
			t.Errorf("serve --demo %v: status %d, %q; want 2, and why", args, code, output)
		}
	}
}
