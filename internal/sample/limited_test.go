package sample

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

// behind puts the backend behind the middleware, as the gateway does, with limiters made of the
// rows.
func (k *bench) behind(rows ...[3]string) func(target, credential, body string) reply {
	k.Helper()
	var p weir.Policy
	for _, row := range rows {
		route, err := weir.ParseRoute(row[1])
		if err != nil {
			k.Fatal(err)
		}
		window, err := weir.ParseWindow(row[2])
		if err != nil {
			k.Fatal(err)
		}
		l := weir.Limiter{Name: row[0], Routes: []weir.Route{route}, Windows: []weir.Window{window}}
		for _, credential := range weir.Credentials() {
			if window.Key.Uses(credential) {
				l.Requires = credential
			}
		}
		p.Limiters = append(p.Limiters, l)
	}
	store, err := memstore.New(memstore.Options{Now: k.clock.now})
	if err != nil {
		k.Fatal(err)
	}
	decider, err := weir.New(p, store, weir.Options{})
	if err != nil {
		k.Fatal(err)
	}
	resolver, err := identity.New(identity.Options{Sessions: k.b.Sessions(), Tokens: k.b.Tokens(), Now: k.clock.now})
	if err != nil {
		k.Fatal(err)
	}
	limit, err := httplimit.New(decider, httplimit.Options{
		Identity: resolver,
		Denial:   func(*weir.Decision, weir.Keys, *weir.Scratch) string { return strings.Repeat("d", 200) },
	})
	if err != nil {
		k.Fatal(err)
	}
	handler := limit.Wrap(k.b.Handler())
	return func(target, credential, body string) reply {
		method, path, _ := strings.Cut(target, " ")
		r := httptest.NewRequestWithContext(k.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if credential != "" {
			r.Header.Set("Authorization", credential)
		}
		if decider.Match(method, "", r.URL.Path).Limiter() == nil {
			return k.exchange(handler, r, rateHeaders...)
		}
		return k.exchange(handler, r)
	}
}

// A request that the middleware refuses stores no rows, and an admitted one has the caller that the
// middleware verified.
func TestBehindTheMiddlewareRefusedRequestsStoreNothing(t *testing.T) {
	k := setUp(t)
	send := k.behind(
		[3]string{"widget-init", "POST /api/v1/widget/init", "2 per minute by ip+agent"},
		[3]string{"widget-leads", "POST /api/v1/widget/leads", "30 per minute by session or ip"},
		[3]string{"widget-typing", "POST /api/v1/widget/typing", "600 per minute by ip"},
		[3]string{"wp-plugin", "/v1/wp/*", "60 per minute by token or ip"},
	)
	session := "Bearer " + send("POST /api/v1/widget/init", "", `{"agent_id":"demo"}`).want(201).text("token")
	send("POST /api/v1/widget/init", "", `{"agent_id":"demo"}`).want(201)
	// the agent of the body was counted
	send("POST /api/v1/widget/init", "", `{"agent_id":"demo"}`).wantError(429, "rate_limited")
	// each agent has its own budget
	send("POST /api/v1/widget/init", "", `{"agent_id":"nobody"}`).wantError(404, "not_found")

	for range 30 {
		send("POST /api/v1/widget/leads", session, `{"email":"ann@example.org"}`).want(201)
	}
	send("POST /api/v1/widget/leads", session, `{"email":"ann@example.org"}`).wantError(429, "rate_limited")
	if n := k.rows("leads"); n != 30 {
		t.Errorf("there are %d leads, want 30", n)
	}
	send("POST /api/v1/widget/leads", "", `{"email":"ann@example.org"}`).wantError(401, "unauthenticated")
	send("GET /v1/wp/status", session, "").wantError(401, "unauthenticated")
	send("GET /v1/wp/status", k.token, "").want(200)

	send("POST /api/v1/widget/typing", session, `{"typing":true}`).want(204)
	// counted by address, and still requires a session
	send("POST /api/v1/widget/typing", "", `{"typing":true}`).wantError(401, "unauthenticated", "POST /api/v1/widget/init")
	// no limiter covers it here
	send("POST /api/v1/widget/satisfaction", session, `{"score":5}`).want(201)
	send("POST /api/v1/widget/satisfaction", "", `{"score":5}`).wantError(401, "unauthenticated")
}
