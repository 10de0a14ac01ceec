package gateway

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gateway/rules"
)

const exposed = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, Date"

func preflight(e *edge, path string, header ...string) *http.Response {
	return e.ask("OPTIONS "+path, append([]string{"Origin: https://shop.test", "Access-Control-Request-Method: POST"}, header...)...)
}

// Preflights are answered here, and never spend a visitor's or a token's budget
// (D9).
func TestAPreflightIsAnsweredHereAndChargedToWidgetOther(t *testing.T) {
	seen := new(recorder)
	e := open(t, seen, nil)
	for _, path := range []string{"/api/v1/widget/leads", "/api/v1/widget/messages", "/api/v1/widget", "/api/v1/widget/nothing", "/API/v1/Widget/leads/"} {
		res := preflight(e, path, "Access-Control-Request-Headers: authorization,x-agent-id")
		want(t, res, http.StatusNoContent, "", other)
		for name, value := range map[string]string{
			"Access-Control-Allow-Origin":      "*",
			"Access-Control-Allow-Methods":     rules.AllMethods,
			"Access-Control-Allow-Headers":     "authorization,x-agent-id",
			"Access-Control-Allow-Credentials": "",
		} {
			if got := res.Header.Get(name); got != value {
				t.Errorf("%s: %s: %q, want %q", path, name, got, value)
			}
		}
	}
	for _, path := range []string{"/v1/wp/status", "/v1/wp"} {
		res := preflight(e, path)
		want(t, res, http.StatusNoContent, "", other)
		for name := range res.Header {
			if strings.HasPrefix(name, "Access-Control-Allow") {
				t.Errorf("%s: %s on a surface that no browser calls", path, name)
			}
		}
	}
	if s, reached := seen.last(); reached {
		t.Errorf("a preflight reached the backend: %v", s)
	}
}

// Under a policy without widget-other the same paths are another API's: its backend answers
// preflights, and says who may read its answers.
func TestAnotherAPIOnTheSamePathsAnswersItsPreflights(t *testing.T) {
	p := testPolicy(t)
	p.Limiters = p.Limiters[:len(p.Limiters)-1]
	for _, change := range []func(*Options){nil, behind(t, readableBy("https://own.test"))} {
		e := open(t, readableBy("https://own.test"), func(o *Options) {
			if o.Decider = testDecider(t, p); change != nil {
				change(o)
			}
		})
		for _, path := range []string{"/v1/wp/status", "/api/v1/widget/leads", "/api/v1/widget/uncovered"} {
			for _, res := range []*http.Response{preflight(e, path), e.ask("GET "+path, "Origin: https://own.test")} {
				if got := res.Header.Get("Access-Control-Allow-Origin"); got != "https://own.test" && res.StatusCode < 400 {
					t.Errorf("%s: %d, readable by %q", path, res.StatusCode, got)
				}
			}
			if got := preflight(e, path).StatusCode; got != http.StatusAccepted {
				t.Errorf("%s: a preflight is answered %d, and not by the backend", path, got)
			}
		}
	}
}

// readableBy is a backend that answers preflights 202.
func readableBy(origin string) http.HandlerFunc {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusAccepted)
		}
	})
}

// If an OPTIONS request is not a preflight, it is an ordinary request.
func TestOPTIONSWithoutAPreflightGoesToTheBackend(t *testing.T) {
	seen := new(recorder)
	e := open(t, seen, nil)
	for _, header := range [][]string{nil, {"Origin: https://shop.test"}, {"Access-Control-Request-Method: POST"}} {
		e.ask("OPTIONS /v1/wp/status", header...)
		if s, reached := seen.last(); !reached || s.limiter != "wp-plugin" {
			t.Errorf("%q: %v", header, s)
		}
	}
	// If a path is outside both surfaces, its requests go to the backend, including
	// preflights.
	preflight(e, "/shop/cart")
	if _, reached := seen.last(); !reached {
		t.Error("the preflight of another surface did not reach the backend")
	}
}

// When a browser resumes an event stream, it sends Last-Event-ID. It may read the
// Content-Type of any answer.
func TestAScriptMayResumeAnEventStream(t *testing.T) {
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
	}), nil)
	asked := "authorization,last-event-id"
	res := e.ask("OPTIONS /api/v1/widget/events", "Origin: https://shop.test", "Access-Control-Request-Method: GET", "Access-Control-Request-Headers: "+asked)
	if got := res.Header.Get("Access-Control-Allow-Headers"); got != asked {
		t.Errorf("allowed are %q, want %q", got, asked)
	}
	res = e.ask("GET /api/v1/widget/events", "Origin: https://shop.test", "Last-Event-ID: cnv_1/7")
	if got := res.Header.Get("Access-Control-Allow-Origin"); got != "*" {
		t.Errorf("readable by %q", got)
	}
}

// A field that Connection names concerns only this hop, so no engine uses it to
// answer a preflight.
func TestAPreflightIsAnsweredWithoutFieldsThatConnectionNames(t *testing.T) {
	backend := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, change := range []func(*Options){nil, behind(t, backend)} {
		e := open(t, backend, change)
		res := e.ask("OPTIONS /api/v1/widget/leads", "Origin: https://shop.test", "Access-Control-Request-Method: POST",
			"Access-Control-Request-Headers: x-a", "Connection: access-control-request-headers")
		if got := res.Header.Get("Access-Control-Allow-Headers"); res.StatusCode != http.StatusNoContent || got != "" {
			t.Errorf("fast %v: %d, allowed are %q, want a preflight's answer and no fields", e.gateway.Fast(), res.StatusCode, got)
		}
	}
}

func TestOnlyListedOriginsCanReadAnswers(t *testing.T) {
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		// A backend may reflect the origin.
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Access-Control-Allow-Credentials", "true")
	}), func(o *Options) { o.CORSOrigins = []string{"https://shop.test", "http://localhost:3000"} })
	for origin, allowed := range map[string]string{
		"https://shop.test":            "https://shop.test",
		"http://localhost:3000":        "http://localhost:3000",
		"https://evil.test":            "",
		"https://shop.test.evil.test":  "",
		"https://shop.test:443":        "",
		"http://shop.test":             "",
		"https://SHOP.test":            "",
		"null":                         "",
		"https://shop.test, https://x": "",
		"":                             "",
	} {
		t.Run(origin, func(t *testing.T) {
			for _, line := range []string{"POST /api/v1/widget/leads", "OPTIONS /api/v1/widget/leads", "get /api/v1/widget/leads", "POST /api/v1/widget/leads%00"} {
				res := e.ask(line, "Origin: "+origin, "Access-Control-Request-Method: POST")
				if got := strings.Join(res.Header["Access-Control-Allow-Origin"], "|"); got != allowed {
					t.Errorf("%s from %q: Access-Control-Allow-Origin %q, want %q", line, origin, got, allowed)
				}
				if got := res.Header.Get("Access-Control-Allow-Credentials"); got != "" {
					t.Errorf("%s from %q: credentials are allowed", line, origin)
				}
				if vary := strings.Join(res.Header["Vary"], ","); !rules.Names(vary, "Origin") {
					t.Errorf("%s from %q: Vary %q", line, origin, vary)
				}
			}
		})
	}
}

// By default any origin can read answers, without credentials, on the widget
// surface only (D22). A backend's list of exposed fields is kept.
func TestABrowserCanReadTheFieldsOfEveryAnswer(t *testing.T) {
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if strings.Contains(r.URL.RawQuery, "own") {
			h["Access-Control-Expose-Headers"] = []string{"X-Own, date", "Link"}
			h["Access-Control-Allow-Origin"] = []string{"https://a.test", "https://b.test"}
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
	var narrow *edge
	for _, ietf := range []bool{false, true} {
		e := open(t, backend, func(o *Options) { o.IETF = ietf })
		ours := exposed
		if ietf {
			ours += ", RateLimit, RateLimit-Policy"
		}
		for line, list := range map[string]string{
			"POST /api/v1/widget/leads":     ours,
			"POST /api/v1/widget/leads?own": "X-Own, date, Link, " + strings.Replace(ours, ", Date", "", 1),
			"nope /api/v1/widget/leads":     ours,
			"POST /api/v1/widget/%00":       ours,
			"POST /v1/wp/status":            "",
			"POST /elsewhere":               "",
			"GET /healthz":                  "",
		} {
			res := e.ask(line, "Origin: https://shop.test")
			if got := strings.Join(res.Header["Access-Control-Expose-Headers"], "|"); got != list {
				t.Errorf("%s: Access-Control-Expose-Headers %q, want %q", line, got, list)
			}
			origin := []string{"*"}
			if list == "" {
				origin = nil
			}
			if got := res.Header["Access-Control-Allow-Origin"]; !slices.Equal(got, origin) {
				t.Errorf("%s: Access-Control-Allow-Origin %q, want %q", line, got, origin)
			}
			if got := res.Header["Vary"]; rules.Names(strings.Join(got, ","), "Origin") {
				t.Errorf("%s: the answer is the same for all origins, but Vary is %q", line, got)
			}
		}
		narrow = e
	}
	// Outside the widget surface a backend's own fields are kept.
	res := narrow.ask("GET /elsewhere?own", "Origin: https://shop.test")
	if got := res.Header["Access-Control-Allow-Origin"]; len(got) != 2 {
		t.Errorf("Access-Control-Allow-Origin %q", got)
	}
}

func TestA429CanBeReadByABrowser(t *testing.T) {
	p := testPolicy(t)
	for i := range p.Limiters {
		p.Limiters[i].Windows[0].Limit = 1
	}
	e := open(t, new(recorder), func(o *Options) { o.Decider = testDecider(t, p) })
	e.ask("POST /api/v1/widget/leads")
	res := e.ask("POST /api/v1/widget/leads", "Origin: https://shop.test")
	want(t, res, http.StatusTooManyRequests, "rate_limited", "1")
	if got := res.Header.Get("Access-Control-Expose-Headers"); got != exposed {
		t.Errorf("Access-Control-Expose-Headers %q", got)
	}
	if got := res.Header.Get("Access-Control-Allow-Origin"); got != "*" {
		t.Errorf("Access-Control-Allow-Origin %q", got)
	}
	e.stop()
	if log := e.access.String(); !strings.Contains(log, "status=429") || !strings.Contains(log, "limiter=widget-leads outcome=refused") {
		t.Errorf("access log %q", log)
	}
}

func TestHostileFieldNamesAreNotReflected(t *testing.T) {
	e := open(t, new(recorder), nil)
	for asked, allowed := range map[string]string{
		"x-a, x-b":                 "x-a, x-b",
		"":                         "",
		"a;b":                      "",
		"a\"b":                     "",
		"(x)":                      "",
		strings.Repeat("x", 4<<10): "",
	} {
		res := preflight(e, "/api/v1/widget/leads", "Access-Control-Request-Headers: "+asked)
		if got := res.Header.Get("Access-Control-Allow-Headers"); got != allowed {
			t.Errorf("%.40q: %.40q, want %q", asked, got, allowed)
		}
	}
}

// If refusals have ids, scripts can read them, so that users can report them.
func TestADenialCanBeReadByABrowser(t *testing.T) {
	p := testPolicy(t)
	for i := range p.Limiters {
		p.Limiters[i].Windows[0].Limit = 1
	}
	e := open(t, new(recorder), func(o *Options) {
		o.Decider = testDecider(t, p)
		o.Denial = func(d *weir.Decision, _ weir.Keys, _ *weir.Scratch) string {
			return "id-of-" + d.Binding().Limiter.Name
		}
	})
	for _, id := range []string{"", "id-of-widget-leads"} {
		res := e.ask("POST /api/v1/widget/leads", "Origin: https://shop.test")
		if got := res.Header.Get("X-Weir-Denial"); got != id {
			t.Errorf("answered %d with X-Weir-Denial %q, want %q", res.StatusCode, got, id)
		}
		if got := res.Header.Get("Access-Control-Expose-Headers"); got != exposed+", X-Weir-Denial" {
			t.Errorf("Access-Control-Expose-Headers %q", got)
		}
	}
}

// ownAPI is the policy of an API of one's own.
func ownAPI(t *testing.T) weir.Policy {
	t.Helper()
	w, err := weir.ParseWindow("3 per hour by ip")
	if err != nil {
		t.Fatal(err)
	}
	return weir.Policy{Limiters: []weir.Limiter{
		{Name: "closed", Routes: []weir.Route{{Path: "/v1/", Prefix: true}}, Windows: []weir.Window{w}, Deny: []weir.Who{{Network: loopback[0]}}},
		{Name: "open", Routes: []weir.Route{{Path: "/open/", Prefix: true}}, Windows: []weir.Window{w}},
	}}
}

// Under a policy of one's own, the preflights of listed origins are answered here, also where a
// limiter would answer 401 or 403: they bring no credential. They are counted nowhere. All others
// are requests like any other.
func TestPreflightsOfListedOriginsAreAnsweredForAnAPIOfOnesOwn(t *testing.T) {
	var reached atomic.Int64
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reached.Add(1) })
	for _, change := range []func(*Options){nil, behind(t, backend)} {
		e := open(t, backend, func(o *Options) {
			o.CORSOrigins, o.Decider = []string{"https://shop.test"}, testDecider(t, ownAPI(t))
			if change != nil {
				change(o)
			}
		})
		for _, path := range []string{"/v1/chat", "/open/x", "/v1/wp/status", "/api/v1/widget/leads", "/uncovered"} {
			for range 5 {
				res := preflight(e, path, "Access-Control-Request-Headers: x-api-key")
				for name, value := range map[string]string{
					"Access-Control-Allow-Origin": "https://shop.test", "Access-Control-Allow-Methods": rules.AllMethods,
					"Access-Control-Allow-Headers": "x-api-key", "Access-Control-Allow-Credentials": "", "X-Ratelimit-Limit": "",
				} {
					if got := res.Header.Get(name); got != value || res.StatusCode != http.StatusNoContent {
						t.Errorf("%s: %d, %s: %q, want %q", path, res.StatusCode, name, got, value)
					}
				}
			}
		}
		if n := reached.Swap(0); n > 0 {
			t.Errorf("%d preflights reached the backend", n)
		}
		if got := e.ask("GET /open/x").Header.Get("X-RateLimit-Remaining"); got != "2" {
			t.Errorf("%s left after preflights, want 2", got)
		}
		if res := preflight(e, "/open/a%00b"); res.StatusCode != http.StatusBadRequest {
			t.Errorf("a path that cannot be read: %d", res.StatusCode)
		}
		res := e.ask("OPTIONS /v1/chat", "Origin: https://evil.test", "Access-Control-Request-Method: POST")
		if got := res.Header.Get("Access-Control-Allow-Origin"); res.StatusCode != http.StatusForbidden || got != "" {
			t.Errorf("of another origin: %d, readable by %q", res.StatusCode, got)
		}
		res = e.ask("OPTIONS /open/x", "Origin: https://evil.test", "Access-Control-Request-Method: POST")
		if reached.Swap(0) != 2 {
			t.Errorf("the preflight of another origin did not reach the backend: %d", res.StatusCode)
		}
	}
}

// Scripts of listed origins may read every answer that does not say itself who may: Weir's own, and
// those of a backend that knows nothing of origins.
func TestListedOriginsMayReadTheAnswersOfAnAPIOfOnesOwn(t *testing.T) {
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		if by := r.URL.Query().Get("by"); by != "" {
			w.Header().Set("Access-Control-Allow-Origin", by)
			w.Header().Set("Access-Control-Expose-Headers", "X-Own")
		}
	})
	for _, change := range []func(*Options){nil, behind(t, backend)} {
		for _, test := range []struct {
			origins        []string
			origin, target string
			status         int
			allowed        string
			exposed        string
		}{
			{[]string{"https://shop.test"}, "https://shop.test", "GET /open/x", 200, "https://shop.test", exposed},
			{[]string{"https://shop.test"}, "https://shop.test", "GET /v1/x", 403, "https://shop.test", exposed},
			{[]string{"https://shop.test"}, "https://shop.test", "get /open/x", 405, "https://shop.test", exposed},
			{[]string{"https://shop.test"}, "https://shop.test", "GET /open/x%00", 400, "https://shop.test", exposed},
			{[]string{"https://shop.test"}, "https://shop.test", "GET /open/x?by=https://own.test", 200, "https://own.test", "X-Own, " + exposed},
			{[]string{"https://shop.test"}, "https://evil.test", "GET /open/x", 200, "", ""},
			{[]string{"https://shop.test"}, "https://evil.test", "GET /v1/x", 403, "", ""},
			{[]string{"https://shop.test"}, "", "GET /open/x", 200, "", ""},
			{[]string{"*"}, "https://evil.test", "GET /v1/x", 403, "*", exposed},
			{nil, "https://shop.test", "GET /v1/x", 403, "", ""},
			{nil, "https://shop.test", "GET /open/x?by=https://own.test", 200, "https://own.test", "X-Own"},
		} {
			e := open(t, backend, func(o *Options) {
				o.CORSOrigins, o.Decider = test.origins, testDecider(t, ownAPI(t))
				if change != nil {
					change(o)
				}
			})
			res := e.ask(test.target, "Origin: "+test.origin)
			allowed, exposed := res.Header["Access-Control-Allow-Origin"], res.Header.Get("Access-Control-Expose-Headers")
			if strings.Join(allowed, "|") != test.allowed || exposed != test.exposed || res.StatusCode != test.status {
				t.Errorf("%s from %q with %q: %d, readable by %q, the fields %q; want %d, %q, %q",
					test.target, test.origin, test.origins, res.StatusCode, allowed, exposed, test.status, test.allowed, test.exposed)
			}
			own := strings.Contains(test.target, "by=")
			if got := res.Header.Get("Access-Control-Allow-Credentials") != "" && len(allowed) > 0; got != own {
				t.Errorf("%s: credentials are allowed: %v", test.target, got)
			}
			if varies := rules.Names(strings.Join(res.Header["Vary"], ","), "Origin"); varies != (!own && slices.Contains(test.origins, "https://shop.test")) {
				t.Errorf("%s with %q: Vary %q", test.target, test.origins, res.Header["Vary"])
			}
		}
	}
}

// A limiter in mode shadow changes nothing that a browser can see.
func TestAShadowOfWidgetOtherKeepsTheSurfaces(t *testing.T) {
	p := testPolicy(t)
	last := &p.Limiters[len(p.Limiters)-1]
	if last.Name != "widget-other" {
		t.Fatal(last.Name)
	}
	last.Mode = weir.Shadow
	e := open(t, new(recorder), func(o *Options) { o.Decider = testDecider(t, p) })
	for _, res := range []*http.Response{preflight(e, "/api/v1/widget/leads"), e.ask("POST /api/v1/widget/leads", "Origin: https://shop.test")} {
		if got := res.Header.Get("Access-Control-Allow-Origin"); got != "*" {
			t.Errorf("%d, readable by %q", res.StatusCode, got)
		}
	}
}
