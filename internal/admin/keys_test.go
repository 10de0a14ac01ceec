package admin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/admin"
)

// An inspection is an answer of /keys.
type inspection struct {
	Kinds   string
	Now     int64
	Windows []struct {
		Limiter, Window, Lacks                   string
		Limit, Declared, Count, Remaining, Reset int64
		Grant                                    *struct{ Limit, Until int64 }
	}
}

// window formats a window briefly: limiter, count/limit, missing key sources.
func (t inspection) String() string {
	var all []string
	for _, w := range t.Windows {
		s := fmt.Sprintf("%s %d/%d", w.Limiter, w.Count, w.Limit)
		if w.Lacks != "" {
			s = w.Limiter + " lacks " + w.Lacks
		}
		if w.Grant != nil {
			s += fmt.Sprintf(" until +%d", w.Grant.Until-start)
		}
		all = append(all, s)
	}
	return strings.Join(all, ", ")
}

// spend decides n requests of an address, as the gateway does.
func (f *fixture) spend(n int, path, addr string) (admitted int) {
	f.Helper()
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		f.Fatal(err)
	}
	for range n {
		r, _ := http.NewRequest("POST", path, nil)
		r.RemoteAddr = addr
		var caller identity.Caller
		resolver.Start(&caller, &identity.HTTPRequest{Request: r})
		d, err := f.decider.Decide(f.Context(), weir.Request{Method: "POST", Path: path, Keys: &caller})
		if err != nil {
			f.Fatal(err)
		}
		if d.Allowed {
			admitted++
		}
	}
	return admitted
}

func (f *fixture) post(path, body string) call {
	return call{method: "POST", path: path, body: body, header: map[string]string{"Content-Type": "application/json"}}
}

func TestACallerIsShownResetAndGranted(t *testing.T) {
	f := newFixture(t, nil)
	const addr = "[2001:db8::7]:999"
	if n := f.spend(9, "/leads", addr); n != 5 {
		t.Fatalf("%d admitted", n)
	}
	var got inspection
	f.answered(call{method: "GET", path: "/keys?ip=2001:db8::abcd"}, &got) // of the same /64
	if got.String() != "leads 5/5, leads 5/20, sync 0/3" || got.Now != start || got.Kinds != "ip" {
		t.Errorf("%v %+v", got, got)
	}
	f.answered(f.post("/keys/reset", `{"ip":"2001:db8::7","limiter":"leads","why":"they asked\n\u001b[31m\u202e"}`), &got)
	if got.String() != "leads 0/5, leads 0/20" {
		t.Errorf("%v", got)
	}
	if n := f.spend(9, "/leads", addr); n != 5 {
		t.Errorf("after a reset %d are admitted", n)
	}
	f.answered(f.post("/keys/grant", fmt.Sprintf(`{"ip":"2001:db8::7","limiter":"leads","times":2,"until":%d,"why":"a launch"}`, start+90)), &got)
	if got.String() != "leads 5/10 until +90, leads 5/40 until +90" {
		t.Errorf("%v", got)
	}
	if n := f.spend(9, "/leads", addr); n != 5 {
		t.Errorf("after a grant of ten, five of them spent, %d are admitted", n)
	}
	f.answered(f.post("/keys/grant", `{"ip":"2001:db8::7","limiter":"leads","limits":[0,25],"for":"2h","why":"x"}`), &got)
	f.answered(f.post("/keys/grant", `{"ip":"2001:db8::7","limiter":"leads","limits":[],"why":"over"}`), &got)
	if got.String() != "leads 10/5, leads 10/20" {
		t.Errorf("%v", got)
	}
	lines := f.audit()
	if len(lines) != 4 || lines[0]["what"] != "reset" || lines[0]["who"] != "token operator" || lines[0]["why"] != "they asked\n\x1b[31m\u202e" || lines[1]["what"] != "grant" {
		t.Errorf("%v", lines)
	}
	b, err := os.ReadFile(f.path("audit.log"))
	if err != nil || strings.Contains(string(b), "2001:db8") || strings.ContainsRune(string(b), 0x1b) {
		t.Errorf("%v\n%s", err, b)
	}
	if lines[0]["caller"].(map[string]any)["hash"] != lines[1]["caller"].(map[string]any)["hash"] {
		t.Error("one caller has two hashes")
	}
	var page struct{ Entries []map[string]any }
	f.answered(call{method: "GET", path: "/audit?last=2"}, &page)
	if len(page.Entries) != 2 || page.Entries[1]["why"] != "over" {
		t.Errorf("%v", page)
	}
}

func TestAWindowWithoutAKeyIsNotChanged(t *testing.T) {
	sessions, err := identity.NewSessions(identity.SessionsOptions{Issuer: "shop", Keys: []identity.SessionKey{secretKey(t)}})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(o *admin.Options) { o.Sessions = sessions })
	var got inspection
	f.answered(call{method: "GET", path: "/keys?session=visit-1"}, &got)
	if got.String() != "leads 0/5, leads lacks ip" {
		t.Errorf("%v", got)
	}
	f.refused(f.post("/keys/grant", `{"session":"visit-1","limiter":"leads","limits":[7,30],"for":"1h","why":"x"}`), 422, "not_counted")
	f.answered(f.post("/keys/grant", `{"session":"visit-1","limiter":"leads","times":3,"for":"1h","why":"x"}`), &got)
	if got.String() != "leads 0/15 until +3600, leads lacks ip" {
		t.Errorf("%v", got)
	}
	got = inspection{} // fields that JSON omits would keep their values
	f.answered(call{method: "GET", path: "/keys?" + url.Values{"session": {"visit-1"}, "ip": {"192.0.2.7"}, "limiter": {"leads"}}.Encode()}, &got)
	if got.String() != "leads 0/15 until +3600, leads 0/20" {
		t.Errorf("%v", got)
	}
}

func TestAWindowByAgentNeedsAnAgent(t *testing.T) {
	f := newFixture(t, nil)
	policy := "limiters:\n  - name: init\n    routes: [POST /init]\n    windows: [9 per minute by ip+agent, 30 per hour by ip]\n"
	f.answered(call{method: "POST", path: "/policy", body: policy, header: map[string]string{"Content-Type": "application/yaml"}}, nil)
	for query, want := range map[string]string{
		"ip=192.0.2.7":         "init lacks agent, init 0/30",
		"ip=192.0.2.7&agent=a": "init 0/9, init 0/30",
	} {
		var got inspection
		f.answered(call{method: "GET", path: "/keys?" + query}, &got)
		if got.String() != want {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
	}
	f.refused(call{method: "GET", path: "/keys?limiter=init&agent=a"}, 422, "not_counted")
}

func secretKey(t *testing.T) identity.SessionKey {
	t.Helper()
	key, err := identity.NewSecretKey("", []byte(strings.Repeat("s", 32)))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestTheStatusDescribesTheServer(t *testing.T) {
	f := newFixture(t, func(o *admin.Options) { o.Version, o.StoreKind, o.InFlight = "v1", "memory", func() int64 { return 3 } })
	f.after(time.Minute)
	var s struct {
		Version  string
		Uptime   int64
		InFlight int64 `json:"in_flight"`
		Policy   struct {
			Version string
			Text    *string
		}
		Store struct {
			Kind string
			Up   bool
		}
	}
	f.answered(call{method: "GET", path: "/status?after=18446744073709551&top=5&seconds=60"}, &s)
	if s.Version != "v1" || s.Uptime != 60 || s.InFlight != 3 || s.Policy.Version != f.policy.State().Version || s.Policy.Text != nil || !s.Store.Up || s.Store.Kind != "memory" {
		t.Errorf("%+v", s)
	}
	for _, query := range []string{"?after=x", "?after=-1", "?after=1&after=2", "?who=1"} {
		f.refused(call{method: "GET", path: "/status" + query}, 400, "invalid_query")
	}
	f.refused(call{method: "GET", path: "/audit?last=0"}, 400, "invalid_query")
}

// A caller that is counted by an HTTP field is named by its whole value.
func TestACallerIsNamedByAField(t *testing.T) {
	f := newFixture(t, nil)
	f.answered(call{method: "POST", path: "/policy", header: map[string]string{"Content-Type": "application/yaml"}, body: "limiters:\n" +
		"  - name: keyed\n    routes: [/keyed]\n    windows: [4 per minute by header:X-Api-Key or ip]\n    chosen: yes\n" +
		"  - name: both\n    routes: [/both]\n    windows: [3 per minute by ip+header:X-Api-Key]\n"}, nil)
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	spend := func(key string) (admitted int) {
		for range 6 {
			r, _ := http.NewRequest("GET", "/keyed", nil)
			r.RemoteAddr = "192.0.2.7:1"
			r.Header.Set("X-Api-Key", key)
			var caller identity.Caller
			resolver.Start(&caller, &identity.HTTPRequest{Request: r})
			d, err := f.decider.Decide(f.Context(), weir.Request{Method: "GET", Path: "/keyed", Keys: &caller})
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				admitted++
			}
		}
		return admitted
	}
	if a, b := spend("k1"), spend("k=2"); a != 4 || b != 4 {
		t.Fatalf("%d and %d admitted, want 4 of each key", a, b)
	}
	var got inspection
	f.answered(call{method: "GET", path: "/keys?header=x-api-key%3Dk%3D2"}, &got)
	if got.String() != "keyed 4/4" || got.Kinds != "header:X-Api-Key" {
		t.Errorf("%v %+v", got, got)
	}
	// As a caller without the field.
	f.answered(call{method: "GET", path: "/keys?ip=192.0.2.7"}, &got)
	if got.String() != "keyed 0/4, both 0/3" {
		t.Errorf("%v %+v", got, got)
	}
	f.answered(f.post("/keys/reset", `{"header":["X-Api-Key=k1"],"limiter":"keyed","why":"x"}`), &got)
	if n := spend("k1"); n != 4 {
		t.Errorf("after a reset %d are admitted", n)
	}
	if n := spend("k=2"); n != 0 {
		t.Errorf("a reset of another caller gave %d units back", n)
	}
	b, err := os.ReadFile(f.path("audit.log"))
	if err != nil || strings.Contains(string(b), "k1") {
		t.Errorf("the audit log has the value of a field: %v\n%s", err, b)
	}
	for query, code := range map[string]string{
		"?header=X-Api-Key": "invalid_caller", "?header=X-Api-Key%3D": "invalid_caller", "?header=X_Api%3Da": "invalid_caller",
		"?header=Host%3Da": "invalid_caller", "?header=X-A%3D1&header=x-a%3D2": "invalid_caller", "?header=" + strings.Repeat("a", 17<<10): "invalid_caller",
	} {
		f.refused(call{method: "GET", path: "/keys" + query}, 400, code)
	}
}

// A caller that is counted by a parameter of its path is named by any spelling of the segment.
func TestACallerIsNamedByAParameter(t *testing.T) {
	f := newFixture(t, nil)
	f.answered(call{method: "POST", path: "/policy", header: map[string]string{"Content-Type": "application/yaml"}, body: "limiters:\n" +
		"  - name: tenants\n    routes: [\"/t/{tenant}/*\"]\n    windows: [4 per minute by path:tenant+ip]\n"}, nil)
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r, _ := http.NewRequest("GET", "/t/Acme/x", nil)
		r.RemoteAddr = "192.0.2.7:1"
		var caller identity.Caller
		resolver.Start(&caller, &identity.HTTPRequest{Request: r})
		if _, err := f.decider.Decide(f.Context(), weir.Request{Method: "GET", Path: "/t/Acme/x", Keys: &caller}); err != nil {
			t.Fatal(err)
		}
	}
	var got inspection
	for _, spelling := range []string{"acme", "ACME", "Acme;v=1"} {
		f.answered(call{method: "GET", path: "/keys?ip=192.0.2.7&path=tenant%3D" + url.QueryEscape(spelling)}, &got)
		if got.String() != "tenants 3/4" || got.Kinds != "ip+path:tenant" {
			t.Errorf("%s: %v %+v", spelling, got, got)
		}
	}
	// The address alone names no window, since every request of the routes has the parameter.
	f.refused(call{method: "GET", path: "/keys?ip=192.0.2.7"}, 422, "not_counted")
	f.answered(f.post("/keys/reset", `{"ip":"192.0.2.7","path":["tenant=acme"],"why":"x"}`), &got)
	if got.String() != "tenants 0/4" {
		t.Errorf("after a reset: %v", got)
	}
	for _, query := range []string{"tenant", "tenant%3D", "Tenant%3Da", "tenant%3Da%2Fb", "tenant%3Da&path=tenant%3Db", "tenant%3D..", "%3Da"} {
		f.refused(call{method: "GET", path: "/keys?path=" + query}, 400, "invalid_caller")
	}
}

// Every request is for a host, so a window that counts by it is not known without one. A field may
// be missing: the answer then says of which requests it is.
func TestAnAnswerIsNotThatOfAnotherCaller(t *testing.T) {
	f := newFixture(t, nil)
	policy := "limiters:\n  - {name: shop, routes: [/shop], windows: ['9 per minute by ip+host']}\n" +
		"  - {name: keyed, routes: [/keyed], windows: ['5 per minute by ip+header:X-Api-Key', '7 per hour by ip']}\n" +
		"  - {name: any, routes: [/any], windows: ['3 per minute by token or ip']}\n"
	f.answered(call{method: "POST", path: "/policy", body: policy, header: map[string]string{"Content-Type": "application/yaml"}}, nil)
	f.refused(call{method: "GET", path: "/keys?ip=192.0.2.7&limiter=shop"}, 422, "not_counted")
	f.refused(f.post("/keys/reset", `{"ip":"192.0.2.7","limiter":"shop","why":"x"}`), 422, "not_counted")
	f.refused(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"shop","times":2,"for":"1h","why":"x"}`), 422, "not_counted")
	for query, want := range map[string]string{
		"ip=192.0.2.7&limiter=shop&host=shop.example.com":      "[]",
		"ip=192.0.2.7&limiter=keyed":                           "[header:X-Api-Key] []",
		"ip=192.0.2.7&limiter=keyed&header=X-Api-Key%3Dsecret": "[] []",
		"ip=192.0.2.7&limiter=any":                             "[token]",
		"token=abcd&limiter=any":                               "[]",
	} {
		var got struct{ Windows []struct{ Without []string } }
		f.answered(call{method: "GET", path: "/keys?" + query}, &got)
		var all []string
		for _, w := range got.Windows {
			all = append(all, fmt.Sprint(w.Without))
		}
		if text := strings.Join(all, " "); text != want {
			t.Errorf("%s: without %s, want %s", query, text, want)
		}
	}
}
