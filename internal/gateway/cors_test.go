package gateway

import (
	"net/http"
	"slices"
	"strings"
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
