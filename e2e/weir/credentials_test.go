package weir

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// accepting starts a backend that takes everything.
func accepting(t *testing.T) string {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) }))
	t.Cleanup(upstream.Close)
	return upstream.URL
}

// Before an operator's backend sessions are verified by a published key set, with their issuer and
// audience (D14, D17).
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
		_, _ = w.Write(set) // Weir went away: the test has failed elsewhere
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
	s := serveWeir(t, "--upstream", accepting(t), "--jwks", published.URL, "--jwt-issuer", "https://id.example", "--jwt-audience", "widget")
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
			t.Errorf("a session that is not for us: %d %s, want 401", r.status, r.body)
		}
	}
	if r := send(mint("https://id.example", "widget", "a")); r.integer(t, "X-RateLimit-Remaining") != 27 {
		t.Errorf("the refused ones have spent somebody's budget: %v", r.fields)
	}
	s.end(t)
}

// Before an operator's backend API tokens are verified by a file of ids and hashes, which is read
// again (D15, D17).
func TestAPITokensAreVerifiedByAFile(t *testing.T) {
	minted := apiToken(t, t.TempDir(), "acme")
	id := strings.Split(minted, "_")[1]
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, fmt.Appendf(nil, "# minted elsewhere\n%s %x acme\n", id, sha256.Sum256([]byte(minted))), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveWeir(t, "--upstream", accepting(t), "--token-file", file)
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

// What nobody here can verify is counted by the address and passed on, and never spends a budget of
// its own (D17).
func TestUnverifiableCredentialsAreCountedByTheAddress(t *testing.T) {
	s := serveWeir(t, "--upstream", accepting(t))
	for n, credential := range []string{"one", "two", "three"} {
		r := curl(t, s.url+"/api/v1/widget/leads", "-d", leadBody, "-H", "Authorization: Bearer "+credential)
		if want := int64(29 - n); r.status != 201 || r.integer(t, "X-RateLimit-Remaining") != want {
			t.Errorf("credential %q: %d %v; want 201 with %d remaining", credential, r.status, r.fields, want)
		}
	}
	s.end(t)
}
