package weir

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
)

// withRole creates a token with a role for a server, as its operator does.
func withRole(t *testing.T, s *server, role string) (token string) {
	t.Helper()
	stdout, stderr, code := weirCommand(t.Context(), t, "admin", "create", "ada-"+role, "--role", role, "--why", "a test", "--data", s.data)
	if code != cli.Done {
		t.Fatalf("status %d: %s", code, stderr)
	}
	return strings.TrimSpace(stdout)
}

const onePerHour = `
limiters:
  - name: few
    routes: [/few]
    windows: [1 per hour by ip]
`

// The dashboard offers what the token's role permits, explains the rest, and shows changes with
// their reasons as text.
func TestTheDashboardOffersWhatTheRolePermits(t *testing.T) {
	s := serveWeir(t, "--upstream", accepting(t), "--access-log=off", "--policy", policyFile(t, onePerHour))
	tokens := map[string]string{}
	for _, role := range admin.RoleNames() {
		tokens[role] = withRole(t, s, role)
	}
	s.operate(t, "key", "reset", "--ip", "192.0.2.7", "--why", "quiet \u202e"+hostile)
	few := call{method: http.MethodGet, path: "/few", foreign: true}
	for range 2 {
		if _, err := few.send(t.Context(), http.DefaultClient, s.url); err != nil {
			t.Fatal(err)
		}
	}
	url, _ := operating(t, s)
	const buttons = `[...document.querySelectorAll("#callers-rows button")].filter((e) => e.checkVisibility()).map((e) => e.textContent).join(" ")`
	for role, want := range map[string]string{"read": "", "operate": "Reset Grant", "admin": "Reset Grant"} {
		b := openTab(t, url+"/#token="+tokens[role], host(t, url))
		b.until(`document.querySelectorAll("#callers-rows tr").length > 0 && document.querySelectorAll("#changes-list li").length > 0`)
		if got := ask[string](b, buttons); got != want {
			t.Errorf("%s: the buttons are %q, want %q", role, got, want)
		}
		if got := b.text("footer"); !strings.HasPrefix(got, "Signed in as ada-"+role+", with the role "+role+".") {
			t.Errorf("%s: the footer is %q", role, got)
		}
		explained := ask[bool](b, `part("callers-may").checkVisibility() && part("callers-may").textContent.includes("role operate")`)
		if explained != (role == "read") {
			t.Errorf("%s: what the token may not do is explained: %v", role, explained)
		}
		if got := ask[string](b, `document.querySelector("#changes-list li").textContent`); !strings.Contains(got, `quiet \u{202e}`+hostile) || !strings.Contains(got, "reset by token operator") {
			t.Errorf("%s: the last change is %q", role, got)
		}
		b.leave()
	}
	b := openTab(t, url+"/#token="+tokens["metrics"], host(t, url))
	b.until(`part("door-wrong").textContent.includes("needs the role read")`)
	if ask[bool](b, `part("main").checkVisibility()`) {
		t.Error("metrics: the dashboard shows data")
	}
	b.forgive("status of 403")
	b.leave()
	s.end(t)
}

var metricsAt = regexp.MustCompile(`(?m)^metrics +(https?://[^\s/]+)/metrics, (.*)$`)

// getAs returns the status and the body of a GET, with a token if it is not empty.
func getAs(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "weir.monitoring.svc:9090"
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// --metrics serves metrics and health and nothing of operators, also without an admin listener.
func TestMetricsHaveAnAddressOfTheirOwn(t *testing.T) {
	for _, flags := range [][]string{{}, {"--admin", "off"}, {"--metrics-open"}, {"--admin", "off", "--metrics-open"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			s := serveWeir(t, append([]string{"--upstream", accepting(t), "--policy", policyFile(t, onePerHour), "--metrics", "127.0.0.1:0"}, flags...)...)
			m, err := s.stdout.await(metricsAt)
			if err != nil {
				t.Fatal(err)
			}
			open := strings.Contains(fmt.Sprint(flags), "open")
			if open != strings.HasPrefix(m[2], "without a token") {
				t.Errorf("start-up reports %q", m[0])
			}
			token := withRole(t, s, "metrics")
			for path, want := range map[string][2]int{
				"/metrics": {map[bool]int{true: 200, false: 401}[open], 200}, "/livez": {200, 200}, "/readyz": {200, 200},
				"/": {404, 404}, "/status": {404, 404}, "/policy": {404, 404}, "/audit": {404, 404}, "/keys?ip=192.0.2.7": {404, 404}, "/challenge": {404, 404},
			} {
				for i, with := range []string{"", token} {
					if status, body := getAs(t, m[1]+path, with); status != want[i] {
						t.Errorf("%s, with a token %v: %d %.100s, want %d", path, with != "", status, body, want[i])
					}
				}
			}
			if _, body := getAs(t, m[1]+"/metrics", token); !strings.Contains(body, "\nweir_policy_last_reload_successful 1\n") || !strings.Contains(body, `weir_connections_accepted_total{listener="metrics"}`) {
				t.Errorf("/metrics: %.300s", body)
			}
			s.end(t)
		})
	}
}
