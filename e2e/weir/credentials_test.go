package weir

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir/internal/edge"
)

// accepting starts a backend that accepts everything.
func accepting(t *testing.T) string {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) }))
	t.Cleanup(upstream.Close)
	return upstream.URL
}

// Before an operator's backend, sessions are verified by a published key set, with
// issuer and audience (D14, D17).
func TestSessionsAreVerifiedByAKeySet(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		t.Fatal(err)
	}
	coordinate := base64.RawURLEncoding.EncodeToString
	set, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "EC", "crv": "P-256", "kid": "k1", "alg": "ES256", "use": "sig", "x": coordinate(public[1:33]), "y": coordinate(public[33:])}}})
	if err != nil {
		t.Fatal(err)
	}
	published := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(set) // Weir is gone: the test has failed elsewhere
	}))
	t.Cleanup(published.Close)
	mint := func(issuer, audience, sid string) string {
		token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": issuer, "aud": audience, "sid": sid, "exp": time.Now().Add(time.Hour).Unix()})
		token.Header["kid"] = "k1"
		signed, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	s := serveWeir(t, "--policy", "contract", "--upstream", accepting(t), "--jwks", published.URL, "--jwt-issuer", "https://id.example", "--jwt-audience", "widget")
	send := func(token string) reply {
		return curl(t, s.url+"/api/v1/widget/leads", "-d", leadBody, "-H", "Authorization: Bearer "+token)
	}
	for n, sid := range []string{"a", "b", "a"} {
		r := send(mint("https://id.example", "widget", sid))
		if want := []int64{29, 29, 28}[n]; r.status != 201 || r.integer(t, "X-RateLimit-Remaining") != want {
			t.Errorf("session %s: %d %v; want 201 with %d remaining", sid, r.status, r.fields, want)
		}
	}
	for _, foreign := range []string{mint("https://other.example", "widget", "a"), mint("https://id.example", "other", "a"), "nonsense"} {
		if r := send(foreign); r.status != 401 || r.code(t) != "unauthenticated" {
			t.Errorf("a session of another audience: %d %s, want 401", r.status, r.body)
		}
	}
	if r := send(mint("https://id.example", "widget", "a")); r.integer(t, "X-RateLimit-Remaining") != 27 {
		t.Errorf("the refused sessions have spent budget: %v", r.fields)
	}
	s.end(t)
}

// Before an operator's backend, API tokens are verified by a file of ids and
// hashes, which is reread (D15, D17).
func TestAPITokensAreVerifiedByAFile(t *testing.T) {
	minted := apiToken(t, t.TempDir(), "acme")
	id := strings.Split(minted, "_")[1]
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, fmt.Appendf(nil, "# minted elsewhere\n%s %x workspace=acme\n", id, sha256.Sum256([]byte(minted))), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveWeir(t, "--policy", "contract", "--upstream", accepting(t), "--token-file", file)
	send := func(token string) reply {
		return curl(t, s.url+"/v1/wp/documents", "-H", "Authorization: Bearer "+token)
	}
	for want := int64(59); want > 57; want-- {
		if r := send(minted); r.status != 201 || r.integer(t, "X-RateLimit-Remaining") != want {
			t.Errorf("%d %v; want 201 with %d remaining", r.status, r.fields, want)
		}
	}
	if r := send(apiToken(t, t.TempDir(), "acme")); r.status != 401 || r.code(t) != "unauthenticated" {
		t.Errorf("another token: %d %s, want 401", r.status, r.body)
	}
	if err := os.WriteFile(file, []byte("# nobody\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(100 * time.Millisecond) // the token has 58 requests left
	defer again.Stop()
	for tries := 0; ; tries++ {
		if send(minted).status == 401 {
			break
		}
		if tries == 15 {
			t.Fatal("a token that is no longer in the file works after more than a second")
		}
		<-again.C
	}
	s.end(t)
}

// Requests without a token shut no token out, not even one that was never seen before (D16).
func TestAGoodTokenIsServedBesideGuesses(t *testing.T) {
	data := t.TempDir()
	s := serveIn(t, data)
	var last int
	for _, a := range flood(t, s.url, 100, call{method: "GET", path: "/v1/wp/status", header: map[string]string{"Authorization": "Bearer guess"}}) {
		last = max(last, a.status)
	}
	if last != 429 {
		t.Fatalf("100 requests with a bad token are answered %d at most: the address has budget", last)
	}
	for range 3 {
		r := curl(t, s.url+"/v1/wp/status", "-H", "Authorization: Bearer "+apiToken(t, data, "demo"))
		if r.status != 200 || r.integer(t, "X-RateLimit-Remaining") != 59 {
			t.Errorf("a new token: %d %v, want 200 with 59 remaining", r.status, r.fields)
		}
	}
	s.end(t)
}

// Forged sessions, signed as with a public key, make a good one wait for a second, not for a window
// (D16).
func TestAGoodSessionWaitsASecondBesideForgedOnes(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "public.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	e := newExample(t, "login.yaml", func(c *edge.Config) {
		c.Policy = contract(t)
		c.Sessions.KeyFiles = []string{file}
	})
	mint := func(sid string) string {
		signed, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"sid": sid, "exp": e.now.Add(time.Hour).Unix()}).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	const leads = "POST /api/v1/widget/leads"
	for n := range int64(30) {
		e.want(e.send(here, leads, ""), 401, 30, 29-n)
	}
	forged := func(n int) string {
		token := mint(fmt.Sprint("forged ", n))
		at := strings.LastIndexByte(token, '.') + 1
		return token[:at] + strings.Repeat("A", len(token)-at)
	}
	for n := range 60 {
		e.want(e.send(here, leads, forged(n)), 429, 30, 0)
	}
	good := mint("good")
	r := e.send(here, leads, good)
	e.want(r, 429, 30, 0)
	if wait, ends := r.integer(t, "Retry-After"), r.integer(t, "X-RateLimit-Reset"); wait != 1 || ends != e.now.Unix()+1 {
		t.Errorf("a good session is to wait %d s, until %d, want 1 s", wait, ends)
	}
	e.want(e.send(there, leads, good), 200, 30, 29)
	stranger := mint("stranger")
	e.want(e.send(here, leads, stranger), 429, 30, 0)
	e.after(time.Second)
	for n := range 120 { // the guesser goes on
		e.want(e.send(here, leads, forged(60+n)), 429, 30, 0)
	}
	e.want(e.send(here, leads, stranger), 200, 30, 29)
}

// A data directory with API tokens verifies none, unless --tokens says so. Then the tokens of later
// are verified too (D27).
func TestTokensAreVerifiedByAFlagAlone(t *testing.T) {
	const open = "limiters:\n  - name: open\n    routes: [/open*]\n    windows: [5 per hour by token or ip]\n" +
		"  - name: closed\n    routes: [/*]\n    windows: [5 per hour by token or ip]\n    requires: token\n"
	data := t.TempDir()
	token := apiToken(t, data, "acme")
	send := func(s *server, path, credential string) reply {
		return curl(t, s.url+path, "-H", "Authorization: Bearer "+credential)
	}
	want := func(what string, r reply, status int, remaining int64) {
		t.Helper()
		if r.status != status || r.integer(t, "X-RateLimit-Remaining") != remaining {
			t.Errorf("%s: %d %v; want %d with %d remaining", what, r.status, r.fields, status, remaining)
		}
	}

	s := serveIn(t, data, "--upstream", accepting(t), "--policy", policyFile(t, open))
	if text := s.startup(t); !strings.Contains(text, "API tokens not verified: requests are counted by IP address and forwarded, although required by closed, and part of a key in open; --tokens verifies those of 'weir token create'") {
		t.Errorf("start-up does not report that no token is verified:\n%s", text)
	}
	want("a token, without the flag", send(s, "/open", token), 201, 4)
	want("nonsense, without the flag", send(s, "/open", "nonsense"), 201, 3)
	want("nonsense under a limiter that requires a token, without the flag", send(s, "/closed", "nonsense"), 201, 4)
	s.end(t)

	s = serveIn(t, data, "--upstream", accepting(t), "--policy", policyFile(t, open), "--tokens")
	if text := s.startup(t); !strings.Contains(text, "API tokens verified by --tokens: those of 'weir token create', in "+data) {
		t.Errorf("start-up does not report what is verified:\n%s", text)
	}
	want("a token", send(s, "/open", token), 201, 4)
	want("a token of later", send(s, "/open", apiToken(t, data, "acme")), 201, 4)
	nonsense := send(s, "/open", "nonsense")
	if nonsense.status != 201 {
		t.Errorf("a limiter that requires nothing answers %d %s", nonsense.status, nonsense.body)
	}
	if r := send(s, "/closed", "nonsense"); r.status != 401 || r.code(t) != "unauthenticated" {
		t.Errorf("a limiter that requires a token answers %d %s", r.status, r.body)
	}
	want("a token under a limiter that requires one", send(s, "/closed", token), 201, 4)
	s.end(t)
}

// If a credential cannot be verified, the request is counted by address and passed
// on. It has no budget of its own (D17).
func TestUnverifiableCredentialsAreCountedByTheAddress(t *testing.T) {
	s := serveWeir(t, "--policy", "contract", "--upstream", accepting(t))
	for n, credential := range []string{"one", "two", "three"} {
		r := curl(t, s.url+"/api/v1/widget/leads", "-d", leadBody, "-H", "Authorization: Bearer "+credential)
		if want := int64(29 - n); r.status != 201 || r.integer(t, "X-RateLimit-Remaining") != want {
			t.Errorf("credential %q: %d %v; want 201 with %d remaining", credential, r.status, r.fields, want)
		}
	}
	s.end(t)
}
