package verify

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/nginxtest"
	"github.com/weirlimit/weir/internal/verify"
	"github.com/weirlimit/weir/policyfile"
)

// verifiedFor runs the verifier over the loopback against a server that claims to
// admit 20 requests in a window.
func verifiedFor(t *testing.T, address, window string) *verify.Report {
	t.Helper()
	f, err := policyfile.Parse("policy.yaml", []byte("limiters:\n  - name: things\n    routes: [POST /things/items, /things/*]\n    windows: [20 per "+window+" by ip]\n"))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := verify.NewPlan(verify.Options{URL: &url.URL{Scheme: "http", Host: address}, Policy: f.Policy})
	if err != nil {
		t.Fatal(err)
	}
	report, err := plan.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// Node's HTTP parser has a list of methods, and rejects others itself. The
// verifier's requests must reach a correct limiter behind it.
func TestACorrectLimiterOnNodePasses(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "node", "testdata/limiter.js")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	report := verifiedFor(t, "127.0.0.1:"+strings.TrimSpace(port), "4 seconds")
	for clause, results := range found(report, verify.Broken) {
		t.Errorf("%s is reported as broken%s", clause, describe(results))
	}
	errors := found(report, verify.Kept)["fields-error"]
	if len(errors) != 1 || !strings.Contains(errors[0].Detail, "405") {
		t.Errorf("405 was not seen%s", describe(errors))
	}
}

// By default nginx refuses with 503 and without the fields. The report describes
// that as a refusal, not as an unreachable API.
func TestNginxs503IsReportedAsARefusal(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	defer backend.Close()
	s := nginxtest.Start(t, `limit_req_zone $binary_remote_addr zone=api:1m rate=1r/m;
	server { listen LISTEN; location / { limit_req zone=api burst=19 nodelay; proxy_pass `+backend.URL+`; } }`)
	report := verifiedFor(t, s.Addr, "20 minutes")
	broken := found(report, verify.Broken)
	if got := broken["refused-status"]; len(got) != 1 || got[0].Detail != "a request over the limit is refused with 503" || !strings.HasPrefix(got[0].Exchange.Response, "HTTP/1.1 503 ") {
		t.Errorf("its refusals are not found%s", describe(report.Results))
	}
	if len(broken["shared"])+len(broken["spelling"])+len(broken["forwarded"])+len(broken["admitted"]) > 0 {
		t.Errorf("more clauses are broken%s", describe(report.Results))
	}
}

// found returns the results with a verdict, by clause, in the report's order.
func found(r *verify.Report, verdict verify.Verdict) map[string][]verify.Result {
	all := map[string][]verify.Result{}
	for _, x := range r.Results {
		if x.Verdict == verdict {
			all[x.Clause] = append(all[x.Clause], x)
		}
	}
	return all
}

func describe(results []verify.Result) string {
	var b strings.Builder
	for _, x := range results {
		fmt.Fprintf(&b, "\n\t%s %s %s: %s", x.Verdict, x.Clause, x.Limiter, x.Detail)
		if x.Exchange != nil {
			fmt.Fprintf(&b, "\n\t\t%s\n\t\t%s\n\t\tat %s", strings.ReplaceAll(x.Exchange.Request, "\n", "\n\t\t"),
				strings.ReplaceAll(x.Exchange.Response, "\n", "\n\t\t"), x.Exchange.At)
		}
	}
	return b.String()
}
