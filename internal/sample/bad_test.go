package sample

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

// bodies are the endpoints that read JSON, each with a body that it accepts.
func (k *bench) bodies() map[string]string {
	// to be closed; the first stays open
	conversation := k.send("POST /api/v1/widget/conversations", k.session, "").text("id")
	answer := k.send("POST /api/v1/widget/messages", k.session, `{"text":"hello"}`).text("reply.id")
	return map[string]string{
		"POST /api/v1/widget/messages/" + answer + "/feedback":         `{"helpful":true}`,
		"POST /api/v1/widget/init":                                     `{"agent_id":"demo"}`,
		"POST /api/v1/widget/messages":                                 `{"text":"hello"}`,
		"POST /api/v1/widget/conversations":                            `{}`,
		"POST /api/v1/widget/conversations/" + conversation + "/close": `{}`,
		"POST /api/v1/widget/events":                                   `{"type":"x"}`,
		"POST /api/v1/widget/leads":                                    `{"email":"ann@example.org"}`,
		"POST /api/v1/widget/typing":                                   `{"typing":true}`,
		"POST /api/v1/widget/satisfaction":                             `{"score":5}`,
		"POST /api/v1/widget/coupon/apply":                             `{"code":"X"}`,
		"PUT /v1/wp/documents":                                         documents(1, ""),
		"DELETE /v1/wp/documents":                                      `{"items":[{"id":"a"}]}`,
		"PUT /v1/wp/coupons":                                           `{"items":[{"code":"X","percent":1}]}`,
	}
}

// credential returns the credential that an endpoint requires.
func (k *bench) credential(target string) string {
	switch {
	case strings.Contains(target, "/v1/wp/"):
		return k.token
	case strings.HasSuffix(target, "/init"):
		return ""
	}
	return k.session
}

var tables = []string{"sessions", "conversations", "messages", "events", "leads", "ratings", "documents", "coupons"}

func (k *bench) census() (n [8]int) {
	k.Helper()
	for i, table := range tables {
		n[i] = k.rows(table)
	}
	return n
}

// Every endpoint that reads a body refuses every kind of bad body with a reason and stores nothing.
func TestABadBodyIsRefusedEverywhereAndNothingIsStored(t *testing.T) {
	k := setUp(t)
	for target, good := range k.bodies() {
		t.Run(target, func(t *testing.T) {
			k := k.in(t)
			before := k.census()
			inner := strings.TrimSuffix(strings.TrimPrefix(good, "{"), "}")
			comma := ","
			if inner == "" {
				comma = ""
			}
			for _, c := range []struct {
				name, body  string
				status      int
				code, words string
				fields      []string
			}{
				{"not JSON", `{"text":`, 400, "invalid_request", "not valid JSON", nil},
				{"single quotes", `{'text':'x'}`, 400, "invalid_request", "not valid JSON at byte 2", nil},
				{"trailing data", good + `{}`, 400, "invalid_request", "after top-level value", nil},
				{"trailing comma", `{` + inner + `,}`, 400, "invalid_request", "not valid JSON", nil},
				{"a list", `[]`, 400, "invalid_request", "a list", nil},
				{"null", `null`, 400, "invalid_request", "null", nil},
				{"a number", `5`, 400, "invalid_request", "a number", nil},
				{"white space", " \n", 400, "invalid_request", "not valid JSON", nil},
				{"unknown field", `{"surprise":1` + comma + inner + `}`, 400, "invalid_request", `unknown field "surprise"`, nil},
				{"hostile field", `{"\u0000\n<script>` + strings.Repeat("x", 300) + `":1` + comma + inner + `}`, 400, "invalid_request", `unknown field "\x00\n<script>`, nil},
				{"duplicate field", `{"twice":1,"twice":2` + comma + inner + `}`, 400, "invalid_request", `"twice" appears twice`, nil},
				{"duplicate by escape", `{"twice":1,"tw\u0069ce":2` + comma + inner + `}`, 400, "invalid_request", `"twice" appears twice`, nil},
				{"invalid UTF-8", "{\"x\":\"\xff\"" + comma + inner + "}", 400, "invalid_request", "UTF-8", nil},
				{"no media type", good, 415, "unsupported_media_type", "missing", []string{"Content-Type", ""}},
				{"a form", good, 415, "unsupported_media_type", "application/json", []string{"Content-Type", "application/x-www-form-urlencoded"}},
				{"another charset", good, 415, "unsupported_media_type", "UTF-8", []string{"Content-Type", "application/json; charset=latin1"}},
				{"garbage media type", good, 415, "unsupported_media_type", "application/json", []string{"Content-Type", "application/json;;="}},
				{"gzip", good, 415, "unsupported_media_type", "gzip", []string{"Content-Encoding", "gzip"}},
				{"identity", good, 415, "unsupported_media_type", "identity", []string{"Content-Encoding", "identity"}},
				{"too large", `{"x":"` + strings.Repeat("x", 9<<20) + `"}`, 413, "payload_too_large", "bytes", nil},
			} {
				t.Run(c.name, func(t *testing.T) {
					a := k.in(t).send(target, k.credential(target), c.body, c.fields...).wantError(c.status, c.code, c.words)
					if len(a.body) > 1000 {
						t.Errorf("the answer has %d bytes", len(a.body))
					}
				})
			}
			if after := k.census(); after != before {
				t.Errorf("rows of %v went from %v to %v", tables, before, after)
			}
			// a coupon unknown so far
			if a := k.send(target, k.credential(target), good); a.status > 204 && a.status != 404 {
				t.Errorf("the good body is answered %d %s", a.status, a.body)
			}
		})
	}
}

func TestABadValueIsRefusedByNameAndNothingIsStored(t *testing.T) {
	k := setUp(t)
	long := func(n int) string { return `"` + strings.Repeat("é", n/2) + `"` }
	before := k.census()
	for _, c := range []struct{ target, body, want string }{
		{"POST init", `{}`, "no agent"},
		{"POST init", `{"agent_id":""}`, "no agent"},
		{"POST init", `{"agent_id":7}`, `"agent_id" is a number`},
		{"POST init", `{"agent_id":` + long(258) + `}`, `"agent_id" has 258 bytes: at most 256`},
		{"POST messages", `{}`, `"text" is missing: expected a string of 1 to 8000 bytes`},
		{"POST messages", `{"text":null}`, `"text" is missing`},
		{"POST messages", `{"text":""}`, `"text" is empty`},
		{"POST messages", `{"text":"\n "}`, `"text" is empty`},
		{"POST messages", `{"text":["x"]}`, `"text" is a list`},
		{"POST messages", `{"Text":"x"}`, `unknown field "Text"`},
		{"POST messages", `{"text":"a\u0000b"}`, "control character U+0000 at byte 1"},
		{"POST messages", `{"text":"a\u001b[2Jb"}`, "control character U+001B"},
		{"POST messages", `{"text":"a\u0085b"}`, "control character U+0085"},
		{"POST messages", `{"text":"\ud83d"}`, "surrogate"},
		{"POST messages", `{"text":"\udc4b\ud83d"}`, "surrogate"},
		{"POST messages", `{"text":` + long(8002) + `}`, `"text" has 8002 bytes: at most 8000`},
		{"POST messages", `{"text":"x","conversation_id":5}`, `"conversation_id" is a number`},
		{"POST events", `{}`, `"type" is missing`},
		{"POST events", `{"type":"two words"}`, `"type" is "two words"`},
		{"POST events", `{"type":"x","data":[]}`, `"data" is a list`},
		{"POST events", `{"type":"x","data":{"a":1,"a":2}}`, `"a" appears twice`},
		{"POST events", `{"type":"x","data":{"a":[{"b":1,"b":2}]}}`, `"b" appears twice`},
		{"POST events", `{"type":"x","data":{"a":"\ud800"}}`, "surrogate"},
		{"POST events", `{"type":"x","data":{"a":` + long(5000) + `}}`, "at most 4096"},
		{"POST events", `{"type":"x","data":` + strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 41), "nested"},
		{"POST leads", `{}`, `"email" is missing`},
		{"POST leads", `{"email":"nobody"}`, `"email" is "nobody"`},
		{"POST leads", `{"email":"Ann <ann@example.org>"}`, `"email" is`},
		{"POST leads", `{"email":"a@b.org, c@d.org"}`, `"email" is`},
		{"POST leads", `{"email":"a@b.org\nBcc: c@d.org"}`, "control character U+000A"},
		{"POST leads", `{"email":"a@b.org","name":"a\tb"}`, "control character U+0009"},
		{"POST leads", `{"email":"a@b.org","name":true}`, `"name" is a boolean`},
		{"POST leads", `{"email":"a@b.org","note":` + long(4002) + `}`, `"note" has 4002 bytes`},
		{"POST typing", `{}`, `"typing" is missing: expected true or false`},
		{"POST typing", `{"typing":null}`, `"typing" is missing`},
		{"POST typing", `{"typing":"true"}`, `"typing" is a string`},
		{"POST satisfaction", `{}`, `"score" is missing`},
		{"POST satisfaction", `{"score":0}`, `"score" is "0": expected a whole number from 1 to 5`},
		{"POST satisfaction", `{"score":6}`, `"score" is "6"`},
		{"POST satisfaction", `{"score":4.5}`, `"score" is "4.5"`},
		{"POST satisfaction", `{"score":"5"}`, `"score" is`},
		{"POST satisfaction", `{"score":99999999999999999999999999}`, `"score" is`},
		{"POST coupon/apply", `{}`, `"code" is missing`},
		{"POST coupon/apply", `{"code":"' OR 1=1"}`, `"code" is`},
		{"POST coupon/apply", `{"code":"\u017fale"}`, `"code" is`}, // ſ, whose upper case is S
		{"POST coupon/apply", `{"code":"\u0131t"}`, `"code" is`},   // ı, whose upper case is I
		{"POST coupon/apply", `{"code":"X","total":-1}`, `"total" is "-1"`},
		{"POST coupon/apply", `{"code":"X","total":1e3}`, `"total" is "1e3"`},
		{"POST conversations", `{"title":"x"}`, "the object must be empty"},
		{"GET conversations?limit=0", "", `"limit" is "0": expected a whole number from 1 to 100`},
		{"GET conversations?limit=101", "", `"limit" is "101"`},
		{"GET conversations?limit=x", "", `"limit" is "x"`},
		{"GET conversations?afer=x", "", `unknown query parameter "afer": allowed are after, limit`},
		{"GET conversations?after=x&after=y", "", "appears 2 times"},
		{"GET conversations?after=%zz", "", "query"},
		{"GET conversations?after=cnv_none", "", "next"},
		{"GET events?after=-1", "", `"after" is "-1"`},
		{"GET events?after=01", "", `"after" is "01"`},
		{"GET events?wait=%2B5", "", `"wait" is "+5"`},
		{"GET events?after=1.5", "", `"after" is "1.5"`},
		{"GET events?after=99999999999999999999", "", `"after" is`},
		{"POST leads?x=1", `{"email":"a@b.org"}`, "this endpoint takes none"},
	} {
		k.widget(c.target, c.body).wantError(400, "invalid_request", c.want)
	}
	if after := k.census(); after != before {
		t.Errorf("rows of %v went from %v to %v", tables, before, after)
	}
}

func TestAnUnknownAgentIs404(t *testing.T) {
	k := setUp(t)
	for _, agent := range []string{"nobody", "Demo", "demo ", strings.Repeat("x", 200)} {
		k.send("POST /api/v1/widget/init", "", `{"agent_id":"`+agent+`"}`).wantError(404, "not_found", "unknown agent")
	}
}

func TestPathsAndMethodsThatAreNotThere(t *testing.T) {
	k := setUp(t)
	for _, target := range []string{
		"POST /api/v2/widget/init", "POST /api/v1/widget/Init", "POST /api/v1/widget/init/", "GET /api/v1/widget", "GET /api/v1/widget/",
		"GET /v1/wp", "GET /v1/wp/", "GET /v1/wp/nothing", "GET /index.html", "GET /api/v1/widget/conversations//close",
		"POST /api/v1/widget/messages/msg_1/praise", "GET /api/v1/widget/conversations/a/b/c", "GET /api/v1/widget/leads.json",
	} {
		k.send(target, k.session, "").wantError(404, "not_found", "no such endpoint")
	}
	for target, allow := range map[string]string{
		"GET /api/v1/widget/init":                  "OPTIONS, POST",
		"DELETE /api/v1/widget/conversations":      "GET, HEAD, OPTIONS, POST",
		"PUT /api/v1/widget/conversations/x":       "GET, HEAD, OPTIONS",
		"GET /api/v1/widget/conversations/x/close": "OPTIONS, POST",
		"HEAD /api/v1/widget/leads":                "OPTIONS, POST",
		"post /api/v1/widget/leads":                "OPTIONS, POST",
		"BREW /v1/wp/documents":                    "DELETE, GET, HEAD, OPTIONS, PUT",
		"POST /v1/wp/coupons":                      "GET, HEAD, OPTIONS, PUT",
		"TRACE /v1/wp/status":                      "GET, HEAD, OPTIONS",
	} {
		t.Run(target, func(t *testing.T) {
			a := k.send(target, "", "").wantError(405, "method_not_allowed", allow)
			if got := a.header.Get("Allow"); got != allow {
				t.Errorf("%s: Allow is %q, want %q", target, got, allow)
			}
		})
	}
	if a := k.send("OPTIONS /v1/wp/documents", "", "").want(204); a.header.Get("Allow") != "DELETE, GET, HEAD, OPTIONS, PUT" {
		t.Errorf("OPTIONS: Allow is %q", a.header.Get("Allow"))
	}
	k.send("HEAD /api/v1/widget/conversations", k.session, "").want(200)
}

func TestWithoutACredentialThereIsA401ThatSaysHowToGetOne(t *testing.T) {
	k := setUp(t)
	elsewhere := setUp(t) // another data directory: another secret, other tokens
	revoked := k.synchroniser("demo")
	id := strings.Split(revoked, "_")[1] // wpt_<id>_…
	if err := k.b.Tokens().Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"none": "", "scheme": "Basic " + strings.TrimPrefix(k.session, "Bearer "), "garbage": "Bearer x", "empty": "Bearer ",
		"foreign session": elsewhere.session, "foreign token": elsewhere.token, "revoked": revoked,
		"tampered": k.session[:len(k.session)-3] + "abc", "wrong secret": k.token[:len(k.token)-3] + "abc",
	}
	for _, r := range routes() {
		target := strings.ReplaceAll(r.String(), "{id}", "x")
		var how string
		switch r.access {
		case bySession:
			how = "POST /api/v1/widget/init"
			bad["the other kind"] = k.token
		case byToken:
			how = "weir token create"
			bad["the other kind"] = k.session
		default:
			continue
		}
		for name, credential := range bad {
			t.Run(target+" "+name, func(t *testing.T) {
				a := k.in(t).send(target, credential, "{}").wantError(401, "unauthenticated", how)
				if a.header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("WWW-Authenticate is %q", a.header.Get("WWW-Authenticate"))
				}
			})
		}
	}
}

func TestABodyThatEndsEarlyOrNeverSaidItsLength(t *testing.T) {
	k := setUp(t)
	broken := httptest.NewRequestWithContext(t.Context(), "POST", "/api/v1/widget/leads", io.MultiReader(strings.NewReader(`{"email":`), failing{}))
	broken.Header.Set("Content-Type", "application/json")
	broken.Header.Set("Authorization", k.session)
	k.do(broken).wantError(400, "invalid_request", "ended early")

	for body, status := range map[string]int{`{"email":"ann@example.org"}`: 201, `{"email":"` + strings.Repeat("x", 40<<10) + `"}`: 413, ``: 400} {
		chunked := httptest.NewRequestWithContext(t.Context(), "POST", "/api/v1/widget/leads", io.NopCloser(strings.NewReader(body)))
		chunked.ContentLength = -1
		chunked.Header.Set("Content-Type", "application/json")
		chunked.Header.Set("Authorization", k.session)
		k.do(chunked).want(status)
	}
	if n := k.rows("leads"); n != 1 {
		t.Errorf("there are %d leads, want the whole one", n)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset") }
