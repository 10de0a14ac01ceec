package admin_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/admin"
)

// withMetrics gives a Server metrics and an answer to /readyz.
func withMetrics(o *admin.Options) {
	o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("weir_build_info 1\n")) })
	o.Ready = func(context.Context) (int, string) { return http.StatusServiceUnavailable, "not ready: draining\n" }
}

// as returns c with the token of a role, which is created if there is none yet.
func (f *fixture) as(role admin.Role, c call) call {
	f.Helper()
	if f.roles[role] == "" {
		token, err := f.tokens.Create(f.Context(), "a-"+role.String(), role, "")
		if err != nil {
			f.Fatal(err)
		}
		if f.roles == nil {
			f.roles = make(map[admin.Role]string)
		}
		f.roles[role] = token
		f.after(admin.TokensAge)
	}
	header := map[string]string{"Authorization": "Bearer " + f.roles[role]}
	for name, value := range c.header {
		header[name] = value
	}
	c.header = header
	return c
}

// Each endpoint answers the roles from the one that it needs, and refuses the others with the name
// of that role.
func TestEachEndpointNeedsItsRole(t *testing.T) {
	f := newFixture(t, withMetrics)
	reset := `{"ip":"192.0.2.7","why":"a test"}`
	grant := `{"ip":"192.0.2.7","limiter":"leads","times":2,"for":"1h","why":"a test"}`
	yaml := map[string]string{"Content-Type": "application/yaml"}
	for _, row := range []struct {
		call
		needs  admin.Role
		status int
	}{
		{call{method: "GET", path: "/metrics"}, admin.Metrics, 200},
		{call{method: "HEAD", path: "/metrics"}, admin.Metrics, 200},
		{call{method: "GET", path: "/livez"}, admin.Metrics, 200},
		{call{method: "GET", path: "/readyz"}, admin.Metrics, 503},
		{call{method: "GET", path: "/status"}, admin.Read, 200},
		{call{method: "GET", path: "/policy"}, admin.Read, 200},
		{call{method: "HEAD", path: "/policy"}, admin.Read, 200},
		{call{method: "GET", path: "/candidate"}, admin.Read, 404},
		{call{method: "GET", path: "/keys?ip=192.0.2.7"}, admin.Read, 200},
		{call{method: "GET", path: "/denials/x"}, admin.Read, 404},
		{call{method: "GET", path: "/audit"}, admin.Read, 200},
		{call{method: "GET", path: "/profile/heap"}, admin.Operate, 200},
		{f.post("/keys/reset", reset), admin.Operate, 200},
		{f.post("/keys/grant", grant), admin.Operate, 200},
		{call{method: "POST", path: "/policy", body: policyText, header: yaml}, admin.Admin, 200},
	} {
		for role := admin.Metrics; role <= admin.Admin; role++ {
			w := f.ask(f.as(role, row.call))
			if role >= row.needs {
				if w.Code != row.status {
					t.Errorf("%s %s as %s: %d %s, want %d", row.method, row.path, role, w.Code, w.Body, row.status)
				}
				continue
			}
			field := `Bearer realm="weir admin", error="insufficient_scope", scope="` + row.needs.String() + `"`
			if w.Code != 403 || w.Header().Get("WWW-Authenticate") != field {
				t.Errorf("%s %s as %s: %d %q %s, want 403 and %s", row.method, row.path, role, w.Code, w.Header().Get("WWW-Authenticate"), w.Body, field)
			}
			if text := w.Body.String(); row.method != "HEAD" && (!strings.Contains(text, "role_required") || !strings.Contains(text, "needs the role "+row.needs.String()+", and the token a-"+role.String()+" has the role "+role.String())) {
				t.Errorf("%s %s as %s: %s", row.method, row.path, role, text)
			}
		}
		without := row.call
		without.header = map[string]string{"Authorization": ""}
		if w := f.ask(without); w.Code != 401 {
			t.Errorf("%s %s without a token: %d", row.method, row.path, w.Code)
		}
	}
}

// What a role may not do is not done: the policy and the audit log stay as they are.
func TestARefusedRoleChangesNothing(t *testing.T) {
	f := newFixture(t, withMetrics)
	f.spend(5, "/leads", "192.0.2.7:1")
	f.as(admin.Read, call{})
	f.as(admin.Operate, call{})
	lines, version := len(f.audit()), f.policy.State().Version
	next := call{method: "POST", path: "/policy", body: strings.ReplaceAll(policyText, "5 per", "6 per"), header: map[string]string{"Content-Type": "application/yaml"}}
	f.refused(f.as(admin.Operate, next), 403, "role_required")
	f.refused(f.as(admin.Read, f.post("/keys/reset", `{"ip":"192.0.2.7","why":"x"}`)), 403, "role_required")
	if f.policy.State().Version != version || len(f.audit()) != lines {
		t.Errorf("policy %s was %s; %d entries, were %d", f.policy.State().Version, version, len(f.audit()), lines)
	}
	f.answered(f.as(admin.Operate, f.post("/keys/reset", `{"ip":"192.0.2.7","why":"x"}`)), nil)
}

func TestTheStatusHasTheRoleOfItsToken(t *testing.T) {
	f := newFixture(t, nil)
	for role, want := range map[admin.Role]string{admin.Read: "", admin.Operate: "keys/reset keys/grant", admin.Admin: "keys/reset keys/grant policy"} {
		var got struct {
			Token struct {
				Name, Role string
				May        []string
			}
		}
		f.answered(f.as(role, call{method: "GET", path: "/status"}), &got)
		if got.Token.Name != "a-"+role.String() || got.Token.Role != role.String() || got.Token.May == nil || strings.Join(got.Token.May, " ") != want {
			t.Errorf("%+v, want %s", got, want)
		}
	}
}

// The listener for metrics has nothing for operators, whatever the token, and answers any Host.
func TestTheListenerForMetricsServesNothingElse(t *testing.T) {
	for _, open := range []bool{false, true} {
		f := newFixture(t, func(o *admin.Options) {
			withMetrics(o)
			o.OpenMetrics = open
			o.Page = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the page is served") })
		})
		f.as(admin.Metrics, call{})
		handler := f.admin.MetricsHandler()
		ask := func(method, path, token string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, path, nil)
			r.Host = "weir.monitoring.svc:9090"
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: %v", method, path, w.Header())
			}
			return w
		}
		for path, want := range map[string]int{"/metrics": 200, "/livez": 200, "/readyz": 503} {
			for _, token := range []string{f.roles[admin.Metrics], f.token} {
				if w := ask("GET", path, token); w.Code != want {
					t.Errorf("open %v: %s with a token: %d %s", open, path, w.Code, w.Body)
				}
			}
			without := want
			if path == "/metrics" && !open {
				without = 401
			}
			if w := ask("GET", path, ""); w.Code != without {
				t.Errorf("open %v: %s without a token: %d, want %d", open, path, w.Code, without)
			}
			if w := ask("POST", path, f.token); w.Code != 405 {
				t.Errorf("POST %s: %d", path, w.Code)
			}
		}
		if w := ask("GET", "/readyz", ""); w.Body.String() != "not ready: draining\n" {
			t.Errorf("/readyz: %q", w.Body)
		}
		for _, path := range []string{"/", "/page/x", "/status", "/policy", "/candidate", "/keys", "/keys/reset", "/keys/grant", "/denials/x", "/audit", "/profile/heap", "/challenge", "/metrics/", "/debug/pprof/"} {
			for _, method := range []string{"GET", "POST"} {
				if w := ask(method, path, f.token); w.Code != 404 {
					t.Errorf("open %v: %s %s: %d", open, method, path, w.Code)
				}
			}
		}
	}
}

// Wrong tokens are limited at the listener for metrics, too.
func TestWrongTokensAreLimitedAtTheListenerForMetrics(t *testing.T) {
	f := newFixture(t, withMetrics)
	handler, codes := f.admin.MetricsHandler(), map[int]int{}
	for range 25 {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Authorization", "Bearer wadm_wrong")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		codes[w.Code]++
	}
	if codes[401] != 20 || codes[429] != 5 {
		t.Errorf("%v, want 20 times 401 and 5 times 429", codes)
	}
}

func TestARoleIsOneOfFour(t *testing.T) {
	for _, name := range admin.RoleNames() {
		if role, err := admin.ParseRole(name); err != nil || role.String() != name {
			t.Errorf("%s: %v, %v", name, role, err)
		}
	}
	for _, name := range []string{"", "Admin", "none", "root", "metrics,read", " read"} {
		if role, err := admin.ParseRole(name); err == nil || role != 0 || !strings.Contains(err.Error(), "expected metrics, read, operate, admin") {
			t.Errorf("%q: %v, %v", name, role, err)
		}
	}
	f := newFixture(t, nil)
	for _, role := range []admin.Role{-1, 0, admin.Admin + 1} {
		if _, err := f.tokens.Create(t.Context(), "bob", role, ""); err == nil {
			t.Errorf("a token has the role %d", role)
		}
	}
}
