package weir

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const leadBody = `{"email":"ada@example.com"}`

// leadSpellings are ways to write POST /api/v1/widget/leads. For each, some backend
// accepts it.
var leadSpellings = []string{
	"/api/v1/widget/leads", "/api/v1/widget/Leads", "/API/V1/WIDGET/LEADS", "/api/v1/Widget/leads",
	"/api/v1/widget/leads/", "/api/v1/widget/leads//", "/api/v1/widget//leads", "//api/v1/widget/leads", "/api//v1//widget//leads",
	"/api/v1/widget/./leads", "/api/v1/widget/leads/.", "/api/v1/widget/x/../leads", "/../api/v1/widget/leads", "/api/v1/widget/leads/x/..",
	"/api/v1/widget/%6ceads", "/api/v1/widget/%4Ceads", "/api/v1/widge%74/leads", "/%61pi/v1/widget/leads",
	"/api/v1/widget/%256ceads", "/api/v1/widget/%25256ceads", "/api/v1/widget/%u006ceads",
	"/api/v1/widget%2fleads", "/api/v1/widget%2Fleads", "/api%2fv1%2fwidget%2fleads", "/api/v1/widget/leads%2f",
	"/api/v1/widget%5cleads", `/api/v1/widget\leads`, `/api\v1\widget\leads`,
	"/api/v1/widget/x%2f..%2fleads", "/api/v1/widget/%2e/leads", "/api/v1/widget/x/%2e%2e/leads", "/api/v1/widget/x/.%2e/leads",
	"/api/v1/widget/leads;v=1", "/api/v1/widget;a/leads", "/api/v1/widget/leads;", "/api/v1/widget/;/leads", "/api/v1/widget/x/..;/leads", "/api/v1/widget/.;/leads",
	"/api/v1/widget/leads%3b", "/api/v1/widget/leads%3Fx=1", "/api/v1/widget/leads%23",
	"/api/v1/widget/leads.json", "/api/v1/widget/leads.", "/api/v1/widget/leads/create", "/api/v1/widget/leads.php/x",
	"/api/v1/widget/leads?", "/api/v1/widget/leads?a=1", "/api/v1/widget/leads?_method=POST", "/api/v1/widget/leads??x",
	"/api/v1/widget/leads%00", "/api/v1/widget/leads%0a", "/api/v1/widget/leads%09", "/api/v1/widget/leads%20", "/api/v1/widget/%20leads", "/api/v1/widget/leads%c2%a0",
	"/api/v1/widget/leads%c0%af", "/api/v1/widget%c0%afleads", "/api/v1/widget/%e2%84%93eads", "/api/v1/widget/lead%c5%bf", "/api/v1/widget/leads%ef%bc%8f",
	"/api/v1/widget/messages/../leads", "/v1/wp/../../api/v1/widget/leads", "/healthz/../api/v1/widget/leads", "/healthz/..%2fapi/v1/widget/leads",
	"http://other.example/api/v1/widget/leads", "HTTP://127.0.0.1/api/v1/widget/leads",
}

// leadMethods are indirect ways to send a POST.
var leadMethods = [][]string{
	{"-X", "POST"}, {"-X", "post"}, {"-X", "Post"}, {"-X", "PUT"}, {"-X", "PATCH"}, {"-X", "GET"}, {"-X", "FOO"}, {"-X", "OPTIONS"}, {"-X", "DELETE"},
	{"-X", "GET", "-H", "X-HTTP-Method-Override: POST"}, {"-X", "PUT", "-H", "X-HTTP-Method: POST"}, {"-X", "GET", "-H", "X-Method-Override: POST"},
	{"-X", "OPTIONS", "-H", "Origin: https://example.com", "-H", "Access-Control-Request-Method: POST"},
}

// leadFields are fields that could make a caller look like another one, or another
// place.
var leadFields = [][]string{
	{"-H", "X-Forwarded-For: 198.51.100.1"}, {"-H", "Forwarded: for=198.51.100.1"}, {"-H", "X-Real-IP: 198.51.100.1"}, {"-H", "True-Client-IP: 198.51.100.1"},
	{"-H", "CF-Connecting-IP: 198.51.100.1"}, {"-H", "Client-IP: 198.51.100.1"}, {"-H", "X-Cluster-Client-IP: 198.51.100.1"},
	{"-H", "X-Original-URL: /api/v1/widget/leads"}, {"-H", "X-Rewrite-URL: /api/v1/widget/leads"}, {"-H", "X-Forwarded-Path: /x"}, {"-H", "X-Forwarded-Prefix: /x"},
	{"-H", "X-Agent-Id: another"}, {"-H", "User-Agent: another"}, {"-H", "Host: another.example"}, {"-H", "Origin: https://another.example"},
	{"-H", "X-RateLimit-Limit: 1000"}, {"-H", "X-RateLimit-Remaining: 1000"}, {"-H", "X-RateLimit-Bypass: 1"}, {"-H", "Connection: X-RateLimit-Limit, Authorization"},
	{"-H", "Cache-Control: no-cache"}, {"-H", "Accept-Language: xx"}, {"-H", "Expect: 100-continue"}, {"-H", "Transfer-Encoding: chunked"},
	{"--http2-prior-knowledge"}, {"--http2"}, {"--http1.0"},
}

// visitorSpellings are ways to send a session's token that a server could take for
// another session.
func visitorSpellings(t *testing.T, token string) [][]string {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("the session's token has %d parts", len(parts))
	}
	bearer := func(s string) []string { return []string{"-H", "Authorization: Bearer " + s} }
	signature := parts[2]
	last := signature[len(signature)-1]
	foreign := func(method jwt.SigningMethod, key any) string {
		s, err := jwt.NewWithClaims(method, jwt.MapClaims{"sid": "forged", "iss": "weir", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	all := [][]string{
		append(bearer(token), bearer(token)...),
		append(bearer("nonsense"), bearer(token)...), append(bearer(token), bearer("nonsense")...),
		{"-H", "Authorization: bearer " + token}, {"-H", "Authorization: BEARER " + token}, {"-H", "authorization: Bearer " + token},
		{"-H", "Authorization: Bearer  " + token}, {"-H", "Authorization: Bearer " + token + " "}, {"-H", "Authorization: Bearer\t" + token},
		{"-H", "Authorization: Bearer " + token + "," + token}, {"-H", "Authorization: Basic " + token}, {"-H", "Authorization: " + token},
		{"-H", "Authorization: Bearer \"" + token + "\""}, {"-H", "Authorization;"}, nil,
		{"-H", "Cookie: token=" + token}, {"-H", "X-Authorization: Bearer " + token}, {"-H", "Proxy-Authorization: Bearer " + token},
		bearer(token + "="), bearer(token + "=="), bearer(token + "."), bearer("." + token), bearer(token + ".x"), bearer(token + "%3d"),
		bearer(parts[0] + "." + parts[1] + "."), bearer(parts[0] + "." + parts[1]),
		bearer(parts[0] + "=." + parts[1] + "." + signature), bearer(parts[0] + "." + parts[1] + "=." + signature),
		bearer(strings.ToLower(token)), bearer(parts[0] + ". " + parts[1] + "." + signature),
		bearer(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."),
		bearer(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "." + signature),
		bearer(foreign(jwt.SigningMethodHS256, []byte("another secret of thirty-two bytes"))),
		bearer(foreign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType)),
		bearer(foreign(jwt.SigningMethodHS512, []byte("another secret of thirty-two bytes"))),
		bearer(strings.Repeat("a", 9000)), bearer("wpt_demo_" + strings.Repeat("a", 40)),
	}
	// The last character of a signature has unused bits: four spellings decode to
	// one signature.
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		if byte(c) != last {
			all = append(all, bearer(parts[0]+"."+parts[1]+"."+signature[:len(signature)-1]+string(c)))
		}
	}
	return all
}

// A smuggler tries to send leads in all known ways, once the 30 of its session are
// spent.
type smuggler struct {
	url, token string
}

// attempts returns curl's arguments for every attempt.
func (s smuggler) attempts(t *testing.T) [][]string {
	t.Helper()
	rest := []string{"-H", "Content-Type: application/json", "-d", leadBody}
	credential := []string{"-H", "Authorization: Bearer " + s.token}
	plain := s.url + "/api/v1/widget/leads"
	var all [][]string
	add := func(args ...[]string) {
		var one []string
		for _, a := range append(args, rest) {
			one = append(one, a...)
		}
		all = append(all, one)
	}
	for _, target := range leadSpellings {
		add([]string{"--path-as-is", "--request-target", target, s.url}, credential)
	}
	for _, method := range leadMethods {
		add([]string{plain}, credential, method)
	}
	for _, fields := range leadFields {
		add([]string{plain}, credential, fields)
	}
	for _, visitor := range visitorSpellings(t, s.token) {
		add([]string{plain}, visitor)
	}
	return all
}

// parserAnswers are the prefixes of the HTTP parsers' own answers, net/http's and the
// fast engine's.
var parserAnswers = []string{"400 Bad Request", `{"error":{"code":"invalid_request","message":"This request is not accepted: `}

// wantSurfaceFields checks for the three fields on every answer, except for the
// HTTP parser's own (D9).
func wantSurfaceFields(t *testing.T, what string, r reply) {
	t.Helper()
	if r.status == http.StatusBadRequest && slices.Equal(r.values("Connection"), []string{"close"}) &&
		slices.ContainsFunc(parserAnswers, func(begins string) bool { return strings.HasPrefix(r.body, begins) }) {
		return
	}
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if len(r.values(name)) != 1 {
			t.Errorf("%s: %d without %s: %v %s", what, r.status, name, r.fields, r.body)
			return
		}
	}
}

// leadsPerDay writes the contract with days for minutes, so that no window ends
// during a test.
func leadsPerDay(t *testing.T) string {
	t.Helper()
	contract, _, code := weirCommand(t.Context(), t, "policy", "show")
	if code != 0 || !strings.Contains(contract, "30 per minute by session or ip") {
		t.Fatalf("weir policy show: status %d:\n%s", code, contract)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(contract, "per minute", "per day")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A visitor has spent the 30 leads of its minute, and tries to send a 31st (D10,
// D12, D14, D16).
func TestNoSpellingGetsA31stLeadThrough(t *testing.T) {
	s := serveWeir(t, "--policy", leadsPerDay(t))
	visitor := session(t, s.url)
	c := call{method: http.MethodPost, path: "/api/v1/widget/leads", body: leadBody, header: map[string]string{"Authorization": "Bearer " + visitor}}
	wantExactly(t, s.url, 30, c, 201)
	db := database(t, s.data)
	before := counted(t, db, "SELECT count(*) FROM leads")
	for _, args := range (smuggler{s.url, visitor}).attempts(t) {
		r := curl(t, args...)
		what := strings.ReplaceAll(strings.Join(args, " "), visitor, "TOKEN")
		// 2xx are answers of other endpoints and methods: a preflight, an event.
		if r.status == http.StatusCreated {
			t.Errorf("%s\nwas answered 201: %s", what, r.body)
		}
		wantSurfaceFields(t, what, r)
	}
	if after := counted(t, db, "SELECT count(*) FROM leads"); after != before {
		t.Errorf("%d leads more than the limit are stored", after-before)
	}
	s.end(t)
}

// lenient accepts nearly everything as a lead, as some backends do, and counts by
// caller.
type lenient struct {
	mu    sync.Mutex
	leads []string
}

var (
	folding  = regexp.MustCompile(`/(\.?/)+`)
	leadPath = regexp.MustCompile(`/api/v1/widget/leads($|[/.#[:space:][:cntrl:]])`)
)

func (l *lenient) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.RequestURI
	for range 4 { // decode repeatedly
		if once, err := url.PathUnescape(path); err == nil {
			path = once
		}
	}
	path, _, _ = strings.Cut(path, "?")
	path = regexp.MustCompile(`;[^/]*`).ReplaceAllString(strings.ToLower(strings.ReplaceAll(path, `\`, "/")), "")
	for before := ""; before != path; {
		before = path
		path = regexp.MustCompile(`/[^/]+/\.\.(/|$)`).ReplaceAllString(folding.ReplaceAllString(path, "/"), "/")
	}
	if leadPath.MatchString(path) && (strings.EqualFold(r.Method, "POST") || r.Header.Get("X-HTTP-Method-Override") != "") {
		l.mu.Lock()
		l.leads = append(l.leads, r.Method+" "+r.RequestURI)
		l.mu.Unlock()
	}
	w.WriteHeader(http.StatusCreated)
}

// The same before an operator's backend that accepts every spelling as a lead. Here
// the operator's key verifies the tokens. Unverified requests pass, counted by
// address, which has 30 leads of its own.
func TestNoSpellingGetsA31stLeadToALenientBackend(t *testing.T) {
	backend := &lenient{}
	upstream := httptest.NewServer(backend)
	t.Cleanup(upstream.Close)
	secret := []byte("the operator's secret, 32 bytes or more")
	key := filepath.Join(t.TempDir(), "secret.key")
	if err := os.WriteFile(key, secret, 0o600); err != nil {
		t.Fatal(err)
	}
	visitor, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sid": "visitor-1", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	s := serveWeir(t, "--upstream", upstream.URL, "--jwt-key", key, "--policy", leadsPerDay(t))
	for n := range 30 {
		r := curl(t, s.url+"/api/v1/widget/leads", "-d", leadBody, "-H", "Authorization: Bearer "+visitor)
		if r.status != 201 {
			t.Fatalf("lead %d: %d %s", n+1, r.status, r.body)
		}
	}
	for _, args := range (smuggler{s.url, visitor}).attempts(t) {
		r := curl(t, args...)
		wantSurfaceFields(t, strings.ReplaceAll(strings.Join(args, " "), visitor, "TOKEN"), r)
	}
	backend.mu.Lock()
	defer backend.mu.Unlock()
	if len(backend.leads) != 30 {
		t.Errorf("%d leads went through, 30 are the limit; those after it: %s", len(backend.leads), strings.Join(backend.leads[30:], ", "))
	}
	s.end(t)
}
