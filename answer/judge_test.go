package answer_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
)

var fromHome = from("192.0.2.7", "")

// The answer has everything that a response needs, without net/http.
func TestAnAnswerIsValues(t *testing.T) {
	d := open(t, limiters(t, contract), answer.Options{})
	a, fields := d.ask(fromHome, post("satisfaction"))
	if a.Status != 0 || a.Body() != nil || a.Outcome != answer.Admitted {
		t.Errorf("the answer is %d %s, %v", a.Status, a.Body(), a.Outcome)
	}
	d.wantFields(fields, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", reset, "Date", startDate)
	d.ask(fromHome, post("satisfaction"))
	a, fields = d.ask(fromHome, post("satisfaction"))
	if a.Status != http.StatusTooManyRequests || a.Outcome != answer.Refused || string(a.Body()) != rateLimited(widgetText) {
		t.Errorf("the answer is %d %s", a.Status, a.Body())
	}
	d.wantFields(fields, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset, "Retry-After", "60", "Date", startDate,
		"Content-Type", "application/json", "Content-Length", "111", "Cache-Control", "no-store", "Content-Language", "en", "Vary", "Accept-Language")
	a, fields = d.ask(fromHome, answer.Question{Method: "GET", Path: "/healthz"})
	if a.Status != 0 || a.Outcome != answer.Unlimited || len(fields) != 0 {
		t.Errorf("an unlimited request is answered %d with %q", a.Status, fields)
	}
}

// A peek spends nothing (D4, D7). Before the first request it shows the whole budget, and a reset a
// whole window ahead.
func TestAPeekShowsTheStandingAndSpendsNothing(t *testing.T) {
	d := open(t, limiters(t, contract), answer.Options{})
	q := post("satisfaction")
	q.Cost = weir.Peek
	for range 3 {
		a, fields := d.ask(fromHome, q)
		if a.Status != 0 {
			t.Errorf("a peek is answered %d", a.Status)
		}
		d.wantFields(fields, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "2", "X-RateLimit-Reset", reset, "Date", startDate)
	}
	spend := q
	spend.Cost = 2
	d.ask(fromHome, spend)
	if a, fields := d.ask(fromHome, q); a.Status != 0 || fields["X-RateLimit-Remaining"] != "0" {
		t.Errorf("a peek at a spent budget is answered %d with %q", a.Status, fields)
	}
	if a, _ := d.ask(fromHome, spend); a.Status != http.StatusTooManyRequests {
		t.Errorf("a spent budget is answered %d", a.Status)
	}
}

// A door that has no HTTP request passes the key sources it knows, and may name the limiters.
func TestADoorWithoutHTTPAsksByKeys(t *testing.T) {
	var seen []answer.Observation
	d := open(t, limiters(t, contract), answer.Options{Door: "rls", Observe: func(o answer.Observation) { seen = append(seen, o) }})
	judge, err := answer.New(d.decider(limiters(t, contract)), answer.Options{Door: "rls", Observe: func(o answer.Observation) { seen = append(seen, o) }})
	if err != nil {
		t.Fatal(err)
	}
	q := answer.Question{
		Keys: keys{"ip": "\xc0\x00\x02\x07", "token": "3fk2mq7a4c"}, Limiters: []string{"widget-satisfaction", "wp-plugin"},
		Languages: []string{"de"},
	}
	var a answer.Answer
	for i, want := range []answer.Outcome{answer.Admitted, answer.Admitted, answer.Refused} {
		if err := judge.Answer(context.Background(), &q, &a); err != nil || a.Outcome != want {
			t.Fatalf("request %d: the outcome is %v, %v", i, a.Outcome, err)
		}
		if b := a.Decision.Binding(); b.Limiter.Name != "widget-satisfaction" || b.Remaining != int64(max(1-i, 0)) {
			t.Errorf("request %d: the binding window is %v of %s, with %d left", i, b.Window, b.Limiter.Name, b.Remaining)
		}
		if o := seen[i]; o.Door != "rls" || o.Outcome != want || o.Limiter != "widget-satisfaction" || len(o.Who) == 0 || o.Caller == nil {
			t.Errorf("request %d: the observation is %+v", i, o)
		}
	}
	if body := string(a.Body()); a.Status != 429 || !strings.Contains(body, "Widget-Anfragen") {
		t.Errorf("the answer is %d %s", a.Status, body)
	}
	// the limiter counts by session or ip, and a sender without a session is not answered 401
	q.Limiters, q.Method, q.Path = nil, "POST", "/api/v1/widget/leads"
	if err := judge.Answer(context.Background(), &q, &a); err != nil || a.Outcome != answer.Admitted {
		t.Errorf("the outcome is %v, %v", a.Outcome, err)
	}
	q.Path = "/healthz"
	if err := judge.Answer(context.Background(), &q, &a); err != nil || a.Outcome != answer.Unlimited {
		t.Errorf("the outcome is %v, %v", a.Outcome, err)
	}
	// only what no limiter covers is misdirected, and a tracer can mark its span
	q.Public, q.Misdirected = true, true
	for path, want := range map[string]answer.Outcome{"/healthz": answer.Misdirected, "/api/v1/widget/leads": answer.Admitted} {
		q.Path = path
		err := judge.Answer(context.Background(), &q, &a)
		if o := seen[len(seen)-1]; err != nil || o.Outcome != want || o.Context == nil || a.Outcome == answer.Misdirected {
			t.Errorf("%s: the outcome is %v, %v, the observation %+v", path, a.Outcome, err, o)
		}
	}
}

// The same Answer serves one question after another, and keeps nothing of the last one.
func TestAnErrorLeavesNoAnswer(t *testing.T) {
	d := open(t, limiters(t, contract), answer.Options{})
	var a answer.Answer
	for range 3 {
		d.askInto(fromHome, post("satisfaction"), &a)
	}
	caller := new(identity.Caller)
	d.who.Start(caller, fromHome)
	byKeys, err := answer.New(d.decider(limiters(t, contract)), answer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		judge *answer.Judge
		q     answer.Question
		want  string
	}{
		{d.judge, answer.Question{Caller: caller, Method: "POST", Path: "/api/v1/widget/satisfaction", Cost: 3}, "could never be served"},
		{d.judge, answer.Question{Method: "POST", Path: "/api/v1/widget/satisfaction"}, "neither a Caller nor Keys"},
		{d.judge, answer.Question{Caller: caller, Limiters: []string{"widget-typing"}}, "need Keys"},
		{d.judge, answer.Question{Keys: keys{}, Limiters: []string{"widget-tiping"}}, "widget-tiping"},
		{byKeys, answer.Question{Caller: caller, Method: "POST", Path: "/api/v1/widget/typing"}, "needs Options.Identity"},
	} {
		err := test.judge.Answer(context.Background(), &test.q, &a)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("the error is %v, want one with %q", err, test.want)
		}
		if a.Status != 0 || a.Body() != nil || a.Outcome != answer.Unlimited || len(a.AppendFields(nil)) > 0 {
			t.Errorf("after %q the answer is %d %s", test.want, a.Status, a.Body())
		}
	}
}

// An engine drops the handler's own fields by name, in any spelling.
func TestAnAnswerOwnsItsFieldsInAnySpelling(t *testing.T) {
	d := open(t, limiters(t, contract), answer.Options{})
	a, _ := d.ask(fromHome, post("typing"))
	for name, want := range map[string]bool{
		"X-RateLimit-Limit": true, "x-ratelimit-limit": true, "X-Ratelimit-Remaining": true, "X-RATELIMIT-RESET": true, "Retry-after": true, "DATE": true,
		"X-RateLimit-Policy": false, "RateLimit": false, "RateLimit-Policy": false, "": false, "Etag": false, "X-RateLimit-Used1": false, "Content-Type": false,
	} {
		t.Run(name, func(t *testing.T) {
			if got := a.Owns(name); got != want {
				t.Errorf("Owns(%q) is %v", name, got)
			}
		})
	}
	d = open(t, limiters(t, contract), answer.Options{IETF: true})
	if a, _ = d.ask(fromHome, post("typing")); !a.Owns("ratelimit") || !a.Owns("RATELIMIT-POLICY") {
		t.Error("the IETF fields of a handler are kept beside our own")
	}
}

// The backend's own 429 (D19).
func TestABackendsRefusalIsInTheFields(t *testing.T) {
	d := open(t, limiters(t, contract), answer.Options{IETF: true})
	for sent, want := range map[string]string{"7": "7", "0": "60", "soon": "60"} {
		a := new(answer.Answer)
		d.askInto(fromHome, post("typing"), a)
		a.BackendRefused([]string{sent})
		got := map[string]string{}
		for name, value := range a.Fields() {
			got[name] = value
		}
		d.wantFields(got, "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset, "Retry-After", want, "Date", startDate,
			"RateLimit", `"widget-typing";r=0;t=60`, "RateLimit-Policy", `"widget-typing";q=60;w=60`)
	}
}

func TestAnAnswerCarriesItsDenial(t *testing.T) {
	d := open(t, limiters(t, contract), answer.Options{Denial: func(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string {
		b := d.Binding()
		ip, _ := caller.AppendKey(nil, "ip")
		return fmt.Sprintf("%s/%d/%d/%t", b.Limiter.Name, b.Count, len(ip), len(scratch.Who(&b)) > 0)
	}})
	var a answer.Answer
	var ids []string
	for range 4 { // a is used again, as an engine does
		d.askInto(fromHome, post("satisfaction"), &a)
		id := ""
		for name, value := range a.Fields() {
			if name == "X-Weir-Denial" {
				id += value
			}
		}
		ids = append(ids, id)
		if !a.Owns("x-weir-denial") {
			t.Error("a handler's field of the name is not dropped")
		}
	}
	if got, want := strings.Join(ids, ","), ",,widget-satisfaction/2/4/true,widget-satisfaction/2/4/true"; got != want {
		t.Errorf("the ids are %q, want %q", got, want)
	}
	plain, _ := open(t, limiters(t, contract), answer.Options{}).ask(fromHome, post("satisfaction"))
	if plain.Owns("X-Weir-Denial") {
		t.Error("without Options.Denial a handler's field of the name is dropped")
	}
}

// The challenge names each place where a token may be (RFC 9110, section 11.6.1).
func TestA401ChallengesForThePlacesOfTokens(t *testing.T) {
	var places []identity.Place
	for _, s := range []string{"header:x-api-key", "basic", "bearer", "query:api_key"} {
		p, err := identity.ParsePlace(s)
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, p)
	}
	who, err := identity.New(identity.Options{Tokens: tokenTable{}, TokenFrom: places})
	if err != nil {
		t.Fatal(err)
	}
	policy := limiters(t, map[string][]string{"api /api/v1/widget/* requires token": {"5 per minute by token or ip"}})
	d := open(t, policy, answer.Options{Identity: who})
	for problem, r := range map[string]*request{"": fromHome, `, error="invalid_token"`: from("192.0.2.7", "X-Api-Key", "unknown")} {
		want := `ApiKey realm="token", in="header", name="X-Api-Key", Basic realm="token", charset="UTF-8", Bearer realm="token"` + problem +
			`, ApiKey realm="token", in="query", name="api_key"`
		if a, fields := d.ask(r, post("x")); a.Status != 401 || fields["WWW-Authenticate"] != want {
			t.Errorf("%d %s, want %s", a.Status, fields["WWW-Authenticate"], want)
		}
	}
}

// A credential is required if the limiter says so, unless the request is public (D16, D27).
func TestACredentialIsRequiredIfTheLimiterSaysSo(t *testing.T) {
	d := open(t, limiters(t, contract), answer.Options{})
	a, fields := d.ask(fromHome, post("leads"))
	if a.Status != 401 || a.Outcome != answer.Unauthenticated || fields["WWW-Authenticate"] != `Bearer realm="session"` || fields["X-RateLimit-Remaining"] != "2" {
		t.Errorf("without a session the answer is %d %q", a.Status, fields)
	}
	q := post("leads")
	q.Public = true
	if a, _ := d.ask(fromHome, q); a.Outcome != answer.Admitted {
		t.Errorf("a public request is %v", a.Outcome)
	}
	if a, fields := d.ask(from("192.0.2.7", "Authorization", d.session("alice")), post("leads")); a.Outcome != answer.Admitted || fields["X-RateLimit-Remaining"] != "2" {
		t.Errorf("with a session the answer is %d %q", a.Status, fields)
	}
	status := answer.Question{Method: "GET", Path: "/v1/wp/status"}
	if a, _ := d.ask(from("192.0.2.7", "Authorization", d.token()), status); a.Outcome != answer.Admitted {
		t.Errorf("with a token the answer is %d %s", a.Status, a.Body())
	}
	if a, _ := d.ask(fromHome, status); a.Outcome != answer.Unauthenticated {
		t.Errorf("without a token the answer is %d %s", a.Status, a.Body())
	}
}

// A door that serves request after request with one Answer allocates only the digits of the fields.
func TestAnAnswerAllocatesOnce(t *testing.T) {
	p := limiters(t, map[string][]string{"l /api/v1/widget/typing": {"2147483647 per hour by ip"}})
	d := open(t, p, answer.Options{Observe: func(answer.Observation) {}, Now: time.Now})
	var caller identity.Caller
	a, fields := new(answer.Answer), make([]answer.Field, 0, 8)
	n := testing.AllocsPerRun(1000, func() {
		d.who.Start(&caller, fromHome)
		q := answer.Question{Caller: &caller, Method: "POST", Path: "/api/v1/widget/typing"}
		if err := d.judge.Answer(context.Background(), &q, a); err != nil {
			t.Fatal(err)
		}
		fields = a.AppendFields(fields[:0])
	})
	if n > 1 {
		t.Errorf("an answer allocates %v times, at most 1 is allowed", n)
	}
}
