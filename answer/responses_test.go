package answer_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
)

// own is a policy of an operator whose API has nothing to do with the contract's.
func own(t testing.TB) weir.Policy {
	p := limiters(t, map[string][]string{
		"api /v1/items":                  {"1 per minute by ip"},
		"keys /v1/keys requires token":   {"9 per minute by token or ip"},
		"home /v1/home requires session": {"9 per minute by session or ip"},
	})
	p.Messages = map[string]weir.Texts{
		"slow-down": {"en": "Too many requests for {limiter} ({limit}). Try again in {retry_after} s, at {reset}.", "de": "Zu viele Anfragen.", "pt-BR": "Muitas solicitações."},
		"need-key":  {"en": "Get a key at example.com: {reason}.", "de": "Holen Sie einen Schlüssel."},
		"later":     {"en": "Try again later."},
	}
	p.Answers = weir.Answers{
		Refused:         weir.Answer{Status: 503, Message: "slow-down", Fields: map[string]string{"x-support": "https://example.com/limits"}},
		Unauthenticated: weir.Answer{Status: 403, Credentials: map[string]string{"token": "need-key"}},
		Unavailable:     weir.Answer{Status: 500, Message: "later"},
	}
	return p
}

func ask(path string) answer.Question { return answer.Question{Method: "GET", Path: path} }

// with returns a request with several fields.
func with(fields map[string]string) *request {
	r := &request{peer: "192.0.2.7:50123", header: map[string][]string{}}
	for name, value := range fields {
		r.header[name] = []string{value}
	}
	return r
}

// Status, text, language and fields of a refusal are the policy's.
func TestARefusalSaysWhatThePolicyDeclares(t *testing.T) {
	d := open(t, own(t), answer.Options{})
	d.ask(fromHome, ask("/v1/items"))
	for accept, want := range map[string][2]string{
		"":             {"en", "Too many requests for api (1). Try again in 60 s, at 2027-01-15T08:01:00Z."},
		"de-CH, fr":    {"de", "Zu viele Anfragen."},
		"pt":           {"pt-BR", "Muitas solicitações."},
		"ja, uk;q=0.5": {"en", "Too many requests for api (1). Try again in 60 s, at 2027-01-15T08:01:00Z."},
	} {
		a, fields := d.ask(from("192.0.2.7", "Accept-Language", accept), ask("/v1/items"))
		if a.Status != 503 || a.Outcome != answer.Refused || string(a.Body()) != rateLimited(want[1]) {
			t.Errorf("%q is answered %d %s", accept, a.Status, a.Body())
		}
		if fields["Content-Language"] != want[0] || fields["Vary"] != "Accept-Language" || fields["X-Support"] != "https://example.com/limits" || fields["Retry-After"] != "60" {
			t.Errorf("%q has the fields %q", accept, fields)
		}
	}
}

// A message of the policy replaces the built-in one of its name, with all of its languages.
func TestAMessageReplacesABuiltInOne(t *testing.T) {
	p := once(t, "general")
	p.Messages = map[string]weir.Texts{"general": {"en": "Wait.", "fr": "Attendez."}}
	d := open(t, p, answer.Options{})
	for accept, want := range map[string][2]string{"fr": {"fr", "Attendez."}, "de": {"en", "Wait."}} {
		if language, text := refused(d, accept); language != want[0] || text != want[1] {
			t.Errorf("%s gets %q in %s", accept, text, language)
		}
	}
}

// Of limiters without the contract's messages no default text speaks of widgets, conversations,
// workspaces or commands, whatever their routes.
func TestDefaultTextsOfAnotherAPIAreNeutral(t *testing.T) {
	p := own(t)
	p.Responses = weir.Responses{}
	p.Limiters = append(p.Limiters, limiters(t, map[string][]string{
		"sync /v1/wp/* requires token":             {"1000 per minute by token or ip"},
		"things /api/v1/widget/* requires session": {"1000 per minute by session or ip"},
	}).Limiters...)
	d := open(t, p, answer.Options{})
	for path, want := range map[string]string{
		"/v1/keys":             "This request needs an API key. Send it as Authorization: Bearer <key>.",
		"/v1/wp/keys":          "This request needs an API key. Send it as Authorization: Bearer <key>.",
		"/v1/home":             "This request needs a session token. Send it as Authorization: Bearer <token>.",
		"/api/v1/widget/leads": "This request needs a session token. Send it as Authorization: Bearer <token>.",
	} {
		a, fields := d.ask(fromHome, ask(path))
		if a.Status != 401 || message(t, a) != want || fields["WWW-Authenticate"] == "" {
			t.Errorf("%s without a credential is answered %d %s, %q", path, a.Status, a.Body(), fields)
		}
		unknown := "Bearer wpt_aaaaaaaaaa_b"
		for _, credential := range []string{unknown, "Bearer x", "Basic eA==", "Bearer " + strings.Repeat("x", 9000), d.token()[:40]} {
			a, _ := d.ask(from("192.0.2.9", "Authorization", credential), ask(path))
			lower := strings.ToLower(string(a.Body()))
			for _, word := range []string{"widget", "workspace", "conversation", "weir", "visitor"} {
				if a.Status != 401 || strings.Contains(lower, word) {
					t.Errorf("%s with %.30q is answered %d %s, which has %q", path, credential, a.Status, a.Body(), word)
				}
			}
		}
	}
}

func message(t *testing.T, a *answer.Answer) string {
	t.Helper()
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(a.Body(), &body); err != nil {
		t.Fatalf("the body is %s: %v", a.Body(), err)
	}
	return body.Error.Message
}

// A 401 and a 503 are the policy's too; a status other than 401 has no challenge.
func TestOtherAnswersSayWhatThePolicyDeclares(t *testing.T) {
	d := open(t, own(t), answer.Options{})
	a, fields := d.ask(fromHome, ask("/v1/keys"))
	if a.Status != 403 || a.Outcome != answer.Unauthenticated || message(t, a) != "Get a key at example.com: no credential." || fields["WWW-Authenticate"] != "" {
		t.Errorf("without a key the answer is %d %s, %q", a.Status, a.Body(), fields)
	}
	a, fields = d.ask(with(map[string]string{"Accept-Language": "de", "Authorization": "Bearer x"}), ask("/v1/keys"))
	if message(t, a) != "Holen Sie einen Schlüssel." || fields["Content-Language"] != "de" || fields["Vary"] != "Accept-Language" {
		t.Errorf("in German the answer is %s, %q", a.Body(), fields)
	}
	if a, _ := d.ask(fromHome, ask("/v1/home")); a.Status != 403 || !strings.HasPrefix(message(t, a), "This request needs a session token. ") {
		t.Errorf("without a session the answer is %d %s", a.Status, a.Body())
	}
	decider, err := weir.New(own(t), brokenStore{}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	judge, err := answer.New(decider, answer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	q := ask("/v1/items")
	q.Keys = keys{"ip": "a"}
	a = new(answer.Answer)
	if err := judge.Answer(context.Background(), &q, a); err != nil || a.Status != 500 || a.Outcome != answer.Unavailable || message(t, a) != "Try again later." {
		t.Errorf("without a store the answer is %d %s, %v", a.Status, a.Body(), err)
	}
}

// The policy that decided is the one that speaks, also after another has replaced it.
func TestAReplacedPolicySpeaksAtOnce(t *testing.T) {
	p := own(t)
	decider := (&door{TB: t, clock: open(t, p, answer.Options{}).clock}).decider(p)
	judge, err := answer.New(decider, answer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	q := ask("/v1/items")
	q.Keys = keys{"ip": "a"}
	a := new(answer.Answer)
	for _, text := range []string{"First.", "Second.", "First."} {
		p.Messages = map[string]weir.Texts{"slow-down": {"en": text}, "need-key": {"en": "Key."}, "later": {"en": "Later."}}
		if err := decider.Swap(p); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := judge.Answer(context.Background(), &q, a); err != nil {
				t.Fatal(err)
			}
		}
		if a.Status != 503 || message(t, a) != text {
			t.Errorf("the answer is %d %s, want %s", a.Status, a.Body(), text)
		}
	}
}

type problem struct {
	Type, Title, Detail, Code string
	Status                    int
	Violated                  []string `json:"violated-policies"`
}

func problemOf(t *testing.T, a *answer.Answer, fields map[string]string) (p problem) {
	t.Helper()
	if err := json.Unmarshal(a.Body(), &p); err != nil || fields["Content-Type"] != "application/problem+json" || p.Status != a.Status {
		t.Errorf("the answer is %d %s, %v, with %q", a.Status, a.Body(), err, fields)
	}
	return p
}

// A caller that prefers problem documents gets one, with the names of the windows that refused.
func TestACallerThatPrefersProblemsGetsOne(t *testing.T) {
	d := open(t, limiters(t, map[string][]string{
		"api /v1/items":                {"9 per minute by ip", "1 per hour by ip"},
		"keys /v1/keys requires token": {"9 per minute by token or ip"},
	}), answer.Options{IETF: true})
	d.ask(fromHome, ask("/v1/items"))
	for accept, want := range map[string]bool{
		"":                         false,
		"*/*":                      false,
		"application/json":         false,
		"application/problem+json": true,
		"Application/Problem+JSON;q=0.9, application/json;q=0.8":     true,
		"application/problem+json, application/json":                 false,
		"application/problem+json;q=0.5, application/json; q=0.6":    false,
		"application/problem+json, */*":                              true,
		"application/problem+json;q=0.1, */*":                        false,
		"application/problem+json;q=0":                               false,
		"application/problem+json;profile=a;q=1":                     true,
		"application/problem+json;q=two":                             false,
		"application/problem+jsonx, ;;, ,":                           false,
		strings.Repeat("text/a, ", 100) + "application/problem+json": false,
	} {
		a, fields := d.ask(with(map[string]string{"Accept": accept, "Accept-Language": "de"}), ask("/v1/items"))
		if !want {
			if fields["Content-Type"] != "application/json" || fields["Vary"] != "Accept-Language" {
				t.Errorf("Accept %.60q: %s with %q", accept, a.Body(), fields)
			}
			continue
		}
		p := problemOf(t, a, fields)
		if p.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || p.Status != 429 || p.Code != "rate_limited" ||
			len(p.Violated) != 1 || p.Violated[0] != "api 3600s by ip" || !strings.Contains(fields["RateLimit-Policy"], `"`+p.Violated[0]+`"`) {
			t.Errorf("Accept %q: %s with %q", accept, a.Body(), fields)
		}
		if p.Detail != "Zu viele Anfragen. Bitte senden Sie Anfragen langsamer." || fields["Content-Language"] != "de" || fields["Vary"] != "Accept, Accept-Language" {
			t.Errorf("Accept %q: %s with %q", accept, a.Body(), fields)
		}
	}
	a, fields := d.ask(with(map[string]string{"Accept": "application/problem+json"}), ask("/v1/keys"))
	if p := problemOf(t, a, fields); p.Type != "about:blank" || p.Title != "Unauthorized" || p.Code != "unauthenticated" || p.Violated != nil || fields["WWW-Authenticate"] == "" || fields["Vary"] != "Accept" {
		t.Errorf("without a key: %s with %q", a.Body(), fields)
	}
}

// A problem document of a penalty has a type of its own, from the refusal on that begins it.
func TestAPenaltyIsAnotherProblemThanASpentBudget(t *testing.T) {
	p := limiters(t, map[string][]string{"login /v1/login": {"1 per minute by ip"}})
	p.Limiters[0].Penalty = weir.Penalty{After: 2, Per: time.Minute, For: time.Hour}
	d := open(t, p, answer.Options{IETF: true})
	d.ask(fromHome, ask("/v1/login"))
	for _, want := range []string{"quota-exceeded", "abnormal-usage-detected", "abnormal-usage-detected"} {
		a, fields := d.ask(with(map[string]string{"Accept": "application/problem+json"}), ask("/v1/login"))
		p := problemOf(t, a, fields)
		if p.Type != "https://iana.org/assignments/http-problem-types#"+want || p.Status != 429 || len(p.Violated) != 1 {
			t.Errorf("want %s: %s", want, a.Body())
		}
	}
}

// A policy can declare problem documents for every caller.
func TestAPolicyCanDeclareProblems(t *testing.T) {
	p := own(t)
	p.Answers.Format = weir.FormatProblem
	d := open(t, p, answer.Options{})
	d.ask(fromHome, ask("/v1/items"))
	for _, accept := range []string{"", "application/json", "*/*"} {
		a, fields := d.ask(with(map[string]string{"Accept": accept}), ask("/v1/items"))
		if p := problemOf(t, a, fields); p.Status != 503 || !strings.HasPrefix(p.Detail, "Too many requests for api (1). Try again in 60 s") || fields["Vary"] != "Accept-Language" || fields["X-Support"] == "" {
			t.Errorf("Accept %q: %s with %q", accept, a.Body(), fields)
		}
	}
	fields, body := d.judge.Error(nil, 404, "Not Found", "not_found", "There is nothing here.")
	if want := `{"type":"about:blank","title":"Not Found","status":404,"detail":"There is nothing here.","code":"not_found"}`; string(body) != want || fields[0].Value != "application/problem+json" {
		t.Errorf("another error is %s with %q", body, fields)
	}
}

// The contract's answers are the default, byte for byte (D16, D20, D21, D25).
func TestTheContractsAnswersAreTheDefault(t *testing.T) {
	d := open(t, limiters(t, contract), answer.Options{})
	for range 2 {
		d.ask(fromHome, post("satisfaction"))
	}
	a, fields := d.ask(fromHome, post("satisfaction"))
	if string(a.Body()) != `{"error":{"code":"rate_limited","message":"Too many widget requests for this conversation. Please slow down."}}` {
		t.Errorf("a 429 is %s", a.Body())
	}
	d.wantFields(fields, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset, "Retry-After", "60", "Date", startDate,
		"Content-Type", "application/json", "Content-Length", "111", "Cache-Control", "no-store", "Content-Language", "en", "Vary", "Accept-Language")
	for path, want := range map[string]string{
		"/api/v1/widget/leads": `{"error":{"code":"unauthenticated","message":"This request needs a visitor session. POST /api/v1/widget/init returns one as \"token\"; send it as Authorization: Bearer <token>."}}`,
		"/v1/wp/status":        `{"error":{"code":"unauthenticated","message":"This request needs a workspace API token. The operator of this service creates one (weir token create --workspace NAME); send it as Authorization: Bearer <token>."}}`,
	} {
		if a, fields := d.ask(fromHome, answer.Question{Method: "POST", Path: path}); string(a.Body()) != want || fields["Content-Language"] != "" || fields["Vary"] != "" {
			t.Errorf("%s is answered %s with %q", path, a.Body(), fields)
		}
	}
}

// A refusal whose text has no placeholders allocates no more than an admitted request: the digits
// of its fields.
func TestARefusalWithoutPlaceholdersAllocatesOnce(t *testing.T) {
	p := own(t)
	p.Answers.Refused.Message = "later"
	d := open(t, p, answer.Options{})
	var caller identity.Caller
	a, fields := new(answer.Answer), make([]answer.Field, 0, 16)
	r := with(map[string]string{"Accept": "text/html, application/json;q=0.9, */*;q=0.1", "Accept-Language": "de"})
	n := testing.AllocsPerRun(1000, func() {
		d.who.Start(&caller, r)
		q := answer.Question{Caller: &caller, Method: "GET", Path: "/v1/items"}
		if err := d.judge.Answer(context.Background(), &q, a); err != nil {
			t.Fatal(err)
		}
		fields = a.AppendFields(fields[:0])
	})
	if a.Status != 503 || n > 1 {
		t.Errorf("a refusal (%d) allocates %v times, at most 1 is allowed", a.Status, n)
	}
}

// A name that no message has, and a language that is not registered, are errors at the start.
func TestWordsThatCannotBeSaidAreRejected(t *testing.T) {
	p := own(t)
	p.Answers.Refused.Message = "nowhere"
	p.Messages["later"]["xx"] = "?"
	decider, err := weir.New(p, brokenStore{}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `an answer has the message "nowhere": bulk-sync, general, in-flight, later, need-key, slow-down, widget are allowed`
	if _, err := answer.New(decider, answer.Options{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `message "later" has the language "xx"`) {
		t.Errorf("the error is %v", err)
	}
	p = own(t)
	p.Answers.Refused.Fields["X-A"] = "a\r\nSet-Cookie: b"
	var invalid *weir.PolicyError
	if _, err := weir.New(p, brokenStore{}, weir.Options{}); !errors.As(err, &invalid) || invalid.Problems[0].Field != "answers.refused.fields.X-A" {
		t.Errorf("the error is %v", err)
	}
}
