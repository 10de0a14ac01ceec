package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/live"
)

// A told is an inspection as the API returns it.
type told struct {
	Kinds   string
	Now     int64
	Windows []struct {
		Limiter, Window, Lacks                   string
		Limit, Declared, Count, Remaining, Reset int64
		Grant                                    *struct{ Limit, Until int64 }
	}
}

// window formats a window briefly: limiter, count/limit, the key sources that it lacks.
func (t told) String() string {
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

// audit returns the lines of the log after the first one, which is the creation of the operator's
// token.
func (f *fixture) audit() (lines []map[string]any) {
	f.Helper()
	b, err := os.ReadFile(f.path("audit.log"))
	if err != nil && !os.IsNotExist(err) {
		f.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		var entry map[string]any
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			f.Errorf("%v: %q", err, line)
		}
		lines = append(lines, entry)
	}
	if len(lines) == 0 || lines[0]["who"] != "start" || lines[0]["what"] != "admin token created" {
		f.Fatalf("that the operator was given a token is not logged first: %v", lines)
	}
	return lines[1:]
}

func TestACallerIsShownResetAndGranted(t *testing.T) {
	f := newFixture(t, nil)
	const addr = "[2001:db8::7]:999"
	if n := f.spend(9, "/leads", addr); n != 5 {
		t.Fatalf("%d admitted", n)
	}
	var got told
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

func TestWhatIsWrongWithAGrantIsSaid(t *testing.T) {
	f := newFixture(t, nil)
	for body, want := range map[string]string{
		`{"ip":"192.0.2.7","limiter":"leads","times":2,"for":"1h"}`:                                           "422 no_why",
		`{"ip":"192.0.2.7","times":2,"for":"1h","why":"x"}`:                                                   "422 no_limiter",
		`{"ip":"192.0.2.7","limiter":"leads","for":"1h","why":"x"}`:                                           "422 no_limits",
		`{"ip":"192.0.2.7","limiter":"leads","times":2,"limits":[1,2],"for":"1h","why":"x"}`:                  "422 no_limits",
		`{"ip":"192.0.2.7","limiter":"leads","limits":[0,0],"for":"1h","why":"x"}`:                            "422 no_limits",
		`{"ip":"192.0.2.7","limiter":"leads","times":0,"for":"1h","why":"x"}`:                                 "422 invalid_times",
		`{"ip":"192.0.2.7","limiter":"leads","times":1.5,"for":"1h","why":"x"}`:                               "422 invalid_times",
		`{"ip":"192.0.2.7","limiter":"leads","times":200000000,"for":"1h","why":"x"}`:                         "422 limit_out_of_range",
		`{"ip":"192.0.2.7","limiter":"leads","limits":[2147483648,1],"for":"1h","why":"x"}`:                   "422 limit_out_of_range",
		`{"ip":"192.0.2.7","limiter":"leads","limits":[99999999999999999999999,1],"for":"1h","why":"x"}`:      "422 limit_out_of_range",
		`{"ip":"192.0.2.7","limiter":"leads","limits":[-1,1],"for":"1h","why":"x"}`:                           "422 limit_out_of_range",
		`{"ip":"192.0.2.7","limiter":"leads","limits":[7],"for":"1h","why":"x"}`:                              "422 wrong_number_of_limits",
		`{"token":"3fk2mq7a4c","limiter":"sync","limits":[7],"until":1,"why":"x"}`:                            "422 until_past",
		`{"ip":"192.0.2.7","limiter":"sync","limits":[7],"for":"-1h","why":"x"}`:                              "422 until_past",
		`{"ip":"192.0.2.7","limiter":"sync","limits":[7],"for":"0.5s","why":"x"}`:                             "422 until_past",
		`{"ip":"192.0.2.7","limiter":"sync","limits":[7],"for":"9000h","why":"x"}`:                            "422 until_too_late",
		`{"ip":"192.0.2.7","limiter":"sync","limits":[7],"until":"2999-01-01T00:00:00Z","why":"x"}`:           "422 until_too_late",
		`{"ip":"192.0.2.7","limiter":"sync","limits":[7],"until":9999999999999999999999,"why":"x"}`:           "422 invalid_until",
		`{"ip":"192.0.2.7","limiter":"sync","limits":[7],"until":"tomorrow","why":"x"}`:                       "422 invalid_until",
		`{"ip":"192.0.2.7","limiter":"sync","limits":[7],"until":1900000000,"for":"1h","why":"x"}`:            "422 invalid_until",
		`{"ip":"192.0.2.7","limiter":"sync","limits":[7],"why":"x"}`:                                          "422 invalid_until",
		`{"ip":"192.0.2.7","limiter":"none","times":2,"for":"1h","why":"x"}`:                                  "404 unknown_limiter",
		`{"agent":"a","limiter":"leads","times":2,"for":"1h","why":"x"}`:                                      "422 not_counted",
		`{"limiter":"leads","times":2,"for":"1h","why":"x"}`:                                                  "400 no_caller",
		`{"ip":"192.0.2.0/24","limiter":"leads","times":2,"for":"1h","why":"x"}`:                              "400 invalid_caller",
		`{"ip":"fe80::1%eth0","limiter":"leads","times":2,"for":"1h","why":"x"}`:                              "400 invalid_caller",
		`{"token":"wpt_3fk2mq7a4c_secret","limiter":"sync","times":2,"for":"1h","why":"x"}`:                   "400 invalid_caller",
		`{"ip":"192.0.2.7","hash":"0123456789abcdef","limiter":"leads","times":2,"for":"1h","why":"x"}`:       "400 ambiguous_caller",
		`{"hash":"0123456789abcdef","limiter":"leads","times":2,"for":"1h","why":"x"}`:                        "404 unknown_caller",
		`{"denial":"x","limiter":"leads","times":2,"for":"1h","why":"x"}`:                                     "404 no_denials",
		`{"session":"s","limiter":"leads","times":2,"for":"1h","why":"x"}`:                                    "422 no_sessions",
		`{"ip":"192.0.2.7","limiter":"leads","times":2,"for":"1h","why":"` + strings.Repeat("x", 1001) + `"}`: "422 why_too_long",
		`{"agent":"` + strings.Repeat("a", 20<<10) + `","limiter":"leads","times":2,"for":"1h","why":"x"}`:    "400 invalid_caller",
		`{"ip":"192.0.2.7","limiter":"leads","times":2,"for":"1h","why":"x"}{}`:                               "400 invalid_body",
		`{"ip":"192.0.2.7","limiter":"leads","time":2,"for":"1h","why":"x"}`:                                  "400 invalid_body",
		`{"ip":"192.0.2.7","ip":"192.0.2.8","limiter":"leads","times":2,"for":"1h","why":"x"}`:                "400 invalid_body",
		`{"ip":"192.0.2.7","IP":"192.0.2.8","limiter":"leads","times":2,"for":"1h","why":"x"}`:                "400 invalid_body",
		`{"ip":"192.0.2.7","Limiter":"leads","times":2,"for":"1h","why":"x"}`:                                 "400 invalid_body",
		"{\"agent\":\"a\xff\",\"limiter\":\"leads\",\"times\":2,\"for\":\"1h\",\"why\":\"x\"}":                "400 invalid_body",
		`{"ip":"192.0.2.7","iſsuer":"x","limiter":"leads","times":2,"for":"1h","why":"x"}`:                    "400 invalid_body",
		`null`: "400 invalid_body",
		`[]`:   "400 invalid_body",
		``:     "400 invalid_body",
		`{"why":"` + strings.Repeat("x", 70<<10) + `"}`: "413 payload_too_large",
	} {
		status, code, _ := strings.Cut(want, " ")
		var number int
		_, _ = fmt.Sscan(status, &number)
		w := f.refused(f.post("/keys/grant", body), number, code)
		if strings.Contains(w.Body.String(), "_secret") {
			t.Errorf("a secret is repeated: %s", w.Body)
		}
	}
	if lines := f.audit(); len(lines) != 0 {
		t.Errorf("refused ones are logged: %v", lines)
	}
	f.refused(f.post("/keys/reset", `{"ip":"192.0.2.7","times":2,"why":"x"}`), 400, "invalid_body")
	for query, code := range map[string]string{"": "no_caller", "?ip=": "no_caller", "?ip=1&ip=2": "invalid_query", "?who=x": "invalid_query", "?ip=nobody": "invalid_caller"} {
		t.Run(query, func(t *testing.T) {
			f.refused(call{method: "GET", path: "/keys" + query}, 400, code)
		})
	}
}

func TestAWindowThatLacksAKeyIsLeftAlone(t *testing.T) {
	sessions, err := identity.NewSessions(identity.SessionsOptions{Issuer: "shop", Keys: []identity.SessionKey{secretKey(t)}})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(o *admin.Options) { o.Sessions = sessions })
	var got told
	f.answered(call{method: "GET", path: "/keys?session=visit-1"}, &got)
	if got.String() != "leads 0/5, leads lacks ip" {
		t.Errorf("%v", got)
	}
	f.refused(f.post("/keys/grant", `{"session":"visit-1","limiter":"leads","limits":[7,30],"for":"1h","why":"x"}`), 422, "not_counted")
	f.answered(f.post("/keys/grant", `{"session":"visit-1","limiter":"leads","times":3,"for":"1h","why":"x"}`), &got)
	if got.String() != "leads 0/15 until +3600, leads lacks ip" {
		t.Errorf("%v", got)
	}
	got = told{} // fields that are left out of JSON would keep their values
	f.answered(call{method: "GET", path: "/keys?" + url.Values{"session": {"visit-1"}, "ip": {"192.0.2.7"}, "limiter": {"leads"}}.Encode()}, &got)
	if got.String() != "leads 0/15 until +3600, leads 0/20" {
		t.Errorf("%v", got)
	}
}

func TestAnAgentThatWasNotNamedMayBeAny(t *testing.T) {
	f := newFixture(t, nil)
	policy := "limiters:\n  - name: init\n    routes: [POST /init]\n    windows: [9 per minute by ip+agent, 30 per hour by ip]\n"
	f.answered(call{method: "POST", path: "/policy", body: policy, header: map[string]string{"Content-Type": "application/yaml"}}, nil)
	for query, want := range map[string]string{
		"ip=192.0.2.7":         "init lacks agent, init 0/30",
		"ip=192.0.2.7&agent=a": "init 0/9, init 0/30",
	} {
		var got told
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

func TestWhatCannotBeLoggedIsNotDone(t *testing.T) {
	f := newFixture(t, nil)
	f.spend(5, "/leads", "192.0.2.7:1")
	if err := os.Remove(f.path("audit.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.path("audit.log"), 0o700); err != nil { // appending to it fails
		t.Fatal(err)
	}
	f.refused(f.post("/keys/reset", `{"ip":"192.0.2.7","why":"x"}`), 503, "audit_unavailable")
	f.refused(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"leads","times":2,"for":"1h","why":"x"}`), 503, "audit_unavailable")
	next := call{method: "POST", path: "/policy", body: strings.ReplaceAll(policyText, "5 per", "6 per"), header: map[string]string{"Content-Type": "application/yaml"}}
	f.refused(next, 503, "audit_unavailable")
	if _, err := f.tokens.Create(t.Context(), "ada"); !errors.Is(err, admin.ErrAudit) {
		t.Errorf("%v", err)
	}
	if err := f.tokens.Revoke(t.Context(), admin.Operator); !errors.Is(err, admin.ErrAudit) {
		t.Errorf("%v", err)
	}
	var got told
	f.answered(call{method: "GET", path: "/keys?ip=192.0.2.7&limiter=leads"}, &got)
	if got.String() != "leads 5/5, leads 5/20" {
		t.Errorf("%v", got)
	}
	if err := os.Remove(f.path("audit.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path("audit.log"), []byte(`{"half`), 0o600); err != nil {
		t.Fatal(err)
	}
	f.answered(next, nil)
	b, err := os.ReadFile(f.path("audit.log"))
	if err != nil || !strings.HasPrefix(string(b), "{\"half\n{\"time\":") || !strings.HasSuffix(string(b), "}\n") || !strings.Contains(string(b), `"who":"token operator","what":"policy"`) {
		t.Errorf("%v: %q", err, b)
	}
}

func TestARefusalIsExplained(t *testing.T) {
	var sealer *denial.Sealer
	f := newFixture(t, func(o *admin.Options) {
		var err error
		if sealer, err = denial.New(func() []byte { return []byte(strings.Repeat("k", 32)) }, func() string { return live.Version(o.Decider.Policy()) }, strings.NewReader(strings.Repeat("salt", 100))); err != nil {
			t.Fatal(err)
		}
		o.Denials = sealer.Open
	})
	f.spend(5, "/leads", "192.0.2.7:1")
	caller := address{netip.MustParseAddr("192.0.2.7")}
	d, err := f.decider.Decide(t.Context(), weir.Request{Method: "POST", Path: "/leads", Keys: caller})
	if err != nil || d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	id := sealer.ID(&d, caller, nil)
	var x struct {
		Limiter, Window, Kinds, Line, Reads, Changed string
		Limit, Count, At, Reset                      int64
		Same                                         bool `json:"policy_in_force"`
	}
	f.answered(call{method: "GET", path: "/denials/" + id}, &x)
	if x.Limiter != "leads" || x.Window != "5 per minute by session or ip" || x.Kinds != "ip" || x.Limit != 5 || x.Count != 5 || x.At != start || x.Reset != start+60 || !x.Same || x.Line != "stream:3" {
		t.Errorf("%+v", x)
	}
	var got told
	f.answered(f.post("/keys/reset", `{"denial":"`+id+`","why":"x"}`), &got)
	if got.String() != "leads 0/5, leads 0/20" {
		t.Errorf("%v", got)
	}
	f.refused(f.post("/keys/reset", `{"denial":"`+id+`","limiter":"sync","why":"x"}`), 422, "other_limiter")
	f.refused(call{method: "GET", path: "/denials/" + id[:len(id)-2]}, 422, "invalid_denial")
	f.refused(call{method: "GET", path: "/denials/%1b%5b31m%00"}, 422, "invalid_denial")
	next := strings.ReplaceAll(policyText, "5 per minute", "6 per minute")
	f.answered(call{method: "POST", path: "/policy", body: next, header: map[string]string{"Content-Type": "application/yaml"}}, nil)
	f.answered(call{method: "GET", path: "/denials/" + id}, &x)
	if x.Same || !strings.HasPrefix(x.Reads, "6 per minute by session or ip") || x.Changed == "" {
		t.Errorf("%+v", x)
	}
}

type address struct{ netip.Addr }

func (a address) AppendKey(dst []byte, source string) ([]byte, bool) {
	if source != "ip" {
		return dst, false
	}
	return append(dst, a.AsSlice()...), true
}

func TestTheStatusTellsHowItStands(t *testing.T) {
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

func TestASignalsChangeIsLoggedToo(t *testing.T) {
	dir := t.TempDir()
	audit, err := admin.OpenAudit(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := audit.PolicyChange(live.Change{By: "SIGHUP", Source: live.File, Path: "weir.yaml", Version: "b", Was: "a"}); err != nil {
		t.Fatal(err)
	}
	again, err := admin.OpenAudit(t.Context(), dir, nil) // another process
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Append(context.Background(), admin.Entry{Who: "command line", What: "x"}); err != nil {
		t.Fatal(err)
	}
	all, err := audit.Last(10)
	if err != nil || len(all) != 2 || !strings.Contains(string(all[0]), `"who":"SIGHUP"`) {
		t.Errorf("%s, %v", all, err)
	}
}

func TestProcessesThatLogAtATimeWriteWholeLines(t *testing.T) {
	dir := t.TempDir()
	const processes, each = 4, 10
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			audit, err := admin.OpenAudit(t.Context(), dir, nil)
			if err != nil {
				t.Error(err)
				return
			}
			for range each {
				if err := audit.Append(t.Context(), admin.Entry{Who: fmt.Sprint("process ", i), What: "x", Why: strings.Repeat("\n", 2000)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	audit, err := admin.OpenAudit(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := audit.Last(1000)
	b, readErr := os.ReadFile(dir + "/audit.log")
	if err != nil || readErr != nil || len(lines) != processes*each || strings.Count(string(b), "\n") != processes*each {
		t.Errorf("%d lines, %v, %v", len(lines), err, readErr)
	}
}

func TestAGrantOfTimesLeavesWhatAllShareAlone(t *testing.T) {
	f := newFixture(t, nil)
	policy := "limiters:\n  - name: model\n    routes: [POST /ask]\n    windows: [9 per minute by ip, 30 per minute by everyone]\n"
	f.answered(call{method: "POST", path: "/policy", body: policy, header: map[string]string{"Content-Type": "application/yaml"}}, nil)
	var got told
	f.answered(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"model","times":2,"for":"1h","why":"x"}`), &got)
	if got.String() != "model 0/18 until +3600, model 0/30" {
		t.Errorf("%v", got)
	}
	f.refused(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"model","limits":[18,60],"for":"1h","why":"x"}`), 422, "shared_window")
}

func TestTimesWhatIsNotKnownIsNotGranted(t *testing.T) {
	sessions, err := identity.NewSessions(identity.SessionsOptions{Issuer: "shop", Keys: []identity.SessionKey{secretKey(t)}})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(o *admin.Options) { o.Sessions = sessions })
	policy := "limiters:\n  - name: leads\n    routes: [POST /leads]\n    windows: [5 per minute by session or ip]\n    overrides: [50 per minute for 192.0.2.0/24]\n"
	f.answered(call{method: "POST", path: "/policy", body: policy, header: map[string]string{"Content-Type": "application/yaml"}}, nil)
	f.refused(f.post("/keys/grant", `{"session":"visit-1","limiter":"leads","times":2,"for":"1h","why":"x"}`), 422, "address_unknown")
	var got told
	f.answered(f.post("/keys/grant", `{"session":"visit-1","ip":"192.0.2.7","limiter":"leads","times":2,"for":"1h","why":"x"}`), &got)
	if got.String() != "leads 0/100 until +3600" {
		t.Errorf("%v", got)
	}
}

// If another policy comes into force between logging and making a change, the change is not made,
// and the log has that.
func TestAChangeIsMadeUnderThePolicyThatItWasLoggedUnder(t *testing.T) {
	var once sync.Once
	var policy *live.Policy
	dir := t.TempDir()
	f := newFixture(t, func(o *admin.Options) {
		policy = o.Policy
		audit, err := admin.OpenAudit(t.Context(), dir, func() time.Time {
			once.Do(func() {
				if err := policy.Post(t.Context(), "somebody", []byte(strings.ReplaceAll(policyText, "5 per", "6 per"))); err != nil {
					t.Error(err)
				}
			})
			return time.Unix(start, 0)
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Audit = audit
	})
	f.spend(5, "/leads", "192.0.2.7:1")
	f.refused(f.post("/keys/reset", `{"ip":"192.0.2.7","why":"x"}`), 409, "policy_changed")
	var got told
	f.answered(call{method: "GET", path: "/keys?ip=192.0.2.7&limiter=leads"}, &got)
	if got.String() != "leads 5/6, leads 5/20" {
		t.Errorf("%v", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil || !strings.Contains(string(text), `"reset failed"`) {
		t.Errorf("%v\n%s", err, text)
	}
	f.answered(f.post("/keys/reset", `{"ip":"192.0.2.7","why":"x"}`), &got)
}

// A caller that is counted by an HTTP field is named by its value, and only by the whole of it.
func TestACallerIsNamedByAField(t *testing.T) {
	f := newFixture(t, nil)
	f.answered(call{method: "POST", path: "/policy", header: map[string]string{"Content-Type": "application/yaml"}, body: "limiters:\n" +
		"  - name: keyed\n    routes: [/keyed]\n    windows: [4 per minute by header:X-Api-Key or ip]\n" +
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
	var got told
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
