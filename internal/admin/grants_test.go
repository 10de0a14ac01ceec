package admin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/admin"
)

func TestInvalidGrantsAreExplained(t *testing.T) {
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
		`{"ip":"192.0.2.7","limiter":"leads","times":2,"for":"1h","why":"` + strings.Repeat("x", 1001) + `"}`: "422 invalid_why",
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
			t.Errorf("the error contains a secret: %s", w.Body)
		}
	}
	if lines := f.audit(); len(lines) != 0 {
		t.Errorf("rejected grants are logged: %v", lines)
	}
	f.refused(f.post("/keys/reset", `{"ip":"192.0.2.7","times":2,"why":"x"}`), 400, "invalid_body")
	for query, code := range map[string]string{"": "no_caller", "?ip=": "no_caller", "?ip=1&ip=2": "invalid_query", "?who=x": "invalid_query", "?ip=nobody": "invalid_caller"} {
		t.Run(query, func(t *testing.T) {
			f.refused(call{method: "GET", path: "/keys" + query}, 400, code)
		})
	}
}

func TestAGrantOfTimesDoesNotChangeSharedWindows(t *testing.T) {
	f := newFixture(t, nil)
	policy := "limiters:\n  - name: model\n    routes: [POST /ask]\n    windows: [9 per minute by ip, 30 per minute by everyone]\n"
	f.answered(call{method: "POST", path: "/policy", body: policy, header: map[string]string{"Content-Type": "application/yaml"}}, nil)
	var got inspection
	f.answered(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"model","times":2,"for":"1h","why":"x"}`), &got)
	if got.String() != "model 0/18 until +3600, model 0/30" {
		t.Errorf("%v", got)
	}
	f.refused(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"model","limits":[18,60],"for":"1h","why":"x"}`), 422, "shared_window")
}

func TestAGrantOfTimesNeedsAKnownLimit(t *testing.T) {
	sessions, err := identity.NewSessions(identity.SessionsOptions{Issuer: "shop", Keys: []identity.SessionKey{secretKey(t)}})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(o *admin.Options) { o.Sessions = sessions })
	policy := "limiters:\n  - name: leads\n    routes: [POST /leads]\n    windows: [5 per minute by session or ip]\n    overrides: [50 per minute for 192.0.2.0/24]\n"
	f.answered(call{method: "POST", path: "/policy", body: policy, header: map[string]string{"Content-Type": "application/yaml"}}, nil)
	f.refused(f.post("/keys/grant", `{"session":"visit-1","limiter":"leads","times":2,"for":"1h","why":"x"}`), 422, "address_unknown")
	var got inspection
	f.answered(f.post("/keys/grant", `{"session":"visit-1","ip":"192.0.2.7","limiter":"leads","times":2,"for":"1h","why":"x"}`), &got)
	if got.String() != "leads 0/100 until +3600" {
		t.Errorf("%v", got)
	}
}

// A grant that raises a limit and ends before its window resets is reported, whether the window is
// open or not.
func TestAGrantThatEndsBeforeItsWindowIsReported(t *testing.T) {
	f := newFixture(t, nil)
	grant := func(ip, how, lasts string) (early []bool) {
		t.Helper()
		var got struct {
			Windows []struct {
				Early bool `json:"grant_ends_early"`
			}
		}
		f.answered(f.post("/keys/grant", `{"ip":"`+ip+`","limiter":"leads",`+how+`,"for":"`+lasts+`","why":"x"}`), &got)
		for _, w := range got.Windows {
			early = append(early, w.Early)
		}
		return early
	}
	f.spend(1, "/leads", "192.0.2.7:1") // 5 per minute, 20 per hour
	for _, ip := range []string{"192.0.2.7", "192.0.2.8"} {
		for _, row := range []struct {
			how, lasts string
			want       []bool
		}{
			{`"times":2`, "59s", []bool{true, true}},
			{`"times":2`, "60s", []bool{false, true}},
			{`"times":2`, "1h", []bool{false, false}},
			{`"limits":[0,30]`, "1m", []bool{false, true}},
			{`"limits":[0,10]`, "1m", []bool{false, false}}, // less than the policy's limit
			{`"limits":[9,0]`, "1m", []bool{false, false}},
		} {
			if got := grant(ip, row.how, row.lasts); !slices.Equal(got, row.want) {
				t.Errorf("%s %s for %s: %v, want %v", ip, row.how, row.lasts, got, row.want)
			}
		}
	}
}
