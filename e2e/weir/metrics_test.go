package weir

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// An operatorOf talks to a server's admin listener.
type operatorOf struct {
	url, token string
}

// operator returns the admin listener of a server, with the token that the server
// created.
func operator(t *testing.T, s *server) operatorOf {
	t.Helper()
	m, err := s.stdout.await(adminAt)
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(s.data, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	return operatorOf{strings.TrimSuffix(m[1], "/"), strings.TrimSpace(string(token))}
}

// get returns the admin listener's answer to GET path.
func (o operatorOf) get(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, o.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+o.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v: %s", path, res.StatusCode, err, body)
	}
	return string(body)
}

// A running server's metrics count the test's requests, parse as Prometheus'
// format, and contain no caller's name.
func TestARunningServersMetricsAreCorrectAndNameNoCaller(t *testing.T) {
	s := serveWeir(t, "--access-log=off")
	op := operator(t, s)
	const callersName = "weir-stranger-7f3a"
	token := session(t, s.url)
	for i := range 40 {
		req, err := http.NewRequest(http.MethodPost, s.url+"/api/v1/widget/leads?agent_id="+callersName, strings.NewReader(`{"email":"`+callersName+`@example.com"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{
			"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "X-Agent-Id": {callersName + "\"}\\"},
			"User-Agent": {callersName}, "X-Forwarded-For": {callersName},
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if want := map[bool]int{true: http.StatusCreated, false: http.StatusTooManyRequests}[i < 30]; res.StatusCode != want {
			t.Fatalf("lead %d: status %d, want %d", i+1, res.StatusCode, want)
		}
	}
	metrics := op.get(t, "/metrics")
	for _, want := range []string{
		`weir_decisions_total{limiter="widget-leads",outcome="admitted",window="60s by session or ip"} 30`,
		`weir_decisions_total{limiter="widget-leads",outcome="refused",window="60s by session or ip"} 10`,
		`weir_decisions_total{limiter="widget-init",outcome="admitted",window="60s by ip+agent"} 1`,
		// Requests that left 5 to 0.
		`weir_near_limit_total{limiter="widget-leads",window="60s by session or ip"} 6`,
		`weir_policy_last_reload_successful 1`,
		`weir_store_up 1`,
		`weir_store_breaker_open 0`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("%s is missing in:\n%s", want, strings.Join(regexp.MustCompile(`(?m)^weir_(?:decisions|near|policy|store).*`).FindAllString(metrics, -1), "\n"))
		}
	}
	for _, secret := range []string{callersName, token, "127.0.0.1", op.token} {
		if strings.Contains(metrics, secret) {
			t.Errorf("%q is in the metrics", secret)
		}
	}
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(metrics)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	s.end(t)
}

// Before an upstream, the metrics have the state of its addresses, and the number
// of malformed requests, as far as the engine knows it.
func TestMetricsDescribeTheUpstream(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer backend.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := "http://" + l.Addr().String()
	l.Close() // the address has no listener now
	s := serveWeir(t, "--access-log=off", "--policy", "contract", "--upstream", down)
	several := serveWeir(t, "--access-log=off", "--policy", "contract", "--upstream", backend.URL+","+down)
	ask := func(s *server, raw string, want int) {
		t.Helper()
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, raw); err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(answer), fmt.Sprintf("HTTP/1.1 %d ", want)) {
			t.Errorf("%q is answered %q, want %d", raw, answer, want)
		}
	}
	const whole, noHost = "GET /elsewhere HTTP/1.1\r\nHost: weir.example.com\r\nConnection: close\r\n\r\n", "GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
	for range 2 {
		ask(s, whole, http.StatusBadGateway)
		ask(several, whole, http.StatusOK) // one of them by way of the address that is down
	}
	ask(s, noHost, http.StatusBadRequest)
	for at, want := range map[*server][]string{
		s: {
			`weir_upstream_up{site="*",upstream="` + down + `"} 0`,
			`weir_upstream_failures_total{site="*",upstream="` + down + `"} 2`,
			`weir_upstream_requests_in_flight{site="*",upstream="` + down + `"} 0`,
			`weir_upstream_unanswered_total{site="*",status="502"} 2`,
			`weir_upstream_unanswered_total{site="*",status="504"} 0`,
		},
		several: {
			`weir_upstream_up{site="*",upstream="` + backend.URL + `"} 1`,
			`weir_upstream_up{site="*",upstream="` + down + `"} 0`,
			`weir_upstream_failures_total{site="*",upstream="` + backend.URL + `"} 0`,
			`weir_upstream_failures_total{site="*",upstream="` + down + `"} 1`,
			`weir_upstream_unanswered_total{site="*",status="502"} 0`,
		},
	} {
		want = append(want, `weir_upstream_connections_kept{site="*",upstream="`+map[bool]string{true: down + `"} 0`, false: backend.URL + `"} 1`}[at == s])
		if testEngine == engineAuto {
			want = append(want, fmt.Sprintf(`weir_malformed_requests_total{status="400"} %d`, map[bool]int{true: 1}[at == s]))
		}
		metrics := operator(t, at).get(t, "/metrics")
		for _, line := range want {
			if !strings.Contains(metrics, line+"\n") {
				t.Errorf("%s is missing in:\n%s", line, strings.Join(regexp.MustCompile(`(?m)^weir_(?:upstream|malformed).*`).FindAllString(metrics, -1), "\n"))
			}
		}
		if testEngine == engineStd && strings.Contains(metrics, "weir_malformed") {
			t.Error("with net/http there are metrics of the other engine")
		}
		at.end(t)
	}
}
